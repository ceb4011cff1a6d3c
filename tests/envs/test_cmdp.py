"""Exact optima under a limit: hand-computed ones, a policy that reaches its own, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import FiniteCMDP, VectorEnv, make, solve_cmdp
from dressage.errors import ConfigError


@pytest.mark.parametrize(
    ("slip", "limit", "optimum", "cost", "multiplier"),
    [
        # Without slip the ways are worth 8 at cost 2 and 6 at cost 0: the optimum is 6 + min(d, 2).
        (0.0, None, 8.0, 2.0, 0.0),
        (0.0, 3.0, 8.0, 2.0, 0.0),
        (0.0, 1.0, 7.0, 1.0, 1.0),
        (0.0, 0.5, 6.5, 0.5, 1.0),
        (0.1, None, 6.8324, 1.9601, 0.0),
        (0.1, 1.0, 5.4874, 1.0, 1.4009),
        (0.1, 0.5, 4.7546, 0.5, 2.8793),
    ],
)
def test_the_optima_of_the_shortcut_are_those_of_a_calculation_by_hand(
    slip, limit, optimum, cost, multiplier
):
    solution = solve_cmdp(make("shortcut_cmdp", slip=slip), limit)
    np.testing.assert_allclose(solution[:3], (optimum, cost, multiplier), atol=6e-5)
    np.testing.assert_allclose(solution.policy.sum(axis=1), 1.0)


def test_a_limit_of_zero_costs_the_shortcut_with_slip_thirteen():
    solution = solve_cmdp(make("shortcut_cmdp", slip=0.1), 0.0)
    np.testing.assert_allclose(solution[:2], (-7.3943, 0.0), atol=6e-5)


def test_the_optima_of_the_budgets_are_the_limits_own():
    np.testing.assert_allclose(solve_cmdp(make("budget_bandit"), 2.0)[:3], (2, 2, 1), atol=1e-9)
    np.testing.assert_allclose(solve_cmdp(make("budget_bandit"), 7.0)[:3], (7, 7, 1), atol=1e-9)
    np.testing.assert_allclose(solve_cmdp(make("budget_bandit"), 70.0)[:3], (10, 10, 0), atol=1e-9)
    # One takes 1, the other 1/4 a step: 1.25 at a cost of 0.25, ten times.
    np.testing.assert_allclose(solve_cmdp(make("coupled_budget"), 2.5)[:3], (12.5, 2.5, 1), atol=1e-9)


def endless():
    """One state for ever; an action that pays and costs 1, and one that does nothing."""
    return FiniteCMDP(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), np.ones(1))


def test_a_discount_weighs_rewards_and_costs_alike():
    # 1 / (1 - 0.9) = 10 without a limit; a limit of 4 lets 4 of them through.
    np.testing.assert_allclose(solve_cmdp(endless(), None, 0.9)[:3], (10, 10, 0), rtol=1e-9)
    solution = solve_cmdp(endless(), 4.0, 0.9)
    np.testing.assert_allclose(solution[:3], (4, 4, 1), rtol=1e-9)
    np.testing.assert_allclose(solution.policy, [[0.4, 0.6]], rtol=1e-9)


def test_the_optimal_policy_reaches_its_optimum_when_it_is_played():
    env = make("shortcut_cmdp", slip=0.1)
    solution = solve_cmdp(env, 1.0)
    copies, steps = 512, 200
    vector = VectorEnv(env, copies)
    logits = jnp.log(jnp.asarray(solution.policy))

    def play(carry, key):
        state, observation = carry
        action = jax.random.categorical(key, observation @ jnp.maximum(logits, -1e4))
        state, step = vector.step(state, action)
        return (state, step.observation), (step.reward, step.info["cost"], step.ended)

    keys = jax.random.split(jax.random.key(1), steps)
    _, (rewards, costs, ends) = jax.jit(lambda c: jax.lax.scan(play, c, keys))(
        vector.reset(jax.random.key(0))
    )
    returns, paid = episodes(rewards, ends), episodes(costs, ends)
    assert len(returns) > 5_000
    assert abs(returns.mean() - solution.optimum) < 4 * returns.std() / np.sqrt(len(returns))
    assert abs(paid.mean() - solution.cost) < 4 * paid.std() / np.sqrt(len(paid))


def episodes(values, ends):
    """Sum what each finished episode brought."""
    values, ends = np.asarray(values, np.float64), np.asarray(ends)
    totals = []
    for copy in range(values.shape[1]):
        cuts = np.flatnonzero(ends[:, copy]) + 1
        totals += [part.sum() for part in np.split(values[:, copy], cuts)[:-1]]
    return np.array(totals)


def table(**changes):
    fields = {
        "transitions": np.full((2, 1, 2), 0.25),
        "rewards": np.zeros((2, 1)),
        "costs": np.ones((2, 1)),
        "initial": np.array([1.0, 0.0]),
    }
    return FiniteCMDP(**{**fields, **changes})


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            # Each step costs 1 and half of the episodes go on: 2 in the mean.
            lambda: solve_cmdp(table(), 1.5),
            r"No policy of FiniteCMDP keeps the cost limit 1\.5: the least expected .* can reach is 2\. Give",
        ),
        (
            lambda: solve_cmdp(make("risk_ladder"), 0.01),
            r"No policy of RiskLadder keeps the cost limit 0\.01: .* is 0\.01563",
        ),
        (
            lambda: solve_cmdp(endless(), None),
            "No policy of FiniteCMDP ends its episodes with certainty. Give a gamma below 1",
        ),
        (
            lambda: solve_cmdp(
                FiniteCMDP(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]), np.zeros((1, 2)), np.ones(1)),
                None,
            ),
            "The return of FiniteCMDP has no bound at gamma 1: some policy earns for ever",
        ),
        (lambda: solve_cmdp(endless(), np.nan), "limit must be a finite number or None, got nan"),
        (lambda: solve_cmdp(endless(), 1.0, 1.5), "gamma must be > 0 and <= 1, got 1.5"),
        (lambda: table(costs=np.ones(2)), r"needs costs of shape \(2, 1\) .*, got \(2,\)"),
        (lambda: table(transitions=np.full((2, 1, 2), 0.6)), "rows add up to at most 1"),
        (lambda: table(initial=np.array([0.5, 0.4])), "needs initial >= 0 that adds up to 1"),
    ],
)
def test_what_has_no_solution_is_refused_with_the_reason(call, match):
    with pytest.raises(ConfigError, match=match):
        call()
