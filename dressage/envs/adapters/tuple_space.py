"""Gymnasium environments of many agents in tuples (lbforaging, rware) with the face of a `ParallelEnv`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from pettingzoo import ParallelEnv

from dressage.config import whole_number
from dressage.envs.adapters.extras import import_extra
from dressage.envs.adapters.pettingzoo import OF_EXTRAS, Options, ParallelTask
from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError

LIMITS = ("max_steps", "_max_episode_steps")
"""Where such environments keep their own time limit: rware, lbforaging."""


class TupleSpaceEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo says nothing about its types
    """A Gymnasium environment whose spaces, observations and rewards are tuples of one item an agent.

    Agents are called `agent_0`, `agent_1`, ... and end together. Such environments report their own time
    limit as an end. Here a step that ends the episode at `max_steps` truncates, an earlier one terminates.

    Args:
        env: The environment.
        max_steps: Time limit in steps, which this class enforces; None for the environment's own, and none
            where it has none.

    Raises:
        UnsupportedSpaceError: If its spaces are no tuples of equal lengths.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]", max_steps: int | None = None) -> None:
        observation_space, action_space = env.observation_space, env.action_space
        if not (
            isinstance(observation_space, gymnasium.spaces.Tuple)
            and isinstance(action_space, gymnasium.spaces.Tuple)
            and len(observation_space.spaces) == len(action_space.spaces) > 0
        ):
            raise UnsupportedSpaceError(
                f"{_name(env)} needs a Tuple space of observations and one of actions with an item for each "
                f"agent, got {observation_space} and {action_space}."
            )
        self.env = env
        self.max_steps = _own_limit(env) if max_steps is None else max_steps
        self.metadata = {**env.metadata, "name": _name(env)}
        self.render_mode = env.render_mode
        self.possible_agents = [f"agent_{i}" for i in range(len(action_space.spaces))]
        self.agents: list[str] = []
        self.observation_spaces: dict[str, gymnasium.Space[Any]] = self._by_agent(observation_space.spaces)
        self.action_spaces: dict[str, gymnasium.Space[Any]] = self._by_agent(action_space.spaces)
        self._steps = 0

    def observation_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Return the space of an agent's observations, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Return the space of an agent's actions, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode; see `pettingzoo.ParallelEnv.reset`."""
        observations, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self._steps = 0
        return self._by_agent(observations), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Make one step of all agents; see `pettingzoo.ParallelEnv.step`.

        Raises:
            EnvironmentContractError: If no episode is running, an agent has no action, or what the
                environment returned has not one item for each agent.
        """
        if not self.agents:
            raise EnvironmentContractError(
                f"Call reset before step: {_name(self.env)} has no running episode."
            )
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise EnvironmentContractError(f"{_name(self.env)} got no action for {', '.join(missing)}.")
        chosen = tuple(actions[agent] for agent in self.agents)
        observations, rewards, done, cut, info = self.env.step(chosen)
        self._steps += 1
        over = self.max_steps is not None and self._steps >= self.max_steps
        ended = bool(np.all(done))
        terminated, truncated = ended and not over, over or bool(np.all(cut))
        told = self._by_agent(observations)
        # Gymnasium says that a reward is one number; here it is a sequence of them.
        earned = self._by_agent(rewards)
        agents, self.agents = self.agents, [] if terminated or truncated else self.agents
        return (
            told,
            {agent: float(earned[agent]) for agent in agents},
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            {agent: dict(info) for agent in agents},
        )

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Draw the state as the environment does."""
        drawn: npt.NDArray[np.uint8] | None = self.env.render()  # type: ignore[assignment]  # or as it likes
        return drawn

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _by_agent(self, items: Any) -> dict[str, Any]:  # noqa: ANN401 (any sequence)
        if len(items) != len(self.possible_agents):
            raise EnvironmentContractError(
                f"{_name(self.env)} returned {len(items)} items for {len(self.possible_agents)} agents."
            )
        return dict(zip(self.possible_agents, items, strict=True))


def from_tuple_space(
    env: "str | Callable[..., gymnasium.Env[Any, Any]]",
    options: Options | None = None,
    *,
    max_steps: int | None = None,
) -> ParallelTask:
    """Return a task that makes copies of a tuple-space environment as PettingZoo's.

    Args:
        env: An id with its package, for example `lbforaging:Foraging-8x8-2p-1f-v3` or
            `rware:rware-tiny-2ag-v2`; or a function that makes a Gymnasium environment.
        options: Keyword arguments that it is made with.
        max_steps: Time limit in steps; None for the environment's own.

    Returns:
        The task; nothing is made yet.

    Raises:
        MissingExtraError: If the package comes with an extra that is not installed.
        ConfigError: If Gymnasium does not know the id, or `max_steps` is no integer of at least 1.
    """
    number = None if max_steps is None else whole_number(max_steps)
    if max_steps is not None and (number is None or number < 1):
        raise ConfigError(f"from_tuple_space needs max_steps as an integer >= 1, got {max_steps!r}.")
    if not isinstance(env, str):
        return ParallelTask(
            getattr(env, "__name__", type(env).__name__), _TupleMaker(env, number), options or {}
        )
    package, colon, env_id = env.partition(":")
    if not colon:
        raise ConfigError(f"from_tuple_space needs an id with its package, package:id, got {env!r}.")
    import_extra(package, OF_EXTRAS.get(package, package))
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error as error:
        raise ConfigError(f"{package} has no environment {env_id!r}: {error}") from error
    return ParallelTask(env, _TupleMaker(env, number), options or {})


@dataclass(frozen=True)
class _TupleMaker:
    env: Any
    max_steps: int | None

    def __call__(self, options: Options) -> TupleSpaceEnv:
        if isinstance(self.env, str):
            # Gymnasium's checker knows of no rewards that are tuples.
            return TupleSpaceEnv(
                gymnasium.make(self.env, disable_env_checker=True, **options), self.max_steps
            )
        return TupleSpaceEnv(self.env(**options), self.max_steps)


def _own_limit(env: "gymnasium.Env[Any, Any]") -> int | None:
    limits = [getattr(env.unwrapped, name, None) for name in LIMITS]
    limits.append(None if env.spec is None else env.spec.max_episode_steps)
    return next((number for number in map(whole_number, limits) if number), None)


def _name(env: "gymnasium.Env[Any, Any]") -> str:
    return type(env.unwrapped).__name__ if env.spec is None else env.spec.id
