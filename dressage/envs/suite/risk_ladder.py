"""A climb whose every pace has a known probability of a fall."""

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

PACES = (1, 2, 3)
"""Rungs of a step: carefully, briskly, leaping."""
FALL_WEIGHTS = (0.02, 0.2, 1.0)
"""Probability of a fall from the lowest rung at each pace, in units of `risk`."""
SLIP = 0.2  # probability that a step that does not fall comes one rung short
STEP_REWARD, TOP_REWARD = -1.0, 10.0

OPTIONS = (
    Option("rungs", 10, "integer", minimum=3, unit="rungs", help="Rungs of the ladder; the last is the top."),
    Option(
        "risk",
        0.05,
        "number",
        minimum=0.0,
        maximum=0.5,
        help="Probability that a leap from the lowest rung ends in a fall; towards the top it doubles.",
    ),
    Option("max_steps", 60, "integer", minimum=1, unit="steps", help="Time limit of an episode."),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LadderState:
    """Where the climber is.

    Attributes:
        rung: int32, from 0; that of the last hold after a fall.
        key: Random key of the steps to come.
    """

    rung: jax.Array
    key: jax.Array


@dataclass(frozen=True)
class RiskLadder(BaseEnv):
    """Climb a ladder by 1, 2 or 3 rungs a step; the faster, the likelier is a fall.

    From rung `k` a step at pace `a` ends in a fall with probability `risk w_a (1 + k / rungs)`, where `w` is
    0.02, 0.2 and 1. Otherwise it gains its rungs with probability 0.8, and one less with 0.2. Each step is
    rewarded with -1, the one that reaches the top with +10 instead; there and after a fall the episode
    terminates. `info["cost"]` is 1 for a fall, so an episode's expected cost is the probability of falling.

    All probabilities are known: `falls()` and `climbs()` are what a probabilistic shield needs, `model()` is
    what `solve_cmdp` needs.

    Attributes:
        rungs: Rungs, the top included, at least 3.
        risk: Probability of a fall of a leap from the lowest rung, in [0, 0.5].
        max_steps: Time limit in steps.
    """

    rungs: int = 10
    risk: Any = 0.05
    max_steps: int = 60

    redraws: ClassVar[bool] = True

    def reset(self, rng: jax.Array) -> Reset:
        """Start on rung 0."""
        state = LadderState(jnp.int32(0), rng)
        return state, self._observe(state), {"cost": jnp.zeros(())}

    def step(self, state: LadderState, action: jax.Array) -> Transition:
        """Climb carefully, briskly or leaping (0 to 2); see `BaseEnv.step`."""
        key, fall_key, slip_key = jax.random.split(state.key, 3)
        weight = jnp.asarray(FALL_WEIGHTS)[action]
        falls = jax.random.uniform(fall_key) < self.risk * weight * (1 + state.rung / self.rungs)
        gain = jnp.asarray(PACES)[action] - jax.random.bernoulli(slip_key, SLIP)
        reached = jnp.minimum(state.rung + gain, self.rungs - 1)
        state = LadderState(jnp.where(falls, state.rung, reached), key)
        tops = ~falls & (reached == self.rungs - 1)
        reward = jnp.where(tops, TOP_REWARD, STEP_REWARD)
        return state, self._observe(state), reward, falls | tops, False, {"cost": falls.astype(jnp.float32)}

    def redraw(self, state: LadderState, rng: jax.Array) -> LadderState:
        """Give the episode chances of its own."""
        return LadderState(state.rung, rng)

    def observation_space(self, state: LadderState) -> Box:
        """One-hot rung, float32 `[rungs]`."""
        return Box(0.0, 1.0, (self.rungs,))

    def action_space(self, state: LadderState) -> Discrete:
        """Carefully, briskly, leaping."""
        return Discrete(len(PACES))

    def render(self, state: LadderState) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""
        from dressage.envs.suite.constrained_drawing import draw_ladder

        return draw_ladder(int(state.rung), self.falls())

    def falls(self) -> npt.NDArray[np.float64]:
        """Return the probability `[rungs, 3]` of a fall at each pace from each rung; 0 from the top."""
        height = np.arange(self.rungs)[:, None] / self.rungs
        table = float(self.risk) * np.array(FALL_WEIGHTS) * (1 + height)
        table[-1] = 0.0
        return table

    def climbs(self) -> npt.NDArray[np.float64]:
        """Return the probability `[rungs, 3, rungs]` of each next rung, given that there is no fall."""
        table = np.zeros((self.rungs, len(PACES), self.rungs))
        for rung in range(self.rungs):
            for pace, gain in enumerate(PACES):
                table[rung, pace, min(rung + gain, self.rungs - 1)] += 1 - SLIP
                table[rung, pace, min(rung + gain - 1, self.rungs - 1)] += SLIP
        return table

    def model(self) -> FiniteCMDP:
        """Return the process over the rungs; it starts on rung 0 and ends at the top or by a fall."""
        falls, climbs = self.falls(), self.climbs()
        moves = (1 - falls)[:, :, None] * climbs
        tops = moves[:, :, -1].copy()
        moves[:, :, -1] = 0.0
        rewards = tops * TOP_REWARD + (1 - tops) * STEP_REWARD
        return FiniteCMDP(moves, rewards, falls, np.eye(self.rungs)[0])

    def _observe(self, state: LadderState) -> jax.Array:
        return jax.nn.one_hot(state.rung, self.rungs)
