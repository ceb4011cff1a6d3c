"""A functional environment of many agents with the face of a PettingZoo `ParallelEnv`."""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from pettingzoo import ParallelEnv

from dressage.envs.functional import BaseEnv, PyTree
from dressage.envs.multi_agent import INTERVENED, MultiAgentEnv
from dressage.envs.multi_agent_checks import agents_told
from dressage.envs.rendering import can_render, render
from dressage.envs.wrappers.agent_spaces import agent_spaces
from dressage.envs.wrappers.episodes import begin_episodes
from dressage.envs.wrappers.multi_agent import Tally, advance_agents, living
from dressage.envs.wrappers.multi_agent_base import as_multi_agent
from dressage.errors import ConfigError, EnvironmentContractError

RENDER_FPS = 10
_WORD = 2**64 - 1

Infos: TypeAlias = dict[str, dict[str, Any]]
Compiled: TypeAlias = tuple[Callable[..., Any], Callable[..., Any]]


class ParallelFace(ParallelEnv):  # type: ignore[misc]  # PettingZoo says nothing about its types
    """Steps a functional environment as a PettingZoo `ParallelEnv`; made by `to_parallel_env`.

    Agents that ended leave `agents`; those that appear late join it. All that are left are truncated at
    `max_steps`.
    """

    def __init__(self, env: MultiAgentEnv, render_mode: str | None = None) -> None:
        known = ["rgb_array"] if can_render(env) else []
        self.metadata = {"name": type(env).__name__, "render_modes": known, "render_fps": RENDER_FPS}
        if render_mode is not None and render_mode not in known:
            raise ConfigError(f"{type(env).__name__} knows the render modes {known}, got {render_mode!r}.")
        self.env = env
        self.render_mode = render_mode
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        spaces = agent_spaces(env)
        self.observation_spaces = spaces.observation
        self.action_spaces = spaces.action
        # What is sent for agents that cannot act.
        self._idle = {agent: _element(space) for agent, space in spaces.action.items()}
        self._begin, self._advance = _compiled(env)
        self._np_random: np.random.Generator | None = None
        self._state: PyTree = None

    @cached_property
    def shielded_agents(self) -> tuple[str, ...]:
        """Who acts behind a shield: the infos of these tell of interventions after every step."""
        return agents_told(self.env, INTERVENED)

    def observation_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Return the space of an agent's observations, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Return the space of an agent's actions, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], Infos]:
        """Start an episode; see `pettingzoo.ParallelEnv.reset`.

        Args:
            seed: Makes all episodes from here on reproducible; None goes on from the seed before.
            options: Not used.
        """
        if seed is not None or self._np_random is None:
            self._np_random, _ = gymnasium.utils.seeding.np_random(seed)
        key = jax.random.key(int(self._np_random.integers(2**31)))
        self._state, observations, infos, alive = self._begin(key)
        self.agents = self._names(alive)
        return self._observed(observations, self.agents), _told(infos, self.agents)

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Make one step of the living agents; see `pettingzoo.ParallelEnv.step`.

        Raises:
            EnvironmentContractError: If no agent is left to act, or one that could has no action.
        """
        if not self.agents:
            raise EnvironmentContractError(f"Call reset before step: {self._name} has no agent left to act.")
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise EnvironmentContractError(f"{self._name} got no action for {', '.join(missing)}.")
        sent = {**self._idle, **{agent: self._action(agent, actions[agent]) for agent in self.agents}}
        self._state, observations, record, infos = self._advance(self._state, sent)
        record = jax.device_get(record)
        rows = {agent: i for i, agent in enumerate(self.possible_agents)}
        left = self._names(record.alive)
        told = [agent for agent in self.possible_agents if agent in self.agents or agent in left]
        self.agents = left
        return (
            self._observed(observations, told),
            {agent: float(record.reward[rows[agent]]) for agent in told},
            {agent: bool(record.terminated[rows[agent]]) for agent in told},
            {agent: bool(record.truncated[rows[agent]]) for agent in told},
            _told(infos, told),
        )

    def save_state(self) -> dict[str, Any]:
        """Return all that the rest of this environment's life depends on, as NumPy arrays.

        Raises:
            EnvironmentContractError: If it has not been reset yet.
        """
        if self._np_random is None:
            raise EnvironmentContractError(f"Call reset before save_state: {self._name} has no state yet.")
        leaves = (_raw(leaf) for leaf in jax.tree.leaves(self._state))
        return {
            "state": [np.asarray(leaf) for leaf in leaves],
            "acting": np.array([agent in self.agents for agent in self.possible_agents]),
            "generator": _generator_words(self._np_random),
        }

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `save_state` of an equal environment returned."""
        like = jax.eval_shape(self._begin, jax.random.key(0))[0]
        described, structure = jax.tree.flatten(like)
        pairs = zip(described, saved["state"], strict=True)
        self._state = jax.tree.unflatten(structure, [_like(one, array) for one, array in pairs])
        self.agents = self._names(np.asarray(saved["acting"]))
        self._np_random = _generator(saved["generator"])

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Draw the state, uint8 `[H, W, 3]`; None without a render mode."""
        if self.render_mode is None or self._state is None:
            return None
        return render(self.env, self._state.inner)

    @property
    def _name(self) -> str:
        return type(self.env).__name__

    def _names(self, alive: npt.NDArray[np.bool_]) -> list[str]:
        return [agent for agent, one in zip(self.possible_agents, np.asarray(alive), strict=True) if one]

    def _action(self, agent: str, action: Any) -> Any:  # noqa: ANN401 (an element of any space)
        idle = self._idle[agent]
        if not isinstance(idle, np.ndarray):
            return action  # of a space in parts
        values = np.asarray(action, idle.dtype)
        if values.shape != idle.shape:
            raise EnvironmentContractError(
                f"{self._name} takes an action of shape {idle.shape} for {agent}, got shape {values.shape}."
            )
        return values

    def _observed(self, observations: dict[str, PyTree], agents: list[str]) -> dict[str, Any]:
        seen = jax.device_get({agent: observations[agent] for agent in agents})
        return {agent: _of_space(seen[agent], self.observation_spaces[agent]) for agent in agents}


def to_parallel_env(env: BaseEnv | MultiAgentEnv, render_mode: str | None = None) -> ParallelFace:
    """Return the host face of a functional environment of many agents.

    Args:
        env: The environment; `max_steps` becomes `truncated`. One of a single agent has the agent `"agent"`.
        render_mode: `"rgb_array"` where the environment has `render(state)`, or None.

    Raises:
        ConfigError: If the environment has no such mode.
    """
    return ParallelFace(as_multi_agent(env), render_mode)


def _compiled(env: MultiAgentEnv) -> Compiled:
    """Return `begin` and `advance`; copies of equal environments share one program."""
    try:
        return _compiled_once(env)
    except TypeError:  # some field cannot be hashed
        return _compile(env)


@lru_cache(maxsize=16)
def _compiled_once(env: MultiAgentEnv) -> Compiled:
    return _compile(env)


def _compile(env: MultiAgentEnv) -> Compiled:
    return jax.jit(partial(_begin_episode, env)), jax.jit(partial(_advance_episode, env))


def _begin_episode(env: MultiAgentEnv, key: jax.Array) -> tuple[PyTree, ...]:
    order = env.possible_agents
    state, observations, infos = begin_episodes(env, key, fixed_init=False, sums=Tally.zeros(len(order)))
    return state, observations, infos, living(env, order, state)


def _advance_episode(env: MultiAgentEnv, state: PyTree, actions: dict[str, PyTree]) -> tuple[PyTree, ...]:
    return advance_agents(env, env.possible_agents, state, actions)[:4]


def _element(space: "gymnasium.Space[Any]") -> Any:  # noqa: ANN401
    """Return one element of a space, the same for every process."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _element(part) for name, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_element(part) for part in space.spaces)
    if isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        return np.asarray(space.start, space.dtype)
    values = np.zeros(space.shape or (), space.dtype)
    return np.clip(values, space.low, space.high) if isinstance(space, gymnasium.spaces.Box) else values


