"""The limit report on other people's environments, with a cost wrapped on."""

import functools

import numpy as np
import pytest

from dressage.envs import with_cost
from dressage.rl.ippo_lag import IPPO_Lagrangian
from dressage.rl.safety import safety_report
from tests.rl.rl_toys import parallel_env

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SMALL = {
    "num_envs": 4,
    "rollout_length": 25,
    "learning_epochs": 1,
    "mini_batches": 1,
    "network": {"hidden_sizes": (8,)},
}


def collisions(step):
    """Count the others that an agent of simple_spread touches."""
    world = step.source.unwrapped.world
    own = next(one for one in world.agents if one.name == step.agent)
    others = (one for one in world.agents if one is not own)
    return sum(np.linalg.norm(own.state.p_pos - one.state.p_pos) < own.size + one.size for one in others)


def falls(step):
    """Tell whether a walker has fallen."""
    return step.source.unwrapped.env.fallen_walkers[int(step.agent[-1])]


def test_collisions_of_simple_spread_are_judged():
    pytest.importorskip("mpe2")
    task = with_cost(
        functools.partial(parallel_env, "mpe2.simple_spread_v3", {"max_cycles": 25, "local_ratio": 1.0}),
        collisions,
    )
    learner = IPPO_Lagrangian(SMALL | {"cost_limit": 25.0}, seed=0)
    learner.train(task, 200)
    report = safety_report(learner, task, 40, limits={"agent_0": 50.0, "agent_1": 50.0, "agent_2": 0.01})
    verdicts = {one.agent: one.verdict for one in report.agents}
    # At most two others can be touched in each of 25 steps.
    assert verdicts == {"agent_0": "kept", "agent_1": "kept", "agent_2": "not kept"}
    for one in report.agents:
        # With local_ratio 1 a step is rewarded with -1 for each touch and nothing else.
        assert one.costs.mean == pytest.approx(-one.returns.mean, abs=1e-4)
        assert one.unfinished == 0


def test_falls_of_multiwalker_are_judged():
    for package in ("pettingzoo", "Box2D", "pygame"):
        pytest.importorskip(package)
    task = with_cost(
        functools.partial(parallel_env, "pettingzoo.sisl.multiwalker_v9", {"max_cycles": 60}), falls
    )
    learner = IPPO_Lagrangian(SMALL | {"cost_limit": 1.0}, seed=0)
    learner.train(task, 200)
    report = safety_report(learner, task, 20, limits=2.0)
    assert [one.agent for one in report.agents] == ["walker_0", "walker_1", "walker_2"]
    # The first fall ends the episode, so nobody falls twice.
    assert all(
        one.unfinished == 0 and 0 <= one.costs.mean <= 1 and one.verdict == "kept" for one in report.agents
    )
