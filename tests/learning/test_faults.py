"""Numbers that are not finite: located, latched, raised in words, and never learned from."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage import envs
from dressage.errors import NonFiniteError
from dressage.learning.faults import latch_fault, raise_fault
from dressage.learning.host_driver import HostRun
from dressage.learning.host_env import FunctionalHostEnv
from dressage.learning.records import FAULT_FIELDS, Experience, Fault, Observed, Outcome
from dressage.learning.runs import CompiledRun
from tests.learning.tiny import Poison, PoisonedEnv, group_of_one, learner, single

STEPS, COPIES = 4, 3


@pytest.fixture(scope="module")
def env():
    return PoisonedEnv(single(envs.make("pendulum", max_steps=5), COPIES))


@pytest.fixture(scope="module")
def groups(env):
    switches = {"normalize_observations": True, "normalize_rewards": True}
    return group_of_one(learner(env.spec, epochs=1, minibatches=1, **switches))


@pytest.fixture(scope="module")
def run(env, groups):
    return CompiledRun(env, groups, STEPS, (0,), None, 5)


def poisoned(state, poison):
    """The state with something waiting in its environment."""
    inner, steps, _ = state.environment
    return state.replace(environment=(inner, steps, poison))


def frozen_parts(state):
    """What must not move from the faulty rollout on; the optimiser and normalisers included."""
    return jax.tree.map(np.array, state.agents)


def assert_bit_equal(ours, theirs):
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


def advance(run, state, updates):
    """The compiled chunk without the error that the run raises after it."""
    return run._advance(run._groups, state, jnp.int32(updates))


@pytest.mark.parametrize(
    ("field", "value", "step", "copy", "name", "reported_step"),
    [
        # What is seen after step 5 is acted on at step 6.
        (0, np.nan, 5, 2, "observation", 6),
        # The observation after the rollout's last step is first acted on in the next rollout.
        (0, np.inf, 3, 0, "observation", 4),
        (1, np.nan, 0, 1, "final observation", 0),
        (1, np.inf, 7, 0, "final observation", 7),
        (2, np.nan, 6, 1, "reward", 6),
        (2, -np.inf, 11, 2, "reward", 11),
    ],
)
def test_a_fault_is_latched_with_its_place_and_freezes_the_agent(
    run, field, value, step, copy, name, reported_step
):
    faulty_update = reported_step // STEPS
    state = poisoned(run.init(), Poison.of(field, step, copy, value))
    if faulty_update:
        state, _ = advance(run, state, faulty_update)
    assert int(state.fault.field) == 0
    before = frozen_parts(state)
    state, _ = advance(run, state, 4 - faulty_update)
    assert FAULT_FIELDS[int(state.fault.field) - 1] == name
    place = (
        int(state.fault.group),
        int(state.fault.agent),
        int(state.fault.environment),
        int(state.fault.step),
    )
    assert place == (0, 0, copy, reported_step)
    assert_bit_equal(state.agents, before)
    assert int(state.updates) == 4
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(before))


def test_without_a_fault_the_same_updates_do_move_the_agent(run):
    state = run.init()
    before = frozen_parts(state)
    state, _ = advance(run, state, 4)
    for new, old in zip(
        jax.tree.leaves(state.agents[0].params), jax.tree.leaves(before[0].params), strict=True
    ):
        assert (np.asarray(new) != old).any()
    assert state.agents[0].observation_moments.count == 4 * STEPS * COPIES


def test_the_first_fault_stays(run):
    state, _ = advance(run, poisoned(run.init(), Poison.of(2, 2, 1)), 1)
    later = state.replace(environment=(*state.environment[:2], Poison.of(1, 6, 0)))
    state, _ = advance(run, later, 2)
    assert (int(state.fault.field), int(state.fault.step), int(state.fault.environment)) == (3, 2, 1)


TEXT = (
    "The reward of agent 'agent' is not finite: environment copy 1, step 6 of that copy "
    r"\(counted from 0 since training began\)."
)


def test_the_chunk_loop_raises_what_and_where(run):
    with pytest.raises(NonFiniteError, match=TEXT):
        run.advance(poisoned(run.init(), Poison.of(2, 6, 1)), 3)


def test_the_host_driver_raises_the_same_and_keeps_its_parameters(env, groups):
    host = HostRun(lambda copies: FunctionalHostEnv(env), groups, STEPS, 0, COPIES, 0, None)
    state = poisoned(host.init(), Poison.of(2, 6, 1))
    state, _ = host.advance(state, 1)
    before = frozen_parts(state)
    with pytest.raises(NonFiniteError, match=TEXT):
        host.advance(state, 2)
    fault = jax.jit(latch_fault)(Fault.none(), (record(broken={"rewards": [(2, 1)]}),), jnp.int32(1))
    assert int(fault.step) == 6
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(before))


def test_under_vmap_each_seed_has_its_own_fault_and_the_others_learn_on(env, groups):
    pair = CompiledRun(env, groups, STEPS, (0, 1, 2), None, 5)
    state = pair.init()
    poison = jax.tree.map(lambda *leaves: jnp.stack(leaves), Poison.of(), Poison.of(2, 6, 1), Poison.of())
    before = jax.tree.map(np.array, state.agents)
    state, _ = advance(pair, poisoned(state, poison), 1)
    between = jax.tree.map(np.array, state.agents)
    state, _ = advance(pair, state, 3)
    np.testing.assert_array_equal(state.fault.field, [0, 3, 0])
    np.testing.assert_array_equal(state.fault.step, [0, 6, 0])
    pick = lambda tree, seed: jax.tree.map(lambda leaf: np.asarray(leaf)[seed], tree)  # noqa: E731
    assert_bit_equal(pick(state.agents, 1), pick(between, 1))
    for seed in (0, 2):
        moved = pick(state.agents, seed)[0].params, pick(before, seed)[0].params
        assert all((a != b).any() for a, b in zip(*map(jax.tree.leaves, moved), strict=True))
    with pytest.raises(NonFiniteError, match="environment copy 1 of seed 8, step 6"):
        raise_fault(state.fault, (("agent",),), (7, 8, 9))


def record(broken=None, agents=0, valid=None):
    """A clean rollout `[4, (agents,) 3]`, with NaN put in at places of named fields."""
    shape = (STEPS, agents, COPIES) if agents else (STEPS, COPIES)
    arrays = {
        "features": np.zeros((*shape, 2), np.float32),
        "final_features": np.zeros((*shape, 2), np.float32),
        "rewards": np.zeros(shape, np.float32),
        "actions": np.zeros((*shape, 2), np.float32),
    }
    for name, places in (broken or {}).items():
        for place in places:
            arrays[name][place] = np.nan
    flags, lengths = np.zeros(shape, bool), np.zeros(shape, np.int32)
    outcome = Outcome(
        None, arrays["final_features"], arrays["rewards"], flags, flags, arrays["rewards"], lengths, valid
    )
    return Experience(Observed(arrays["features"]), (arrays["actions"], None), arrays["actions"], outcome)


def located(*rollouts, updates=0):
    fault = jax.jit(partial(latch_fault, Fault.none()))(rollouts, jnp.int32(updates))
    return tuple(int(part) for part in (fault.field, fault.group, fault.agent, fault.environment, fault.step))


def test_of_several_faults_in_a_rollout_the_earliest_step_counts():
    rollout = record({"rewards": [(3, 0)], "final_features": [(2, 2, 1)], "features": [(3, 0, 0)]})
    assert located(rollout) == (2, 0, 0, 2, 2)


def test_a_bad_action_is_a_fault_too():
    assert located(record({"actions": [(1, 2, 0)]}), updates=10) == (4, 0, 0, 2, 41)


def test_the_agent_within_its_group_is_named():
    rollout = record({"rewards": [(1, 1, 2)]}, agents=2)
    assert located(rollout, updates=1) == (3, 0, 1, 2, 5)
    with pytest.raises(NonFiniteError, match="reward of agent 'right'"):
        raise_fault(Fault(*map(np.int32, (3, 0, 1, 2, 5))), (("left", "right"),))


def test_a_later_groups_earlier_fault_comes_first():
    first, second = record({"rewards": [(3, 0)]}), record({"final_features": [(1, 2, 0)]})
    assert located(first, second) == (2, 1, 0, 2, 1)


def test_rows_that_are_no_samples_hold_no_faults():
    valid = np.ones((STEPS, COPIES), bool)
    valid[1, 2] = False
    assert located(record({"rewards": [(1, 2)]}, valid=valid)) == (0, 0, 0, 0, 0)


def test_nothing_is_raised_without_a_fault():
    assert raise_fault(Fault.none(), (("agent",),)) is None
