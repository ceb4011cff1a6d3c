"""The pole on a cart, equal to Gymnasium's `CartPole-v1` step by step."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dressage.config import Option
from dressage.envs.functional import BaseEnv, Reset, Transition
from dressage.envs.spaces import Box, Discrete
from dressage.signals import Signal, Signals

MAX_POSITION = 2.4  # m from the middle of the track, as in Gymnasium
MAX_ANGLE = 12 * 2 * math.pi / 360  # rad from upright, as in Gymnasium

OPTIONS = (
    Option("gravity", 9.8, "number", minimum=0.0, unit="m/s²", help="Gravitational acceleration."),
    Option("cart_mass", 1.0, "number", minimum=0.0, open_minimum=True, unit="kg", help="Mass of the cart."),
    Option("pole_mass", 0.1, "number", minimum=0.0, open_minimum=True, unit="kg", help="Mass of the pole."),
    Option(
        "half_length", 0.5, "number", minimum=0.0, open_minimum=True, unit="m", help="Half the pole's length."
    ),
    Option("force", 10.0, "number", minimum=0.0, open_minimum=True, unit="N", help="Force of a push."),
    Option("time_step", 0.02, "number", minimum=0.0, open_minimum=True, unit="s", help="Time of one step."),
    Option("max_steps", 500, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CartPoleState:
    """Where cart and pole are.

    Attributes:
        position: float32 m from the middle of the track.
        velocity: float32 m/s.
        angle: float32 rad from upright, positive to the right.
        angular_velocity: float32 rad/s.
    """

    position: jax.Array
    velocity: jax.Array
    angle: jax.Array
    angular_velocity: jax.Array


@dataclass(frozen=True)
class CartPole(BaseEnv):
    """Push a cart left (0) or right (1) so that the pole on it stays up; reward 1 for every step.

    The episode terminates when the cart leaves ±2.4 m or the pole leaves ±12°; the step that ends it is
    rewarded too. Integrated by explicit Euler steps.

    Attributes:
        gravity: m/s².
        cart_mass: kg.
        pole_mass: kg.
        half_length: Half the pole's length, m.
        force: N.
        time_step: s.
        max_steps: Time limit in steps.

    Reference:
        Gymnasium 1.3, `gymnasium/envs/classic_control/cartpole.py`, version v1; R. V. Florian (2007),
        "Correct equations for the dynamics of the cart-pole system", equations 23 and 24 without friction.
    """

    gravity: Any = 9.8
    cart_mass: Any = 1.0
    pole_mass: Any = 0.1
    half_length: Any = 0.5
    force: Any = 10.0
    time_step: Any = 0.02
    max_steps: int = 500

    def reset(self, rng: jax.Array) -> Reset:
        """Draw all four state variables from [-0.05, 0.05]."""
        drawn = jax.random.uniform(rng, (4,), minval=-0.05, maxval=0.05)
        return CartPoleState(drawn[0], drawn[1], drawn[2], drawn[3]), drawn, {}

    def step(self, state: CartPoleState, action: jax.Array) -> Transition:
        """Push for one time step; see `BaseEnv.step`."""
        force = jnp.where(jnp.asarray(action) == 1, self.force, -self.force)
        sine, cosine = jnp.sin(state.angle), jnp.cos(state.angle)
        total_mass = self.cart_mass + self.pole_mass
        pole_moment = self.pole_mass * self.half_length
        push = (force + pole_moment * state.angular_velocity**2 * sine) / total_mass
        inertia = self.half_length * (4.0 / 3.0 - self.pole_mass * cosine**2 / total_mass)
        angular_acceleration = (self.gravity * sine - cosine * push) / inertia
        acceleration = push - pole_moment * angular_acceleration * cosine / total_mass
        state = CartPoleState(
            position=state.position + self.time_step * state.velocity,
            velocity=state.velocity + self.time_step * acceleration,
            angle=state.angle + self.time_step * state.angular_velocity,
            angular_velocity=state.angular_velocity + self.time_step * angular_acceleration,
        )
        terminated = (jnp.abs(state.position) > MAX_POSITION) | (jnp.abs(state.angle) > MAX_ANGLE)
        return state, _observe(state), 1.0, terminated, False, {}

    def observation_space(self, state: CartPoleState) -> Box:
        """Position (m), velocity (m/s), angle (rad), angular velocity (rad/s): float32 `[4]`."""
        high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
        return Box(-high, high)

    def action_space(self, state: CartPoleState) -> Discrete:
        """0 pushes to the left, 1 to the right."""
        return Discrete(2)

    def signals(self) -> Signals:
        """Name the numbers; see `BaseEnv.signals`."""
        named = (("position", "m"), ("velocity", "m/s"), ("angle", "rad"), ("angular velocity", "rad/s"))
        observation = tuple(Signal(name, unit) for name, unit in named)
        return Signals(observation, (Signal("push: 0 to the left, 1 to the right"),), float(self.time_step))

    def render(self, state: CartPoleState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.drawing import draw_cartpole

        return draw_cartpole(float(state.position), float(state.angle), 2 * float(self.half_length))


def _observe(state: CartPoleState) -> jax.Array:
    return jnp.stack([state.position, state.velocity, state.angle, state.angular_velocity])
