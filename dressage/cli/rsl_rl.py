"""Owns how the command line drives rsl_rl's algorithms on tasks in torch."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dressage.cli.algorithm import Algorithm, CheckpointStore, Trainable
from dressage.cli.task_names import AnyTask, TaskKind
from dressage.config import Option, check_names
from dressage.errors import ConfigError
from dressage.learning.policy_graph import Deployable
from dressage.learning.specs import AGENT
from dressage.policy import PolicyConfig
from dressage.policy.base_policy import ROLLOUT_MODES, TIME_OUT_RULES
from dressage.policy.rsl_rl_policy.option_ranges import CARRIED
from dressage.policy.torch_envs.catalog import GENERAL, SHIPPED, TorchTask, check_installed, torch_task
from dressage.reporting.filming import Pictures
from dressage.reporting.rollouts import Episodes
from dressage.runtime import OPTIONS as RUNTIME_OPTIONS
from dressage.signals import Signals

if TYPE_CHECKING:
    from dressage.cli.rsl_rl_runs import RowCollector, RslRlRun
    from dressage.policy.rsl_rl_policy.finished import FinishedPolicy
    from dressage.runtime import Engine

OF_ENGINE = frozenset(
    {"workers", "transport", "max_lag", "restart_budget", "timeout_s", "start_timeout_s", "non_finite"}
)

OPTIONS = (
    Option(
        "total_timesteps",
        1_000_000,
        "integer",
        1,
        unit="steps",
        help="Environment steps over all copies; rounded up to whole updates.",
    ),
    Option(
        "num_envs", 16, "integer", 1, unit="environments", help="Copies, dealt out evenly to the workers."
    ),
    Option("evaluations", 10, "integer", 0, help="Evaluations spread over training; 0 for none."),
    Option("eval_episodes", 32, "integer", 1, unit="episodes", help="Episodes of each evaluation."),
    Option("stagger", True, "boolean", help="Copies begin somewhere within their time limit."),
    Option(
        "time_out_bootstrap",
        "final_observation",
        "choice",
        choices=TIME_OUT_RULES,
        help="Which value follows a time limit: of the final observation, or by rsl_rl's rule.",
    ),
    Option(
        "rollout_mode",
        "sync",
        "choice",
        choices=ROLLOUT_MODES,
        help="Whether workers may act by older weights.",
    ),
    *(option for option in RUNTIME_OPTIONS if option.name in OF_ENGINE),
    Option("address", None, "text", optional=True, help="A Ray cluster: local, or a head's address."),
    Option("rsl_rl", GENERAL, "mapping", help="rsl_rl's own training configuration; --config FILE.yaml."),
)


INSTEAD = {
    "seed": "Say --seed.",
    "max_iterations": "Say --steps, environment steps over all copies.",
    "clip_actions": "Clip them in the environment: RslRlVecEnvWrapper(env, clip_actions=...).",
}
"""Entries that people expect to have an effect, and what has it."""


class RslRl(Algorithm["FinishedPolicy"]):
    """PPO of rsl_rl, trained by the engine of `dressage.runtime`."""

    name: ClassVar[str] = "rsl_rl"
    title: ClassVar[str] = "rsl_rl"
    help: ClassVar[str] = "PPO of rsl_rl on tasks in torch, in one process, in several, or on a Ray cluster."
    trains: ClassVar[TaskKind] = "torch"
    options: ClassVar[tuple[Option, ...]] = OPTIONS
    steps_option: ClassVar[str] = "total_timesteps"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        task.name: {"total_timesteps": task.steps, "num_envs": task.num_envs, "rsl_rl": dict(task.config)}
        for task in SHIPPED.values()
    }
    config_option: ClassVar[str | None] = "rsl_rl"

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every option; see `Algorithm.resolve`."""
        check_names(given, [option.name for option in self.options], self.title)
        found = {o.name: o.check(given.get(o.name, o.default), self.title) for o in self.options}
        if found["num_envs"] % found["workers"]:
            raise ConfigError(
                f"rsl_rl option 'num_envs' ({found['num_envs']}) must divide evenly among 'workers' "
                f"({found['workers']})."
            )
        beneath = found["rsl_rl"].get("runner")
        if len(found["rsl_rl"]) == 1 and isinstance(beneath, Mapping):
            found["rsl_rl"] = dict(beneath)  # As the files in rsl_rl's documentation have it.
        if "num_steps_per_env" not in found["rsl_rl"]:
            raise ConfigError(
                "rsl_rl's training configuration lacks 'num_steps_per_env', a whole number of steps. "
                "`dressage config --task rsl:pendulum --yaml` prints one that is complete."
            )
        return found

    def told_changes(self, changed: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what has an effect; what a configuration leaves out is as rsl_rl's classes have it."""
        _prepare_torch()
        from dressage.policy.rsl_rl_policy.left_out import default_of

        own = f"{self.config_option}."
        told = {}
        for path, value in changed.items():
            names = path.removeprefix(own).split(".") if path.startswith(own) else []
            if names and names[0] in CARRIED:
                continue
            told[path] = default_of(options["rsl_rl"], names) if names and value is None else value
        return told

    def warnings(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return which entries of rsl_rl's configuration have no effect here, and what to say instead."""
        config = options["rsl_rl"]
        return [
            f"Not used: {name}={config[name]} of rsl_rl's configuration. {remedy}"
            for name, remedy in INSTEAD.items()
            if config.get(name) is not None
        ]

    def make_run(
        self, task: AnyTask, options: Mapping[str, Any], seeds: tuple[int, ...]
    ) -> "Trainable[FinishedPolicy]":
        """Prepare a run; see `Algorithm.make_run`."""
        _prepare_torch()
        from dressage.cli.rsl_rl_runs import RslRlRun

        torch_one = _torch(task)
        _check_fits(torch_one, options)
        return RslRlRun(
            torch_one,
            seeds,
            _steps_per_update(options),
            options["total_timesteps"],
            options["eval_episodes"] if options["evaluations"] else 0,
            partial(_make_engine, torch_one, options),
        )

    def close_run(self, run: "Trainable[FinishedPolicy]") -> None:
        """End the engines of a run and their workers."""
        _own(run).close()

    def events(self, run: "Trainable[FinishedPolicy]") -> Sequence[Mapping[str, Any]]:
        """Return what happened to workers since the last look, and first whether a resumed run is exact."""
        return _own(run).events()

    def checkpoints(self, folder: Path, keep: int) -> CheckpointStore:
        """Open the engines' checkpoints; `policy.pt` in each is one that rsl_rl's runner loads."""
        from dressage.cli.rsl_rl_runs import EngineCheckpoints

        return EngineCheckpoints(folder, keep)

    def updates_at_evaluations(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return when evaluations are due: evenly spread, the last one at the end."""
        updates = -(-options["total_timesteps"] // _steps_per_update(options))
        count = min(options["evaluations"], updates)
        return tuple((index + 1) * updates // count for index in range(count))

    def load_policy(self, folder: Path) -> "FinishedPolicy":
        """Read a policy; see `FinishedPolicy.load`."""
        _prepare_torch()
        from dressage.policy.rsl_rl_policy.finished import FinishedPolicy

        return FinishedPolicy.load(folder)

    def deployables(self, policy: "FinishedPolicy") -> Mapping[str, Deployable]:
        """Return the one policy; see `Algorithm.deployables`."""
        return {AGENT: policy}

    def signals(self, task: AnyTask, policy: "FinishedPolicy") -> Signals:
        """Name the numbers as the task does, or else by observation group and place."""
        return _torch(task).signals or policy.signals()

    def play(
        self, task: AnyTask, policy: "FinishedPolicy", episodes: int, seed: int, *, stochastic: bool
    ) -> Episodes:
        """Play episodes; see `Algorithm.play`."""
        from dressage.cli.rsl_rl_runs import play

        return play(_torch(task), policy, episodes, seed, stochastic=stochastic)

    def film(self, task_name: str, policy: "FinishedPolicy", seed: int, episodes: int) -> Pictures:
        """Film an episode; see `Algorithm.film`."""
        from dressage.cli.rsl_rl_film import film_torch_task

        return film_torch_task(torch_task(task_name), policy, seed, episodes)


def _own(run: "Trainable[FinishedPolicy]") -> "RslRlRun":
    from dressage.cli.rsl_rl_runs import RslRlRun

    assert isinstance(run, RslRlRun), "make_run made it"
    return run


def _prepare_torch() -> None:
    check_installed()
    # Networks this small lose more by waiting for other threads than they gain; it counts only before torch
    # loads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _steps_per_update(options: Mapping[str, Any]) -> int:
    return int(options["num_envs"] * options["rsl_rl"]["num_steps_per_env"])


def _check_fits(task: TorchTask, options: Mapping[str, Any]) -> None:
    """Check the configuration, and build the policy once on one worker's copies, before a run starts."""
    from dressage.policy import EvalConfig, PolicyRole
    from dressage.policy.rsl_rl_policy.configuration import MODELS, check_configuration, model_names
    from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
    from dressage.policy.torch_envs.rollouts import MakeRollouts

    policy = RSLRLPolicy(_policy_config(options), PolicyRole.EVAL)
    check_configuration(options["rsl_rl"])
    if model_names(policy.algo_cls) == MODELS["Distillation"]:
        raise ConfigError(
            "Distillation needs a trained teacher and is not trained from the command line. From Python: "
            "RSLRLPolicy.load_checkpoint(PATH) before the engine's first update."
        )
    if task.is_of_user:
        return  # A simulator may take minutes to start, and be there once in a process.
    face = MakeRollouts(task, options["num_envs"] // options["workers"])(0)
    try:
        policy.init_eval(EvalConfig(), face.meta())
    finally:
        face.close()


def _make_engine(task: TorchTask, options: Mapping[str, Any], seed: int, rows: "RowCollector") -> "Engine":
    from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
    from dressage.policy.torch_envs.rollouts import MakeRollouts
    from dressage.runtime import Engine, RunSpec, runtime_config

    make_env = MakeRollouts(task, options["num_envs"] // options["workers"], options["stagger"])
    layout = {name: options[name] for name in (*OF_ENGINE, "address")}
    spec = RunSpec(RSLRLPolicy, _policy_config(options), make_env)
    return Engine(spec, runtime_config({**layout, "seed": seed}), sinks=[rows])


def _policy_config(options: Mapping[str, Any]) -> PolicyConfig:
    return PolicyConfig(
        policy_kwargs=options["rsl_rl"],
        rollout_mode=options["rollout_mode"],
        time_out_bootstrap=options["time_out_bootstrap"],
    )


def _torch(task: AnyTask) -> TorchTask:
    assert isinstance(task, TorchTask), "algorithms are chosen by what the task has"
    return task
