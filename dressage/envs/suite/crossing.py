"""Robots that swap places across a circle: everyone's shortest way leads through the same middle."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dressage.config import Option
from dressage.envs.functional import PyTree
from dressage.envs.multi_agent import (
    Actions,
    AgentsReset,
    AgentsTransition,
    MultiAgentEnv,
    split_agents,
    stack_agents,
)
from dressage.envs.spaces import Box, Discrete
from dressage.errors import ConfigError

TIME_STEP = 0.1  # s
ACCELERATION = 1.0  # m/s^2, greatest along each axis
RADIUS = 0.12  # m, of a robot
ARRIVED = 0.1  # m from the goal
JITTER = 0.3  # greatest shift of a start, as a share of half the angle between two neighbours
AWAY_REWARD = -0.05
EFFORT = 0.01  # reward lost per (m/s^2)^2
_SIDE = float(np.sqrt(0.5))
PUSHES = np.array(
    [
        [0, 0],
        [1, 0],
        [_SIDE, _SIDE],
        [0, 1],
        [-_SIDE, _SIDE],
        [-1, 0],
        [-_SIDE, -_SIDE],
        [0, -1],
        [_SIDE, -_SIDE],
    ],
    np.float32,
)
"""Accelerations that the discrete form chooses from: none, then eight directions counter-clockwise."""

OPTIONS = (
    Option("num_agents", 4, "integer", minimum=2, unit="agents", help="Robots on the circle."),
    Option("circle", 1.5, "number", minimum=0.1, unit="metres", help="Radius of the circle."),
    Option(
        "continuous", True, "boolean", help="Whether robots choose any acceleration instead of one of nine."
    ),
    Option("max_steps", 120, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CrossingState:
    """Where `N` robots are and want to be.

    Attributes:
        position: float32 `[N, 2]`, metres.
        velocity: float32 `[N, 2]`, metres per second.
        goal: float32 `[N, 2]`, fixed in an episode.
    """

    position: jax.Array
    velocity: jax.Array
    goal: jax.Array


@dataclass(frozen=True)
class Crossing(MultiAgentEnv):
    """`N` robots on a circle change places with their opposites, by accelerating; collisions are a cost.

    Robots start at rest, evenly around the circle but for a random turn of all and a little shift of each.
    With time step Δt = 0.1 s and acceleration `u`, cut to 1 m/s² along each axis:

        v' = v + u Δt,   x' = x + v' Δt

    With the distance `d` to the goal, in metres, a step's reward is

        d - d' - 0.05 [d' > 0.1] - 0.01 |u|²

    so an episode's return is the way covered less a price of time and effort. `info["cost"]` is 1 in a step
    after which the centre of another robot is nearer than two radii, 0.24 m. Episodes end by the time limit
    alone. A robot observes its velocity, the way to its goal, and for each of the others the way there and
    its relative velocity.

    Attributes:
        num_agents: Robots `N`, at least 2.
        circle: Radius of the circle in metres; there must be room for everyone.
        continuous: True: actions are accelerations `[2]`. False: one of nine, `PUSHES`.
        max_steps: Time limit in steps.

    Raises:
        ConfigError: If the robots do not fit on the circle.
    """

    num_agents: int = 4
    circle: Any = 1.5
    continuous: bool = True
    max_steps: int = 120

    def __post_init__(self) -> None:
        if isinstance(self.circle, jax.core.Tracer):
            return
        # Chord between two neighbours that are shifted towards one another.
        nearest = 2 * self.circle * np.sin((1 - JITTER) * np.pi / self.num_agents)
        if nearest <= 2 * RADIUS:
            needed = RADIUS / np.sin((1 - JITTER) * np.pi / self.num_agents)
            raise ConfigError(
                f"crossing has no room for {self.num_agents} robots on a circle of {self.circle:g} m; "
                f"give circle more than {needed:.3g}."
            )

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """`agent_0`, `agent_1`, ..."""
        return tuple(f"agent_{i}" for i in range(self.num_agents))

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Place the robots on the circle, at rest."""
        turn_key, shift_key = jax.random.split(rng)
        slot = 2 * jnp.pi / self.num_agents
        turn = jax.random.uniform(turn_key, maxval=slot)
        shift = jax.random.uniform(shift_key, (self.num_agents,), minval=-1.0) * JITTER * slot / 2
        angle = turn + shift + slot * jnp.arange(self.num_agents)
        place = self.circle * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        state = CrossingState(place, jnp.zeros_like(place), -place)
        return state, self._split(_observe(state)), self._split({"cost": _collided(state)})

    def step(self, state: CrossingState, actions: Actions) -> AgentsTransition:
        """Accelerate all robots for one time step; see `MultiAgentEnv.step`."""
        push = self._pushes(stack_agents(actions, self.possible_agents))
        velocity = state.velocity + TIME_STEP * push
        following = CrossingState(state.position + TIME_STEP * velocity, velocity, state.goal)
        left, before = _distance(following), _distance(state)
        effort = EFFORT * jnp.sum(jnp.square(push), axis=1)
        reward = before - left + AWAY_REWARD * (left > ARRIVED) - effort
        never = dict.fromkeys(self.possible_agents, jnp.asarray(False))
        infos = self._split({"cost": _collided(following)})
        return following, self._split(_observe(following)), self._split(reward), never, never, infos

    def observation_space(self, state: CrossingState, agent: str) -> Box:
        """Velocity, way to the goal, way to and relative velocity of each other: float32 `[4 N]`."""
        return Box(-np.inf, np.inf, (4 * self.num_agents,))

    def action_space(self, state: CrossingState, agent: str) -> Box | Discrete:
        """Acceleration in m/s², float32 `[2]` within ±1; or one of nine."""
        return Box(-ACCELERATION, ACCELERATION, (2,)) if self.continuous else Discrete(len(PUSHES))

    def render(self, state: CrossingState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.constrained_drawing import draw_crossing

        return draw_crossing(
            np.asarray(state.position), np.asarray(state.velocity), np.asarray(state.goal), RADIUS
        )

    def _pushes(self, actions: jax.Array) -> jax.Array:
        if not self.continuous:
            return ACCELERATION * jnp.asarray(PUSHES)[actions]
        return jnp.clip(actions.astype(jnp.float32), -ACCELERATION, ACCELERATION)

    def _split(self, stacked: PyTree) -> dict[str, PyTree]:
        return split_agents(stacked, self.possible_agents)


def others_first(rows: jax.Array) -> jax.Array:
    """Take out of `[N, N, ...]` what each agent says of itself.

    Args:
        rows: `[N, N, ...]`, of the agent of the first axis about that of the second.

    Returns:
        `[N, N - 1, ...]`, the others in order.
    """
    number = rows.shape[0]
    # The first i for agent i, then those after it.
    earlier = jnp.arange(number - 1)[None, :] < jnp.arange(number)[:, None]
    earlier = earlier.reshape(*earlier.shape, *(1,) * (rows.ndim - 2))
    return jnp.where(earlier, rows[:, :-1], rows[:, 1:])


def _distance(state: CrossingState) -> jax.Array:
    """`[N]` metres to the goal."""
    distance: jax.Array = jnp.linalg.norm(state.goal - state.position, axis=1)
    return distance


def _collided(state: CrossingState) -> jax.Array:
    """`[N]` float32, 1 for whoever overlaps with another."""
    way = others_first(state.position[None] - state.position[:, None])
    return jnp.any(jnp.sum(jnp.square(way), axis=2) < (2 * RADIUS) ** 2, axis=1).astype(jnp.float32)


def _observe(state: CrossingState) -> jax.Array:
    way = others_first(state.position[None] - state.position[:, None])
    speed = others_first(state.velocity[None] - state.velocity[:, None])
    others = jnp.concatenate([way, speed], axis=2).reshape(state.position.shape[0], -1)
    return jnp.concatenate([state.velocity, state.goal - state.position, others], axis=1)
