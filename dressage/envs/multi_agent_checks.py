"""Whether an environment of many agents keeps its contract, found out by tracing it once."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp

from dressage.envs.checks import (
    check_max_steps,
    check_observation,
    check_scalar,
    check_space,
    check_state,
    returned_items,
)
from dressage.envs.functional import AnySpace, PyTree
from dressage.envs.multi_agent import COST, MultiAgentEnv
from dressage.envs.spaces import as_space
from dressage.envs.wrappers.agent_spaces import AgentSpaces, agent_spaces
from dressage.errors import EnvironmentContractError

COMPOSITE = gymnasium.spaces.Dict | gymnasium.spaces.Tuple


def check_multi_agent_environment(env: MultiAgentEnv) -> AgentSpaces:
    """Check agents, spaces, shapes, dtypes and state of an environment, and return its spaces.

    `reset`, `step` and `alive` are traced, not run. Values cannot be checked so: whether an observation is
    finite and within its space shows at run time.

    Args:
        env: A functional environment of many agents.

    Returns:
        Every agent's spaces, and who has equal ones.

    Raises:
        EnvironmentContractError: If something has the wrong structure, shape or dtype, or an agent is
            missing; the text names the environment, the place, the agent, what was expected and what came.
        UnsupportedSpaceError: If a space is of a kind that is not supported, or empty.
    """
    if not isinstance(env, MultiAgentEnv):
        raise EnvironmentContractError(
            f"An environment of many agents must derive from MultiAgentEnv, got {type(env).__name__}."
        )
    name = type(env).__name__
    check_max_steps(env, name)
    _check_names(env, name)
    key = jax.eval_shape(lambda: jax.random.key(0))
    started = returned_items(env.reset, (key,), ("state", "observations", "infos"), f"{name}.reset")
    state = started["state"]
    _check_agents(env, started, ("observations", "infos"), f"{name}.reset")
    _check_agents(env, {"alive": jax.eval_shape(env.alive, state)}, ("alive",), name)
    _check_spaces(env, state, name)
    spaces = agent_spaces(env)
    actions = {agent: jax.eval_shape(partial(_zeros, space)) for agent, space in spaces.action.items()}
    names = ("state", "observations", "rewards", "terminated", "truncated", "infos")
    stepped = returned_items(env.step, (state, actions), names, f"{name}.step")
    _check_agents(env, stepped, names[1:], f"{name}.step")
    check_state(state, stepped["state"], name)
    for agent in env.possible_agents:
        for place, items in ((f"{name}.reset", started), (f"{name}.step", stepped)):
            _check_observed(items["observations"][agent], spaces.observation[agent], f"{place} for {agent}")
        for field in ("rewards", "terminated", "truncated"):
            check_scalar(stepped[field][agent], field, f"{name}.step for {agent}", real=field == "rewards")
        if COST in stepped["infos"][agent]:
            check_scalar(stepped["infos"][agent][COST], COST, f"{name}.step for {agent}", real=True)
    return spaces


def agents_with_costs(env: MultiAgentEnv) -> tuple[str, ...]:
    """Return the agents whose infos of a step hold a cost, found out by tracing `env` once.

    Args:
        env: An environment that keeps its contract.
    """
    return agents_told(env, COST)


def agents_told(env: MultiAgentEnv, key: str) -> tuple[str, ...]:
    """Return the agents whose infos of a step have a key, found out by tracing `env` once.

    Args:
        env: An environment that keeps its contract.
        key: The key.
    """
    state = jax.eval_shape(lambda: env.reset(jax.random.key(0))[0])
    spaces = agent_spaces(env)
    actions = {agent: jax.eval_shape(partial(_zeros, space)) for agent, space in spaces.action.items()}
    infos = jax.eval_shape(env.step, state, actions)[5]
    return tuple(agent for agent in env.possible_agents if key in infos[agent])


def _check_names(env: MultiAgentEnv, name: str) -> None:
    agents: Any = env.possible_agents
    if not isinstance(agents, tuple) or not agents or not all(isinstance(agent, str) for agent in agents):
        raise EnvironmentContractError(
            f"{name}.possible_agents must be a tuple of at least one name, got {agents!r}."
        )
    if len(set(agents)) < len(agents):
        raise EnvironmentContractError(f"{name}.possible_agents names an agent twice: {agents!r}.")


def _check_agents(
    env: MultiAgentEnv, items: Mapping[str, PyTree], fields: tuple[str, ...], place: str
) -> None:
    for field in fields:
        by_agent = items[field]
        if not isinstance(by_agent, Mapping):
            raise EnvironmentContractError(
                f"{place} must give {field} as a dict by agent, got a {type(by_agent).__name__}."
            )
        missing = [agent for agent in env.possible_agents if agent not in by_agent]
        if missing:
            raise EnvironmentContractError(
                f"{place} gave no {field} for {', '.join(missing)}; every dict holds all of possible_agents."
            )


def _check_spaces(env: MultiAgentEnv, state: PyTree, name: str) -> None:
    for agent, kind in itertools.product(env.possible_agents, ("observation_space", "action_space")):
        space_of = partial(getattr(env, kind), agent=agent)
        if not isinstance(_found(space_of, state), COMPOSITE):
            check_space(space_of, state, f"{name}.{kind} of {agent}")


def _found(space_of: Callable[[PyTree], AnySpace], state: PyTree) -> AnySpace:
    found: list[AnySpace] = []
    jax.eval_shape(lambda state: found.append(space_of(state)), state)
    return found[0]


def _check_observed(observation: PyTree, space: "gymnasium.Space[Any]", place: str) -> None:
    """Compare an observation with its space, part by part."""
    if not isinstance(space, COMPOSITE):
        check_observation(observation, as_space(space), place)
        return
    parts: Any = space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
    expected = dict if isinstance(space, gymnasium.spaces.Dict) else tuple
    if not isinstance(observation, expected) or len(observation) != len(space.spaces):
        raise EnvironmentContractError(
            f"{place} must return an observation in {space!r}, got {observation!r}."
        )
    for key, part in parts:
        _check_observed(observation[key], part, f"{place} [{key!r}]")


def _zeros(space: "gymnasium.Space[Any]") -> PyTree:
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _zeros(part) for name, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_zeros(part) for part in space.spaces)
    return jnp.zeros(space.shape or (), jax.dtypes.canonicalize_dtype(space.dtype))
