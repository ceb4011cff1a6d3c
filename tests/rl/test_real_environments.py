"""IPPO end to end on other people's environments: a few updates each, whole episodes where they are short."""

import jax
import numpy as np
import pytest

from dressage import envs
from dressage.rl.ippo import IPPO
from tests.rl.rl_toys import parallel_env

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

OPTIONS = {
    "num_envs": 2,
    "rollout_length": 16,
    "learning_epochs": 1,
    "mini_batches": 2,
    "network": {"hidden_sizes": (8,)},
}
SMALL_IMAGES = {"rollout_length": 4, "num_envs": 1, "network": {"hidden_sizes": (2,)}}

# Module of a parallel_env, packages that it needs besides PettingZoo, its options, the learner's, groups.
MODULES = [
    ("mpe2.simple_spread_v3", (), {"max_cycles": 10}, {}, 1),
    ("mpe2.simple_tag_v3", (), {"max_cycles": 10}, {"share_parameters": True}, 2),
    ("mpe2.simple_speaker_listener_v4", (), {"max_cycles": 10}, {}, 2),
    ("pettingzoo.butterfly.cooperative_pong_v6", ("pygame",), {"max_cycles": 4}, SMALL_IMAGES, 1),
    ("pettingzoo.sisl.pursuit_v5", ("scipy",), {"max_cycles": 10}, {}, 1),
    ("pettingzoo.sisl.multiwalker_v9", ("Box2D", "pygame"), {"max_cycles": 20}, {"recurrent": True}, 1),
]


def check(result, updates):
    """Assert that a training made its updates, learned something finite, and that its policies act."""
    assert result.progress.updates == updates
    for agent, rows in result.metrics.items():
        assert len(rows) == updates
        assert all(np.isfinite(row["loss"]) and np.isfinite(row["gradient_norm"]) for row in rows)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.agent_states[agent].params))
        policy = result.policies[agent]
        policy.observation_space.seed(0)
        seen = policy.observation_space.sample()
        assert policy.action_space.contains(policy.act(seen))
        assert policy.action_space.contains(policy.act(seen, rng=jax.random.key(0)))


@pytest.mark.parametrize(
    ("module", "needs", "made_with", "options", "groups"), MODULES, ids=[row[0] for row in MODULES]
)
def test_an_environment_of_pettingzoo_trains(module, needs, made_with, options, groups):
    for package in (module.partition(".")[0], *needs):
        pytest.importorskip(package)
    learner = IPPO({**OPTIONS, **options})

    def make():
        return parallel_env(module, made_with)

    steps = learner.config["num_envs"] * learner.config["rollout_length"]
    result = learner.train(make, 2 * steps)
    learner.close()
    check(result, 2)
    assert len(result.spaces) == groups
    assert result.history, "no episode ended"
    for episode in result.history:
        assert 0 < episode["length"] <= made_with["max_cycles"] + 1
        assert set(episode["agent_returns"]) == set(result.policies)


def test_knights_and_archers_die_at_different_steps_and_train():
    pytest.importorskip("pymunk")
    rules = {"max_cycles": 60, "spawn_delay": 1, "max_zombies": 20, "line_death": True}

    def make():
        return parallel_env("pettingzoo.butterfly.knights_archers_zombies_v11", rules)

    result = IPPO({**OPTIONS, "rollout_length": 64}).train(make, 256)
    check(result, 2)
    assert {episode["length"] for episode in result.history} == {60}
    lives = [row["episode_length"] for rows in result.metrics.values() for row in rows]
    assert min(lives) < 60 and max(lives) == 60


@pytest.mark.parametrize(
    ("package", "task"),
    [
        ("lbforaging", "lbforaging:Foraging-8x8-2p-1f-v3"),
        ("rware", "rware:rware-tiny-2ag-v2"),
        ("mpe2", "pettingzoo:mpe2.simple_spread_v3"),
    ],
)
def test_a_host_task_by_its_name_trains(package, task):
    pytest.importorskip(package)
    learner = IPPO(OPTIONS)
    check(learner.train(envs.make(task), 64), 2)
    learner.close()


def test_an_environment_of_jaxmarl_trains_as_one_program():
    pytest.importorskip("jaxmarl")
    result = IPPO({**OPTIONS, "share_parameters": True}).train(envs.make("jaxmarl:MPE_simple_spread_v3"), 96)
    check(result, 3)
    assert all(episode["length"] == 25 for episode in result.history)


@pytest.mark.parametrize("name", ["safe_spread", "corridor", "coupled_budget"])
def test_a_shipped_environment_trains_as_one_program(name):
    result = IPPO(OPTIONS).train(envs.make(name), 64)
    check(result, 2)
