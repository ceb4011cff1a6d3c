"""A shield for discrete actions whose risk is known one step ahead."""

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
from jax import Array

from dressage.errors import ConfigError, UnsupportedSpaceError
from dressage.shield.decision import Decision, PyTree, Space, nearest_allowed


@dataclass(frozen=True)
class MaskShield:
    r"""Lets an action pass whose risk is at most a threshold, and else takes the nearest one that has that.

    With the risk $\rho_a$ of each action and the shield's parameter $z$ the allowed actions are

    $$\rho_a \le \rho_{max}\, \mathrm{sigmoid}(z)$$

    "Nearest" is by the actions' numbers, so order them so that neighbours are alike; of two equally near ones
    the less risky is taken.

    **Guarantee.** In every step in which some action's risk is at most the threshold, the executed action's
    is, whatever is proposed and whatever the parameter. **Conditions:** `risk` is right for the state that
    the action is executed in. Where no action is allowed, the least risky one is executed and `feasible` is
    False; the shield looks one step ahead, so it may itself have led there.

    Attributes:
        risk: From what the shield sees to the risk of each action, `[actions]`: a probability, or 0 and 1 for
            allowed and forbidden. NaN counts as infinite.
        threshold: A fixed threshold; None for one that comes with each proposal.
        greatest_risk: The threshold that the parameter approaches from below, > 0.

    Raises:
        ConfigError: If `greatest_risk` is not positive, or a fixed threshold negative or NaN.

    Reference:
        Alshiekh et al. 2018, "Safe Reinforcement Learning via Shielding" (post-posed shielding).
        Departure: a risk and a threshold instead of a set of safe actions.
    """

    risk: Callable[[PyTree], Array]
    threshold: float | None = None
    greatest_risk: float = 1.0

    def __post_init__(self) -> None:
        if not self.greatest_risk > 0:
            raise ConfigError(f"MaskShield's greatest_risk must be > 0, got {self.greatest_risk!r}.")
        if self.threshold is not None and not self.threshold >= 0:
            raise ConfigError(f"MaskShield's threshold must be >= 0 or None, got {self.threshold!r}.")

    @property
    def parameter_dim(self) -> int:
        """1, or 0 with a fixed threshold."""
        return 1 if self.threshold is None else 0

    @property
    def memory_dim(self) -> int:
        """0."""
        return 0

    def proposal_space(self, space: Space, agent: str) -> Space:
        """Return the agent's own space, which must be `Discrete`."""
        return discrete_space(space, agent, "MaskShield")

    def check_risks(self, seen: PyTree, space: Space, agent: str) -> None:
        """See that there is one risk for each action; looks at shapes alone.

        Raises:
            UnsupportedSpaceError: If there is not; the text names the agent and both numbers.
        """
        found = jax.eval_shape(lambda seen: jnp.asarray(self.risk(seen)), seen).shape
        number = getattr(space, "n", None)
        if found != (number,):
            raise UnsupportedSpaceError(
                f"This MaskShield's risk has shape {found} for agent {agent!r}, which has {number} actions: "
                f"give one risk for each, shape ({number},)."
            )

    def begin(self, seen: PyTree) -> tuple[()]:
        """Remember nothing."""
        return ()

    def decide(self, memory: PyTree, seen: PyTree, proposal: Array, parameters: Array) -> Decision:
        """Let the proposal pass, or take the nearest action that is allowed; see `Shield.decide`."""
        threshold = self.threshold_of(parameters)
        action, feasible = nearest_allowed(proposal, jnp.asarray(self.risk(seen)), threshold)
        return Decision(action, action != proposal, feasible, ())

    def follow(self, memory: PyTree, seen: PyTree) -> tuple[()]:
        """Remember nothing."""
        return ()

    def features(self, memory: PyTree) -> Array:
        """Nothing to see, `[0]`."""
        return jnp.zeros(0)

    def threshold_of(self, parameters: Array) -> Array:
        """Return the greatest risk that passes, `[]`."""
        if self.threshold is not None:
            return jnp.asarray(self.threshold, jnp.float32)
        threshold: Array = self.greatest_risk * jax.nn.sigmoid(jnp.nan_to_num(parameters[0]))
        return threshold


def discrete_space(space: Space, agent: str, shield: str) -> Space:
    """Return a space if it is `Discrete`.

    Raises:
        UnsupportedSpaceError: If it is another; the text names shield and agent.
    """
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise UnsupportedSpaceError(
            f"{shield} shields Discrete actions; agent {agent!r} acts in {space}. Leave the agent out of the "
            "shields, or give it one that fits: BarrierShield for a Box of one axis."
        )
    return space
