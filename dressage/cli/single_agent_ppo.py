"""Owns how the command line drives `dressage.ppo`: PPO on tasks of one agent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dressage import ppo
from dressage.cli.algorithm import FineTunable, Trainable
from dressage.cli.presets import SINGLE_AGENT_PPO
from dressage.cli.task_names import AnyTask, TaskKind
from dressage.config import Option
from dressage.envs import BaseEnv, HostTask
from dressage.envs.registry import SingleAgentTask
from dressage.errors import ConfigError
from dressage.learning.policy_graph import Deployable
from dressage.learning.specs import AGENT
from dressage.ppo.fine_tuning import options_of
from dressage.reporting.filming import Pictures, film_episode
from dressage.reporting.metric_rows import jsonable
from dressage.reporting.rollouts import Episodes, play_episodes


class SingleAgentPPO(FineTunable[ppo.Policy]):
    """PPO on functional environments and on Gymnasium's."""

    name: ClassVar[str] = "ppo"
    title: ClassVar[str] = "PPO"
    help: ClassVar[str] = "Proximal policy optimisation of one agent."
    trains: ClassVar[TaskKind] = "single"
    options: ClassVar[tuple[Option, ...]] = ppo.OPTIONS
    steps_option: ClassVar[str] = "TOTAL_TIMESTEPS"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = SINGLE_AGENT_PPO

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every field of `ppo.Config`; see `Algorithm.resolve`."""
        config = _config(given)
        return {option.name: jsonable(getattr(config, option.name)) for option in self.options}

    def make_run(
        self, task: AnyTask, options: Mapping[str, Any], seeds: tuple[int, ...]
    ) -> Trainable[ppo.Policy]:
        """Prepare a run; see `Algorithm.make_run`."""
        return ppo.make_trainer(_single(task), _config(options), seeds)

    def updates_at_evaluations(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return when evaluations are due, as `ppo.Config` says."""
        return _config(options).updates_at_evaluations()

    def load_policy(self, folder: Path) -> ppo.Policy:
        """Read a policy; see `ppo.Policy.load`."""
        return ppo.Policy.load(folder)

    def deployables(self, policy: ppo.Policy) -> Mapping[str, Deployable]:
        """Return the one policy; see `Algorithm.deployables`."""
        return {AGENT: policy}

    def adopt(self, shipped: Mapping[str, Any]) -> ppo.Policy:
        """Take the one policy that PPO trained; see `FineTunable.adopt`."""
        policies = list(shipped.values())
        if len(policies) != 1 or not isinstance(policies[0], ppo.Policy):
            raise ConfigError(
                f"{self.title} goes on with one policy that {self.title} trained; got that of "
                f"{', '.join(shipped)} ({type(policies[0]).__name__})."
            )
        return policies[0]

    def check_start(self, run: Trainable[ppo.Policy], policy: ppo.Policy) -> None:
        """Refuse other spaces and networks; see `FineTunable.check_start`."""
        assert isinstance(run, ppo.Trainer), "`make_run` makes no other"
        run.check_start(policy)

    def options_of(self, policy: ppo.Policy) -> dict[str, Any]:
        """Return what the policy's networks show; see `FineTunable.options_of`."""
        return options_of(policy)

    def start_from(
        self,
        run: Trainable[ppo.Policy],
        state: Any,  # noqa: ANN401
        policy: ppo.Policy,
        *,
        keep_statistics: bool,
    ) -> Any:  # noqa: ANN401 (the run's own state)
        """Start from a policy; see `FineTunable.start_from`."""
        assert isinstance(run, ppo.Trainer), "`make_run` makes no other"
        return run.start_from(state, policy, keep_statistics=keep_statistics)

    def play(
        self, task: AnyTask, policy: ppo.Policy, episodes: int, seed: int, *, stochastic: bool
    ) -> Episodes:
        """Play episodes; see `Algorithm.play`."""
        return play_episodes(_single(task), policy, episodes, seed, stochastic=stochastic)

    def film(self, task_name: str, policy: ppo.Policy, seed: int, episodes: int) -> Pictures:
        """Film an episode; see `Algorithm.film`."""
        return film_episode(task_name, policy, seed, episodes)


def _config(options: Mapping[str, Any]) -> ppo.Config:
    return ppo.Config.from_mapping(dict(options)).validate()


def _single(task: AnyTask) -> SingleAgentTask:
    assert isinstance(task, BaseEnv | HostTask), "algorithms are chosen by what the task has"
    return task
