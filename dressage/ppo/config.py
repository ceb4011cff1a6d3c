"""PPO's configuration: the fields, what each may be, and how many updates follow from them."""

import dataclasses
import sys
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from dressage.config import Option, check_names
from dressage.errors import ConfigError
from dressage.networks import ACTIVATIONS, KERNEL_INITS
from dressage.ppo.records import Base, Diagnostics, Transition

OPTIONS: tuple[Option, ...] = (
    Option("LR", 5e-4, "number", 0.0, open_minimum=True, help="Adam's learning rate."),
    Option(
        "NUM_ENVS", 64, "integer", 1, unit="environments", help="Environment copies that step in parallel."
    ),
    Option("NUM_STEPS", 16, "integer", 1, unit="steps", help="Steps of every copy before each update."),
    Option(
        "TOTAL_TIMESTEPS",
        1_000_000,
        "integer",
        1,
        unit="steps",
        help="Environment steps over all copies; rounded up to whole updates.",
    ),
    Option("UPDATE_EPOCHS", 4, "integer", 1, unit="passes", help="Passes over each rollout."),
    Option(
        "NUM_MINIBATCHES", 4, "integer", 1, unit="parts", help="Parts into which each pass cuts the rollout."
    ),
    Option("GAMMA", 0.99, "number", 0.0, 1.0, help="Discount factor a step."),
    Option("GAE_LAMBDA", 0.95, "number", 0.0, 1.0, help="Trace decay of generalised advantage estimation."),
    Option(
        "CLIP_EPS",
        0.2,
        "number",
        0.0,
        open_minimum=True,
        help="Half width of the interval of trusted ratios.",
    ),
    Option("ENT_COEF", 0.01, "number", 0.0, help="Weight of the entropy bonus."),
    Option("VF_COEF", 0.5, "number", 0.0, help="Weight of the value loss."),
    Option(
        "MAX_GRAD_NORM", 0.5, "number", 0.0, open_minimum=True, help="Norm to which gradients are clipped."
    ),
    Option(
        "NUM_HIDDEN_LAYERS", 2, "integer", 0, unit="layers", help="Hidden layers of actor and critic each."
    ),
    Option("NUM_HIDDEN_UNITS", 64, "integer", 1, unit="units", help="Units of every hidden layer."),
    Option(
        "KERNEL_INIT_TYPE",
        "xavier_uniform",
        "choice",
        choices=tuple(KERNEL_INITS),
        help="How kernels are drawn; the policy's last layer is scaled by 0.01.",
    ),
    Option(
        "HIDDEN_ACTIVATION", "tanh", "choice", choices=tuple(ACTIVATIONS), help="Activation of hidden layers."
    ),
    Option(
        "STATE_INDEPENDENT_STD",
        True,
        "boolean",
        help="Whether the standard deviation is a free parameter instead of an output of the actor.",
    ),
    Option(
        "SQUASH",
        True,
        "boolean",
        help="Whether actions are squashed into their bounds by tanh; otherwise they are clipped.",
    ),
    Option("ANNEAL_LR", False, "boolean", help="Whether the learning rate decays linearly to 0."),
    Option(
        "NORMALIZE_ENV",
        False,
        "boolean",
        help="Whether observations and rewards are scaled by running statistics; actions always are.",
    ),
    Option(
        "FIXED_INIT",
        True,
        "boolean",
        help="Whether each copy starts all of its episodes in the one initial state that it drew first.",
    ),
    Option(
        "OFFSET_STEP",
        False,
        "boolean",
        help="Whether the copies' first time limits are spread evenly, so that their episodes do not end "
        "together.",
    ),
    Option(
        "NUM_EVAL_ENVS", 20, "integer", 0, unit="episodes", help="Episodes of each evaluation; 0 for none."
    ),
    Option(
        "EVAL_FREQ",
        10,
        "integer",
        1,
        unit="evaluations",
        help="Evaluations of the whole run, spread evenly; at most one an update.",
    ),
    Option("VERBOSE", True, "boolean", help="Whether each evaluation of `train` prints a line."),
    Option("DEBUG", False, "boolean", help="Whether every update of `train` prints a line."),
)

FLOATS = tuple(option.name for option in OPTIONS if option.kind == "number")
_BY_NAME = {option.name: option for option in OPTIONS}


def _traced(name: str) -> Any:  # noqa: ANN401 (flax types its fields so)
    return struct.field(default=_BY_NAME[name].default)


def _static(name: str) -> Any:  # noqa: ANN401
    return struct.field(pytree_node=False, default=_BY_NAME[name].default)


