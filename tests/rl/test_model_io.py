"""Networks in a folder: the same bits after a round trip, and refusal of everything that does not fit."""

import json
import pickle

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from dressage.envs import make
from dressage.errors import CheckpointError, ConfigError
from dressage.learning import policy_files
from dressage.networks import MLP, Actor, ActorCritic, Critic, RecurrentActorCritic
from dressage.rl.model_io import load_models, save_models
from tests.ppo.small_tasks import assert_same_bits
from tests.ppo.test_policy_files import CreatesAFolder, Killed, die_after


class TwoRobots:
    """All that the functions need of a ParallelEnv: who there is, and their spaces."""

    possible_agents = ("left", "right/1")

    def __init__(self, size=3):
        self.size = size

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-1, 1, (self.size,))

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2 if agent == "left" else 4, start=1)


def bound(module, *inputs, seed=0):
    return module.bind(module.init(jax.random.key(seed), *inputs))


def models_of(seed=0):
    pair = ActorCritic(Actor(2, hidden_sizes=(4,)), Critic((5,), "relu"))
    recurrent = RecurrentActorCritic(4, 1, hidden_sizes=(6, 3))
    steps = jnp.zeros((1, 1, 3)), recurrent.start((1,)), jnp.zeros((1, 1), bool)
    return {
        "left": {"both": bound(pair, jnp.zeros(3), seed=seed)},
        "right/1": {
            "memory": bound(recurrent, *steps, seed=seed),
            "value": bound(MLP((4, 4), 1, "elu"), jnp.zeros(3), seed=seed),
        },
    }


def test_a_round_trip_gives_the_same_modules_bit_for_bit(tmp_path):
    models = models_of()
    save_models(TwoRobots(), models, tmp_path / "deep" / "models")
    loaded = load_models(str(tmp_path / "deep" / "models"), TwoRobots())
    assert {agent: list(modules) for agent, modules in loaded.items()} == {
        "left": ["both"],
        "right/1": ["memory", "value"],
    }
    for agent, modules in models.items():
        for name, module in modules.items():
            assert repr(loaded[agent][name].unbind()[0]) == repr(module.unbind()[0])
            assert_same_bits(loaded[agent][name].variables, module.variables)
    observation = jnp.array([0.1, -2.0, 3.0])
    np.testing.assert_array_equal(
        loaded["right/1"]["value"](observation), models["right/1"]["value"](observation)
    )


def test_each_module_has_a_file_of_its_own_and_the_manifest_tells_all(tmp_path):
    save_models(TwoRobots(), models_of(), tmp_path)
    files = sorted(path.name.rpartition("-")[0] or path.name for path in tmp_path.iterdir())
    assert files == ["left.both", "models.json", "right-1.memory", "right-1.value"]
    manifest = json.loads((tmp_path / "models.json").read_text())
    right = manifest["agents"]["right/1"]
    assert right["action_space"]["n"] == 4
    assert right["modules"]["value"]["module"]["fields"]["activation"] == "elu"
    assert right["modules"]["value"]["shapes"]["params/Dense_1/kernel"] == [4, 4]
    assert manifest["dressage"] and len(manifest["sha256"]) == 64


def test_a_functional_environment_and_a_function_that_makes_one_will_do(tmp_path):
    env = make("corridor")
    agent = env.possible_agents[0]
    save_models(env, {agent: {"value": models_of()["right/1"]["value"]}}, tmp_path)
    assert list(load_models(tmp_path, lambda: env)) == [agent]


