"""What the agents of a group see and do: their spaces as the learner's arrays, action masks set apart."""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax.numpy as jnp
from jax import Array

from dressage.errors import UnsupportedSpaceError
from dressage.learning.records import Observed
from dressage.learning.specs import AgentSpec, ObservationLayout, agent_spec, observation_layout
from dressage.workers import ACTION_MASK, without_mask


@dataclass(frozen=True)
class GroupSpaces:
    """The spaces of agents that have equal ones.

    Attributes:
        agents: Their names, in the environment's order.
        spec: The sizes of one agent's spaces; its `agent_id` is the first agent's.
        layout: How an observation, without its mask, is flattened.
        masked: Whether observations carry a mask.
        bare: Whether what stands beside the mask is one array instead of a Dict.
        observation_space: One agent's observation space, mask included.
        action_space: One agent's action space.
    """

    agents: tuple[str, ...]
    spec: AgentSpec
    layout: ObservationLayout
    masked: bool
    bare: bool
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]

    @classmethod
    def of(
        cls,
        agents: tuple[str, ...],
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> "GroupSpaces":
        """Read the arrays' layout off the spaces.

        Raises:
            UnsupportedSpaceError: If a space is not supported, or a mask does not have one entry a choice; it
                names the agent and the space.
        """
        rest = without_mask(observation_space)
        spec = agent_spec(agents[0], rest, action_space)
        masked = rest is not observation_space
        if masked:
            _check_mask(agents[0], observation_space, spec)
        bare = masked and not isinstance(rest, gymnasium.spaces.Dict)
        layout = observation_layout(agents[0], rest)
        return cls(agents, spec, layout, masked, bare, observation_space, action_space)

    def observe(self, observation: Any) -> Observed:  # noqa: ANN401 (any tree of arrays)
        """Flatten observations with any leading axes; what a mask forbids is False."""
        if not self.masked:
            return Observed(self.layout.flatten(observation))
        rest = {name: part for name, part in observation.items() if name != ACTION_MASK}
        seen = next(iter(rest.values())) if self.bare else rest
        return Observed(self.layout.flatten(seen), self.mask(observation[ACTION_MASK]))

    def mask(self, given: Any) -> Array:  # noqa: ANN401
        """Lay a mask out as `[..., sum(nvec)]` bool; a Tuple of masks, one a component, is joined."""
        if isinstance(given, tuple | list):
            return jnp.concatenate([jnp.asarray(part) != 0 for part in given], axis=-1)
        mask = jnp.asarray(given) != 0
        width = sum(self.spec.action_nvec)
        return mask if mask.shape[-1] == width else mask.reshape(*mask.shape[:-2], width)


def _check_mask(agent: str, space: gymnasium.Space[Any], spec: AgentSpec) -> None:
    mask = space[ACTION_MASK]  # type: ignore[index]
    choices = sum(spec.action_nvec)
    parts = mask.spaces if isinstance(mask, gymnasium.spaces.Tuple) else (mask,)
    size = sum(math.prod(part.shape or ()) for part in parts)
    if size != choices or choices == 0:
        raise UnsupportedSpaceError(
            f"Agent {agent!r} has an action mask in {mask}, which has {size} entries; its actions have "
            f"{choices} discrete choices, and a mask needs one entry for each."
        )
