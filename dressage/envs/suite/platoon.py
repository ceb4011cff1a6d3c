"""Cars in a row behind a leader that may brake at any time: close is good, too close is a cost."""

from dataclasses import dataclass
from typing import Any, ClassVar

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

TIME_STEP = 0.1  # s
BRAKING, DRIVING = 6.0, 3.0  # m/s^2, greatest deceleration and acceleration of every car
TOP_SPEED = 30.0  # m/s
LEAST_GAP = 2.0  # m, below which a step costs
STANDSTILL_GAP, HEADWAY = 4.0, 0.8  # m and s: the gap aimed at is 4 m + 0.8 s times the speed
GAP_SCALE = 10.0  # m of error that lose a reward of 1
EFFORT = 0.005  # reward lost per (m/s^2)^2
CHANGE = 0.05  # probability a step that the leader takes up another speed
START_SPEED, START_GAPS = 15.0, (12.0, 25.0)  # m/s and m
PEDALS = np.array([-BRAKING, -2.0, 0.0, 1.0, DRIVING], np.float32)
"""Accelerations that the discrete form chooses from, m/s²."""

OPTIONS = (
    Option("num_agents", 3, "integer", minimum=1, unit="agents", help="Cars behind the leader."),
    Option(
        "continuous", True, "boolean", help="Whether cars choose any acceleration instead of one of five."
    ),
    Option("max_steps", 200, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PlatoonState:
    """Where `N + 1` cars are, the leader first.

    Attributes:
        gap: float32 `[N]`, metres to the car ahead; cars have no length.
        velocity: float32 `[N + 1]`, metres per second, in [0, 30].
        acceleration: float32 `[N + 1]`, what each car did last, m/s².
        target: float32, the speed that the leader is after, m/s.
        key: Random key of the leader's decisions to come.
    """

    gap: jax.Array
    velocity: jax.Array
    acceleration: jax.Array
    target: jax.Array
    key: jax.Array


@dataclass(frozen=True)
class Platoon(MultiAgentEnv):
    """`N` cars follow a leader, each at a gap that suits its speed.

    With Δt = 0.1 s, the gap `g` to the car ahead and acceleration `u`, in [-6, 3] m/s²:

        v' = min(max(v + u Δt, 0), 30),   g' = g + (v'_ahead - v') Δt

    The leader takes up a new speed, uniform in [0, 30] m/s, with probability 0.05 a step, and brakes or
    drives as hard as it can until it has it. A step's reward is

        -min(((g - 4 - 0.8 v) / 10)², 1) - 0.005 u²

    and `info["cost"]` is 1 where the gap is less than 2 m; cars that touch drive on. Episodes end by the time
    limit alone. A car observes its speed, its gap, how fast it closes in and what the car ahead did last.

    Attributes:
        num_agents: Cars behind the leader `N`, at least 1; `agent_0` is the first of them.
        continuous: True: actions are accelerations `[1]`. False: one of five, `PEDALS`.
        max_steps: Time limit in steps.
    """

    num_agents: int = 3
    continuous: bool = True
    max_steps: int = 200

    redraws: ClassVar[bool] = True

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """`agent_0`, `agent_1`, ..."""
        return tuple(f"agent_{i}" for i in range(self.num_agents))

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start at equal speed, with gaps drawn from 12 to 25 m."""
        key, gap_key = jax.random.split(rng)
        gap = jax.random.uniform(gap_key, (self.num_agents,), minval=START_GAPS[0], maxval=START_GAPS[1])
        speed = jnp.full(self.num_agents + 1, START_SPEED)
        state = PlatoonState(gap, speed, jnp.zeros_like(speed), speed[0], key)
        return state, self._split(_observe(state)), self._split({"cost": _too_close(state)})

    def step(self, state: PlatoonState, actions: Actions) -> AgentsTransition:
        """Drive all cars for one time step; see `MultiAgentEnv.step`."""
        key, change_key, target_key = jax.random.split(state.key, 3)
        drawn = jax.random.uniform(target_key, maxval=TOP_SPEED)
        target = jnp.where(jax.random.bernoulli(change_key, CHANGE), drawn, state.target)
        leader = jnp.clip((target - state.velocity[0]) / TIME_STEP, -BRAKING, DRIVING)
        own = self._pedals(stack_agents(actions, self.possible_agents))
        acceleration = jnp.concatenate([leader[None], own])
        velocity = jnp.clip(state.velocity + TIME_STEP * acceleration, 0.0, TOP_SPEED)
        gap = state.gap + TIME_STEP * (velocity[:-1] - velocity[1:])
        state = PlatoonState(gap, velocity, acceleration, target, key)
        error = (state.gap - STANDSTILL_GAP - HEADWAY * velocity[1:]) / GAP_SCALE
        reward = -jnp.minimum(jnp.square(error), 1.0) - EFFORT * jnp.square(own)
        never = dict.fromkeys(self.possible_agents, jnp.asarray(False))
        infos = self._split({"cost": _too_close(state)})
        return state, self._split(_observe(state)), self._split(reward), never, never, infos

    def redraw(self, state: PlatoonState, rng: jax.Array) -> PlatoonState:
        """Give the episode a leader with a mind of its own."""
        return PlatoonState(state.gap, state.velocity, state.acceleration, state.target, rng)

    def observation_space(self, state: PlatoonState, agent: str) -> Box:
        """Speed / 30, gap / 30, own speed less that ahead / 30, acceleration ahead / 6: float32 `[4]`."""
        return Box(-np.inf, np.inf, (4,))

    def action_space(self, state: PlatoonState, agent: str) -> Box | Discrete:
        """Acceleration in m/s², float32 `[1]` in [-6, 3]; or one of five."""
        return Box(-BRAKING, DRIVING, (1,)) if self.continuous else Discrete(len(PEDALS))

    def render(self, state: PlatoonState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.constrained_drawing import draw_platoon

        places = -np.concatenate([[0.0], np.cumsum(state.gap)])
        return draw_platoon(places, np.asarray(state.acceleration), LEAST_GAP)

    def _pedals(self, actions: jax.Array) -> jax.Array:
        if not self.continuous:
            return jnp.asarray(PEDALS)[actions]
        return jnp.clip(actions.astype(jnp.float32)[:, 0], -BRAKING, DRIVING)

    def _split(self, stacked: PyTree) -> dict[str, Any]:
        return split_agents(stacked, self.possible_agents)


def _too_close(state: PlatoonState) -> jax.Array:
    return (state.gap < LEAST_GAP).astype(jnp.float32)


def _observe(state: PlatoonState) -> jax.Array:
    closing = state.velocity[1:] - state.velocity[:-1]
    columns = [state.velocity[1:] / TOP_SPEED, state.gap / TOP_SPEED, closing / TOP_SPEED]
    return jnp.stack([*columns, state.acceleration[:-1] / BRAKING], axis=1)
