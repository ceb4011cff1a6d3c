"""`crossing` with a shield on each robot that lets none of them collide."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array

from dressage.config import Option
from dressage.envs.registry import ShippedTask
from dressage.envs.suite.crossing import (
    ACCELERATION,
    OPTIONS,
    PUSHES,
    RADIUS,
    TIME_STEP,
    Crossing,
)
from dressage.shield.barrier import BarrierShield
from dressage.shield.functional import ShieldedEnv, shielded

_SLACK = 1e-3  # m, above the rounding of float32
CUTS = 3
GAIN_SCALE = 10.0  # 1/s; an untrained policy then starts near the gains that robots cross fast with

GAIN_OPTION = Option(
    "gain",
    None,
    "number",
    minimum=0.0,
    optional=True,
    unit="1/s",
    help="A fixed gain of the barrier; None: each action brings its own, by its last number.",
)
GAIN_SCALE_OPTION = Option(
    "gain_scale",
    GAIN_SCALE,
    "number",
    minimum=0.0,
    open_minimum=True,
    unit="1/s",
    help="Scale of gains that actions bring: each is so many times the softplus of its last number.",
)


@dataclass(frozen=True)
class KeepApart:
    r"""Each robot does its half of keeping every pair able to brake in time.

    With the braking distance $|v|^2 / 2a$ a pair is safe where it could stop before it touches:

    $$h_{ij} = |p_i - p_j| - 2R - \frac{|v_i|^2 + |v_j|^2}{2a}$$

    With $n_{ij}$ the direction from j to i and a step of length $\Delta t$ to $v_i'$ and
    $p_i' = p_i + v_i' \Delta t$, robot i alone answers for

    $$\Delta t\, n_{ij} \cdot v_i' - \frac{|v_i'|^2 - |v_i|^2}{2a}
    \ge -\tfrac12 (1 - e^{-\alpha_i \Delta t})\, h_{ij}$$

    Distances are convex, so both halves together give $h_{ij}' \ge e^{-\alpha\Delta t} h_{ij} \ge 0$, with a
    decay between those of the two robots.

    **Guarantee.** No two robots that are safe at the start ever touch, whatever all of them propose and
    whatever gains they choose. **Conditions:** every robot wears the shield, brakes at least as hard as
    `a` in every direction, and sees positions and velocities of all others exactly. Braking straight is
    lawful in every safe state: it shortens the braking distance by at least the way covered.

    Both sides are seen in a robot's own observation, so nobody tells anybody anything.
    """

    def margins(self, seen: Array, action: Array, gain: Array) -> Array:
        """Return what is left of the robot's half towards each other one, `[N - 1]`, metres."""
        velocity, ways, other = _read(seen)
        following = velocity + TIME_STEP * action
        distance = jnp.sqrt(jnp.sum(jnp.square(ways), axis=1))
        away = -ways / jnp.maximum(distance, 1e-6)[:, None]
        own = _stopping(velocity)
        safety = distance - 2 * RADIUS - _SLACK - own - _stopping(other)
        approach = TIME_STEP * away @ following - (_stopping(following) - own)
        return approach - 0.5 * jnp.expm1(-gain * TIME_STEP) * safety

    def fallback(self, seen: Array) -> Array:
        """Brake straight, `[2]`."""
        velocity, _, _ = _read(seen)
        speed = jnp.sqrt(jnp.sum(jnp.square(velocity)))
        # Within the last step exactly to rest.
        return -velocity / jnp.maximum(speed, 1e-6) * jnp.minimum(ACCELERATION, speed / TIME_STEP)


def _read(seen: Array) -> tuple[Array, Array, Array]:
    """Own velocity `[2]`, ways to the others and their velocities `[N - 1, 2]`, of an observation."""
    velocity, others = seen[:2], seen[4:].reshape(-1, 4)
    return velocity, others[:, :2], velocity + others[:, 2:]


def _stopping(velocity: Array) -> Array:
    """Braking distance `[...]` of velocities `[..., 2]`, metres."""
    return jnp.sum(jnp.square(velocity), axis=-1) / (2 * ACCELERATION)


def shielded_crossing(
    num_agents: int = 4,
    circle: float = 1.5,
    continuous: bool = False,
    gain: float | None = None,
    max_steps: int = 120,
    gain_scale: float = GAIN_SCALE,
) -> ShieldedEnv:
    """Make `crossing` with a barrier shield on each robot; the guarantee is that of `KeepApart`.

    Args:
        num_agents: Robots, at least 2.
        circle: Radius of the circle, metres.
        continuous: Whether robots propose any acceleration instead of one of nine.
        gain: A fixed gain of all shields, 1/s; None for one that each action brings.
        max_steps: Time limit in steps.
        gain_scale: Of gains that actions bring, 1/s; see `BarrierShield`.
    """
    choices = () if continuous else tuple(tuple(float(x) for x in push) for push in ACCELERATION * PUSHES)
    bounds = (ACCELERATION, ACCELERATION)
    shield = BarrierShield(
        KeepApart(),
        (-ACCELERATION, -ACCELERATION),
        bounds,
        gain=gain,
        choices=choices,
        cuts=CUTS,
        gain_scale=gain_scale,
    )
    return shielded(Crossing(num_agents, circle, max_steps=max_steps), shield)


TASK = ShippedTask(
    shielded_crossing,
    (
        *(replace(option, default=False) if option.name == "continuous" else option for option in OPTIONS),
        GAIN_OPTION,
        GAIN_SCALE_OPTION,
    ),
    "Robots change places across a circle; shields let none of them collide.",
)
