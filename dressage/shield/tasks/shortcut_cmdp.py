"""`shortcut_cmdp` with a shield against steps that may end in a hazard."""

from dataclasses import dataclass, replace
from functools import cached_property

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from dressage.config import Option
from dressage.envs.registry import ShippedTask
from dressage.envs.suite.shortcut_cmdp import HAZARD_CELLS, OPTIONS, ShortcutCMDP
from dressage.shield.functional import ShieldedEnv, shielded
from dressage.shield.mask import MaskShield

RISK_OPTION = Option(
    "greatest_risk",
    0.5,
    "number",
    minimum=0.0,
    maximum=1.0,
    open_minimum=True,
    help="Probability of ending in a hazard that the shield's threshold approaches from below.",
)


@dataclass(frozen=True)
class HazardRisk:
    """The probability of each move to end in a hazard, read off the observed cell.

    Attributes:
        env: The grid.
    """

    env: ShortcutCMDP

    @cached_property
    def table(self) -> npt.NDArray[np.float32]:
        """`[12, 4]`."""
        risks: npt.NDArray[np.float32] = (
            self.env.landings()[:, :, list(HAZARD_CELLS)].sum(axis=-1).astype(np.float32)
        )
        return risks

    def __call__(self, seen: Array) -> Array:
        """Return the risk of each move `[4]` from a one-hot cell `[12]`."""
        return jnp.asarray(self.table)[jnp.argmax(seen)]


def shielded_shortcut_cmdp(
    slip: float = 0.1, greatest_risk: float = 0.5, max_steps: int = 200
) -> ShieldedEnv:
    """Make `shortcut_cmdp` with a `MaskShield`, whose parameter says which risk of a hazard passes.

    Args:
        slip: Probability of each of the two perpendicular moves.
        greatest_risk: Probability that the threshold approaches from below.
        max_steps: Time limit in steps.
    """
    env = ShortcutCMDP(slip, max_steps)
    return shielded(env, MaskShield(HazardRisk(env), greatest_risk=greatest_risk))


TASK = ShippedTask(
    shielded_shortcut_cmdp,
    (*(replace(option, default=0.1) if option.name == "slip" else option for option in OPTIONS), RISK_OPTION),
    "Cross a grid; a shield stops moves that too likely end in a hazard.",
)
