"""What is measured against what: one row for each line of the speed table in `docs/benchmarks.md`.

Every competitor of a row does the same work: the same task, steps, epochs, minibatches and networks. Where
something differs all the same, the row's note says so.
"""

from dataclasses import dataclass, replace
from typing import Any

from floor import CARTPOLE_FLOPS

Settings = dict[str, Any]


@dataclass(frozen=True)
class Competitor:
    """One worker with its settings.

    Attributes:
        name: As the tables call it.
        script: The worker in `benchmarks/peers`.
        environment: Whose virtual environment runs it.
        settings: What the worker is told.
    """

    name: str
    script: str
    environment: str
    settings: Settings


@dataclass(frozen=True)
class Target:
    """What dressage must reach: a ratio of its steps per second to a competitor's."""

    competitor: str
    minimum: float
    aim: float


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: As `--rows` calls it.
        title: What is done.
        competitors: Who takes turns.
        targets: What must hold between dressage and another.
        note: What differs between the sides.
    """

    name: str
    title: str
    competitors: tuple[Competitor, ...]
    targets: tuple[Target, ...]
    note: str = ""

    def quick(self) -> "Row":
        """Return the row with a quarter of the steps, for a first look."""
        return replace(self, competitors=tuple(_shortened(competitor) for competitor in self.competitors))


FLOOR = Competitor("floor", "floor_worker.py", "dressage", {"flops_per_step": CARTPOLE_FLOPS})


def dressage(task: str, config: Settings, cpus: int = 0) -> Competitor:
    """Return dressage's `train` with a configuration, on all processors or on so many."""
    return Competitor(
        "dressage", "dressage_worker.py", "dressage", {"task": task, "config": config, "cpus": cpus}
    )


def in_chunks(task: str, config: Settings) -> Competitor:
    """Return dressage as the command line runs it: a loop over compiled chunks."""
    settings = {"task": task, "config": config, "via": "trainer"}
    return Competitor("dressage in chunks", "dressage_worker.py", "dressage", settings)


# The common single-file PPO's hyper-parameters; dressage gets the same by its own names.
_COMMON_CONFIG: Settings = {
    "LR": 2.5e-4,
    "UPDATE_EPOCHS": 4,
    "ANNEAL_LR": True,
    "KERNEL_INIT_TYPE": "orthogonal",
    "FIXED_INIT": False,
    "NUM_EVAL_ENVS": 0,
    "EVAL_FREQ": 1,
}
_COMMON_NOTE = (
    "The peer is our own stand-in for a kind of program that no registry has. It takes the time limit for a "
    "terminal state; dressage bootstraps there and so evaluates its critic on the final observations too. "
    "dressage normalises advantages once a rollout, the peer once a minibatch."
)


def _common_row(name: str, envs: int, minibatches: int, total_steps: int, minimum: float, aim: float) -> Row:
    steps = 128
    peer = {"envs": envs, "steps": steps, "minibatches": minibatches, "epochs": 4, "total_steps": total_steps}
    config = {
        "NUM_ENVS": envs,
        "NUM_STEPS": steps,
        "NUM_MINIBATCHES": minibatches,
        "TOTAL_TIMESTEPS": total_steps,
    }
    ours = _COMMON_CONFIG | config
    return Row(
        name,
        f"CartPole, {envs:,} envs x {steps} steps, {minibatches} minibatches, 4 epochs, 64-64 networks",
        (
            FLOOR,
            Competitor("common JAX PPO", "common_jax_worker.py", "dressage", peer),
            dressage("cartpole", ours),
            in_chunks("cartpole", ours),
        ),
        (Target("floor", minimum, aim),),
        _COMMON_NOTE,
    )


def _rex_row() -> Row:
    config = {"NORMALIZE_ENV": True, "TOTAL_TIMESTEPS": 1_000_000}
    return Row(
        "pendulum-rex",
        "Pendulum, default Config with NORMALIZE_ENV, 1 M steps, evaluations included",
        (
            Competitor("rex-lib", "rex_worker.py", "rex", {"config": config}),
            dressage("pendulum", config),
            in_chunks("pendulum", config),
        ),
        (Target("rex-lib", 1.3, 1.6),),
        "",
    )


