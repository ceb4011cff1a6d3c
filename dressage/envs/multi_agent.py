"""What a functional environment of many agents is: `MultiAgentEnv`, and what a vector of them returns."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp

from dressage.envs.functional import AnySpace, Flag, Info, Number, PyTree

Actions: TypeAlias = Mapping[str, PyTree]
"""One action for every agent; those of dead agents change nothing."""
AgentsReset: TypeAlias = tuple[PyTree, Mapping[str, PyTree], Mapping[str, Info]]
"""State, observations and infos by agent."""
AgentsTransition: TypeAlias = tuple[
    PyTree,
    Mapping[str, PyTree],
    Mapping[str, Number],
    Mapping[str, Flag],
    Mapping[str, Flag],
    Mapping[str, Info],
]
"""State, then observations, rewards, terminated, truncated and infos by agent."""

COST = "cost"
"""Key of an agent's `info` under which a step's cost stands."""
INTERVENED = "shield_intervened"
"""Key of the `info` of an agent behind a shield: whether that changed what was proposed."""


class MultiAgentEnv(abc.ABC):
    """Many agents in one environment, as pure functions of an explicit state.

    What `BaseEnv` says of the state holds here too. Every dict has an entry for each of `possible_agents` at
    every step, so that its structure never changes; `alive` says whose entries count. An agent that was
    terminated or truncated stays out until the next episode; it may also appear late. An episode is over when
    no agent is left. `info[agent]["cost"]` is an agent's cost of the step, none where it is missing.

    Attributes:
        max_steps: Longest episode in steps. `MultiAgentVectorEnv` and the host face cut an episode there and
            report every living agent as `truncated`.
    """

    max_steps: int
    # Episodes are started by the code that starts those of a `BaseEnv`, which may do either.
    resets_itself: ClassVar[bool] = False
    redraws: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def possible_agents(self) -> tuple[str, ...]:
        """Names of all agents that may ever act, in a fixed order."""

    @abc.abstractmethod
    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode.

        Args:
            rng: A JAX random key; the only source of chance.

        Returns:
            `(state, observations, infos)`, the latter two by agent.
        """

    @abc.abstractmethod
    def step(self, state: PyTree, actions: Actions) -> AgentsTransition:
        """Make one step of all agents at once.

        Args:
            state: The state that `reset` or `step` returned.
            actions: One action for every agent, dead ones included, whose action must change nothing.

        Returns:
            `(state, observations, rewards, terminated, truncated, infos)`, all but the state by agent:
            rewards float scalars, flags boolean scalars, as in `BaseEnv.step`.
        """

    @abc.abstractmethod
    def observation_space(self, state: PyTree, agent: str) -> AnySpace:
        """Return the space of an agent's observations."""

    @abc.abstractmethod
    def action_space(self, state: PyTree, agent: str) -> AnySpace:
        """Return the space of an agent's actions."""

    def alive(self, state: PyTree) -> Mapping[str, Flag]:
        """Return who can act in this state; everyone, unless overridden.

        Where agents only ever leave by a flag of `step`, there is no need to override it: whoever was flagged
        stays out until the next episode in any case.
        """
        return dict.fromkeys(self.possible_agents, True)

    def redraw(self, state: PyTree, rng: jax.Array) -> PyTree:
        """Draw anew what differs between episodes although the initial state is kept; here nothing."""
        return state


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AgentStep:
    """What one step of `B` copies brought one agent `[B, ...]`, or `A` equal agents `[A, B, ...]`.

    Attributes:
        observation: `[..., B, *]` to act on next: the first of the new episode where the copy's ended.
        final_observation: `[..., B, *]` what the action really led to, before any reset.
        reward: `[..., B]` float32, 0 where the agent was dead.
        cost: `[..., B]` float32, `info["cost"]`; 0 where there is none or the agent was dead.
        terminated: `[..., B]` bool, nothing follows for this agent; False where it was dead.
        truncated: `[..., B]` bool, cut by the time limit, by the environment, or by an `alive` that turned
            False without a flag; False where it was dead.
        alive_before: `[..., B]` bool, whether the agent could act in this step. Other rows are no samples.
        alive: `[..., B]` bool, whether it can act on `observation`.
        episode_return: `[..., B]` float32, its rewards of the episode up to and including this step.
        episode_length: `[..., B]` int32, its steps of the episode, this one included.
        episode_cost: `[..., B]` float32, its costs of the episode, this one included.
        info: What the environment says of the agent besides, of the step itself. Empty in the record of a
            group, whose agents may be told different things: `MultiAgentStep.infos` has it.
    """

    observation: PyTree
    final_observation: PyTree
    reward: jax.Array
    cost: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    alive_before: jax.Array
    alive: jax.Array
    episode_return: jax.Array
    episode_length: jax.Array
    episode_cost: jax.Array
    info: Info = field(default_factory=dict)

    @property
    def ended(self) -> jax.Array:
        """`[..., B]` bool, whether the agent's episode ended with this step for any reason."""
        return self.terminated | self.truncated


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MultiAgentStep:
    """What one step of a vector of environments gives all of their agents.

    Attributes:
        groups: One record for each group of agents with equal spaces, its arrays `[A, B, ...]`.
        infos: By agent, pytrees of `[B, ...]`.
        ended: `[B]` bool, whether the copy's episode ended with this step: no agent is left in it.
        lengths: `[B]` int32, steps of the copy's episode, this one included.
        names: The agents of each group, in order.
    """

    groups: tuple[AgentStep, ...]
    infos: dict[str, Info]
    ended: jax.Array
    lengths: jax.Array
    names: tuple[tuple[str, ...], ...] = field(metadata={"static": True})

    @property
    def agents(self) -> dict[str, AgentStep]:
        """The same by agent, in the order of the groups: arrays `[B, ...]`, with each agent's `info`."""
        return {
            name: replace(jax.tree.map(lambda leaf, i=i: leaf[i], group), info=self.infos[name])
            for names, group in zip(self.names, self.groups, strict=True)
            for i, name in enumerate(names)
        }


def stack_agents(by_agent: Mapping[str, PyTree], names: Sequence[str]) -> PyTree:
    """Stack equal pytrees of some agents along a new first axis.

    Args:
        by_agent: One pytree for each agent.
        names: The agents to take, in order.

    Returns:
        A pytree of `[A, ...]`.
    """
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(by_agent[name] for name in names))


def split_agents(stacked: PyTree, names: Sequence[str]) -> dict[str, PyTree]:
    """Undo `stack_agents`.

    Args:
        stacked: Pytree of `[A, ...]`.
        names: The names of the `A` agents, in order.

    Returns:
        One pytree of `[...]` for each agent.
    """
    # A static slice, not an indexed read: stacked again, XLA sees the array that it came from.
    return {
        name: jax.tree.map(lambda leaf, i=i: jax.lax.index_in_dim(leaf, i, keepdims=False), stacked)
        for i, name in enumerate(names)
    }
