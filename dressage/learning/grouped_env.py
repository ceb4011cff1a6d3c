"""A vector of functional environments as the drivers see it: one record a group of agents."""

import dataclasses
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dressage.envs.functional import BaseEnv
from dressage.envs.multi_agent import INTERVENED, AgentStep, MultiAgentEnv, MultiAgentStep
from dressage.envs.multi_agent_checks import agents_with_costs
from dressage.envs.wrappers import MultiAgentVectorEnv, VectorEnv
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.records import Observed, Outcome
from dressage.learning.specs import AGENT, AgentSpec, agent_spec, observation_layout


class SingleAgentEnv:
    """`B` copies of a single-agent environment, for one group of one agent.

    Attributes:
        copies: Number of environment copies.
        layout: How its observations are flattened.
        spec: The agent's spaces.
    """

    def __init__(self, env: BaseEnv, copies: int, *, fixed_init: bool, offset_step: bool) -> None:
        self._vector = VectorEnv(env, copies, fixed_init=fixed_init, offset_step=offset_step)
        observation_space = self._vector.observation_space.to_gymnasium()
        self.layout = observation_layout(AGENT, observation_space)
        self.copies = copies
        self.spec: AgentSpec = agent_spec(AGENT, observation_space, self._vector.action_space.to_gymnasium())

    def reset(self, key: Array) -> tuple[Any, tuple[Observed, ...]]:
        """Start every copy; return the environments' state and what the agent sees."""
        state, observation = self._vector.reset(key)
        return state, (self._observed(observation),)

    def step(self, state: Any, actions: tuple[Array, ...]) -> tuple[Any, tuple[Outcome, ...]]:  # noqa: ANN401
        """Step every copy with the environment actions `[B, ...]` of the one group."""
        state, step = self._vector.step(state, actions[0])
        outcome = Outcome(
            observed=self._observed(step.observation),
            final_features=self._observed(step.final_observation).features,
            rewards=jnp.asarray(step.reward, jnp.float32),
            terminated=step.terminated,
            episode_ends=step.terminated | step.truncated,
            episode_returns=step.episode_return,
            episode_lengths=step.episode_length,
            info=step.info,
        )
        return state, (outcome,)

    def _observed(self, observation: Any) -> Observed:  # noqa: ANN401
        return Observed(self.layout.flatten(observation))


class ManyAgentsEnv:
    """`B` copies of an environment of many agents; a group of one agent has records without an agent axis.

    Two of them are equal where their environments are, value by value: they then share compiled programs.

    Attributes:
        copies: Number of environment copies.
        groups: The spaces of each group of equal agents.
        max_steps: Longest episode.
        has_costs: Whether it reports costs.
    """

    def __init__(self, env: MultiAgentEnv, copies: int, *, fixed_init: bool = False) -> None:
        self._vector = MultiAgentVectorEnv(env, copies, fixed_init=fixed_init)
        spaces = self._vector.spaces
        self.copies = copies
        self.max_steps = env.max_steps
        self.has_costs = bool(agents_with_costs(env))
        self._identity = (_identity(env), copies, fixed_init)
        self.groups = tuple(
            GroupSpaces.of(names, spaces.observation[names[0]], spaces.action[names[0]])
            for names in spaces.groups
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManyAgentsEnv) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def reset(self, key: Array) -> tuple[Any, tuple[Observed, ...]]:
        """Start every copy; return the environments' state and what each group sees."""
        state, observations, _ = self._vector.reset_groups(key)
        seen = zip(self.groups, observations, strict=True)
        return state, tuple(self._observed(group, observation) for group, observation in seen)

    def step(self, state: Any, actions: tuple[Any, ...]) -> tuple[Any, tuple[Outcome, ...]]:  # noqa: ANN401
        """Step every copy with the environment actions `[..., B, ...]` of each group."""
        stacked = zip(self.groups, actions, strict=True)
        state, step = self._vector.step_groups(
            state, tuple(_with_agents(group, action) for group, action in stacked)
        )
        rows = zip(self.groups, step.groups, strict=True)
        return state, tuple(self._outcome(group, row, step) for group, row in rows)

    def _outcome(self, group: GroupSpaces, stacked: AgentStep, whole: MultiAgentStep) -> Outcome:
        step: AgentStep = _without_agents(group, stacked)
        told = [whole.infos[agent] for agent in group.agents]
        intervened = [info[INTERVENED] for info in told if INTERVENED in info]
        shielded = len(intervened) == len(told)  # of a group with both sorts of agents nothing is said
        return Outcome(
            observed=group.observe(step.observation),
            final_features=group.observe(step.final_observation).features,
            rewards=step.reward,
            terminated=step.terminated,
            episode_ends=step.ended,
            episode_returns=step.episode_return,
            episode_lengths=step.episode_length,
            valid=step.alive_before,
            costs=step.cost if self.has_costs else None,
            episode_costs=step.episode_cost if self.has_costs else None,
            copy_ends=jnp.broadcast_to(whole.ended, step.reward.shape),
            copy_lengths=jnp.broadcast_to(whole.lengths, step.reward.shape),
            intervened=_without_agents(group, jnp.stack(intervened)) if shielded else None,
        )

    def _observed(self, group: GroupSpaces, observation: Any) -> Observed:  # noqa: ANN401
        return group.observe(_without_agents(group, observation))


def _identity(value: Any) -> Hashable:  # noqa: ANN401
    """Return what is equal for values that can never come to differ; for all others the object itself counts.

    A program compiled for one environment must not serve another, nor the same one after a change.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return type(value), value
    if isinstance(value, tuple):
        return tuple(_identity(item) for item in value)
    described: Any = getattr(type(value), "__dataclass_params__", None)
    if described is not None and described.frozen and not isinstance(value, type):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return type(value), *(_identity(field) for field in fields)
    return object()


def _without_agents(group: GroupSpaces, stacked: Any) -> Any:  # noqa: ANN401 (any tree of arrays)
    """Drop the agent axis of a group of one."""
    return stacked if len(group.agents) > 1 else jax.tree.map(lambda leaf: leaf[0], stacked)


def _with_agents(group: GroupSpaces, records: Any) -> Any:  # noqa: ANN401
    """Give a group of one its agent axis."""
    return records if len(group.agents) > 1 else jax.tree.map(lambda leaf: leaf[None], records)
