import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from gymnasium.vector import AutoresetMode  # noqa: E402
from rsl_rl.env import VecEnv  # noqa: E402

from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError  # noqa: E402
from dressage.policy.torch_envs import hopper  # noqa: E402
from dressage.policy.torch_envs.gymnasium_batch import GymnasiumBatch, make_gymnasium_batch  # noqa: E402
from dressage.policy.torch_envs.hopper import Hopper  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402

TASKS = [Pendulum, Hopper]


def random_actions(env, generator):
    return 3.0 * (2.0 * torch.rand(env.num_envs, env.num_actions, generator=generator) - 1.0)


# Pendulum


def gymnasiums_pendulums(states):
    """Gymnasium's own environments in the same states."""
    copies = [gymnasium.make("Pendulum-v1").unwrapped for _ in states]
    for env, state in zip(copies, states.numpy(), strict=True):
        env.reset(seed=0)
        env.state = state[:2].astype(np.float64)
    return copies


def assert_same_step(ours, theirs, actions, tolerance):
    stepped = [env.step(action.numpy().astype(float)) for env, action in zip(theirs, actions, strict=True)]
    _, rewards, _, extras = ours.step(actions)
    seen = extras["final_observation"]["policy"].numpy()
    np.testing.assert_allclose(seen, [out[0] for out in stepped], atol=tolerance)
    np.testing.assert_allclose(rewards.numpy(), [out[1] for out in stepped], atol=10 * tolerance)


def test_an_episode_of_the_pendulum_in_double_precision_equals_gymnasiums():
    ours = Pendulum(num_envs=3, max_steps=200, seed=1, dtype=torch.float64)
    theirs = gymnasiums_pendulums(ours.states)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        assert_same_step(ours, theirs, random_actions(ours, generator), tolerance=2e-6)


