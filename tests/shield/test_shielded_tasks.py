"""The guarantees of the shielded tasks, under random, stubborn and hostile policies, for all parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import MultiAgentVectorEnv, make, solve_cmdp
from dressage.errors import ConfigError

COPIES, STEPS = 64, 1600  # 102,400 steps
PARAMETERS = (-1e6, -10.0, -1.0, 0.0, 1.0, 10.0, 1e6)


def play(env, hostile, steps=STEPS, copies=COPIES):
    """Play three kinds of policies side by side: random, stubborn (each choice for 16 steps), hostile.

    Returns:
        Of each step, arrays `[T, A, B]`: costs, ends, whether shields intervened and were infeasible.
    """
    vector = MultiAgentVectorEnv(env, copies)
    names = vector.groups[0]
    number = int(vector.action_space(names[0])["action"].n)
    shape = (len(names), copies)

    def draw(key):
        first, second = jax.random.split(key)
        proposal = jax.random.randint(first, shape, 0, number)
        return proposal, jax.random.choice(second, jnp.array(PARAMETERS), shape)

    def step(carry, count):
        state, observation = carry
        key = jax.random.key(7)
        drawn, stubborn = (
            draw(jax.random.fold_in(key, count)),
            draw(jax.random.fold_in(key, -1 - count // 16)),
        )
        bad = jnp.broadcast_to(hostile(observation), shape), jnp.full(shape, 1e6)
        kind = jnp.arange(copies) % 3
        proposal, parameter = (
            jnp.select([kind == 0, kind == 1], both[:2], both[2])
            for both in zip(drawn, stubborn, bad, strict=True)
        )
        action = {"action": proposal.astype(jnp.int32), "shield": parameter[..., None]}
        state, after = vector.step_groups(state, (action,))
        group = after.groups[0]
        told = [
            jnp.stack([after.infos[name][key] for name in names])
            for key in ("shield_intervened", "shield_infeasible")
        ]
        return (state, group.observation), (group.cost, group.ended, *told)

    state, observations, _ = vector.reset_groups(jax.random.key(0))
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(steps))[1])
    return [np.asarray(values) for values in run((state, observations[0]))]


def towards_the_nearest(observation):
    """Push at the nearest other robot: of the eight directions the one that points there best."""
    ways = observation[..., 4:].reshape(*observation.shape[:-1], -1, 4)[..., :2]
    nearest = jnp.argmin(jnp.sum(jnp.square(ways), axis=-1), axis=-1)
    way = jnp.take_along_axis(ways, nearest[..., None, None], axis=-2)[..., 0, :]
    return 1 + jnp.round(jnp.arctan2(way[..., 1], way[..., 0]) / (jnp.pi / 4)).astype(jnp.int32) % 8


def full_throttle(observation):
    return 4


def into_hazards(observation):
    """Right along the wall and from its middle row down."""
    row = jnp.argmax(observation, axis=-1) // 4
    return jnp.where(row == 1, 2, 1)


@pytest.mark.parametrize(
    ("name", "options", "hostile"),
    [
        pytest.param(
            "shielded_crossing", {"num_agents": 4}, towards_the_nearest, id="crossing", marks=pytest.mark.slow
        ),
        pytest.param("shielded_platoon", {}, full_throttle, id="platoon", marks=pytest.mark.slow),
        # Without slip every hazard is certain, so that some move is always safe.
        pytest.param("shielded_shortcut_cmdp", {"slip": 0.0, "greatest_risk": 0.9}, into_hazards, id="grid"),
    ],
)
def test_no_policy_and_no_parameter_brings_about_a_violation(name, options, hostile):
    costs, ends, intervened, infeasible = play(make(name, **options), hostile)
    assert costs.shape[0] * costs.shape[2] >= 100_000
    assert costs.sum() == 0
    assert infeasible.sum() == 0
    assert ends.sum() > 300
    hostile_copies = intervened[..., 2::3]
    assert hostile_copies.mean() > 0.1  # they did try


@pytest.mark.slow
def test_without_its_shield_each_task_is_violated_by_the_same_policies():
    for name, hostile in (("crossing", towards_the_nearest), ("platoon", full_throttle)):
        env = make(name, continuous=False)
        vector = MultiAgentVectorEnv(env, 8)

        def step(carry, _, vector=vector, hostile=hostile):
            state, observation = carry
            shape = observation.shape[:2]
            state, after = vector.step_groups(state, (jnp.broadcast_to(hostile(observation), shape),))
            return (state, after.groups[0].observation), after.groups[0].cost

        state, observations, _ = vector.reset_groups(jax.random.key(0))
        carry = state, observations[0]
        costs = jax.jit(lambda c, step=step: jax.lax.scan(step, c, length=100)[1])(carry)
        assert float(costs.sum()) > 100


@pytest.mark.parametrize("bound", [0.02, 0.08])
def test_falls_from_the_ladder_stay_under_the_bound(bound):
    env = make("shielded_risk_ladder", bound=bound)
    costs, ends, intervened, infeasible = play(env, lambda observation: 2)
    assert infeasible.sum() == 0 and intervened.mean() > 0.2
    for kind in range(3):
        fell, episodes = costs[..., kind::3].sum(), ends[..., kind::3].sum()
        error = np.sqrt(bound * (1 - bound) / episodes)
        assert episodes > 2_000
        assert fell / episodes <= bound + 3 * error
    # The climber who leaps whenever it may uses what it is allowed, and unshielded would fall far more.
    assert costs[..., 2::3].sum() / ends[..., 2::3].sum() > 0.4 * bound
    assert solve_cmdp(make("risk_ladder"), None).cost > 0.17


def test_a_bound_that_no_climber_keeps_is_refused():
    with pytest.raises(ConfigError, match=r"cannot keep the bound 0\.01: .* can reach is 0\.01563"):
        make("shielded_risk_ladder", bound=0.01)


@pytest.mark.parametrize(
    ("options", "gain"), [({}, 6.9314718), ({"gain_scale": 1.0}, 0.69314718), ({"gain": 3.0}, 3.0)]
)
def test_an_untrained_policy_crosses_with_the_gain_that_the_options_say(options, gain):
    shield = make("shielded_crossing", **options).shields
    assert float(shield.gain_of(jnp.zeros(shield.parameter_dim))) == pytest.approx(gain)
