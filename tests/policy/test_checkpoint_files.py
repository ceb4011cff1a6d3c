import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from rsl_rl.runners import OnPolicyRunner  # noqa: E402

from dressage.errors import CheckpointError, RolloutError  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.plain_loop import PlainLoop, largest_difference  # noqa: E402
from tests.policy.rsl_rl_configs import distillation_config, ppo_config, recurrent_config  # noqa: E402

RND = {"weight": 1.0, "num_outputs": 2, "predictor_hidden_dims": [4], "target_hidden_dims": [4]}


def pendulum():
    return Pendulum(num_envs=4, max_steps=7, seed=1)


def loop_of(config, **options):
    torch.manual_seed(2)
    return PlainLoop(pendulum(), config, **options)


def curious_config():
    config = ppo_config(rnd_cfg=RND | {"reward_normalization": True, "state_normalization": True})
    config["obs_groups"]["rnd_state"] = ["policy"]
    return config


def runner_of(config):
    return OnPolicyRunner(pendulum(), copy.deepcopy(config), log_dir=None)


def trained_file(tmp_path, config=None, note=None, updates=2):
    loop = loop_of(config or ppo_config())
    loop.iterate(updates)
    path = tmp_path / "model.pt"
    loop.learner.save_checkpoint(path, note or {})
    return path, loop


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config(), curious_config()])
def test_rsl_rls_runner_loads_our_checkpoint(tmp_path, config):
    path, loop = trained_file(tmp_path, config, {"task": "pendulum"})
    runner = runner_of(config)
    infos = runner.load(str(path))
    states = loop.learner.get_trainable_parameters()
    assert largest_difference({"actor": states["actor"]}, {"actor": runner.alg.actor.state_dict()}) == 0.0
    assert runner.alg.learning_rate == float(states["schedule"]["learning_rate"])
    assert runner.current_learning_iteration == 1
    assert infos == {"task": "pendulum"}


@pytest.mark.parametrize("config", [ppo_config(), curious_config()])
def test_we_load_the_checkpoint_of_rsl_rls_runner_and_learn_the_same_from_there(tmp_path, config):
    torch.manual_seed(5)
    runner = runner_of(config)
    runner.learn(2)
    path = tmp_path / "model_1.pt"
    runner.save(str(path), {"best": 3})
    loop = loop_of(config, time_out_bootstrap="rsl_rl")
    assert loop.learner.load_checkpoint(path) == {"best": 3}
    assert loop.learner.version == 2
    states = loop.learner.get_trainable_parameters()
    assert largest_difference({"actor": states["actor"]}, {"actor": runner.alg.actor.state_dict()}) == 0.0
    assert float(states["schedule"]["learning_rate"]) == runner.alg.learning_rate


def test_a_resumed_learner_goes_on_as_the_uninterrupted_one(tmp_path):
    path, loop = trained_file(tmp_path, curious_config())
    resumed = loop_of(curious_config())
    resumed.learner.load_checkpoint(path)
    resumed.env.load_state(loop.env.state())
    resumed.env_ret = resumed.env.observe()
    for each in (loop, resumed):
        torch.manual_seed(9)
        each.iterate(2)
    states = loop.learner.get_trainable_parameters()
    assert largest_difference(states, resumed.learner.get_trainable_parameters()) == 0.0
    assert resumed.learner.version == 4


def test_a_note_gives_back_arrays_and_plain_values(tmp_path):
    note = {"steps": 7, "score": np.float32(0.5), "rows": [np.arange(3), None, True], "name": "a"}
    path, loop = trained_file(tmp_path, note=note)
    found = loop.learner.load_checkpoint(path)
    assert (found["steps"], found["score"], found["name"]) == (7, 0.5, "a")
    np.testing.assert_array_equal(found["rows"][0], [0, 1, 2])
    assert found["rows"][1:] == [None, True]


def test_an_acting_policy_takes_the_weights_alone(tmp_path):
    path, loop = trained_file(tmp_path, curious_config())
    fresh = loop_of(curious_config())
    fresh.actor.load_checkpoint(path)
    assert fresh.actor.version == 2
    states = loop.learner.get_trainable_parameters()
    acting = fresh.actor.get_trainable_parameters()
    assert largest_difference({"actor": states["actor"]}, {"actor": acting["actor"]}) == 0.0


def test_nothing_but_the_checkpoint_lies_beside_it(tmp_path):
    trained_file(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_a_checkpoint_with_numpy_scalars_is_refused_with_the_remedy(tmp_path):
    runner = runner_of(ppo_config())
    path = tmp_path / "model.pt"
    runner.save(str(path), {"reward": np.float64(1.0)})
    with pytest.raises(CheckpointError, match="would run code from it.*NumPy scalars in rsl_rl's `infos` do"):
        loop_of(ppo_config()).learner.load_checkpoint(path)


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    path, touched = tmp_path / "model.pt", tmp_path / "touched"

    class Bomb:
        def __reduce__(self):
            return touched.write_text, ("x",)

    torch.save({"iter": 0, "infos": Bomb()}, path)
    with pytest.raises(CheckpointError, match="would run code from it"):
        loop_of(ppo_config()).learner.load_checkpoint(path)
    assert not touched.exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="There is no checkpoint .*nothing.pt"):
        loop_of(ppo_config()).learner.load_checkpoint(tmp_path / "nothing.pt")


def test_a_file_that_is_cut_short_is_named(tmp_path):
    path, loop = trained_file(tmp_path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match="model.pt is damaged"):
        loop.learner.load_checkpoint(path)


@pytest.mark.parametrize("content", [b"abc", b"hello world", b"", b"\x80\x02\xff\xfe."])
def test_bytes_that_are_no_checkpoint_are_refused_by_name(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.pt is (damaged|refused)"):
        loop_of(ppo_config()).learner.load_checkpoint(path)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="is no checkpoint of rsl_rl's runner: it has no 'iter'"):
        loop_of(ppo_config()).learner.load_checkpoint(path)


def test_a_checkpoint_of_another_algorithm_is_refused_by_what_it_lacks(tmp_path):
    path, _ = trained_file(tmp_path)
    content = torch.load(path, weights_only=True)
    del content["critic_state_dict"]
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="lacks critic_state_dict; it has actor_state_dict"):
        loop_of(ppo_config()).learner.load_checkpoint(path)


def test_a_checkpoint_of_other_models_is_refused_with_names_and_shapes(tmp_path):
    path, _ = trained_file(tmp_path)
    config = ppo_config()
    config["critic"] |= {"hidden_dims": [16, 12]}
    loop = loop_of(config)
    before = loop.learner.get_trainable_parameters()
    with pytest.raises(CheckpointError, match=r"critic/mlp.2.weight is \[16, 16\] where \[12, 16\] is"):
        loop.learner.load_checkpoint(path)
    assert largest_difference(before, loop.learner.get_trainable_parameters()) == 0.0


def test_a_note_of_objects_is_refused_before_anything_is_written(tmp_path):
    loop = loop_of(ppo_config())
    with pytest.raises(CheckpointError, match=r"note\['env'\] is a Pendulum"):
        loop.learner.save_checkpoint(tmp_path / "model.pt", {"env": pendulum()})
    assert list(tmp_path.iterdir()) == []


def test_a_student_without_a_teacher_is_not_trained(tmp_path):
    loop = loop_of(distillation_config())
    loop.learner.update_dataset(loop.collect())
    with pytest.raises(RolloutError, match=r"Distillation has no teacher yet: load_checkpoint\(PATH\)"):
        loop.learner.train()
