"""Agents that flee through a corridor which falls in behind them; they leave it one by one, or are buried."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dressage.config import Option
from dressage.envs.functional import Flag, PyTree
from dressage.envs.multi_agent import (
    Actions,
    AgentsReset,
    AgentsTransition,
    MultiAgentEnv,
    split_agents,
    stack_agents,
)
from dressage.envs.spaces import Box, Discrete

STEP_REWARD = -0.02
EXIT_REWARD = 1.0
BURIED_REWARD = -1.0

OPTIONS = (
    Option("num_agents", 3, "integer", minimum=1, unit="agents", help="Agents in the corridor."),
    Option("length", 10, "integer", minimum=4, unit="cells", help="Cells; the last one is the exit."),
    Option("pace", 2, "integer", minimum=1, unit="steps", help="Steps in which one more cell falls in."),
    Option("max_steps", 40, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CorridorState:
    """Where `N` agents and the rubble are.

    Attributes:
        cell: int32 `[N]`, each agent's cell from 0; of those who are gone, the last.
        inside: bool `[N]`, whether the agent is still in the corridor.
        steps: int32, steps taken.
    """

    cell: jax.Array
    inside: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Corridor(MultiAgentEnv):
    """`N` agents in a row of cells walk to the exit at its end, while it falls in from its beginning.

    Each agent steps back (0), stays (1) or steps forward (2); it starts in a cell drawn from 1 to
    `length // 2`. After step t the first `t // pace` cells are full of rubble. An agent that reaches the last
    cell is out: it terminates with reward 1. One in a cell with rubble is buried: it terminates with reward
    -1. Every other step is rewarded with -0.02. `info["cost"]` is 1 where an agent that is still inside
    shares its cell with another one, so agents that start together pay unless one lets the other go ahead.

    Agents leave at different steps, and the longest possible episode has `pace * length` steps: by then the
    exit too has fallen in.

    Attributes:
        num_agents: Agents `N`, at least 1.
        length: Cells, at least 4.
        pace: Steps in which one more cell falls in, at least 1.
        max_steps: Time limit in steps.
    """

    num_agents: int = 3
    length: int = 10
    pace: int = 2
    max_steps: int = 40

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """`agent_0`, `agent_1`, ..."""
        return tuple(f"agent_{i}" for i in range(self.num_agents))

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Draw each agent's cell."""
        cell = jax.random.randint(rng, (self.num_agents,), 1, self.length // 2 + 1)
        state = CorridorState(cell, jnp.ones(self.num_agents, bool), jnp.zeros((), jnp.int32))
        return state, self._split(self._observe(state)), self._split({"cost": _crowded(state)})

    def step(self, state: CorridorState, actions: Actions) -> AgentsTransition:
        """Move everyone who is inside; see `MultiAgentEnv.step`."""
        moves = stack_agents(actions, self.possible_agents) - 1
        cell = jnp.where(state.inside, jnp.maximum(state.cell + moves, 0), state.cell)
        steps = state.steps + 1
        out = state.inside & (cell >= self.length - 1)
        buried = state.inside & ~out & (cell < steps // self.pace)
        state = CorridorState(cell, state.inside & ~out & ~buried, steps)
        reward = jnp.where(out, EXIT_REWARD, jnp.where(buried, BURIED_REWARD, STEP_REWARD))
        never = dict.fromkeys(self.possible_agents, jnp.asarray(False))
        observations, ended = self._split(self._observe(state)), self._split(out | buried)
        infos = self._split({"cost": _crowded(state)})
        return state, observations, self._split(reward), ended, never, infos

    def alive(self, state: CorridorState) -> dict[str, Flag]:
        """Whoever is still inside."""
        return self._split(state.inside)

    def observation_space(self, state: CorridorState, agent: str) -> Box:
        """Float32 `[2 + 2 (N - 1)]`, lengths as shares of the corridor's.

        Its own cell, the rubble's end, then for each of the others the way to it and whether it is inside;
        both 0 for those who are gone.
        """
        others = self.num_agents - 1
        low = np.array([0.0, 0.0] + [-1.0, 0.0] * others, np.float32)
        return Box(low, np.ones(2 + 2 * others, np.float32))

    def action_space(self, state: CorridorState, agent: str) -> Discrete:
        """Back, stay, forward."""
        return Discrete(3)

    def render(self, state: CorridorState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.multi_agent_drawing import draw_corridor

        rubble = int(state.steps) // self.pace
        return draw_corridor(np.asarray(state.cell), np.asarray(state.inside), self.length, rubble)

    def _observe(self, state: CorridorState) -> jax.Array:
        number, last = self.num_agents, self.length - 1
        way = (state.cell[None, :] - state.cell[:, None]) / last * state.inside[None, :]
        seen = jnp.stack([way, jnp.broadcast_to(state.inside, (number, number))], axis=2)
        # The others in order: of the first i for agent i, then of those after it.
        earlier = jnp.arange(number - 1)[None, :, None] < jnp.arange(number)[:, None, None]
        others = jnp.where(earlier, seen[:, :-1], seen[:, 1:]).reshape(number, 2 * (number - 1))
        rubble = jnp.minimum(state.steps // self.pace / last, 1.0)
        own = jnp.stack([state.cell / last, jnp.broadcast_to(rubble, (number,))], axis=1)
        return jnp.concatenate([own, others], axis=1)

    def _split(self, stacked: PyTree) -> dict[str, Any]:
        return split_agents(stacked, self.possible_agents)


def _crowded(state: CorridorState) -> jax.Array:
    """`[N]` float32, 1 for whoever is inside and shares its cell with another one who is."""
    together = (state.cell[:, None] == state.cell[None, :]) & state.inside[None, :]
    return (state.inside & (jnp.sum(together, axis=1) > 1)).astype(jnp.float32)
