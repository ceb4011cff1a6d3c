"""Shields around PettingZoo environments on the host."""

from functools import cached_property
from typing import Any

import jax
import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from dressage.envs.functional import BaseEnv
from dressage.envs.multi_agent import INTERVENED, MultiAgentEnv
from dressage.errors import ConfigError, EnvironmentContractError
from dressage.shield.augmented import (
    EXECUTED,
    INFEASIBLE,
    RATE,
    ShieldedAgent,
    Shields,
    shielded_agents,
)
from dressage.shield.decision import PyTree, Space
from dressage.shield.functional import View, see_observation

Observations = dict[str, Any]
Infos = dict[str, dict[str, Any]]


class ShieldedParallelEnv(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo says nothing about its types
    """A `ParallelEnv` whose agents propose, while their shields decide what is done.

    The host's twin of `ShieldedEnv`: the same spaces, the same keys in `info`, the same decisions.

    Args:
        env: The environment; it must name its `possible_agents`.
        shields: One shield for all agents, or one by agent; who has none acts unshielded.
        view: What a shield sees, from the environment (before the step, then after it), the agent's
            observation and its name; by default the observation.

    Raises:
        ConfigError: If a shield is given for an agent that does not exist, or the environment is a functional
            one.
        EnvironmentContractError: If the environment does not name its `possible_agents`.
        UnsupportedSpaceError: If a shield does not fit an agent's spaces.
    """

    def __init__(self, env: ParallelEnv, shields: Shields, view: View = see_observation) -> None:
        _check_parallel(env)
        super().__init__(env)
        self._view = view
        self._shielded = shielded_agents(
            tuple(env.possible_agents),
            shields,
            {agent: env.observation_space(agent) for agent in env.possible_agents},
            {agent: env.action_space(agent) for agent in env.possible_agents},
        )
        self._memory: dict[str, PyTree] = {}
        self._observations: Observations = {}
        self._interventions: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    @property
    def shielded_agents(self) -> tuple[str, ...]:
        """Who acts behind a shield: the infos of these tell of interventions after every step."""
        return tuple(self._shielded)

    def observation_space(self, agent: str) -> Space:
        """Return the space of an agent's observations, its shield's memory included."""
        one = self._shielded.get(agent)
        return self.env.observation_space(agent) if one is None else one.observation_space

    def action_space(self, agent: str) -> Space:
        """Return the space of an agent's augmented actions."""
        one = self._shielded.get(agent)
        return self.env.action_space(agent) if one is None else one.action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Start an episode; see `pettingzoo.ParallelEnv.reset`."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._memory, self._interventions, self._steps = {}, {}, {}
        return self._shown(observations), infos

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Make one step with what the shields made of the proposals; see `pettingzoo.ParallelEnv.step`.

        Raises:
            EnvironmentContractError: If an agent acts that was never seen.
        """
        executed, told = dict(actions), {}
        for agent in actions:
            if agent in self._shielded:
                executed[agent], told[agent] = self._decide(agent, actions[agent])
        observations, rewards, terminated, truncated, infos = self.env.step(executed)
        infos = {agent: {**info, **told.get(agent, {})} for agent, info in infos.items()}
        return self._shown(observations), rewards, terminated, truncated, infos

    def _decide(self, agent: str, action: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        if agent not in self._observations:
            raise EnvironmentContractError(
                f"Agent {agent!r} acts, but was shown no observation to act on; shown were "
                f"{', '.join(self._observations) or 'none'}. Call reset before step, and act for these alone."
            )
        one = self._shielded[agent]
        seen = self._view(self.env, self._observations[agent], agent)
        decided, intervened, feasible, memory = self._compiled[agent](self._memory[agent], seen, action)
        self._memory[agent] = memory
        self._steps[agent] += 1
        self._interventions[agent] += int(intervened)
        executed = np.asarray(decided, one.inner.dtype)
        return executed[()], {
            INTERVENED: bool(intervened),
            INFEASIBLE: not feasible,
            RATE: self._interventions[agent] / self._steps[agent],
            EXECUTED: executed,
        }

    def _shown(self, observations: Observations) -> Observations:
        """Let shields remember where their decisions led, and show it."""
        self._observations = dict(observations)
        shown = dict(observations)
        for agent, one in self._shielded.items():
            if agent not in observations:
                continue
            seen = self._view(self.env, observations[agent], agent)
            if agent in self._memory:
                self._memory[agent] = one.shield.follow(self._memory[agent], seen)
            else:
                self._memory[agent] = one.shield.begin(seen)
                self._interventions[agent], self._steps[agent] = 0, 0
            if one.shield.memory_dim:
                shown[agent] = np.asarray(one.shown(observations[agent], self._memory[agent]), np.float32)
        return shown

    @cached_property
    def _compiled(self) -> dict[str, Any]:
        """One compiled decision for each shield and pair of spaces."""
        known: list[tuple[ShieldedAgent, Any]] = []
        compiled = {}
        for agent, one in self._shielded.items():
            alike = (call for other, call in known if _alike(other, one))
            call = next(alike, None)
            if call is None:
                call = jax.jit(_Decide(one))
                known.append((one, call))
            compiled[agent] = call
        return compiled


def _check_parallel(env: Any) -> None:  # noqa: ANN401
    name = type(env).__name__
    if isinstance(env, BaseEnv | MultiAgentEnv):
        raise ConfigError(
            f"ShieldedParallelEnv wraps a PettingZoo ParallelEnv, got the functional {name}: shielded(env, "
            "shields, view) puts shields around that, and stays one compiled program."
        )
    if not getattr(env, "possible_agents", None):
        raise EnvironmentContractError(
            f"ShieldedParallelEnv needs the names of all agents that may ever act: {name} has no "
            "possible_agents. Give a PettingZoo ParallelEnv that has them."
        )


class _Decide:
    """An agent's decision as a function of arrays."""

    def __init__(self, one: ShieldedAgent) -> None:
        self._one = one

    def __call__(self, memory: PyTree, seen: PyTree, action: Any) -> tuple[Any, ...]:  # noqa: ANN401
        decision = self._one.decide(memory, seen, *self._one.split(action))
        return self._one.executed(decision.action), decision.intervened, decision.feasible, decision.memory


def _alike(first: ShieldedAgent, second: ShieldedAgent) -> bool:
    return first.shield is second.shield and first.inner == second.inner
