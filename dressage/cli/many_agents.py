"""Owns how the command line drives the learners of `dressage.rl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dressage.cli.algorithm import FineTunable, Trainable
from dressage.cli.presets import IPPO_PRESETS
from dressage.cli.task_names import AnyTask, TaskKind, environment_of
from dressage.config import Option
from dressage.errors import ConfigError
from dressage.learning.policy_graph import Deployable
from dressage.reporting.agent_film import film_agents
from dressage.reporting.filming import Pictures
from dressage.reporting.rollouts import Episodes
from dressage.rl import algorithm
from dressage.rl.adapters import PolicyAdapter
from dressage.rl.fine_tuning import options_of
from dressage.rl.icpo import CPO, ICPO
from dressage.rl.ippo import IPPO
from dressage.rl.ippo_lag import IPPO_Lagrangian
from dressage.rl.parameterized_ippo import ParameterizedIPPO
from dressage.rl.policy_set import PolicySet
from dressage.rl.safety import SafetyReport, judge_limits
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

CONSTRAINED_RUN = (
    *RUN_OPTIONS,
    Option(
        "limit_episodes",
        1000,
        "integer",
        0,
        unit="episodes",
        help="Episodes that judge the cost limits after training, with sampled actions; 0 for none.",
    ),
)
"""What a run of a learner under a cost limit has besides its own options."""


class ManyAgents(FineTunable[PolicySet]):
    """One learner of `dressage.rl` on functional environments of many agents and on PettingZoo's."""

    trains: ClassVar[TaskKind] = "multi"
    also_trains: ClassVar[tuple[TaskKind, ...]] = ("single",)
    steps_option: ClassVar[str] = "total_timesteps"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    run_options: ClassVar[tuple[Option, ...]] = RUN_OPTIONS
    learner: ClassVar[type[algorithm.Algorithm]]

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every option of the run and the learner; see `Algorithm.resolve`."""
        checked = self.learner.validate(self._of_learner(given))
        resolved = {
            option.name: option.check(given.get(option.name, option.default), self.title)
            for option in self.run_options
        }
        if resolved.get("limit_episodes") == 1:
            raise ConfigError(
                "limit_episodes: one episode says nothing of its own spread; give 2, or 0 for none."
            )
        return resolved | _flat(checked, {option.name for option in self.learner.OPTIONS})

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

    def adopt(self, shipped: Mapping[str, Any]) -> PolicySet:
        """Take the policies of all agents; see `FineTunable.adopt`."""
        for agent, policy in shipped.items():
            if not isinstance(policy, PolicyAdapter):
                raise ConfigError(
                    f"{self.title} goes on with policies that learners of many agents trained; that of "
                    f"{agent!r} is a {type(policy).__name__} of another."
                )
        return PolicySet(dict(shipped), self.learner.NAME, {})

    def options_of(self, policy: PolicySet) -> dict[str, Any]:
        """Return what the policies' networks show; see `FineTunable.options_of`."""
        known = {option.name for option in self.options}
        return {name: value for name, value in options_of(policy.policies).items() if name in known}

    def check_start(self, run: Trainable[PolicySet], policy: PolicySet) -> None:
        """Refuse other agents, spaces and networks; see `FineTunable.check_start`."""
        assert isinstance(run, MultiAgentTrainer), "`make_run` makes no other"
        run.check_start(policy)

    def start_from(
        self,
        run: Trainable[PolicySet],
        state: Any,  # noqa: ANN401
        policy: PolicySet,
        *,
        keep_statistics: bool,
    ) -> Any:  # noqa: ANN401 (the run's own state)
        """Start from the policies of all agents; see `FineTunable.start_from`."""
        assert isinstance(run, MultiAgentTrainer), "`make_run` makes no other"
        return run.start_from(state, policy, keep_statistics=keep_statistics)

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

    def judged_episodes(self, options: Mapping[str, Any]) -> int:
        """Return how many episodes judge the cost limits after training."""
        return int(options.get("limit_episodes", 0))

    def judge(self, task: AnyTask, policy: PolicySet, episodes: int, seed: int) -> SafetyReport:
        """Play episodes with sampled actions and judge every agent's limit.

        Raises:
            ConfigError: If the policies were trained without one.
        """
        limit = policy.config.get("cost_limit")
        if limit is None:
            raise ConfigError(f"{self.title} trains without a cost limit, so there is none to require.")
        named = play_policies(
            self.learner(policy.config), environment_of(task), policy, episodes, seed, stochastic=True
        )
        return judge_limits(named, limit, self.title)

    def film(self, task_name: str, policy: PolicySet, seed: int, episodes: int) -> Pictures:
        """Film an episode; see `Algorithm.film`."""
        return film_agents(task_name, policy, seed, episodes)

    def _learner(self, options: Mapping[str, Any]) -> algorithm.Algorithm:
        return self.learner(self._of_learner(options))

    def _of_learner(self, options: Mapping[str, Any]) -> dict[str, Any]:
        own = {option.name for option in self.run_options}
        return {name: value for name, value in options.items() if name not in own}


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
    learner = ParameterizedIPPO


class ManyAgentsLagrangian(ManyAgents):
    """IPPO_Lagrangian."""

    name: ClassVar[str] = "ippo-lagrangian"
    title: ClassVar[str] = "IPPO_Lagrangian"
    help: ClassVar[str] = "IPPO that keeps a cost limit by a price on cost; needs --set cost_limit=..."
    run_options: ClassVar[tuple[Option, ...]] = CONSTRAINED_RUN
    options: ClassVar[tuple[Option, ...]] = (*CONSTRAINED_RUN, *IPPO_Lagrangian.OPTIONS)
    learner = IPPO_Lagrangian


class ManyAgentsCPO(ManyAgents):
    """CPO."""

    name: ClassVar[str] = "cpo"
    title: ClassVar[str] = "CPO"
    help: ClassVar[str] = "Trust-region steps that keep a cost limit; needs --set cost_limit=..."
    run_options: ClassVar[tuple[Option, ...]] = CONSTRAINED_RUN
    options: ClassVar[tuple[Option, ...]] = (*CONSTRAINED_RUN, *CPO.OPTIONS)
    learner = CPO


class ManyAgentsICPO(ManyAgents):
    """ICPO."""

    name: ClassVar[str] = "icpo"
    title: ClassVar[str] = "ICPO"
    help: ClassVar[str] = "CPO with costs that a predictor of failures brings forward."
    run_options: ClassVar[tuple[Option, ...]] = CONSTRAINED_RUN
    options: ClassVar[tuple[Option, ...]] = (*CONSTRAINED_RUN, *ICPO.OPTIONS)
    learner = ICPO


def _flat(nested: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Write nested options with dots; a mapping that is an option's own value stays one."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        is_nest = isinstance(value, Mapping) and name not in names
        flat |= {f"{name}.{key}": item for key, item in value.items()} if is_nest else {name: value}
    return flat
