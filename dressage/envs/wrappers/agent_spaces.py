"""The spaces of many agents as Gymnasium's, and which agents have equal ones."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dressage.envs.functional import AnySpace, PyTree
from dressage.envs.multi_agent import MultiAgentEnv
from dressage.envs.spaces import Box, Discrete, MultiDiscrete
from dressage.envs.wrappers.base import concrete_spaces

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class AgentSpaces:
    """Spaces by agent.

    Attributes:
        observation: Each agent's observation space.
        action: Each agent's action space.
        groups: Agents for whom both are equal, by their first agent's place in `possible_agents`.
    """

    observation: "dict[str, gymnasium.Space[Any]]"
    action: "dict[str, gymnasium.Space[Any]]"
    groups: tuple[tuple[str, ...], ...]


def agent_spaces(env: MultiAgentEnv) -> AgentSpaces:
    """Return the spaces of an environment's agents, concrete also inside a traced function.

    Args:
        env: A functional environment of many agents; its spaces may be ours or any of Gymnasium's.
    """
    agents = env.possible_agents

    def spaces_in(state: PyTree) -> dict[str, tuple[AnySpace, AnySpace]]:
        return {name: (env.observation_space(state, name), env.action_space(state, name)) for name in agents}

    found: dict[str, tuple[AnySpace, AnySpace]] = concrete_spaces(env.reset, spaces_in)
    observation = {agent: _gymnasium(found[agent][0]) for agent in agents}
    action = {agent: _gymnasium(found[agent][1]) for agent in agents}
    groups: list[list[str]] = []
    for agent in agents:
        both = observation[agent], action[agent]
        equal = next((group for group in groups if (observation[group[0]], action[group[0]]) == both), None)
        if equal is None:
            groups.append([agent])
        else:
            equal.append(agent)
    return AgentSpaces(observation, action, tuple(tuple(group) for group in groups))


def _gymnasium(space: AnySpace) -> "gymnasium.Space[Any]":
    ours = isinstance(space, Box | Discrete | MultiDiscrete)
    given: gymnasium.Space[Any] = space.to_gymnasium() if ours else space
    return given
