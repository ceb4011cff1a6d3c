"""Wrappers of environments of many agents: what they share, and the one that makes one agent many."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dressage.envs.functional import AnySpace, BaseEnv, Flag, PyTree
from dressage.envs.multi_agent import Actions, AgentsReset, AgentsTransition, MultiAgentEnv
from dressage.envs.wrappers.base import Wrapped

ONE = "agent"
"""Name of the only agent of an environment of one agent."""


@dataclass(frozen=True)
class MultiAgentWrapper(MultiAgentEnv):
    """Base of the wrappers of environments of many agents; passes everything through.

    The state of a wrapper is a `Wrapped`: that of the environment, and what the wrapper remembers.

    Attributes:
        env: The wrapped environment.
    """

    # The one base between MultiAgentEnv and its wrappers, so that each of them states its difference alone.
    env: MultiAgentEnv

    @property
    def max_steps(self) -> int:  # type: ignore[override]  # read-only here: it follows the wrapped environment
        """Longest episode in steps."""
        return self.env.max_steps

    @property
    def redraws(self) -> bool:  # type: ignore[override]
        """Whether the wrapped environment draws something anew in each episode."""
        return self.env.redraws

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """Names of all agents."""
        return self.env.possible_agents

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode; see `MultiAgentEnv.reset`."""
        inner, observations, infos = self.env.reset(rng)
        return Wrapped(inner, None), observations, infos

    def step(self, state: Wrapped, actions: Actions) -> AgentsTransition:
        """Make one step; see `MultiAgentEnv.step`."""
        inner, observations, rewards, terminated, truncated, infos = self.env.step(state.inner, actions)
        return Wrapped(inner, None), observations, rewards, terminated, truncated, infos

    def observation_space(self, state: Wrapped, agent: str) -> AnySpace:
        """Return the space of an agent's observations."""
        return self.env.observation_space(state.inner, agent)

    def action_space(self, state: Wrapped, agent: str) -> AnySpace:
        """Return the space of an agent's actions."""
        return self.env.action_space(state.inner, agent)

    def alive(self, state: Wrapped) -> dict[str, Flag]:
        """Return who can act."""
        return dict(self.env.alive(state.inner))

    def redraw(self, state: Wrapped, rng: jax.Array) -> Wrapped:
        """Draw anew what differs between episodes; see `MultiAgentEnv.redraw`."""
        return Wrapped(self.env.redraw(state.inner, rng), state.own)


@dataclass(frozen=True)
class OneAgent(MultiAgentEnv):
    """An environment of one agent as one of many, with the single agent `"agent"`.

    Attributes:
        env: The environment; it must not reset itself.
    """

    env: BaseEnv

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        """Longest episode in steps."""
        return self.env.max_steps

    @property
    def redraws(self) -> bool:  # type: ignore[override]
        """Whether the environment draws something anew in each episode."""
        return self.env.redraws

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """`("agent",)`."""
        return (ONE,)

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode; see `BaseEnv.reset`."""
        state, observation, info = self.env.reset(rng)
        return state, {ONE: observation}, {ONE: info}

    def step(self, state: PyTree, actions: Actions) -> AgentsTransition:
        """Make one step; see `BaseEnv.step`."""
        state, observation, reward, terminated, truncated, info = self.env.step(state, actions[ONE])
        return (
            state,
            {ONE: observation},
            {ONE: reward},
            {ONE: jnp.asarray(terminated, bool)},
            {ONE: jnp.asarray(truncated, bool)},
            {ONE: info},
        )

    def observation_space(self, state: PyTree, agent: str) -> AnySpace:
        """Return the space of the observations."""
        return self.env.observation_space(state)

    def action_space(self, state: PyTree, agent: str) -> AnySpace:
        """Return the space of the actions."""
        return self.env.action_space(state)

    def redraw(self, state: PyTree, rng: jax.Array) -> PyTree:
        """Draw anew what differs between episodes; see `BaseEnv.redraw`."""
        return self.env.redraw(state, rng)


def as_multi_agent(env: BaseEnv | MultiAgentEnv) -> MultiAgentEnv:
    """Return an environment as one of many agents; one of one agent gets the agent `"agent"`."""
    return env if isinstance(env, MultiAgentEnv) else OneAgent(env)
