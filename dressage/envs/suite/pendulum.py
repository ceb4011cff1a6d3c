"""The pendulum swing-up, equal to Gymnasium's `Pendulum-v1` step by step."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dressage.config import Option
from dressage.envs.functional import BaseEnv, Reset, Transition
from dressage.envs.spaces import Box
from dressage.signals import Signal, Signals

OPTIONS = (
    Option("gravity", 10.0, "number", minimum=0.0, unit="m/s²", help="Gravitational acceleration."),
    Option("mass", 1.0, "number", minimum=0.0, open_minimum=True, unit="kg", help="Mass of the rod."),
    Option("length", 1.0, "number", minimum=0.0, open_minimum=True, unit="m", help="Length of the rod."),
    Option("max_torque", 2.0, "number", minimum=0.0, open_minimum=True, unit="N m", help="Greatest torque."),
    Option("max_speed", 8.0, "number", minimum=0.0, open_minimum=True, unit="rad/s", help="Greatest speed."),
    Option("time_step", 0.05, "number", minimum=0.0, open_minimum=True, unit="s", help="Time of one step."),
    Option("max_steps", 200, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PendulumState:
    """Where the rod is.

    Attributes:
        angle: float32 rad in [-π, π], 0 upright.
        velocity: float32 rad/s.
        torque: float32 N m, last applied; for the picture only.
    """

    angle: jax.Array
    velocity: jax.Array
    torque: jax.Array


@dataclass(frozen=True)
class Pendulum(BaseEnv):
    """Swing a rod up with a motor too weak to lift it, and hold it there.

    The rod is uniform, so its moment of inertia is `m l²/3`. With angle `θ` (0 upright), speed `ω` and
    torque `u`:

        ω' = clip(ω + (3 g / (2 l) sin θ + 3 / (m l²) u) Δt, ±max_speed),   θ' = θ + ω' Δt
        reward = -(θ² + 0.1 ω² + 0.001 u²)

    The observation is `(cos θ, sin θ, ω)`, the action the torque `[1]`, clipped to its bounds. Episodes end
    by the time limit only. The angle is kept in [-π, π]; Gymnasium's grows, which would cost float32 digits.

    Attributes:
        gravity: m/s².
        mass: kg.
        length: m.
        max_torque: N m.
        max_speed: rad/s.
        time_step: s.
        max_steps: Time limit in steps.

    Reference:
        Gymnasium 1.3, `gymnasium/envs/classic_control/pendulum.py`, version v1.
    """

    gravity: Any = 10.0
    mass: Any = 1.0
    length: Any = 1.0
    max_torque: Any = 2.0
    max_speed: Any = 8.0
    time_step: Any = 0.05
    max_steps: int = 200

    def reset(self, rng: jax.Array) -> Reset:
        """Draw the angle from [-π, π] and the speed from [-1, 1] rad/s."""
        drawn = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0)
        state = PendulumState(drawn[0] * math.pi, drawn[1], jnp.zeros(()))
        return state, _observe(state), {}

    def step(self, state: PendulumState, action: jax.Array) -> Transition:
        """Apply a torque for one time step; see `BaseEnv.step`."""
        torque = jnp.clip(jnp.asarray(action, jnp.float32).reshape(()), -self.max_torque, self.max_torque)
        cost = state.angle**2 + 0.1 * state.velocity**2 + 0.001 * torque**2
        gravity_term = 3.0 * self.gravity / (2.0 * self.length) * jnp.sin(state.angle)
        torque_term = 3.0 / (self.mass * self.length**2) * torque
        velocity = state.velocity + (gravity_term + torque_term) * self.time_step
        velocity = jnp.clip(velocity, -self.max_speed, self.max_speed)
        state = PendulumState(_wrap(state.angle + velocity * self.time_step), velocity, torque)
        return state, _observe(state), -cost, False, False, {}

    def observation_space(self, state: PendulumState) -> Box:
        """`(cos θ, sin θ, ω)`, float32 `[3]`."""
        # A speed limit drawn anew in each episode is a traced array, which NumPy cannot hold.
        array = jnp if isinstance(self.max_speed, jax.Array) else np
        high = array.array([1.0, 1.0, self.max_speed], np.float32)
        return Box(-high, high, (3,))

    def action_space(self, state: PendulumState) -> Box:
        """The torque in N m, float32 `[1]`."""
        return Box(-self.max_torque, self.max_torque, (1,))

    def signals(self) -> Signals:
        """Name the numbers; see `BaseEnv.signals`."""
        observation = (Signal("cosine of the angle"), Signal("sine of the angle"), Signal("speed", "rad/s"))
        return Signals(observation, (Signal("torque", "N m"),), float(self.time_step))

    def render(self, state: PendulumState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.pictures import draw_pendulum

        return draw_pendulum(float(state.angle), float(state.torque), float(self.max_torque))


def _observe(state: PendulumState) -> jax.Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])


def _wrap(angle: jax.Array) -> jax.Array:
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
