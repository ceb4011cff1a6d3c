"""A cost for functional environments that report none."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dressage.envs.costs import CostFunction, CostStep
from dressage.envs.functional import PyTree
from dressage.envs.multi_agent import COST, Actions, AgentsReset, AgentsTransition
from dressage.envs.wrappers.base import Wrapped
from dressage.envs.wrappers.multi_agent_base import MultiAgentWrapper
from dressage.errors import EnvironmentContractError


@dataclass(frozen=True)
class AddCost(MultiAgentWrapper):
    """Adds `info[agent]["cost"]` to every step of a functional environment of many agents.

    Attributes:
        env: The environment; `as_multi_agent` makes one of one of a single agent.
        cost: From one agent's `CostStep`, whose `source` is the environment's state after the step, to its
            cost, a real scalar; traced.

    Raises:
        EnvironmentContractError: If the environment has costs already, or a cost is no real scalar.
    """

    cost: CostFunction

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode at no cost; see `MultiAgentEnv.reset`."""
        inner, observations, infos = self.env.reset(rng)
        priced = {agent: {**infos[agent], COST: jnp.zeros(())} for agent in self.possible_agents}
        return Wrapped(inner, None), observations, priced

    def step(self, state: Wrapped, actions: Actions) -> AgentsTransition:
        """Make one step and price it; see `MultiAgentEnv.step`."""
        inner, observations, rewards, terminated, truncated, infos = self.env.step(state.inner, actions)
        priced = {}
        for agent in self.possible_agents:
            step = CostStep(
                agent,
                observations[agent],
                actions[agent],
                rewards[agent],
                terminated[agent],
                truncated[agent],
                infos[agent],
                inner,
            )
            priced[agent] = {**infos[agent], COST: self._price(step)}
        return Wrapped(inner, None), observations, rewards, terminated, truncated, priced

    def _price(self, step: CostStep) -> PyTree:
        name = type(self.env).__name__
        if COST in step.info:
            raise EnvironmentContractError(f"{name} has a {COST!r} for {step.agent!r} already.")
        return real_scalar(self.cost(step), step.agent, name)


@dataclass(frozen=True)
class CostUnder(MultiAgentWrapper):
    """Takes each agent's cost from another key of its infos, or from a number where the key is missing.

    Attributes:
        env: The environment.
        key: The key of `info[agent]` under which a step's cost stands.
        default: The cost where the key is missing; None makes that an error.

    Raises:
        EnvironmentContractError: If a cost is missing without a default, or is no real scalar.
    """

    key: str = COST
    default: float | None = None

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode at no cost; see `MultiAgentEnv.reset`."""
        inner, observations, infos = self.env.reset(rng)
        priced = {agent: {**infos[agent], COST: jnp.zeros(())} for agent in self.possible_agents}
        return Wrapped(inner, None), observations, priced

    def step(self, state: Wrapped, actions: Actions) -> AgentsTransition:
        """Make one step and look its costs up; see `MultiAgentEnv.step`."""
        inner, observations, rewards, terminated, truncated, infos = self.env.step(state.inner, actions)
        priced = {
            agent: {**infos[agent], COST: self._find(agent, infos[agent])} for agent in self.possible_agents
        }
        return Wrapped(inner, None), observations, rewards, terminated, truncated, priced

    def _find(self, agent: str, info: Mapping[str, PyTree]) -> PyTree:
        name = type(self.env).__name__
        if self.key not in info and self.default is None:
            raise EnvironmentContractError(
                f"{name}: the info of agent {agent!r} has no cost {self.key!r}; it has "
                f"{sorted(map(str, info))}. Name the right key (cost_key) or a cost for where there is none "
                "(cost_default)."
            )
        return real_scalar(info.get(self.key, self.default), agent, name)


def real_scalar(cost: PyTree, agent: str, name: str) -> jax.Array:
    """Return a traced cost as float32 `[]`.

    Raises:
        EnvironmentContractError: If it is no single number.
    """
    number = jnp.asarray(cost)
    if number.shape not in {(), (1,)}:
        raise EnvironmentContractError(
            f"The cost of agent {agent!r} in {name} must be one number, got shape {number.shape}."
        )
    return number.astype(jnp.float32).reshape(())
