import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.errors import CheckpointError  # noqa: E402
from dressage.policy.rsl_rl_policy.finished import FinishedPolicy, play_episodes  # noqa: E402
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.plain_loop import PlainLoop  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config, recurrent_config  # noqa: E402
from tests.policy.small_envs import ConstantReward, mirrored_pendulum  # noqa: E402

RND = {"weight": 1.0, "num_outputs": 2, "predictor_hidden_dims": [4], "target_hidden_dims": [4]}


def trained(config):
    torch.manual_seed(0)
    loop = PlainLoop(Pendulum(num_envs=4, max_steps=9), config)
    loop.iterate(2)
    return loop, FinishedPolicy.of(loop.learner, loop.env.meta())


def first_action(policy, num_envs=3):
    face = VecEnvRollouts(Pendulum(num_envs=num_envs, seed=6))
    return policy.player(num_envs).rollout_step(face.observe()).action


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config()], ids=["mlp", "lstm"])
def test_a_policy_that_was_written_and_read_acts_the_same(tmp_path, config):
    _, policy = trained(config)
    policy.save(tmp_path / "policy")
    again = FinishedPolicy.load(tmp_path / "policy")
    assert torch.equal(first_action(policy), first_action(again))
    assert sorted(path.name for path in (tmp_path / "policy").iterdir()) == ["model.pt", "policy.json"]


def test_training_on_leaves_a_finished_policy_as_it_was():
    loop, policy = trained(ppo_config())
    before = first_action(policy)
    loop.iterate(2)
    assert torch.equal(first_action(policy), before)
    assert not torch.equal(first_action(FinishedPolicy.of(loop.learner, loop.env.meta())), before)


def test_a_curious_policy_acts_without_its_curiosity(tmp_path):
    config = ppo_config(rnd_cfg=RND)
    config["obs_groups"]["rnd_state"] = ["policy"]
    _, policy = trained(config)
    policy.save(tmp_path)
    assert FinishedPolicy.load(tmp_path).player(2).algo.rnd is None


def test_a_configuration_with_a_function_in_it_is_not_written(tmp_path):
    symmetry = {"data_augmentation_func": mirrored_pendulum, "use_data_augmentation": True}
    _, policy = trained(ppo_config(symmetry_cfg=symmetry))
    with pytest.raises(CheckpointError, match="cannot be written to a file.*Name classes and functions by"):
        policy.save(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def test_a_folder_without_a_policy_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"policy.json is no description of a policy"):
        FinishedPolicy.load(tmp_path)


def test_a_damaged_description_is_refused(tmp_path):
    _, policy = trained(ppo_config())
    policy.save(tmp_path)
    content = json.loads((tmp_path / "policy.json").read_text())
    del content["groups"]
    (tmp_path / "policy.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="is no description of a policy: KeyError"):
        FinishedPolicy.load(tmp_path)


def test_weights_of_other_models_are_refused(tmp_path):
    for hidden, folder in (([16, 16], "a"), ([16, 8], "b")):
        config = ppo_config()
        config["actor"] |= {"hidden_dims": hidden}
        trained(config)[1].save(tmp_path / folder)
    (tmp_path / "b" / "model.pt").replace(tmp_path / "a" / "model.pt")
    with pytest.raises(CheckpointError, match="was made for other models: actor/mlp"):
        FinishedPolicy.load(tmp_path / "a").player(1)


def test_the_first_episode_of_every_copy_is_counted_once():
    torch.manual_seed(0)
    loop = PlainLoop(ConstantReward(num_envs=3, limit=5), ppo_config())
    policy = FinishedPolicy.of(loop.learner, loop.env.meta())
    played = play_episodes(
        policy.player(3), VecEnvRollouts(ConstantReward(num_envs=3, limit=5)), most_steps=99
    )
    assert played.returns.tolist() == [5.0, 4.0, 3.0]  # the copies begin 0, 1 and 2 steps into their episodes
    assert played.lengths.tolist() == [5, 4, 3] and played.finished.all()


def test_episodes_that_do_not_end_in_time_are_told():
    loop, policy = trained(ppo_config())
    played = play_episodes(policy.player(2), VecEnvRollouts(Pendulum(num_envs=2, max_steps=50)), most_steps=7)
    assert played.lengths.tolist() == [7, 7]
    np.testing.assert_array_equal(played.finished, [False, False])
