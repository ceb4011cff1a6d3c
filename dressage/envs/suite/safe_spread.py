"""Agents that spread over landmarks without bumping into one another, equal to `simple_spread_v3` of mpe2."""

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

# All as in mpe2.
TIME_STEP = 0.1  # s
DAMPING = 0.25  # share of the speed that is lost in a step
SENSITIVITY = 5.0  # force of a full push, on a mass of 1
RADIUS = 0.15  # of an agent
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3  # how softly contact sets in
ARENA = 1.0  # initial positions lie within ± this
MESSAGE = 2  # numbers that agents could say; here all are silent
PUSHES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)  # stay, left, right, down, up

OPTIONS = (
    Option("num_agents", 3, "integer", minimum=1, unit="agents", help="Agents, and landmarks."),
    Option(
        "local_ratio",
        0.5,
        "number",
        minimum=0.0,
        maximum=1.0,
        help="Share of an agent's own collisions in its reward; the rest is the common distance.",
    ),
    Option("continuous", False, "boolean", help="Whether agents push by five numbers instead of one choice."),
    Option("max_steps", 25, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpreadState:
    """Where `N` agents and landmarks are.

    Attributes:
        position: float32 `[N, 2]`.
        velocity: float32 `[N, 2]` per second.
        landmarks: float32 `[N, 2]`, fixed in an episode.
    """

    position: jax.Array
    velocity: jax.Array
    landmarks: jax.Array


@dataclass(frozen=True)
class SafeSpread(MultiAgentEnv):
    """`N` agents in a plane cover `N` landmarks together; a collision is a cost.

    Agent i with position `x_i` and velocity `v_i` is pushed by its action `u_i` and by whom it touches:

        x' = x + v Δt,   v' = (1 - 0.25) v + (5 u + Σ_j 100 δ_ij (x_i - x_j) / |x_i - x_j|) Δt
        δ_ij = 0.001 log(1 + exp((0.3 - |x_i - x_j|) / 0.001))

    With `c_i` the number of agents nearer to agent i than 0.3, and `l_k` the landmarks:

        reward_i = -(1 - local_ratio) Σ_k min_j |x_j - l_k| - local_ratio c_i,   info["cost"] = c_i

    An agent sees its velocity and position, and where landmarks and the others are from there; the silence of
    the others follows as zeros, as in mpe2. Episodes end by the time limit alone.

    Attributes:
        num_agents: Agents and landmarks `N`, at least 1.
        local_ratio: Share of the own collisions in the reward, in [0, 1]. At 0 the reward is the common
            distance alone, and collisions are left to the cost.
        continuous: False: actions are stay, left, right, down, up. True: five numbers in [0, 1], of which the
            second to last push in these directions, as in mpe2.
        max_steps: Time limit in steps.

    Reference:
        mpe2 1.1, `mpe2/simple_spread/simple_spread.py` and `mpe2/_mpe_utils/core.py`; Lowe et al. (2017),
        "Multi-agent actor-critic for mixed cooperative-competitive environments". Two agents in exactly one
        place, where mpe2 divides by zero, push nobody here.
    """

    num_agents: int = 3
    local_ratio: Any = 0.5
    continuous: bool = False
    max_steps: int = 25

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """`agent_0`, `agent_1`, ..."""
        return tuple(f"agent_{i}" for i in range(self.num_agents))

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Draw agents and landmarks from the square within ±1; all stand still."""
        drawn = jax.random.uniform(rng, (2, self.num_agents, 2), minval=-ARENA, maxval=ARENA)
        state = SpreadState(drawn[0], jnp.zeros_like(drawn[0]), drawn[1])
        between = _between(state.position)
        costs = {"cost": _collisions(between)}
        return state, self._split(_observe(state, between)), self._split(costs)

    def step(self, state: SpreadState, actions: Actions) -> AgentsTransition:
        """Push all agents for one time step; see `MultiAgentEnv.step`."""
        pushes = self._pushes(stack_agents(actions, self.possible_agents))
        between = _between(state.position)
        force = SENSITIVITY * pushes + _contact(between)
        state = SpreadState(
            position=state.position + TIME_STEP * state.velocity,
            velocity=(1 - DAMPING) * state.velocity + TIME_STEP * force,
            landmarks=state.landmarks,
        )
        between = _between(state.position)
        collisions = _collisions(between)
        reward = (1 - self.local_ratio) * -_uncovered(state) - self.local_ratio * collisions
        never = dict.fromkeys(self.possible_agents, jnp.asarray(False))
        observations = self._split(_observe(state, between))
        return state, observations, self._split(reward), never, never, self._split({"cost": collisions})

    def observation_space(self, state: SpreadState, agent: str) -> Box:
        """Velocity, position, landmarks and others from there, silence: float32 `[4 + 2 N + 4 (N - 1)]`."""
        return Box(-np.inf, np.inf, (4 + 2 * self.num_agents + (2 + MESSAGE) * (self.num_agents - 1),))

    def action_space(self, state: SpreadState, agent: str) -> Box | Discrete:
        """Stay, left, right, down, up: one choice, or float32 `[5]` in [0, 1]."""
        return Box(0.0, 1.0, (len(PUSHES),)) if self.continuous else Discrete(len(PUSHES))

    def render(self, state: SpreadState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.multi_agent_drawing import draw_spread

        return draw_spread(np.asarray(state.position), np.asarray(state.landmarks), RADIUS)

    def _pushes(self, actions: jax.Array) -> jax.Array:
        """Directions `[N, 2]` of actions `[N]`, or of `[N, 5]` numbers."""
        if self.continuous:
            weights = jnp.clip(actions.astype(jnp.float32), 0.0, 1.0)
            return jnp.stack([weights[:, 2] - weights[:, 1], weights[:, 4] - weights[:, 3]], axis=1)
        # Comparisons fuse with what follows; a lookup in a table would not.
        right = (actions == 2).astype(jnp.float32) - (actions == 1)
        up = (actions == 4).astype(jnp.float32) - (actions == 3)
        return jnp.stack([right, up], axis=1)

    def _split(self, stacked: PyTree) -> dict[str, PyTree]:
        return split_agents(stacked, self.possible_agents)


def _between(position: jax.Array) -> jax.Array:
    """`[N, N, 2]`, the way from the agent of the first axis to that of the second."""
    return position[None, :] - position[:, None]


def _square(way: jax.Array) -> jax.Array:
    """Squared lengths `[...]` of `[..., 2]`."""
    return jnp.square(way[..., 0]) + jnp.square(way[..., 1])


def _contact(between: jax.Array) -> jax.Array:
    """Sum of the forces `[N, 2]` of all others on each agent."""
    distance = jnp.sqrt(_square(between))
    depth = (2 * RADIUS - distance) / CONTACT_MARGIN
    # log(1 + exp(depth)), which is 0 in float32 for all who do not touch.
    overlap = CONTACT_MARGIN * (jnp.maximum(depth, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(depth))))
    apart = jnp.where(distance > 0, distance, 1.0)  # an agent is in no contact with itself: `between` is 0
    return jnp.sum((-CONTACT_FORCE * overlap / apart)[..., None] * between, axis=1)


def _collisions(between: jax.Array) -> jax.Array:
    """`[N]` float32, how many others each agent overlaps with."""
    # The agent itself is always nearer than that.
    return jnp.sum(_square(between) < (2 * RADIUS) ** 2, axis=1).astype(jnp.float32) - 1.0


def _uncovered(state: SpreadState) -> jax.Array:
    """Sum over the landmarks of the distance of the nearest agent."""
    nearest = jnp.sqrt(jnp.min(_square(state.landmarks[:, None] - state.position[None]), axis=1))
    # Kept, since XLA would compute it anew for the reward of each agent.
    return jnp.sum(jax.lax.optimization_barrier(nearest))


def _observe(state: SpreadState, between: jax.Array) -> jax.Array:
    """Observations `[N, 4 + 2 N + 4 (N - 1)]` of all agents."""
    number = state.position.shape[0]
    ways = (state.landmarks[None] - state.position[:, None]).reshape(number, 2 * number)
    # The others in order: of the first i for agent i, then of those after it.
    earlier = jnp.arange(number - 1)[None, :, None] < jnp.arange(number)[:, None, None]
    others = jnp.where(earlier, between[:, :-1], between[:, 1:]).reshape(number, 2 * (number - 1))
    silence = jnp.zeros((number, MESSAGE * (number - 1)))
    return jnp.concatenate([state.velocity, state.position, ways, others, silence], axis=1)
