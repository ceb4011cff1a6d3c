"""`platoon` with a shield in each car that always keeps room to brake."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array

from dressage.envs.registry import ShippedTask
from dressage.envs.suite.platoon import (
    BRAKING,
    DRIVING,
    LEAST_GAP,
    OPTIONS,
    PEDALS,
    TIME_STEP,
    TOP_SPEED,
    Platoon,
)
from dressage.shield.barrier import BarrierShield, SampledBarrier
from dressage.shield.functional import ShieldedEnv, shielded
from dressage.shield.tasks.crossing import GAIN_OPTION

_SLACK = 0.02  # m, above the rounding of gaps and braking distances in float32
CUTS = 3


def room_to_brake(seen: Array) -> Array:
    r"""Return what is left of the gap once both cars have braked to rest, less the least gap.

    $$h = g + S(v_{ahead}) - S(v) - g_{min}$$

    Args:
        seen: `[3]`: gap in metres, own speed and that of the car ahead in m/s.

    Returns:
        `[]`, metres.
    """
    gap, speed, ahead = seen
    room: Array = gap + _stopping(ahead) - _stopping(speed) - LEAST_GAP - _SLACK
    return room


def worst_case(seen: Array, action: Array) -> Array:
    """Return what is seen after a step in which the car ahead brakes as hard as it can, `[3]`."""
    gap, speed, ahead = seen
    speed = jnp.maximum(speed + TIME_STEP * action[0], 0.0)
    ahead = jnp.maximum(ahead - TIME_STEP * BRAKING, 0.0)
    return jnp.stack([gap + TIME_STEP * (ahead - speed), speed, ahead])


def brake(seen: Array) -> Array:
    """Brake as hard as the car can, `[1]`."""
    return jnp.full(1, -BRAKING)


@dataclass(frozen=True)
class KeepRoom:
    r"""Keeps `room_to_brake` whatever the car ahead does, by `SampledBarrier` of its worst case.

    **Guarantee.** A car that starts with room to brake never has a gap below the least one, for every policy
    and all gains. **Conditions:** no car brakes harder than 6 m/s², and each sees gap and speeds exactly. The
    car ahead need not wear a shield: its hardest braking leaves $g + S(v_{ahead})$ as it is, everything else
    increases it; own hardest braking leaves $S(v)$ plus the way covered as it is.
    """

    barrier: SampledBarrier = SampledBarrier(worst_case, room_to_brake, brake, TIME_STEP)

    def margins(self, seen: Array, action: Array, gain: Array) -> Array:
        """Return what is left, `[1]`, metres."""
        return self.barrier.margins(_metres(seen), action, gain)

    def fallback(self, seen: Array) -> Array:
        """Brake, `[1]`."""
        return self.barrier.fallback(_metres(seen))


def _metres(observation: Array) -> Array:
    """Gap, own speed and speed ahead, `[3]`, of a car's observation."""
    speed, gap, closing = (TOP_SPEED * observation[i] for i in range(3))
    return jnp.stack([gap, speed, speed - closing])


def _stopping(speed: Array) -> Array:
    """Way that a car covers after this step if it brakes from now on, metres."""
    slower = BRAKING * TIME_STEP
    steps = jnp.floor(speed / slower)
    return TIME_STEP * (steps * speed - slower * steps * (steps + 1) / 2)


def shielded_platoon(
    num_agents: int = 3, continuous: bool = False, gain: float | None = None, max_steps: int = 200
) -> ShieldedEnv:
    """Make `platoon` with a barrier shield in each car; the guarantee is that of `KeepRoom`.

    Args:
        num_agents: Cars behind the leader, at least 1.
        continuous: Whether cars propose any acceleration instead of one of five.
        gain: A fixed gain of all shields, 1/s; None for one that each action brings.
        max_steps: Time limit in steps.
    """
    choices = () if continuous else tuple((float(pedal),) for pedal in PEDALS)
    shield = BarrierShield(KeepRoom(), (-BRAKING,), (DRIVING,), gain=gain, choices=choices, cuts=CUTS)
    return shielded(Platoon(num_agents, max_steps=max_steps), shield)


TASK = ShippedTask(
    shielded_platoon,
    (
        *(replace(option, default=False) if option.name == "continuous" else option for option in OPTIONS),
        GAIN_OPTION,
    ),
    "Cars keep close behind a leader; shields always keep room to brake.",
)