def test_saving_again_replaces_the_models_and_leaves_other_files_alone(tmp_path):
    save_models(TwoRobots(), models_of(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    second = models_of(seed=1)
    save_models(TwoRobots(), second, tmp_path)
    assert_same_bits(load_models(tmp_path)["left"]["both"].variables, second["left"]["both"].variables)
    assert len(list(tmp_path.iterdir())) == 5


def test_killed_at_any_moment_the_old_models_or_the_new_ones_are_there(tmp_path, monkeypatch):
    first, second = models_of(), models_of(seed=1)
    outcomes = set()
    for survived in range(16):
        folder = tmp_path / str(survived)
        save_models(TwoRobots(), first, folder)
        with monkeypatch.context() as patch:
            die_after(patch, iter(range(survived)))
            finished = saves(second, folder)
        loaded = load_models(folder)
        kernels = [
            np.asarray(models["right/1"]["value"].variables["params"]["Dense_0"]["kernel"])
            for models in (loaded, second)
        ]
        is_new = np.array_equal(*kernels)
        assert_same_bits(
            [module.variables for modules in loaded.values() for module in modules.values()],
            [m.variables for modules in (second if is_new else first).values() for m in modules.values()],
        )
        outcomes.add((finished, is_new))
    assert outcomes == {(False, False), (True, True)}


def saves(models, folder):
    try:
        save_models(TwoRobots(), models, folder)
    except Killed:
        return False
    return True


def file_of(folder, name):
    (path,) = folder.glob(f"{name}-*.safetensors")
    return path


@pytest.mark.parametrize("kept", [0, 10, -1])
def test_a_cut_file_is_refused_by_name(tmp_path, kept):
    save_models(TwoRobots(), models_of(), tmp_path)
    path = file_of(tmp_path, "left.both")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=f"are damaged: {path.name} differs from its checksum"):
        load_models(tmp_path)


def test_a_changed_weight_and_a_pickle_are_refused_by_name(tmp_path):
    save_models(TwoRobots(), models_of(), tmp_path)
    path = file_of(tmp_path, "right-1.value")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"are damaged: {path.name} differs"):
        load_models(tmp_path)
    path.write_bytes(pickle.dumps(CreatesAFolder(str(tmp_path / "executed"))))
    with pytest.raises(CheckpointError, match=f"are damaged: {path.name} differs"):
        load_models(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_missing_files_are_refused_by_name(tmp_path):
    save_models(TwoRobots(), models_of(), tmp_path)
    path = file_of(tmp_path, "left.both")
    path.unlink()
    with pytest.raises(CheckpointError, match=f"are incomplete: {path.name} is missing"):
        load_models(tmp_path)
    with pytest.raises(CheckpointError, match=r"There are no models in .*: models\.json is missing"):
        load_models(tmp_path / "none")


def test_a_changed_manifest_is_refused(tmp_path):
    save_models(TwoRobots(), models_of(), tmp_path)
    path = tmp_path / "models.json"
    path.write_text(path.read_text().replace('"elu"', '"relu"'))
    with pytest.raises(CheckpointError, match=r"models\.json is damaged"):
        load_models(tmp_path)


def test_models_for_other_agents_or_spaces_are_refused_by_name(tmp_path):
    save_models(TwoRobots(), models_of(), tmp_path)
    with pytest.raises(ConfigError, match="made for another observation space of agent 'left': .*3.* there"):
        load_models(tmp_path, TwoRobots(size=4))
    with pytest.raises(ConfigError, match="made for an agent 'left', which the environment does not have"):
        load_models(tmp_path, make("corridor"))


class Own(nn.Module):
    """A network of the user's."""

    units: int = 2

    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(self.units)(inputs)


def test_a_class_of_ones_own_has_to_be_named(tmp_path):
    module = bound(Own(3), jnp.zeros(3))
    save_models(TwoRobots(), {"left": {"own": module}}, tmp_path)
    with pytest.raises(ConfigError, match=r"left\.own is a Own, .* give load_models classes=\{'Own': Own\}"):
        load_models(tmp_path)
    loaded = load_models(tmp_path, classes={"Own": Own})["left"]["own"]
    assert loaded.units == 3
    assert_same_bits(loaded.variables, module.variables)


def test_a_file_cannot_name_a_class_of_another_library(tmp_path):
    save_models(TwoRobots(), {"left": {"own": bound(Own(3), jnp.zeros(3))}}, tmp_path)
    content = (tmp_path / "models.json").read_text()
    description = policy_files.read_description(content, "models.json")
    description["agents"]["left"]["modules"]["own"]["module"]["class"] = "Dense"
    sealed = policy_files.seal(policy_files.describe(description).encode())
    (tmp_path / "models.json").write_bytes(sealed)
    with pytest.raises(ConfigError, match=r"left\.own is a Dense, which is none of dressage's networks"):
        load_models(tmp_path)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, "`models` is empty"),
        ({"lefft": {}}, "has no agent 'lefft'. Did you mean 'left'"),
        ({"left": {"net": MLP((4,), 1)}}, r"'net' of agent 'left' is not bound: give module\.bind"),
        ({"left": {"net": np.zeros(3)}}, "has a ndarray as 'net'; a Flax module is needed"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(tmp_path, models, message):
    with pytest.raises(ConfigError, match=message):
        save_models(TwoRobots(), models, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_field_that_no_file_can_hold_is_refused_by_name(tmp_path):
    module = nn.Dense(2, kernel_init=nn.initializers.ones)
    with pytest.raises(ConfigError, match=r"The field left\.net\.\w+ is a \w+, which no file can hold"):
        save_models(TwoRobots(), {"left": {"net": bound(module, jnp.zeros(3))}}, tmp_path)


def test_an_environment_without_agents_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="object has no possible_agents"):
        save_models(object(), models_of(), tmp_path)
