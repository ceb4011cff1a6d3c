"""Shields around functional environments: everything stays one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from dressage.envs.functional import AnySpace, BaseEnv, PyTree
from dressage.envs.multi_agent import (
    INTERVENED,
    Actions,
    AgentsReset,
    AgentsTransition,
    MultiAgentEnv,
    split_agents,
    stack_agents,
)
from dressage.envs.wrappers import MultiAgentWrapper, Wrapped, as_multi_agent
from dressage.envs.wrappers.agent_spaces import agent_spaces
from dressage.errors import ConfigError
from dressage.shield.augmented import (
    EXECUTED,
    INFEASIBLE,
    RATE,
    ShieldedAgent,
    Shields,
    shielded_agents,
)
from dressage.shield.decision import Decision

View = Callable[[Any, PyTree, str], PyTree]
"""From the state (or the host environment), an agent's observation and its name to what its shield sees."""


def see_observation(source: Any, observation: PyTree, agent: str) -> PyTree:  # noqa: ANN401, ARG001
    """Show a shield what the agent observes."""
    return observation


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ShieldMemory:
    """What a shielded environment remembers of the running episode.

    Attributes:
        memory: By shielded agent, what its shield remembers.
        observations: By agent, what the environment showed last.
        interventions: By shielded agent, int32, steps in which its shield intervened.
        steps: int32, steps of the episode.
    """

    memory: dict[str, PyTree]
    observations: dict[str, PyTree]
    interventions: dict[str, jax.Array]
    steps: jax.Array


@dataclass(frozen=True)
class ShieldedEnv(MultiAgentWrapper):
    """A functional environment whose agents propose, while their shields decide what is done.

    An agent acts in an augmented space: its proposal and its shield's parameters, as `ParameterizedIPPO`
    emits them; the learner keeps what was proposed. `info[agent]` tells what came of it: `shield_intervened`,
    `shield_infeasible`, `shield_rate` (share of the episode's steps so far in which the shield intervened)
    and `executed_action`. Shields of all agents decide at once, each on what it sees of the state before the
    step.

    Attributes:
        env: The environment; `shielded` makes one of one of a single agent too.
        shields: One shield for all agents, or one by agent; who has none acts unshielded.
        view: What a shield sees, from state, observation and agent; by default the observation.

    Raises:
        ConfigError: If a shield is given for an agent that does not exist.
        UnsupportedSpaceError: If a shield does not fit an agent's spaces.
    """

    shields: Shields
    view: View = see_observation

    def __post_init__(self) -> None:
        _ = self.agents  # refuses shields that do not fit

    @cached_property
    def agents(self) -> dict[str, ShieldedAgent]:
        """The shielded agents."""
        spaces = agent_spaces(self.env)
        return shielded_agents(self.possible_agents, self.shields, spaces.observation, spaces.action)

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode; see `MultiAgentEnv.reset`."""
        inner, observations, infos = self.env.reset(rng)
        observations = jax.tree.map(jnp.asarray, dict(observations))
        memory = {
            name: one.shield.begin(self.view(inner, observations[name], name))
            for name, one in self.agents.items()
        }
        none = {name: jnp.int32(0) for name in self.agents}
        own = ShieldMemory(jax.tree.map(jnp.asarray, memory), observations, none, jnp.int32(0))
        return Wrapped(inner, own), self._shown(own), infos

    def step(self, state: Wrapped, actions: Actions) -> AgentsTransition:
        """Make one step with what the shields made of the proposals; see `MultiAgentEnv.step`."""
        own: ShieldMemory = state.own
        decisions = self._decide(state, actions)
        executed = {name: one.executed(decisions[name].action) for name, one in self.agents.items()}
        inner, observations, rewards, terminated, truncated, infos = self.env.step(
            state.inner, {**actions, **executed}
        )
        observations = jax.tree.map(jnp.asarray, dict(observations))
        following = ShieldMemory(
            memory={
                name: one.shield.follow(decisions[name].memory, self.view(inner, observations[name], name))
                for name, one in self.agents.items()
            },
            observations=observations,
            interventions={
                name: own.interventions[name] + decisions[name].intervened for name in self.agents
            },
            steps=own.steps + 1,
        )
        told = {
            name: {
                INTERVENED: decisions[name].intervened,
                INFEASIBLE: ~decisions[name].feasible,
                RATE: following.interventions[name] / following.steps,
                EXECUTED: executed[name],
            }
            for name in self.agents
        }
        infos = {name: {**info, **told.get(name, {})} for name, info in infos.items()}
        return Wrapped(inner, following), self._shown(following), rewards, terminated, truncated, infos

    def redraw(self, state: Wrapped, rng: jax.Array) -> Wrapped:
        """Draw anew what differs between episodes; see `MultiAgentEnv.redraw`."""
        return replace(state, inner=self.env.redraw(state.inner, rng))

    def observation_space(self, state: Wrapped, agent: str) -> AnySpace:
        """Return the space of an agent's observations, its shield's memory included."""
        if agent in self.agents:
            return self.agents[agent].observation_space
        return self.env.observation_space(state.inner, agent)

    def action_space(self, state: Wrapped, agent: str) -> AnySpace:
        """Return the space of an agent's augmented actions."""
        if agent in self.agents:
            return self.agents[agent].action_space
        return self.env.action_space(state.inner, agent)

    def _shown(self, own: ShieldMemory) -> dict[str, PyTree]:
        shown = dict(own.observations)
        for name, one in self.agents.items():
            shown[name] = one.shown(shown[name], own.memory[name])
        return shown

    def _decide(self, state: Wrapped, actions: Actions) -> dict[str, Decision]:
        """Let all shields decide; those of equal agents do so in one vectorised call."""
        own: ShieldMemory = state.own
        decisions: dict[str, Decision] = {}
        for names in self._alike:
            seen = {name: self.view(state.inner, own.observations[name], name) for name in names}
            split = {name: self.agents[name].split(actions[name]) for name in names}
            decide = jax.vmap(self.agents[names[0]].decide)
            stacked = decide(
                stack_agents(own.memory, names), stack_agents(seen, names), *stack_agents(split, names)
            )
            decisions.update(split_agents(stacked, names))
        return decisions

    @cached_property
    def _alike(self) -> tuple[tuple[str, ...], ...]:
        """Agents that share one shield and have equal spaces."""
        groups: list[list[str]] = []
        for name, one in self.agents.items():
            fitting = (group for group in groups if _equal(self.agents[group[0]], one))
            group = next(fitting, None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
        return tuple(map(tuple, groups))


def shielded(env: BaseEnv | MultiAgentEnv, shields: Shields, view: View = see_observation) -> ShieldedEnv:
    """Put shields around a functional environment, of one agent or of many; see `ShieldedEnv`.

    Raises:
        ConfigError: As `ShieldedEnv`, and if the environment is no functional one.
    """
    if not isinstance(env, BaseEnv | MultiAgentEnv):
        raise ConfigError(
            f"shielded takes a functional environment (BaseEnv or MultiAgentEnv), got {type(env).__name__}. "
            "ShieldedParallelEnv(env, shields, view) shields a PettingZoo ParallelEnv."
        )
    return ShieldedEnv(as_multi_agent(env), shields, view)


def _equal(first: ShieldedAgent, second: ShieldedAgent) -> bool:
    spaces = (first.inner, first.observed) == (second.inner, second.observed)
    return first.shield is second.shield and spaces


__all__ = ["ShieldMemory", "ShieldedEnv", "View", "see_observation", "shielded"]
