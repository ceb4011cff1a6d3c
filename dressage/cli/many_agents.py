"""Owns how the command line drives the learners of `dressage.rl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dressage.cli.algorithm import Algorithm, Trainable
from dressage.cli.presets import IPPO_PRESETS
from dressage.cli.task_names import AnyTask, TaskKind, environment_of
from dressage.config import Option
from dressage.learning.policy_graph import Deployable
from dressage.reporting.agent_film import film_agents
from dressage.reporting.filming import Pictures
from dressage.reporting.rollouts import Episodes
from dressage.rl import algorithm
from dressage.rl.ippo import IPPO
from dressage.rl.parameterized_ippo import ParameterizedIPPO
from dressage.rl.policy_set import PolicySet
from dressage.rl.trainer import MultiAgentTrainer, play_policies

RUN_OPTIONS = (
    Option(
        "total_timesteps",
        1_000_000,
        "integer",
        1,
        unit="steps",
        help="Environment steps over all copies; rounded up to whole updates.",
    ),
    Option("evaluations", 10, "integer", 0, help="Evaluations spread over training; 0 for none."),
    Option("eval_episodes", 32, "integer", 1, unit="episodes", help="Episodes of each evaluation."),
)
"""What a run from the command line has besides the learner's own options."""

OF_RUN = frozenset(option.name for option in RUN_OPTIONS)


class ManyAgents(Algorithm[PolicySet]):
    """One learner of `dressage.rl` on functional environments of many agents and on PettingZoo's."""

    trains: ClassVar[TaskKind] = "multi"
    steps_option: ClassVar[str] = "total_timesteps"
    learner: ClassVar[type[algorithm.Algorithm]]

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every option of the run and the learner; see `Algorithm.resolve`."""
        checked = self.learner.validate({name: given[name] for name in given if name not in OF_RUN})
        resolved = {
            option.name: option.check(given.get(option.name, option.default), self.title)
            for option in RUN_OPTIONS
        }
        return resolved | _flat(checked)

    def make_run(
        self, task: AnyTask, options: Mapping[str, Any], seeds: tuple[int, ...]
    ) -> Trainable[PolicySet]:
        """Prepare a run; see `Algorithm.make_run`."""
        episodes = options["eval_episodes"] if options["evaluations"] else 0
        return MultiAgentTrainer(
            self._learner(options), environment_of(task), options["total_timesteps"], seeds, episodes
        )

    def updates_at_evaluations(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return when evaluations are due: evenly spread, the last one at the end."""
        updates = -(-options["total_timesteps"] // (options["num_envs"] * options["rollout_length"]))
        count = min(options["evaluations"], updates)
        return tuple((index + 1) * updates // count for index in range(count))

    def load_policy(self, folder: Path) -> PolicySet:
        """Read the policies of all agents; see `PolicySet.load`."""
        return PolicySet.load(folder)

    def deployables(self, policy: PolicySet) -> Mapping[str, Deployable]:
        """Return the policies of all agents; see `Algorithm.deployables`."""
        return policy.policies

    def play(
        self, task: AnyTask, policy: PolicySet, episodes: int, seed: int, *, stochastic: bool
    ) -> Episodes:
        """Play episodes; an episode's return is the mean over the agents."""
        learner = self.learner(policy.config)
        named = play_policies(learner, environment_of(task), policy, episodes, seed, stochastic=stochastic)
        returns = {agent: np.asarray(one["returns"], np.float64) for agent, one in named.items()}
        first = next(iter(named.values()))
        return Episodes(
            returns=np.mean(list(returns.values()), axis=0),
            lengths=np.max([one["lengths"] for one in named.values()], axis=0),
            finished=np.asarray(first["finished"]),
            by_agent=returns if len(returns) > 1 else {},
        )

    def film(self, task_name: str, policy: PolicySet, seed: int, episodes: int) -> Pictures:
        """Film an episode; see `Algorithm.film`."""
        return film_agents(task_name, policy, seed, episodes)

    def _learner(self, options: Mapping[str, Any]) -> algorithm.Algorithm:
        return self.learner({name: value for name, value in options.items() if name not in OF_RUN})


class ManyAgentsIPPO(ManyAgents):
    """IPPO."""

    name: ClassVar[str] = "ippo"
    title: ClassVar[str] = "IPPO"
    help: ClassVar[str] = "Independent PPO: each agent learns from its own observations and rewards."
    options: ClassVar[tuple[Option, ...]] = (*RUN_OPTIONS, *IPPO.OPTIONS)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = IPPO_PRESETS
    learner = IPPO


class ManyAgentsParameterizedIPPO(ManyAgents):
    """ParameterizedIPPO."""

    name: ClassVar[str] = "parameterized-ippo"
    title: ClassVar[str] = "ParameterizedIPPO"
    help: ClassVar[str] = "IPPO whose actions carry the parameters of a shield."
    options: ClassVar[tuple[Option, ...]] = (*RUN_OPTIONS, *ParameterizedIPPO.OPTIONS)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    learner = ParameterizedIPPO


def _flat(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Write nested options with dots."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        inner = {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {}
        flat |= inner or {name: value}
    return flat