class Config(Base):
    """Configuration of PPO; floats are pytree leaves (they may be traced and vmapped), the rest is static.

    Derive from this class to override `EVAL_METRICS_JAX_CB` or `EVAL_METRICS_HOST_CB`; an undecorated
    subclass works under `jit`. Legal values, units and meanings stand in `OPTIONS` and on the options page of
    the documentation. The constructor and `replace` refuse unknown names; values may be traced, so that they
    are checked by `validate`, `train` and `make_trainer`.

    Attributes:
        LR: Learning rate.
        NUM_ENVS: Environment copies.
        NUM_STEPS: Steps of each copy before an update.
        TOTAL_TIMESTEPS: Environment steps over all copies, rounded up to whole updates.
        UPDATE_EPOCHS: Passes over each rollout.
        NUM_MINIBATCHES: Parts a pass; sizes differ by at most one.
        GAMMA: Discount factor.
        GAE_LAMBDA: Trace decay of advantage estimation.
        CLIP_EPS: Clip range of the policy ratio and of the value.
        ENT_COEF: Entropy coefficient.
        VF_COEF: Value loss coefficient.
        MAX_GRAD_NORM: Gradient norm limit.
        NUM_HIDDEN_LAYERS: Hidden layers of actor and critic.
        NUM_HIDDEN_UNITS: Units a hidden layer.
        KERNEL_INIT_TYPE: Kernel initialisation.
        HIDDEN_ACTIVATION: Activation of hidden layers.
        STATE_INDEPENDENT_STD: Whether `log_std` is a free parameter.
        SQUASH: Whether actions are squashed by tanh, else clipped.
        ANNEAL_LR: Whether the learning rate decays linearly.
        NORMALIZE_ENV: Whether observations and rewards are normalised.
        FIXED_INIT: Whether each copy always starts in the same state.
        OFFSET_STEP: Whether the first episodes' time limits are spread.
        NUM_EVAL_ENVS: Evaluation episodes.
        EVAL_FREQ: Evaluations a run.
        VERBOSE: Whether evaluations print.
        DEBUG: Whether updates print.
    """

    OWNER: ClassVar[str | None] = "PPO"

    LR: float = _traced("LR")
    NUM_ENVS: int = _static("NUM_ENVS")
    NUM_STEPS: int = _static("NUM_STEPS")
    TOTAL_TIMESTEPS: int = _static("TOTAL_TIMESTEPS")
    UPDATE_EPOCHS: int = _static("UPDATE_EPOCHS")
    NUM_MINIBATCHES: int = _static("NUM_MINIBATCHES")
    GAMMA: float = _traced("GAMMA")
    GAE_LAMBDA: float = _traced("GAE_LAMBDA")
    CLIP_EPS: float = _traced("CLIP_EPS")
    ENT_COEF: float = _traced("ENT_COEF")
    VF_COEF: float = _traced("VF_COEF")
    MAX_GRAD_NORM: float = _traced("MAX_GRAD_NORM")
    NUM_HIDDEN_LAYERS: int = _static("NUM_HIDDEN_LAYERS")
    NUM_HIDDEN_UNITS: int = _static("NUM_HIDDEN_UNITS")
    KERNEL_INIT_TYPE: str = _static("KERNEL_INIT_TYPE")
    HIDDEN_ACTIVATION: str = _static("HIDDEN_ACTIVATION")
    STATE_INDEPENDENT_STD: bool = _static("STATE_INDEPENDENT_STD")
    SQUASH: bool = _static("SQUASH")
    ANNEAL_LR: bool = _static("ANNEAL_LR")
    NORMALIZE_ENV: bool = _static("NORMALIZE_ENV")
    FIXED_INIT: bool = _static("FIXED_INIT")
    OFFSET_STEP: bool = _static("OFFSET_STEP")
    NUM_EVAL_ENVS: int = _static("NUM_EVAL_ENVS")
    EVAL_FREQ: int = _static("EVAL_FREQ")
    VERBOSE: bool = _static("VERBOSE")
    DEBUG: bool = _static("DEBUG")

    @classmethod
    def from_mapping(cls, options: dict[str, Any]) -> Self:
        """Build a checked configuration from names and values.

        Raises:
            ConfigError: If a name is unknown or a value is not legal.
        """
        check_names(options, [field.name for field in dataclasses.fields(cls)], "PPO")
        return cls(**options).validate()

    def validate(self) -> Self:
        """Check every value that is not traced and return the configuration with exact types.

        Raises:
            ConfigError: If a value has the wrong type or range, or two values contradict each other.
        """
        checked = {
            option.name: option.check(getattr(self, option.name), "PPO")
            for option in OPTIONS
            if not isinstance(getattr(self, option.name), jax.core.Tracer | Array | np.ndarray)
        }
        for name in set(_BY_NAME) - set(FLOATS) - set(checked):
            checked[name] = _BY_NAME[name].check(_static_value(getattr(self, name), name), "PPO")
        for name in set(FLOATS) - set(checked):
            _check_array(getattr(self, name), _BY_NAME[name])
        config = self.replace(**checked)
        samples = config.NUM_ENVS * config.NUM_STEPS
        if config.NUM_MINIBATCHES > samples:
            raise ConfigError(
                f"PPO option 'NUM_MINIBATCHES' must be at most NUM_ENVS * NUM_STEPS = {samples} samples, "
                f"got {config.NUM_MINIBATCHES}."
            )
        return config

    @property
    def NUM_UPDATES(self) -> int:
        """Updates of the whole run: enough for at least `TOTAL_TIMESTEPS` steps."""
        return -(-int(self.TOTAL_TIMESTEPS) // (self.NUM_ENVS * self.NUM_STEPS))

    @property
    def NUM_TIMESTEPS(self) -> int:
        """Environment steps that will really run: whole updates."""
        return self.NUM_UPDATES * self.NUM_ENVS * self.NUM_STEPS

    @property
    def NUM_EVALS(self) -> int:
        """Evaluations that will really run: at most one an update."""
        return min(self.EVAL_FREQ, self.NUM_UPDATES)

    @property
    def MINIBATCH_SIZE(self) -> int:
        """Samples of the largest minibatch."""
        return -(-self.NUM_ENVS * self.NUM_STEPS // self.NUM_MINIBATCHES)

    def updates_at_evaluations(self) -> tuple[int, ...]:
        """Return after how many updates each evaluation happens; the last one ends the run."""
        return tuple((index + 1) * self.NUM_UPDATES // self.NUM_EVALS for index in range(self.NUM_EVALS))

    def EVAL_METRICS_JAX_CB(
        self, total_steps: int | Array, diagnostics: Diagnostics, eval_transitions: Transition | None = None
    ) -> dict[str, Array]:
        """Compute the metrics of an evaluation, inside the compiled program.

        Args:
            total_steps: Environment steps so far.
            diagnostics: Means over the updates since the evaluation before.
            eval_transitions: `[T, E]` evaluation steps, the first episode of each of `E` copies; None where
                `NUM_EVAL_ENVS` is 0.

        Returns:
            Arrays by name. Unfinished episodes are left out of the means, which are NaN where none finished.
        """
        metrics = {"train/total_steps": jnp.asarray(total_steps), **diagnostics.named()}
        if eval_transitions is not None:
            metrics |= eval_transitions.episode_metrics()
        return metrics

    def EVAL_METRICS_HOST_CB(self, metrics: dict[str, Any]) -> None:
        """Print an evaluation's metrics on the host, unless `VERBOSE` is off.

        Called once an evaluation, in order; under `vmap` once for all, with the batch axis in front.

        Args:
            metrics: What `EVAL_METRICS_JAX_CB` returned, as NumPy arrays.
        """
        if self.VERBOSE:
            sys.stdout.write(_line(metrics) + "\n")
            sys.stdout.flush()


def _line(metrics: dict[str, Any]) -> str:
    """Put the metrics that are there in one line; a user's callback may return others."""
    parts = [f"steps {int(np.max(metrics['train/total_steps'])):>10,d}"]
    if "train/approx_kl" in metrics:
        parts.append(f"kl {np.mean(metrics['train/approx_kl']):.4f}")
    if {"eval/mean_returns", "eval/std_returns", "eval/total_episodes"} <= set(metrics):
        returns = np.ravel(metrics["eval/mean_returns"])
        episodes = int(np.sum(metrics["eval/total_episodes"]))
        spread = np.ravel(metrics["eval/std_returns"]) if returns.size == 1 else returns.std()
        parts.append(f"return {np.mean(returns):.1f} ± {float(np.mean(spread)):.1f} ({episodes} episodes)")
    return " | ".join(parts)


def _static_value(value: Any, name: str) -> Any:  # noqa: ANN401
    """Give the Python value of a concrete array; a traced one cannot be static."""
    if isinstance(value, jax.core.Tracer):
        raise ConfigError(
            f"PPO option {name!r} is static and cannot be traced or vmapped; traced: {', '.join(FLOATS)}."
        )
    return value.item() if np.ndim(value) == 0 else value


def _check_array(value: Any, option: Option) -> None:  # noqa: ANN401
    """Check every entry of a concrete array; tracers are checked by whoever holds their values."""
    if isinstance(value, jax.core.Tracer):
        return
    for entry in np.ravel(value):
        option.check(float(entry), "PPO")
