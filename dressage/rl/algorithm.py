"""The base of all multi-agent learners: from options and an environment to a result, whatever is learned."""

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from dressage.config import merge_configs, whole_number
from dressage.errors import ConfigError
from dressage.learning.evaluation import Evaluation
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Group, Learner
from dressage.learning.specs import AgentSpec
from dressage.rl.adapters import PolicyAdapter
from dressage.rl.environments import TrainingEnv, is_parallel_env, training_env
from dressage.rl.options import Options, check_config
from dressage.rl.results import TrainResult
from dressage.rl.training import (
    Callback,
    Training,
    check_origin,
    check_same_spaces,
    named_results,
    take_steps,
)

LARGEST_SEED = 2**32 - 1


class Algorithm(abc.ABC):
    """A multi-agent learner: options and a seed, and what has been trained so far.

    Attributes:
        NAME: What error texts and files call it.
        OPTIONS: Declarations of all its options.
        config: The checked options.
        seed: The seed.
    """

    NAME: ClassVar[str]
    OPTIONS: ClassVar[Options]
    ADAPTER: ClassVar[type[PolicyAdapter]] = PolicyAdapter

    def __new__(cls, cfg: dict[str, Any] | None = None, *, seed: int = 0, **misplaced: Any) -> Self:  # noqa: ANN401 (`__init__` takes the rest)
        """Refuse options that stand outside of the dict, for all learners alike.

        Raises:
            ConfigError: If there are any; the text shows how to write them.
        """
        if misplaced:
            raise ConfigError(
                f"{cls.NAME} takes its options in one dict: {cls.__name__}({_shown(misplaced)}); by name it "
                f"takes cfg and seed only, got {', '.join(misplaced)}."
            )
        return super().__new__(cls)

    def __init__(self, cfg: dict[str, Any] | None = None, *, seed: int = 0) -> None:
        """Check options and seed; nothing is compiled.

        Args:
            cfg: Options that differ from the defaults.
            seed: In [0, 2^32 - 1]; the same seed gives the same result, bit for bit, on the same machine.

        Raises:
            ConfigError: If an option is unknown or a value is not legal.
        """
        self.config = self.validate(cfg)
        self._given = merge_configs({}, cfg)
        self.seed = _checked_seed(seed, self.NAME)
        self._training: Training | None = None
        self._latest: Training | None = None  # What `evaluate` plays with: also several seeds at once.

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them.

        Raises:
            ConfigError: If an option is unknown, of the wrong type, out of its range, or contradicts another.
        """
        return check_config(cls.OPTIONS, overrides, cls.NAME)

    @abc.abstractmethod
    def make_learner(
        self, spec: AgentSpec, spaces: GroupSpaces, env: TrainingEnv, optimizer_steps: int
    ) -> Learner:
        """Return what trains each agent of a group.

        Args:
            spec: The agents' spaces, as the network sees them.
            spaces: The same with names.
            env: The environment.
            optimizer_steps: Optimiser applications of the whole training, at which annealing ends; 0 without
                annealing.
        """

    @abc.abstractmethod
    def optimizer_steps(self, timesteps: int, copies: int) -> int:
        """Return the optimiser applications that `timesteps` samples make, drawn from `copies` streams.

        An environment step gives each network one sample, one that agents share as many as they are.
        """

    def watch(self, metrics: dict[str, dict[str, float]]) -> None:  # noqa: B027 (most learners are silent)
        """Look at every agent's metrics of one update, to warn of what the user should know of."""

    def train(
        self,
        env: Any,  # noqa: ANN401 (see Args)
        total_timesteps: int,
        *,
        callbacks: Sequence[Callback] = (),
        resume_from: str | Path | TrainResult | None = None,
    ) -> TrainResult:
        """Train every agent.

        A second call goes on from where the first ended. Exactly `total_timesteps` steps are taken: the last
        rollout may be shorter.

        Args:
            env: A functional environment (the whole of training is then one compiled program), a PettingZoo
                `ParallelEnv`, or a function without arguments that makes one.
            total_timesteps: Environment steps to take, over all copies, >= 0; not times agents. What
                was taken before does not count.
            callbacks: Each is called after every update with a `TrainEvent`; True stops training.
            resume_from: A result, or a folder that one was saved in, to go on from.

        Returns:
            The result of all training so far.

        Raises:
            ConfigError: If options or what is to be resumed do not fit the environment.
            EnvironmentContractError: If the environment breaks its contract.
            UnsupportedSpaceError: If an agent's space is not supported.
            NonFiniteError: If the environment gave a number that is not finite. Parameters are then as they
                were before that rollout, and training can go on from there, in new episodes.
            EnvironmentRaisedError: If an environment raises.
            WorkerLostError: If a worker process dies or gives no answer in time.
        """
        total = _checked_steps(total_timesteps, self.NAME)
        training = self._continue(env, total, resume_from)
        self._training = self._latest = training
        take_steps(training, total, tuple(callbacks))
        return training.result()

    def train_seeds(
        self,
        env: Any,  # noqa: ANN401
        total_timesteps: int,
        seeds: Sequence[int],
    ) -> list[TrainResult]:
        """Train one result for each seed; over a functional environment all of them in one program.

        Args:
            env: As in `train`; on the host it must be a function that makes an environment.
            total_timesteps: Environment steps of each seed.
            seeds: At least one.

        Raises:
            ConfigError: As `train`, or if there is no seed.
        """
        total = _checked_steps(total_timesteps, self.NAME)
        checked = tuple(_checked_seed(seed, self.NAME) for seed in seeds)
        if not checked:
            raise ConfigError(f"{self.NAME}.train_seeds needs at least one seed, got none.")
        prepared = self.prepare(env)
        if not prepared.compiled or len(checked) == 1:
            return [self._train_alone(env, total, seed) for seed in checked]
        groups = self.make_groups(prepared, total)
        training = Training(self, env, prepared, prepared.make_run(groups, checked), groups)
        training.state = training.run.init()
        self._latest = training
        take_steps(training, total, ())
        return [training.result(index) for index in range(len(checked))]

    def evaluate(
        self,
        env: Any,  # noqa: ANN401
        episodes: int,
        *,
        stochastic: bool = True,
        seed: int = 0,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Play whole episodes with the trained policies; nothing of training changes.

        Args:
            env: What `train` was given. Where that was the one `ParallelEnv` that there is, in which training
                goes on: a function without arguments that makes one like it.
            episodes: How many, at least 1; each in a copy of its own.
            stochastic: Whether actions are sampled, as in training; otherwise the most likely ones are taken.
            seed: Another one plays other episodes.

        Returns:
            For each agent `returns`, `costs`, `lengths` and `finished`, `[episodes]` each. After
            `train_seeds` over a functional environment they are `[seeds, episodes]`.

        Raises:
            ConfigError: If nothing has been trained yet, `episodes` is not a whole number of at least 1, or
                the environment is another one, or the only one.
        """
        number = whole_number(episodes)
        if number is None or number < 1:
            raise ConfigError(f"{self.NAME}.evaluate needs episodes >= 1, got {episodes!r}.")
        training = self._latest
        played = Evaluation(stochastic, seed)
        if training is not None and training.prepared.single:
            return self._evaluate_elsewhere(training, env, number, played)
        if training is None or training.env is not env:
            raise ConfigError(f"{self.NAME} has not been trained on this environment yet: call train first.")
        return named_results(training.groups, training.run.evaluate(training.state, number, played))

    def close(self) -> None:
        """Close the environments that were trained on, and end their worker processes; results stay."""
        if self._training is not None:
            self._training.close()

    def prepare(self, env: Any) -> TrainingEnv:  # noqa: ANN401
        """Check an environment and prepare its copies; see `train` for what it may be.

        Raises:
            DressageError: If it breaks its contract, is not supported, or options do not fit it.
        """
        return training_env(env, self.config, frozenset(self._given), self.NAME)

    def make_groups(self, env: TrainingEnv, total_timesteps: int) -> tuple[Group, ...]:
        """Return the groups of learners for a training of `total_timesteps` environment steps."""
        return self._groups(env, total_timesteps, (0,) * len(env.groups))

    def _evaluate_elsewhere(
        self,
        training: Training,
        env: Any,  # noqa: ANN401
        episodes: int,
        evaluation: Evaluation,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Play in copies of their own what was trained in the one environment that there is."""
        if not callable(env) or is_parallel_env(env):
            raise ConfigError(
                f"{self.NAME} was trained in the one {type(training.env).__name__} that there is, in which "
                "training goes on; episodes are played in others. Give a function without arguments that "
                f"makes one like it; got {type(env).__name__}. Nothing has to be trained again."
            )
        prepared = self.prepare(env)
        check_same_spaces(training.prepared.groups, prepared.groups, f"{self.NAME}.evaluate cannot play here")
        run = prepared.make_run(training.groups, training.run.seeds)
        try:
            results = run.evaluate(training.state, episodes, evaluation)
        finally:
            run.close()
        return named_results(training.groups, results)

    def _continue(self, env: Any, total: int, resume_from: str | Path | TrainResult | None) -> Training:  # noqa: ANN401
        """Find what to go on from, and lay out the rest of training."""
        before = self._training
        if resume_from is None and before is not None and before.env is env and not before.closed:
            return self._extend(before, total)
        saved = TrainResult.load(resume_from) if isinstance(resume_from, str | Path) else resume_from
        anew = saved is None and before is not None and before.restarts
        if before is not None:
            saved = before.result() if saved is None else saved
            before.close()
        prepared = self.prepare(env)
        done = (0,) * len(prepared.groups)
        if saved is not None:
            check_origin(saved, self.NAME, self.config, prepared.groups)
            done = tuple(_optimizer_steps_of(saved, spaces.agents[0]) for spaces in prepared.groups)
        groups = self._groups(prepared, total, done)
        training = Training(self, env, prepared, prepared.make_run(groups, (self.seed,)), groups)
        training.state = training.run.init()
        if saved is not None:
            training.take_over(saved, anew=anew)
        return training

    def _extend(self, before: Training, total: int) -> Training:
        """Go on with the same environments; only the end of the learning rate's schedule may move."""
        if self.config.get("anneal_learning_rate", False):
            done = tuple(int(np.max(agent.optimizer_steps)) for agent in before.state.agents)
            before.regroup(self._groups(before.prepared, total, done))
        return before

    def _groups(self, env: TrainingEnv, total: int, done: Sequence[int]) -> tuple[Group, ...]:
        """Lay the learners of every group out for `total` more steps after `done` optimiser applications."""
        anneal = self.config.get("anneal_learning_rate", False)
        groups = []
        for spaces, before in zip(env.groups, done, strict=True):
            shared = self.config.get("share_parameters", False) and len(spaces.agents) > 1
            samples = len(spaces.agents) if shared else 1
            steps = before + self.optimizer_steps(total * samples, env.copies * samples) if anneal else 0
            groups.append(Group(self.make_learner(spaces.spec, spaces, env, steps), spaces.agents, shared))
        return tuple(groups)

    def _train_alone(self, env: Any, total: int, seed: int) -> TrainResult:  # noqa: ANN401
        """Train a learner with the same options and another seed."""
        learner = type(self)(self._given, seed=seed)
        try:
            return learner.train(env, total)
        finally:
            learner.close()


def _optimizer_steps_of(saved: TrainResult, agent: str) -> int:
    state = saved.agent_states[agent]
    return int(state["optimizer_steps"] if isinstance(state, dict) else state.optimizer_steps)


def _checked_steps(total_timesteps: Any, owner: str) -> int:  # noqa: ANN401
    total = whole_number(total_timesteps)
    if total is None or total < 0:
        raise ConfigError(
            f"{owner}.train needs total_timesteps as a whole number >= 0, got {total_timesteps!r}."
        )
    return total


def _shown(options: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": {value!r}' for name, value in options.items()) + "}"


def _checked_seed(seed: Any, owner: str) -> int:  # noqa: ANN401
    number = whole_number(seed)
    if number is None or not 0 <= number <= LARGEST_SEED:
        raise ConfigError(f"{owner} needs a seed in [0, {LARGEST_SEED}], got {seed!r}.")
    return number