def _rejax_row(task: str, env: str) -> Row:
    config = {
        "LR": 3e-4,
        "NUM_ENVS": 64,
        "NUM_STEPS": 64,
        "NUM_MINIBATCHES": 16,
        "UPDATE_EPOCHS": 8,
        "TOTAL_TIMESTEPS": 131_072,
        "MAX_GRAD_NORM": 1e9,
        "HIDDEN_ACTIVATION": "silu",
        "KERNEL_INIT_TYPE": "lecun_normal",
        "FIXED_INIT": False,
        "SQUASH": False,
        "NUM_EVAL_ENVS": 0,
        "EVAL_FREQ": 1,
    }
    title = "rejax's class defaults: 64 envs x 64 steps, 16 minibatches, 8 epochs, 64-64 networks"
    return Row(
        f"{task}-rejax",
        f"{env.removesuffix('-v1')}, {title}",
        (Competitor("rejax", "rejax_worker.py", "rejax", {"env": env, "config": {}}), dressage(task, config)),
        (Target("rejax", 1.7, 2.2),),
        "Evaluations are left out on both sides: by default rejax plays 128 episodes every 4,096 steps, "
        "which is most of its time. rejax takes the time limit for a terminal state; dressage bootstraps.",
    )


def _sb3_row() -> Row:
    total_steps = 32_768
    config = {
        "LR": 3e-4,
        "NUM_ENVS": 8,
        "NUM_STEPS": 2048,
        "NUM_MINIBATCHES": 256,
        "UPDATE_EPOCHS": 10,
        "TOTAL_TIMESTEPS": total_steps,
        "ENT_COEF": 0.0,
        "KERNEL_INIT_TYPE": "orthogonal",
        "FIXED_INIT": False,
        "NUM_EVAL_ENVS": 0,
        "EVAL_FREQ": 1,
    }
    peer = {"env": "CartPole-v1", "envs": 8, "steps": 2048, "total_steps": total_steps, "cpus": 1}
    return Row(
        "cartpole-sb3",
        "CartPole, stable-baselines3's defaults: 8 envs x 2048 steps, minibatches of 64, 10 epochs; one core",
        (
            Competitor("stable-baselines3", "sb3_worker.py", "sb3", {**peer, "library": "stable_baselines3"}),
            Competitor(
                "sbx", "sb3_worker.py", "sbx", {**peer, "library": "sbx", "config": {"n_steps": 2048}}
            ),
            dressage("cartpole", config, cpus=1),
        ),
        (Target("stable-baselines3", 30, 50),),
        "One core for everyone, since torch is slower with two here. The peers step Gymnasium's environment "
        "in Python; dressage steps its own, equal one inside the compiled program. dressage clips the value "
        "loss and normalises advantages once a rollout; the peers normalise in each minibatch.",
    )


ROWS: tuple[Row, ...] = (
    _common_row("cartpole-2048", 2048, 32, 5 * 2048 * 128, 0.45, 0.6),
    _common_row("cartpole-4", 4, 4, 500_224, 0.39, 0.5),
    _rex_row(),
    _rejax_row("cartpole", "CartPole-v1"),
    _rejax_row("pendulum", "Pendulum-v1"),
    _sb3_row(),
)


def _shortened(competitor: Competitor) -> Competitor:
    """Return the competitor with a quarter of its steps, at least what one update takes."""
    settings = dict(competitor.settings)
    if "total_steps" in settings:
        settings["total_steps"] = settings["total_steps"] // 4
    if "config" in settings and "TOTAL_TIMESTEPS" in settings["config"]:
        settings["config"] = settings["config"] | {
            "TOTAL_TIMESTEPS": settings["config"]["TOTAL_TIMESTEPS"] // 4
        }
    if competitor.script == "rejax_worker.py":
        settings["config"] = settings["config"] | {"total_timesteps": 131_072 // 4}
    return replace(competitor, settings=settings)
