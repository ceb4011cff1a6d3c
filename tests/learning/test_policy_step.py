"""The trust-region step on real networks: dense Hessians as oracle, and what the line search lets through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.trust_region import ConstrainedStep, StepCase, cpo_step
from dressage.learning.flat_parameters import ravel_parameters
from dressage.learning.policy_head import PolicyHead
from dressage.learning.policy_step import (
    PolicySamples,
    TrustRegion,
    divergence_product,
    improve_policy,
    search,
)
from dressage.learning.specs import AgentSpec
from dressage.networks import Actor, apply_actor

OBSERVED, SAMPLES = 3, 12
SPECS = {
    "discrete": AgentSpec("a", OBSERVED, 3, "discrete", (3,), (), (0,)),
    "factored": AgentSpec("a", OBSERVED, 5, "multi_discrete", (2, 3), (2,), (0, 0)),
    "continuous": AgentSpec("a", OBSERVED, 2, "continuous", (), (2,), (), 2, (-1.0,) * 2, (1.0,) * 2),
    "parameterized": AgentSpec("a", OBSERVED, 3, "parameterized", (2,), (), (0,), 1, (-np.inf,), (np.inf,)),
}


def actor_of(spec):
    return Actor(spec.action_dim, spec.continuous_dim, True, (4,), kernel_init="lecun_normal")


def problem(name, masked=False):
    """An actor with outputs that are not all alike, and samples of it."""
    spec = SPECS[name]
    actor, head = actor_of(spec), PolicyHead(spec)
    rng = np.random.default_rng(1)
    layers = actor.init(jax.random.key(0), jnp.zeros((1, OBSERVED)))["params"]
    layers = jax.tree.map(lambda leaf: leaf + 0.3 * rng.normal(size=leaf.shape), layers)
    features = rng.normal(size=(SAMPLES, OBSERVED))
    mask = None
    if masked:
        mask = rng.random((SAMPLES, spec.action_dim)) < 0.7
        mask[:, 0] = True
        mask[:, -1] = False
    outputs = apply_actor(actor, layers, features)
    actions = head.distribution(outputs, mask).sample(jax.random.key(2))
    advantages, costs = rng.normal(size=(2, SAMPLES))
    valid = np.arange(SAMPLES) != 4
    weights = valid / valid.sum()
    return head, actor, layers, PolicySamples(features, mask, actions, advantages, costs, weights)


def region(**changes):
    numbers = {"delta": 0.01, "damping": 0.0, "decay": 0.8} | changes
    return TrustRegion(**{name: jnp.asarray(number) for name, number in numbers.items()}, iterations=120)


def mean_divergence(head, actor, unravel, flat, samples):
    def divergence(new):
        old = head.distribution(apply_actor(actor, unravel(flat), samples.features), samples.action_mask)
        there = head.distribution(apply_actor(actor, unravel(new), samples.features), samples.action_mask)
        return (samples.weights * old.kl(there)).sum()

    return divergence


@pytest.mark.parametrize(
    ("name", "masked"),
    [("discrete", True), ("factored", False), ("continuous", False), ("parameterized", False)],
)
def test_products_are_those_of_the_dense_hessian_and_solve_as_it_does(name, masked):
    with jax.enable_x64(True):
        head, actor, layers, samples = problem(name, masked)
        flat, unravel = ravel_parameters(layers)
        product = divergence_product(head, actor, flat, unravel, samples)
        ours = jax.jit(jax.vmap(product))(jnp.eye(len(flat)))
        dense = jax.jit(jax.hessian(mean_divergence(head, actor, unravel, flat, samples)))(flat)
        np.testing.assert_allclose(ours, dense, atol=1e-10)
        np.testing.assert_allclose(np.linalg.eigvalsh(dense)[0], 0, atol=1e-9)
        rng = np.random.default_rng(3)
        g, b = rng.normal(size=(2, len(flat)))
        ridge = 1e-3 * np.eye(len(flat))
        solve = jax.jit(
            lambda g, b: cpo_step(g, b, product, 0.02, 0.01, iterations=3 * len(flat), damping=1e-3)
        )
        step = solve(g, b)
        w = np.linalg.solve(dense + ridge, b)
        assert step.s == pytest.approx(b @ w, rel=1e-6)
        assert step.q == pytest.approx(g @ np.linalg.solve(dense + ridge, g), rel=1e-6)
        assert step.r == pytest.approx(g @ w, rel=1e-5, abs=1e-6)
        assert step.residual < 1e-6


@pytest.fixture(scope="module")
def improve():
    """One compiled update of the masked discrete policy; excess and region are arguments."""
    head, actor, layers, samples = problem("discrete", masked=True)
    samples = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.float32) if np.asarray(leaf).dtype.kind == "f" else leaf, samples
    )
    layers = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), layers)
    compiled = jax.jit(
        lambda samples, excess, region: improve_policy(head, actor, layers, samples, excess, region)
    )
    return compiled, layers, samples


def test_a_step_stays_in_the_trust_region_and_keeps_the_limit(improve):
    compiled, _, samples = improve
    after = compiled(samples, jnp.float32(-0.02), region())
    assert after.trial.accepted
    assert 0 < after.trial.kl <= 0.01
    assert after.trial.gain > 0
    assert -0.02 + after.trial.cost_change <= 0


def test_above_the_limit_the_cost_falls_whatever_the_reward_does(improve):
    compiled, _, samples = improve
    against = samples.replace(cost_advantages=samples.advantages)
    after = compiled(against, jnp.float32(5.0), region())
    assert after.solved.case == StepCase.RECOVERY
    assert after.trial.accepted
    assert after.trial.cost_change < 0
    assert after.trial.gain == pytest.approx(float(after.trial.cost_change))


def test_what_a_mask_forbids_is_not_learned_of(improve):
    """The last logit is never allowed: a mask that the update forgot would move its bias."""
    compiled, layers, samples = improve
    after = compiled(samples, jnp.float32(-1.0), region(damping=0.1))
    before = layers["Dense_1"]
    np.testing.assert_array_equal(after.layers["Dense_1"]["bias"][-1], before["bias"][-1])
    np.testing.assert_array_equal(after.layers["Dense_1"]["kernel"][:, -1], before["kernel"][:, -1])
    assert (after.layers["Dense_1"]["bias"][:-1] != before["bias"][:-1]).all()


@pytest.mark.parametrize("field", ["advantages", "cost_advantages"])
def test_a_number_that_is_not_finite_leaves_every_parameter_as_it_is(improve, field):
    compiled, layers, samples = improve
    broken = samples.replace(**{field: getattr(samples, field).at[0].set(jnp.nan)})
    after = compiled(broken, jnp.float32(-0.02), region())
    assert not after.solved.finite
    assert not after.trial.accepted
    for mine, before in zip(jax.tree.leaves(after.layers), jax.tree.leaves(layers), strict=True):
        np.testing.assert_array_equal(mine, before)


def test_a_row_that_is_no_sample_changes_nothing(improve):
    compiled, _, samples = improve
    other = samples.replace(
        advantages=samples.advantages.at[4].set(1e6), cost_advantages=samples.cost_advantages.at[4].set(-1e6)
    )
    ours, theirs = (compiled(one, jnp.float32(-0.02), region()) for one in (samples, other))
    for mine, other_leaf in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other_leaf)


def test_no_cost_gradient_above_the_limit_is_reported_and_moves_nothing(improve):
    compiled, layers, samples = improve
    after = compiled(samples.replace(cost_advantages=jnp.zeros(SAMPLES)), jnp.float32(0.5), region())
    assert after.solved.case == StepCase.STATIONARY
    assert after.trial.attempts == 0
    np.testing.assert_array_equal(after.layers["Dense_0"]["kernel"], layers["Dense_0"]["kernel"])


def solved(step, case=StepCase.ACTIVE):
    zero = jnp.float32(0)
    return ConstrainedStep(jnp.float32(step), jnp.int32(case), *[zero] * 6, jnp.bool_(True))


def tried(assess, excess, step=(1.0, 0.0)):
    old = jnp.array([0.5, 0.25], jnp.float32)
    return old, search(assess, old, solved(step), jnp.float32(excess), region())


def test_a_step_is_shortened_until_the_real_divergence_fits():
    """Divergence x^2 <= 0.01 first holds at 0.8^11 = 0.0859 (0.8^10 = 0.1074)."""
    old, trial = tried(lambda flat: ((flat[0] - 0.5) ** 2, jnp.float32(1), jnp.float32(0)), -1.0)
    assert trial.accepted
    assert trial.attempts == 12
    assert trial.fraction == pytest.approx(0.8**11, rel=1e-5)
    np.testing.assert_allclose(trial.flat, old + jnp.array([0.8**11, 0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("excess", "gain", "cost_change", "accepted"),
    [
        (-1.0, 0.1, 0.9, True),
        (-1.0, 0.1, 1.1, False),
        (-1.0, -0.1, -0.5, False),
        (0.5, -3.0, -0.1, True),
        (0.5, 3.0, 0.0, False),
        (0.5, np.nan, -0.1, False),
        (-1.0, 0.1, np.nan, False),
    ],
)
def test_below_the_limit_cost_and_reward_are_tested_above_it_the_cost_alone(
    excess, gain, cost_change, accepted
):
    numbers = jnp.float32(0.0), jnp.float32(gain), jnp.float32(cost_change)
    old, trial = tried(lambda flat: numbers, excess)
    assert trial.accepted == accepted
    if not accepted:
        np.testing.assert_array_equal(trial.flat, old)
        assert trial.attempts == 15
        assert trial.gain == trial.cost_change == trial.fraction == 0
