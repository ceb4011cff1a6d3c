"""IPPO over augmented actions: discrete choices together with the raw parameters of a shield."""

from typing import Any

import gymnasium
import numpy as np

from dressage.errors import UnsupportedSpaceError
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Learner
from dressage.learning.specs import AgentSpec
from dressage.networks import Actor, ActorCritic, Critic
from dressage.rl.adapters import ParameterizedPolicyAdapter
from dressage.rl.algorithm import Algorithm
from dressage.rl.environments import TrainingEnv
from dressage.rl.options import IPPO_OPTIONS as OPTIONS
from dressage.rl.proximal import check_proximal, proximal_learner, proximal_steps

__all__ = [
    "OPTIONS",
    "ParameterizedActorCritic",
    "ParameterizedIPPO",
    "ParameterizedPolicyAdapter",
    "validate_parameterized_ippo_config",
]


class ParameterizedActorCritic(ActorCritic):
    """The actor-critic of an augmented action: logits of all choices, then means of the parameters.

    The log standard deviations of the parameters are free parameters of the network.
    """

    @classmethod
    def of(
        cls,
        nvec: tuple[int, ...],
        continuous_dim: int,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: str = "tanh",
    ) -> "ParameterizedActorCritic":
        """Return the network for an action.

        Args:
            nvec: Categories of each discrete component.
            continuous_dim: Number of raw parameters.
            hidden_sizes: Units of each hidden layer.
            activation: A name in `networks.ACTIVATIONS`.
        """
        outputs = sum(nvec) + continuous_dim
        actor = Actor(outputs, continuous_dim, True, hidden_sizes, activation)
        return cls(actor, Critic(hidden_sizes, activation))


class ParameterizedIPPO(Algorithm):
    """IPPO over factored categorical/raw-Gaussian augmented shield actions.

    The environment's action space is a Dict or Tuple of discrete components and unbounded Boxes. What is
    learned from is the augmented action before the shield, with its exact joint log-probability and entropy:
    bounding the parameters is for the shield or the environment, which works on its own copy.

    Reference:
        As `IPPO`; the factored distribution is `equations.distributions.AugmentedAction`.
    """

    NAME = "ParameterizedIPPO"
    OPTIONS = OPTIONS
    ADAPTER = ParameterizedPolicyAdapter

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them; see `Algorithm.validate`."""
        return check_proximal(super().validate(overrides), cls.NAME)

    def make_learner(
        self, spec: AgentSpec, spaces: GroupSpaces, env: TrainingEnv, optimizer_steps: int
    ) -> Learner:
        """Return the clipped-surrogate learner of one agent; see `Algorithm.make_learner`.

        Raises:
            UnsupportedSpaceError: If the agents' actions are not augmented ones, or their parameters have
                bounds.
        """
        _check_augmented(spaces)
        return proximal_learner(self.config, spec, optimizer_steps)

    def optimizer_steps(self, timesteps: int, copies: int) -> int:
        """Return the optimiser applications that `timesteps` steps over `copies` copies make."""
        return proximal_steps(self.config, timesteps, copies)


def validate_parameterized_ippo_config(overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Merge and validate ParameterizedIPPO options, rejecting misspelled ones.

    Args:
        overrides: What differs from the defaults; None means nothing.

    Returns:
        Every option with its checked value.

    Raises:
        ConfigError: If an option is unknown (the text names the nearest known one), of the wrong type, out of
            its range, or contradicts another.
    """
    return ParameterizedIPPO.validate(overrides)


def _check_augmented(spaces: GroupSpaces) -> None:
    agent, space = spaces.agents[0], spaces.action_space
    if spaces.spec.action_kind != "parameterized":
        raise UnsupportedSpaceError(
            f"Agent {agent!r} acts in {space}; ParameterizedIPPO needs a Dict or Tuple of discrete "
            "components and unbounded Boxes (`dressage.shield` makes one). For plain actions use IPPO."
        )
    for part in _boxes(space):
        if np.isfinite(part.low).any() or np.isfinite(part.high).any():
            raise UnsupportedSpaceError(
                f"Agent {agent!r} has bounded parameters, {part}. The policy's parameters are raw: give the "
                "Box the bounds -inf and inf, and bound them in the shield or the environment."
            )


def _boxes(space: gymnasium.Space[Any]) -> list[gymnasium.spaces.Box]:
    parts: Any = space.spaces  # type: ignore[attr-defined]
    listed = parts.values() if isinstance(parts, dict) else parts
    return [part for part in listed if isinstance(part, gymnasium.spaces.Box)]
