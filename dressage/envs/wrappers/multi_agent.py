"""Many copies of one environment of many agents stepped together, each with its own episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from dressage.envs.functional import Flag, Info, Number, PyTree, Tree
from dressage.envs.multi_agent import (
    COST,
    Actions,
    AgentStep,
    MultiAgentEnv,
    MultiAgentStep,
    split_agents,
    stack_agents,
)
from dressage.envs.wrappers.agent_spaces import AgentSpaces, agent_spaces
from dressage.envs.wrappers.episodes import EpisodeState, begin_episodes
from dressage.envs.wrappers.vector import check_copies, restart_ended

if TYPE_CHECKING:
    import gymnasium


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tally:
    """What is counted for each of `A` agents over the running episode of one copy.

    Attributes:
        gone: `[A]` bool, whether the agent was terminated or truncated.
        returns: `[A]` float32, rewards so far.
        lengths: `[A]` int32, steps in which it could act.
        costs: `[A]` float32, costs so far.
    """

    gone: jax.Array
    returns: jax.Array
    lengths: jax.Array
    costs: jax.Array

    @classmethod
    def zeros(cls, number: int) -> Self:
        """Return that of an episode's start for `number` agents."""
        return cls(
            gone=jnp.zeros(number, bool),
            returns=jnp.zeros(number, jnp.float32),
            lengths=jnp.zeros(number, jnp.int32),
            costs=jnp.zeros(number, jnp.float32),
        )


@dataclass(frozen=True)
class MultiAgentVectorEnv:
    """`num_envs` copies of an environment of many agents, with time limit, statistics and automatic reset.

    A copy starts its next episode when no agent is left in it: each was terminated or truncated, or all that
    lived reached the time limit. Resets are computed only in steps in which that happened.

    Agents with equal spaces form a group, whose arrays are stacked: `step_groups` takes and gives
    `[A, B, ...]` for each group, `step` goes by agent.

    Attributes:
        env: The environment to copy.
        num_envs: Number of copies `B`, at least 1.
        fixed_init: How initial states are drawn, as in `VectorEnv`.
        offset_step: Whether the first time limits are spread, as in `VectorEnv`.

    Raises:
        ConfigError: If `num_envs` is not a whole number of at least 1.
    """

    env: MultiAgentEnv
    num_envs: int
    fixed_init: bool = False
    offset_step: bool = False

    def __post_init__(self) -> None:
        check_copies(self.num_envs, type(self).__name__)

    @property
    def max_steps(self) -> int:
        """Longest episode in steps."""
        return self.env.max_steps

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """Names of all agents, in the environment's order."""
        return self.env.possible_agents

    @cached_property
    def spaces(self) -> AgentSpaces:
        """Every agent's spaces, as Gymnasium's, and who has equal ones."""
        return agent_spaces(self.env)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Agents with equal spaces, by their first agent's place in `possible_agents`."""
        return self.spaces.groups

    def observation_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Space of one copy's observations of an agent."""
        return self.spaces.observation[agent]

    def action_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Space of one copy's actions of an agent."""
        return self.spaces.action[agent]

    def reset(self, rng: jax.Array) -> tuple[EpisodeState, dict[str, PyTree]]:
        """Start an episode in every copy, each with its own key.

        Args:
            rng: A JAX random key.

        Returns:
            The state, and the observations `[B, ...]` by agent.
        """
        state, observations, _ = self.reset_groups(rng)
        groups = zip(self.groups, observations, strict=True)
        return state, {
            name: seen for names, group in groups for name, seen in split_agents(group, names).items()
        }

    def reset_groups(self, rng: jax.Array) -> tuple[EpisodeState, tuple[PyTree, ...], tuple[jax.Array, ...]]:
        """Start an episode in every copy.

        Args:
            rng: A JAX random key.

        Returns:
            The state, then for each group the observations `[A, B, ...]`, and who is alive, bool `[A, B]`.
        """
        keys = jax.random.split(rng, self.num_envs)
        offsets = jnp.arange(self.num_envs, dtype=jnp.int32) * self.max_steps // self.num_envs
        state, observations = jax.vmap(self._begin)(keys, offsets)
        alive = jax.vmap(partial(living, self.env, self._order))(state)
        return state, _agents_first(observations), self._grouped(alive.T)

    def step(self, state: EpisodeState, actions: Actions) -> tuple[EpisodeState, MultiAgentStep]:
        """Make one step in every copy and start the next episode where no agent is left.

        Args:
            state: The state that `reset` or `step` returned.
            actions: Actions `[B, ...]` of every agent, in any order; those of dead agents are ignored.

        Returns:
            The state, and the step; `step.agents[agent]` has the record `[B, ...]` of one agent.
        """
        return self.step_groups(state, tuple(stack_agents(actions, names) for names in self.groups))

    def step_groups(
        self, state: EpisodeState, actions: tuple[PyTree, ...]
    ) -> tuple[EpisodeState, MultiAgentStep]:
        """Make one step in every copy, from the actions of every group.

        Args:
            state: The state that `reset` or `step` returned.
            actions: For each group, actions `[A, B, ...]`.

        Returns:
            The state, and the step; `step.groups` has the records `[A, B, ...]`.
        """
        state, finals, record, infos, ended = jax.vmap(self._advance, in_axes=(0, 1))(state, actions)
        lengths = state.length
        state, observations = restart_ended(
            self._grouped_env, ended, state, finals, gather=not self.fixed_init
        )
        record = replace(record, alive=jax.vmap(partial(living, self.env, self._order))(state))
        parts = zip(
            _agents_first(observations),
            _agents_first(finals),
            self._grouped(_agents_first(record)),
            strict=True,
        )
        groups = tuple(
            replace(part, observation=observation, final_observation=final)
            for observation, final, part in parts
        )
        return state, MultiAgentStep(groups, infos, ended, lengths, self.groups)

    @property
    def _grouped_env(self) -> "_GroupedObservations":
        return _GroupedObservations(self.env, self.groups)

    @property
    def _order(self) -> tuple[str, ...]:
        """All agents, group by group: the order of every `[A]` array here."""
        return tuple(name for names in self.groups for name in names)

    def _begin(self, key: jax.Array, offset: jax.Array) -> tuple[EpisodeState, tuple[PyTree, ...]]:
        state, observations, _ = begin_episodes(
            self._grouped_env,
            key,
            offset if self.offset_step else None,
            fixed_init=self.fixed_init,
            sums=Tally.zeros(len(self._order)),
        )
        return state, observations

    def _advance(
        self, state: EpisodeState, actions: tuple[PyTree, ...]
    ) -> tuple[EpisodeState, tuple[PyTree, ...], AgentStep, dict[str, Info], jax.Array]:
        chosen = {
            name: action
            for names, group in zip(self.groups, actions, strict=True)
            for name, action in split_agents(group, names).items()
        }
        state, observations, record, infos, ended = advance_agents(self.env, self._order, state, chosen)
        return state, _by_group(observations, self.groups), record, infos, ended

    def _grouped(self, stacked: Tree) -> tuple[Tree, ...]:
        """Cut `[A, ...]` of all agents at the groups."""
        ends = np.cumsum([len(names) for names in self.groups])
        return tuple(
            jax.tree.map(lambda leaf, end=end, names=names: leaf[end - len(names) : end], stacked)
            for names, end in zip(self.groups, ends, strict=True)
        )