def _of_space(observation: Any, space: "gymnasium.Space[Any]") -> Any:  # noqa: ANN401
    """Give an observation the types that its Gymnasium space holds."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _of_space(observation[name], part) for name, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        pairs = zip(observation, space.spaces, strict=True)
        return tuple(_of_space(value, part) for value, part in pairs)
    values = np.asarray(observation, space.dtype)
    return values[()] if isinstance(space, gymnasium.spaces.Discrete) else values


def _raw(leaf: jax.Array) -> jax.Array:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _like(described: jax.ShapeDtypeStruct, array: npt.NDArray[Any]) -> jax.Array:
    is_key = jnp.issubdtype(described.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array, described.dtype)


def _generator_words(generator: np.random.Generator) -> npt.NDArray[np.uint64]:
    """Write a PCG64 generator, which is what Gymnasium's seeding makes, as six words of 64 bits."""
    described: Any = generator.bit_generator.state
    numbers = (described["state"]["state"], described["state"]["inc"])
    words = [number >> shift & _WORD for number in numbers for shift in (64, 0)]
    return np.array([*words, described["has_uint32"], described["uinteger"]], np.uint64)


def _generator(words: npt.NDArray[np.uint64]) -> np.random.Generator:
    state, inc = ((int(words[at]) << 64) | int(words[at + 1]) for at in (0, 2))
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": inc},
        "has_uint32": int(words[4]),
        "uinteger": int(words[5]),
    }
    return np.random.Generator(bits)


def _told(infos: dict[str, Any], agents: list[str]) -> Infos:
    told: Infos = jax.device_get({agent: infos[agent] for agent in agents})
    return told
