"""A grid whose shortcut leads through hazards: the smallest task whose best lawful policy is randomised."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dressage.config import Option
from dressage.envs.cmdp import FiniteCMDP
from dressage.envs.functional import BaseEnv, Reset, Transition
from dressage.envs.spaces import Box, Discrete

ROWS, COLUMNS = 3, 4
CELLS = ROWS * COLUMNS
START, GOAL, HAZARDS = (2, 0), (2, 3), ((2, 1), (2, 2))
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left; neighbours in this circle are perpendicular to one another."""
STEP_REWARD, GOAL_REWARD = -1.0, 10.0

OPTIONS = (
    Option(
        "slip",
        0.0,
        "number",
        minimum=0.0,
        maximum=0.5,
        help="Probability of moving to one side of the chosen direction, and as much to the other.",
    ),
    Option("max_steps", 200, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


def _cell(row: int, column: int) -> int:
    return row * COLUMNS + column


def _landing_table() -> npt.NDArray[np.int32]:
    """Where a move leads, `[12, 4]`: off the grid it leads nowhere."""
    table = np.empty((CELLS, len(MOVES)), np.int32)
    for cell in range(CELLS):
        row, column = divmod(cell, COLUMNS)
        for move, (down, right) in enumerate(MOVES):
            inside = 0 <= row + down < ROWS and 0 <= column + right < COLUMNS
            table[cell, move] = _cell(row + down, column + right) if inside else cell
    return table


LANDING = _landing_table()
HAZARD_CELLS = tuple(_cell(*place) for place in HAZARDS)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ShortcutState:
    """Where the agent is.

    Attributes:
        cell: int32, row times 4 plus column.
        key: Random key of the moves to come.
    """

    cell: jax.Array
    key: jax.Array


@dataclass(frozen=True)
class ShortcutCMDP(BaseEnv):
    """Walk from the lower left to the lower right of a 3 x 4 grid; between them lie two hazards.

    A move goes where it was chosen to with probability `1 - 2 slip`, and to either side with `slip` each; off
    the grid it leads nowhere. Each step is rewarded with -1, the one that enters the goal with +10 instead,
    and the episode terminates there. `info["cost"]` is 1 whenever a step ends in a hazard, also one that
    bounced off the wall inside it.

    Straight through the hazards the undiscounted return is 8 at cost 2, around them 6 at cost 0. Without slip
    the best return under a limit `d` on the expected cost is `6 + min(d, 2)`, reached by drawing the way at
    random, so a trained policy must be evaluated with its randomness. `solve_cmdp` gives the optimum of any
    slip and limit.

    Attributes:
        slip: Probability of each of the two perpendicular moves, in [0, 0.5].
        max_steps: Time limit in steps.
    """

    slip: Any = 0.0
    max_steps: int = 200

    redraws: ClassVar[bool] = True

    def reset(self, rng: jax.Array) -> Reset:
        """Start in the lower left corner."""
        state = ShortcutState(jnp.int32(_cell(*START)), rng)
        return state, _observe(state), {"cost": jnp.zeros(())}

    def step(self, state: ShortcutState, action: jax.Array) -> Transition:
        """Move up, right, down or left (0 to 3); see `BaseEnv.step`."""
        key, now = jax.random.split(state.key)
        drawn = jax.random.uniform(now)
        turn = jnp.where(drawn < self.slip, 1, jnp.where(drawn < 2 * self.slip, -1, 0))
        cell = jnp.asarray(LANDING)[state.cell, (jnp.asarray(action) + turn) % len(MOVES)]
        state = ShortcutState(cell, key)
        arrived = cell == _cell(*GOAL)
        reward = jnp.where(arrived, GOAL_REWARD, STEP_REWARD)
        cost = jnp.isin(cell, jnp.asarray(HAZARD_CELLS)).astype(jnp.float32)
        return state, _observe(state), reward, arrived, False, {"cost": cost}

    def redraw(self, state: ShortcutState, rng: jax.Array) -> ShortcutState:
        """Give the episode chances of its own."""
        return ShortcutState(state.cell, rng)

    def observation_space(self, state: ShortcutState) -> Box:
        """One-hot cell, float32 `[12]`, row by row."""
        return Box(0.0, 1.0, (CELLS,))

    def action_space(self, state: ShortcutState) -> Discrete:
        """Up, right, down, left."""
        return Discrete(len(MOVES))

    def render(self, state: ShortcutState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.constrained_drawing import draw_grid

        return draw_grid(divmod(int(state.cell), COLUMNS), (ROWS, COLUMNS), GOAL, HAZARDS)

    def model(self) -> FiniteCMDP:
        """Return the process over the 12 cells; its four actions are the moves."""
        landings = self.landings()
        arrival = landings[:, :, _cell(*GOAL)].copy()
        landings[:, :, _cell(*GOAL)] = 0.0  # the episode ends there
        return FiniteCMDP(
            transitions=landings,
            rewards=arrival * GOAL_REWARD + (1 - arrival) * STEP_REWARD,
            costs=landings[:, :, list(HAZARD_CELLS)].sum(axis=-1),
            initial=np.eye(CELLS)[_cell(*START)],
        )

    def landings(self) -> npt.NDArray[np.float64]:
        """Return the probability `[12, 4, 12]` of each cell to be in after a move."""
        slip = float(self.slip)
        reached = np.eye(CELLS)[LANDING]  # [cell, move, next cell]
        aside = np.roll(reached, -1, axis=1) + np.roll(reached, 1, axis=1)
        return (1 - 2 * slip) * reached + slip * aside


def _observe(state: ShortcutState) -> jax.Array:
    return jax.nn.one_hot(state.cell, CELLS)