def advance_agents(
    env: MultiAgentEnv, order: tuple[str, ...], state: EpisodeState, actions: Actions
) -> tuple[EpisodeState, Mapping[str, PyTree], AgentStep, dict[str, Info], jax.Array]:
    """Make one step of one copy and say who ended, without starting the next episode.

    Args:
        env: The environment.
        order: All agents, in the order of the `[A]` arrays.
        state: The copy's state; its `sums` are a `Tally`.
        actions: One action for every agent.

    Returns:
        The state after the step, the observations by agent, the rest of every agent's record `[A]` (without
        observations), the infos by agent, and whether the episode is over.
    """
    before: Tally = state.sums
    array = partial(_array, order)
    alive = living(env, order, state)
    inner, observations, rewards, terminated, truncated, infos = env.step(state.inner, actions)
    length = state.length + 1
    over = (length if state.offset is None else length + state.offset) >= env.max_steps
    present = array(env.alive(inner), bool)
    terminations = array(terminated, bool) & alive
    # Whoever disappears without a flag was cut off, not finished.
    truncations = (array(truncated, bool) | over | ~(present | terminations)) & alive
    reward = jnp.where(alive, array(rewards, jnp.float32), 0.0)
    cost = jnp.where(alive, array(_costs(infos), jnp.float32), 0.0)
    tally = Tally(
        before.gone | terminations | truncations,
        before.returns + reward,
        before.lengths + alive,
        before.costs + cost,
    )
    record = AgentStep(
        observation=None,
        final_observation=None,
        reward=reward,
        cost=cost,
        terminated=terminations,
        truncated=truncations,
        alive_before=alive,
        alive=present & ~tally.gone,
        episode_return=tally.returns,
        episode_length=tally.lengths,
        episode_cost=tally.costs,
    )
    following = replace(state, inner=inner, length=length, sums=tally)
    return following, observations, record, dict(infos), over | ~jnp.any(record.alive)


def living(env: MultiAgentEnv, order: tuple[str, ...], state: EpisodeState) -> jax.Array:
    """Return who can act in a copy's state, bool `[A]` in the given order of all agents."""
    tally: Tally = state.sums
    return _array(order, env.alive(state.inner), bool) & ~tally.gone


@dataclass(frozen=True)
class _GroupedObservations:
    """The environment as the code that starts episodes sees it: observations stacked by group."""

    env: MultiAgentEnv
    groups: tuple[tuple[str, ...], ...]

    @property
    def resets_itself(self) -> bool:
        return False

    @property
    def redraws(self) -> bool:
        return self.env.redraws

    def reset(self, rng: jax.Array) -> tuple[PyTree, tuple[PyTree, ...], Mapping[str, Info]]:
        state, observations, infos = self.env.reset(rng)
        return state, _by_group(observations, self.groups), infos

    def redraw(self, state: PyTree, rng: jax.Array) -> PyTree:
        return self.env.redraw(state, rng)


def _by_group(by_agent: Mapping[str, PyTree], groups: tuple[tuple[str, ...], ...]) -> tuple[PyTree, ...]:
    return tuple(stack_agents(by_agent, names) for names in groups)


def _array(order: tuple[str, ...], by_agent: Mapping[str, Number | Flag], dtype: Any) -> jax.Array:  # noqa: ANN401
    return jnp.stack([jnp.asarray(by_agent[name], dtype).reshape(()) for name in order])


def _costs(infos: Mapping[str, Info]) -> dict[str, Number]:
    return {name: info.get(COST, 0.0) for name, info in infos.items()}


def _agents_first(stacked: Tree) -> Tree:
    """Turn `[B, A, ...]` into `[A, B, ...]`."""
    swapped: Tree = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), stacked)
    return swapped
