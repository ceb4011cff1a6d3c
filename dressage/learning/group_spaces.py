"""What the agents of a group see and do: their spaces as the learner's arrays, action masks set apart."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax.numpy as jnp
from jax import Array

from dressage.errors import UnsupportedSpaceError
from dressage.learning.records import Observed
from dressage.learning.specs import AgentSpec, ObservationLayout, agent_spec, observation_layout

ACTION_MASK = "action_mask"
"""Key of a Dict observation, or of an agent's info, under which its legal choices stand."""


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


def without_mask(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Return an observation space less its action mask; a Dict with one other part becomes that part."""
    if not isinstance(space, gymnasium.spaces.Dict) or ACTION_MASK not in space.spaces:
        return space
    rest = {name: part for name, part in space.spaces.items() if name != ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else gymnasium.spaces.Dict(rest)


def equal_groups(
    agents: Sequence[str],
    observation_spaces: dict[str, gymnasium.Space[Any]],
    action_spaces: dict[str, gymnasium.Space[Any]],
) -> tuple[GroupSpaces, ...]:
    """Gather agents with equal spaces, groups in the order of their first agents.

    Raises:
        UnsupportedSpaceError: If a space is not supported.
    """
    groups: list[list[str]] = []
    for agent in agents:
        both = observation_spaces[agent], action_spaces[agent]
        equal = next((g for g in groups if (observation_spaces[g[0]], action_spaces[g[0]]) == both), None)
        if equal is None:
            groups.append([agent])
        else:
            equal.append(agent)
    return tuple(
        GroupSpaces.of(tuple(names), observation_spaces[names[0]], action_spaces[names[0]])
        for names in groups
    )


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
