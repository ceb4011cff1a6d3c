import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.errors import EnvironmentContractError  # noqa: E402
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts  # noqa: E402
from dressage.policy.torch_envs.hopper import Hopper  # noqa: E402
from tests.policy.small_envs import ConstantReward, Counting  # noqa: E402


class Ended(ConstantReward):
    """Ends in its own way."""

    def __init__(self, dones, time_outs):
        super().__init__(num_envs=len(dones))
        self.flags = torch.tensor(dones), torch.tensor(time_outs)

    def step(self, actions):
        dones, time_outs = self.flags
        return self.get_observations(), torch.ones(len(dones)), dones, {"time_outs": time_outs}


def test_dones_are_cut_into_terminations_and_time_outs():
    face = VecEnvRollouts(Ended([1, 1, 0], [0.0, 1.0, 0.0]), "ended")
    returned = face.step(torch.zeros(3, 1))
    assert returned.last_terminated.tolist() == [True, False, False]
    assert returned.last_truncated.tolist() == [False, True, False]
    assert returned.final_observation is None


def test_without_time_outs_every_end_is_a_termination():
    face = VecEnvRollouts(ConstantReward(num_envs=1, limit=1, how="terminal"))
    returned = face.step(torch.zeros(1, 1))
    assert returned.last_terminated.tolist() == [True] and returned.last_truncated.tolist() == [False]


def test_a_time_out_of_an_episode_that_goes_on_is_refused():
    face = VecEnvRollouts(Ended([0, 0], [0, 1]), "ended")
    with pytest.raises(
        EnvironmentContractError, match="'ended' reports a time-out of copy 1, whose episode is not"
    ):
        face.step(torch.zeros(2, 1))


def test_the_description_can_be_sent_to_another_process():
    meta = pickle.loads(pickle.dumps(VecEnvRollouts(Hopper(num_envs=3), "hopper").meta()))
    assert (meta.env_id, meta.num_envs, meta.num_actions, meta.step_dt) == ("hopper", 3, 2, 0.02)
    assert meta.get_observations()["policy"].shape == (3, 9)


def test_a_state_is_read_and_loaded_where_the_environment_can():
    face, other = (VecEnvRollouts(Hopper(num_envs=2, seed=seed)) for seed in (0, 1))
    face.step(torch.zeros(2, 2))
    state = face.state()
    other.load_state(state)
    assert torch.equal(face.observe().observation["policy"], other.observe().observation["policy"])


def test_an_environment_without_a_state_says_so():
    face = VecEnvRollouts(Counting(), "counting")
    assert face.state() is None
    with pytest.raises(EnvironmentContractError, match="'counting' has no load_state"):
        face.load_state({})
    face.close()
