"""Costs wrapped on to environments that report none: a third party's, ours, and what no cost may be."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import (
    CostFromInfo,
    CostWrapper,
    MultiAgentVectorEnv,
    check_multi_agent_environment,
    make,
    to_parallel_env,
    with_cost,
)
from dressage.envs.wrappers import AddCost
from dressage.errors import EnvironmentContractError, NonFiniteError
from tests.envs.multi_agent_toys import Crowd

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo's tests import its own old names
    from pettingzoo.test import parallel_api_test as check_parallel_api


def collisions(step):
    """How many others an agent of simple_spread overlaps with, read off its observation.

    Velocity, position and the ways to three landmarks come first, ten numbers, then those to the others.
    """
    ways = np.reshape(step.observation[10:14], (2, 2))
    return np.sum(np.linalg.norm(ways, axis=1) < 0.3)


def true_collisions(env):
    """The same from the world itself."""
    robots = env.unwrapped.world.agents
    return {
        one.name: sum(
            np.linalg.norm(one.state.p_pos - other.state.p_pos) < one.size + other.size
            for other in robots
            if other is not one
        )
        for one in robots
    }


def test_collisions_of_a_third_partys_environment_become_costs():
    task = with_cost(make("pettingzoo:mpe2.simple_spread_v3", max_cycles=100), collisions)
    env = pickle.loads(pickle.dumps(task)).make()
    assert isinstance(env, CostWrapper)
    total = 0
    for seed in range(5):
        env.reset(seed=seed)
        while env.agents:
            actions = {a: env.action_space(a).sample() for a in env.agents}
            *_, infos = env.step(actions)
            expected = true_collisions(env)
            assert {agent: info["cost"] for agent, info in infos.items()} == expected
            total += sum(expected.values())
    assert total > 0


def test_a_wrapped_environment_still_passes_pettingzoos_test():
    check_parallel_api(make_wrapped(lambda step: step.reward), num_cycles=60)


def make_wrapped(cost, key="price"):
    return CostWrapper(to_parallel_env(Crowd(9)), cost, key)


def first_step(env):
    env.reset(seed=0)
    return env.step({agent: env.action_space(agent).sample() for agent in env.agents})


@pytest.mark.parametrize(
    ("cost", "number"),
    [(3, 3.0), (-1.5, -1.5), (True, 1.0), (np.float32(2), 2.0), (np.array([4.0]), 4.0), (np.array(5), 5.0)],
)
def test_one_number_in_any_form_is_a_cost(cost, number):
    infos = first_step(make_wrapped(lambda step: cost))[-1]
    assert all(infos[agent]["price"] == number for agent in ("ann", "bob", "cat"))


def test_an_agent_that_ends_still_pays_and_one_that_only_appears_does_not():
    env = make_wrapped(lambda step: step.source.env.max_steps)
    *_, infos = first_step(env)
    assert "price" not in infos.get("dan", {})
    paid = []
    while env.agents:
        acting = list(env.agents)
        *_, terminated, truncated, infos = env.step({a: env.action_space(a).sample() for a in acting})
        paid += [infos[a]["price"] for a in acting if terminated[a] or truncated[a]]
    assert paid == [9.0] * len(paid) and paid


@pytest.mark.parametrize(
    ("cost", "error", "match"),
    [
        (
            lambda step: None,
            EnvironmentContractError,
            "cost of agent 'ann' in step 1 of .* one number, got None",
        ),
        (lambda step: "3", EnvironmentContractError, "must be one number, got '3'"),
        (lambda step: np.zeros(2), EnvironmentContractError, "must be one number, got array"),
        (lambda step: np.nan, NonFiniteError, "cost of agent 'ann' in step 1 of .* is not finite: nan"),
        (lambda step: np.inf, NonFiniteError, "is not finite: inf"),
        (
            CostFromInfo("falls"),
            EnvironmentContractError,
            r"'ann' has no 'falls' .*it has \['cost', 'name'\]",
        ),
        (
            lambda step: step.info["falls"],
            EnvironmentContractError,
            r"found no 'falls' of agent 'ann' in step 1 .* info has \['cost', 'name'\]",
        ),
    ],
)
def test_what_is_no_cost_is_refused_with_agent_and_step(cost, error, match):
    with pytest.raises(error, match=match):
        first_step(make_wrapped(cost))


def test_a_cost_that_is_there_already_is_not_replaced():
    with pytest.raises(EnvironmentContractError, match="'ann' has a 'cost' already in step 1 .* another key"):
        first_step(make_wrapped(lambda step: 0.0, key="cost"))
    infos = first_step(make_wrapped(CostFromInfo("name")))[-1]
    assert [infos[agent]["price"] for agent in ("ann", "bob", "cat")] == [0, 1, 2]


class Free(Crowd):
    """A Crowd without costs."""

    def step(self, state, actions):
        *rest, infos = super().step(state, actions)
        return *rest, {agent: {"name": info["name"]} for agent, info in infos.items()}


def test_a_functional_environment_is_charged_in_compiled_code():
    env = AddCost(Free(9), lambda step: 2.0 * step.source.steps + step.info["name"])
    check_multi_agent_environment(env)
    vector = MultiAgentVectorEnv(env, 2)
    state, _ = vector.reset(jax.random.key(0))
    actions = {a: jnp.zeros((2, *vector.action_space(a).shape), jnp.int32) for a in env.possible_agents}
    _, step = jax.jit(vector.step)(state, actions)
    assert step.agents["bob"].cost.tolist() == [3, 3]
    assert step.agents["dan"].cost.tolist() == [0, 0]  # not there yet


@pytest.mark.parametrize(
    ("env", "match"),
    [
        (AddCost(Crowd(), lambda step: 0.0), "Crowd has a 'cost' for 'ann' already"),
        (AddCost(Free(), lambda step: jnp.zeros(2)), r"'ann' in Free must be one number, got shape \(2,\)"),
    ],
)
def test_a_functional_environment_is_refused_a_second_cost_and_a_row_of_them(env, match):
    with pytest.raises(EnvironmentContractError, match=match):
        check_multi_agent_environment(env)
