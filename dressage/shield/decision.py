"""What a shield is: it sees, is told a proposal and its own parameters, and decides what is done."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
from jax import Array

PyTree: TypeAlias = Any
Space: TypeAlias = "gymnasium.Space[Any]"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decision:
    """What a shield made of a proposal.

    Attributes:
        action: What is executed: a zero-based index `[]` int32, or an action `[n]` float32.
        intervened: `[]` bool, whether that differs from what the proposal alone would have led to.
        feasible: `[]` bool, whether some action keeps the shield's rule; where none does, `action` breaks it
            least and no guarantee holds from here on.
        memory: What the shield remembers of the decision, for `Shield.follow`.
    """

    action: Array
    intervened: Array
    feasible: Array
    memory: PyTree


class Shield(Protocol):
    """Decides what is done, for one agent at a time, in pure functions of arrays.

    Attributes:
        parameter_dim: How many real numbers of its own the shield takes with each proposal, >= 0. They are
            unbounded; each shield maps them to its own range.
        memory_dim: How many numbers of its memory a policy has to see, >= 0.
    """

    @property
    def parameter_dim(self) -> int:
        """Numbers that the shield takes with each proposal."""

    @property
    def memory_dim(self) -> int:
        """Numbers of its memory that a policy has to see."""

    def proposal_space(self, space: Space, agent: str) -> Space:
        """Return the space of proposals for an agent that acts in `space`.

        Raises:
            UnsupportedSpaceError: If the shield does not fit such actions.
        """

    def begin(self, seen: PyTree) -> PyTree:
        """Return what it remembers at the start of an episode."""

    def decide(self, memory: PyTree, seen: PyTree, proposal: Array, parameters: Array) -> Decision:
        """Decide what is done.

        Args:
            memory: What `begin` or `follow` returned.
            seen: What the shield knows of the state the agent acts in.
            proposal: Zero-based index `[]`, or an action `[n]`.
            parameters: `[parameter_dim]`.
        """

    def follow(self, memory: PyTree, seen: PyTree) -> PyTree:
        """Return what it remembers in the state that a decision led to."""

    def features(self, memory: PyTree) -> Array:
        """Return what a policy sees of its memory, `[memory_dim]` float32."""


def nearest_allowed(proposal: Array, risks: Array, threshold: Array) -> tuple[Array, Array]:
    """Choose the action nearest to a proposal whose risk is no greater than a threshold.

    Args:
        proposal: Index `[]`, from 0.
        risks: `[actions]`, NaN counts as infinite.
        threshold: `[]`.

    Returns:
        The index, int32: of those allowed the one with the nearest number, of two equally near ones the less
        risky; where none is allowed, of the least risky ones the nearest. And whether any is allowed, bool.
    """
    risks = jnp.where(jnp.isnan(risks), jnp.inf, risks)
    distance = jnp.abs(jnp.arange(risks.shape[0]) - proposal).astype(jnp.float32)
    allowed = risks <= threshold
    any_allowed = jnp.any(allowed)
    candidates = jnp.where(any_allowed, allowed, risks == jnp.min(risks))
    nearest = candidates & (distance == jnp.min(jnp.where(candidates, distance, jnp.inf)))
    return jnp.argmin(jnp.where(nearest, risks, jnp.inf)).astype(jnp.int32), any_allowed