def test_every_step_of_the_pendulum_in_single_precision_equals_gymnasiums():
    ours = Pendulum(num_envs=3, max_steps=200, seed=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        theirs = gymnasiums_pendulums(ours.states)
        assert_same_step(ours, theirs, random_actions(ours, generator), tolerance=3e-6)


def test_the_pendulum_ends_by_its_time_limit_alone():
    env = Pendulum(num_envs=2, max_steps=3)
    ends = [env.step(torch.zeros(2, 1)) for _ in range(6)]
    assert [out[2].tolist() for out in ends] == [[step % 3 == 2] * 2 for step in range(6)]
    assert all(torch.equal(out[2], out[3]["time_outs"]) for out in ends)


# Episodes of every task


@pytest.mark.parametrize("task", TASKS)
def test_a_task_speaks_rsl_rls_protocol(task):
    env = task(num_envs=5)
    assert isinstance(env, VecEnv)
    observation = env.get_observations()
    assert observation.batch_size == torch.Size([5]) and set(observation.keys()) >= {"policy"}
    stepped, rewards, dones, extras = env.step(torch.zeros(5, env.num_actions))
    assert stepped.batch_size == torch.Size([5]) and rewards.shape == dones.shape == (5,)
    assert rewards.dtype == torch.float32 and dones.dtype == torch.bool
    assert extras["time_outs"].shape == (5,) and set(extras["final_observation"].keys()) == set(
        observation.keys()
    )
    assert env.step_dt > 0.0 and env.unwrapped is env and env.max_episode_length > 0


@pytest.mark.parametrize("task", TASKS)
def test_the_observation_after_an_end_is_the_next_episodes_and_the_final_one_is_kept(task):
    env = task(num_envs=3, max_steps=4)
    before = env.get_observations()["policy"]
    for _ in range(4):
        observation, _, dones, extras = env.step(torch.zeros(3, env.num_actions))
    assert dones.all() and env.episode_length_buf.tolist() == [0, 0, 0]
    assert not torch.equal(observation["policy"], extras["final_observation"]["policy"])
    assert not torch.equal(observation["policy"], before)


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_decides_the_episodes_and_leaves_torchs_stream_alone(task):
    before = torch.get_rng_state()
    first, second, other = task(num_envs=4, seed=3), task(num_envs=4, seed=3), task(num_envs=4, seed=4)
    assert torch.equal(first.states, second.states) and not torch.equal(first.states, other.states)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("task", TASKS)
def test_a_saved_state_goes_on_as_the_environment_itself(task):
    env, other = task(num_envs=3, max_steps=5), task(num_envs=3, max_steps=5, seed=8)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        env.step(random_actions(env, generator))
    other.load_state(env.state())
    for _ in range(8):
        actions = random_actions(env, generator)
        one, two = env.step(actions), other.step(actions)
        assert torch.equal(one[0]["policy"], two[0]["policy"]) and torch.equal(one[1], two[1])


@pytest.mark.parametrize("task", TASKS)
def test_actions_of_another_shape_are_refused(task):
    with pytest.raises(EnvironmentContractError, match=r"Actions must be \[2, .\], got \[2, 7\]"):
        task(num_envs=2).step(torch.zeros(2, 7))


@pytest.mark.parametrize("options", [{"num_envs": 0}, {"max_steps": 2.5}])
def test_counts_that_are_none_are_refused(options):
    with pytest.raises(ConfigError, match=rf"{next(iter(options))} must be a whole number, at least 1"):
        Pendulum(**options)


# Hopper


def hopper_with(**columns):
    """One hopper at rest above the ground, with some columns of its state set."""
    env = Hopper(num_envs=1)
    state = torch.zeros(1, 11)
    state[:, hopper.LENGTH] = hopper.REST_LENGTH
    for name, value in columns.items():
        state[:, getattr(hopper, name)] = value
    env.load_state(env.state() | {"states": state.numpy()})
    return env


def test_a_hopper_in_the_air_falls_as_a_stone():
    env = hopper_with(HEIGHT=1.5, SPEED=1.0, PITCH_RATE=0.4, FOOT=0.0)
    for _ in range(10):
        env.step(torch.zeros(1, 2))
    state = env.states[0]
    time = 10 * hopper.STEP_DT
    assert float(state[hopper.X]) == pytest.approx(time, rel=1e-4)
    assert float(state[hopper.CLIMB]) == pytest.approx(-9.81 * time, rel=1e-4)
    assert float(state[hopper.HEIGHT]) == pytest.approx(1.5 - 9.81 * time**2 / 2, abs=3e-3)
    assert float(state[hopper.PITCH]) == pytest.approx(0.4 * time, rel=1e-4)


def test_a_standing_hopper_comes_to_rest_where_the_spring_carries_its_weight():
    env = hopper_with(HEIGHT=hopper.REST_LENGTH - 0.01, STANDS=1.0)
    for _ in range(300):
        env.step(torch.zeros(1, 2))
    sink = hopper.BODY_MASS * hopper.GRAVITY / hopper.STIFFNESS
    assert float(env.states[0, hopper.HEIGHT]) == pytest.approx(hopper.REST_LENGTH - sink, abs=1e-3)
    assert float(env.states[0, hopper.CLIMB]) == pytest.approx(0.0, abs=1e-3)
    assert float(env.states[0, hopper.STANDS]) == 1.0


def test_a_dropped_hopper_bounces_lower_each_time():
    env = hopper_with(HEIGHT=1.0)
    heights = []
    for _ in range(120):
        env.step(torch.zeros(1, 2))
        heights.append(float(env.states[0, hopper.HEIGHT]))
    peaks = [b for a, b, c in zip(heights, heights[1:], heights[2:], strict=False) if a < b > c and b > 0.7]
    assert len(peaks) >= 2 and 1.0 > peaks[0] > peaks[1]


def test_a_leg_that_swings_forward_pushes_the_body_backward_and_tilts_it_the_other_way():
    env = hopper_with(HEIGHT=hopper.REST_LENGTH - 0.025, STANDS=1.0)
    env.step(torch.tensor([[1.0, 0.0]]))
    assert float(env.states[0, hopper.SPEED]) < 0.0
    assert float(env.states[0, hopper.PITCH_RATE]) < 0.0


def test_a_thrust_lifts_the_hopper_off_the_ground():
    env = hopper_with(HEIGHT=hopper.REST_LENGTH - 0.025, STANDS=1.0)
    heights = []
    for _ in range(15):
        env.step(torch.tensor([[0.0, 1.0]]))
        heights.append(float(env.states[0, hopper.HEIGHT]))
    assert max(heights) > hopper.REST_LENGTH + hopper.THRUST


def test_a_hopper_that_tilts_too_far_has_fallen():
    env = hopper_with(HEIGHT=1.2, PITCH=0.99, PITCH_RATE=1.0)
    _, _, dones, extras = env.step(torch.zeros(1, 2))
    assert dones.tolist() == [True] and extras["time_outs"].tolist() == [False]


def test_the_reward_of_a_hopper_at_the_commanded_speed_is_its_greatest():
    env = hopper_with(HEIGHT=1.2, SPEED=1.0, COMMAND=1.0)
    _, rewards, _, _ = env.step(torch.zeros(1, 2))
    assert float(rewards[0]) == pytest.approx(1.2)
    env = hopper_with(HEIGHT=1.2, SPEED=0.0, COMMAND=1.0)
    _, rewards, _, _ = env.step(torch.tensor([[1.0, 1.0]]))
    assert float(rewards[0]) == pytest.approx(np.exp(-2.0) + 0.2 - 0.02, abs=1e-6)


# Gymnasium's environments


class Goal(gymnasium.Env):
    """Dict observations; terminates at the second step, when the second action's sign is positive."""

    observation_space = gymnasium.spaces.Dict(
        {"policy": gymnasium.spaces.Box(-9, 9, (1,)), "goal": gymnasium.spaces.Box(-9, 9, (2,))}
    )
    action_space = gymnasium.spaces.Box(-0.5, 0.5, (1,))

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self._seen(), float(action[0]), self.steps == 2 and action[0] > 0, self.steps == 3, {}

    def _seen(self):
        steps = np.float32(self.steps)
        return {"policy": np.array([steps], np.float32), "goal": np.array([steps, -steps], np.float32)}


def goal_batch(mode=AutoresetMode.SAME_STEP):
    return gymnasium.vector.SyncVectorEnv([Goal, Goal], autoreset_mode=mode)


def test_a_gymnasium_environment_gives_groups_time_outs_and_final_observations():
    env = GymnasiumBatch(goal_batch(), seed=0)
    assert env.num_envs == 2 and env.num_actions == 1
    assert env.get_observations()["goal"].tolist() == [[0.0, -0.0], [0.0, -0.0]]
    outs = [env.step(torch.tensor([[7.0], [-7.0]])) for _ in range(3)]
    assert outs[0][1].tolist() == [0.5, -0.5]
    assert [out[2].tolist() for out in outs] == [[False, False], [True, False], [False, True]]
    assert [out[3]["time_outs"].tolist() for out in outs] == [[False, False], [False, False], [False, True]]
    assert outs[1][0]["goal"].tolist() == [[0.0, -0.0], [2.0, -2.0]]
    assert outs[1][3]["final_observation"]["goal"].tolist() == [[2.0, -2.0], [2.0, -2.0]]
    assert outs[2][3]["final_observation"]["policy"].tolist() == [[1.0], [3.0]]
    assert env.episode_length_buf.tolist() == [1, 0]


def test_copies_of_a_registered_environment_are_made_by_name():
    env = make_gymnasium_batch("Pendulum-v1", 3, seed=5)
    again = make_gymnasium_batch("Pendulum-v1", 3, seed=5)
    assert env.max_episode_length == 200
    assert env.get_observations()["policy"].shape == (3, 3)
    assert torch.equal(env.get_observations()["policy"], again.get_observations()["policy"])
    for each in (env, again):
        each.close()


def test_an_environment_that_spends_a_step_on_the_reset_is_refused_with_how_to_make_it():
    with pytest.raises(ConfigError, match="needs AutoresetMode.SAME_STEP. Make it with: gymnasium.make_vec"):
        GymnasiumBatch(goal_batch(AutoresetMode.NEXT_STEP))


def test_discrete_actions_are_refused():
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync", vector_kwargs=same_step)
    with pytest.raises(
        UnsupportedSpaceError, match=r"acts in a Box of one axis, and this environment takes Discrete"
    ):
        GymnasiumBatch(env)
    env.close()
