"""Declares which values the entries of rsl_rl's configuration may have, by the class that takes them.

rsl_rl checks almost nothing of it: a discount of 1.5 trains, and a misspelled schedule is a fixed one. Names
and meanings are those of rsl_rl 5.5's documentation; what a class takes at all stands in its signature.
"""

import math
from collections.abc import Mapping

from dressage.config import Option

ACTIVATIONS = (
    *("elu", "selu", "relu", "crelu", "lrelu", "tanh"),
    *("sigmoid", "softplus", "gelu", "swish", "mish", "identity"),
)
"""What `rsl_rl.utils.resolve_nn_activation` knows."""

OPTIMIZERS = ("adam", "adamw", "sgd", "rmsprop")
"""What `rsl_rl.utils.resolve_optimizer` knows."""

CASELESS = frozenset({"activation", "optimizer", "rnn_type"})
"""Names whose values rsl_rl reads in any case."""

PER_LAYER = frozenset({"kernel_size", "stride", "dilation", "norm", "max_pool"})
"""Names that take one value for all layers, or a list with one for each."""

RUNNER = (
    Option(
        "torch_compile_mode", None, "choice", choices=("default", "max-autotune-no-cudagraphs"), optional=True
    ),
)
"""Entries of the outermost mapping that a policy reads, besides those that `configuration` checks itself."""

CARRIED = (
    # rsl_rl's runner and its logger.
    *(
        "save_interval",
        "run_name",
        "check_for_nan",
        "logger",
        "wandb_project",
        "neptune_project",
        "multi_gpu",
    ),
    # rsl_rl's example files, and the dictionaries that Isaac Lab and mjlab hand to the runner.
    *("class_name", "seed", "device", "max_iterations", "experiment_name", "clip_actions", "resume"),
    *("load_run", "load_checkpoint", "wandb_tags", "upload_model", "empirical_normalization", "policy"),
)
"""Entries of the outermost mapping that only rsl_rl's runner or its callers read."""

OBSERVATION_SETS = ("actor", "critic", "student", "teacher", "rnd_state")


def _switch(name: str) -> Option:
    return Option(name, False, "boolean")


def _positive(name: str, default: float, *, optional: bool = False) -> Option:
    return Option(name, default, "number", 0, open_minimum=True, optional=optional)


def _dims(name: str) -> Option:
    # -1 stands for the size of the input.
    return Option(name, (256,), "integers", 1, besides=(-1,))


_LEARNING = (
    Option("num_learning_epochs", 5, "integer", 1),
    Option("learning_rate", 1e-3, "number", 0),
    Option("optimizer", "adam", "choice", choices=OPTIMIZERS),
    _switch("use_mixed_precision"),
    _positive("grad_reduce_bucket_mb", 25),
)
_MODEL = (
    _dims("hidden_dims"),
    Option("activation", "elu", "choice", choices=ACTIVATIONS),
    _switch("obs_normalization"),
    Option("distribution_cfg", None, "mapping", optional=True),
)
_GAUSSIAN = (
    _positive("init_std", 1.0),
    Option("std_range", (1e-6, 1e6), "numbers", 0, besides=(math.inf,)),
    Option("std_type", "scalar", "choice", choices=("scalar", "log")),
    _switch("learn_std"),
)

RANGES: Mapping[str, tuple[Option, ...]] = {
    "PPO": (
        *_LEARNING,
        Option("num_mini_batches", 4, "integer", 1),
        _positive("clip_param", 0.2),
        Option("gamma", 0.99, "number", 0, 1),
        Option("lam", 0.95, "number", 0, 1),
        Option("value_loss_coef", 1.0, "number", 0),
        Option("entropy_coef", 0.01, "number"),
        Option("max_grad_norm", 1.0, "number", 0, open_minimum=True, besides=(math.inf,)),
        _switch("use_clipped_value_loss"),
        Option("schedule", "adaptive", "choice", choices=("adaptive", "fixed")),
        _positive("desired_kl", 0.01, optional=True),
        _switch("normalize_advantage_per_mini_batch"),
        Option("share_cnn_encoders", False, "boolean", optional=True),
        Option("rnd_cfg", None, "mapping", optional=True),
        Option("symmetry_cfg", None, "mapping", optional=True),
    ),
    "Distillation": (
        *_LEARNING,
        Option("gradient_length", 15, "integer", 1),
        Option("max_grad_norm", None, "number", 0, open_minimum=True, besides=(math.inf,), optional=True),
        Option("loss_type", "mse", "choice", choices=("mse", "huber")),
    ),
    "MLPModel": _MODEL,
    "RNNModel": (
        Option("rnn_type", "lstm", "choice", choices=("lstm", "gru")),
        Option("rnn_hidden_dim", 256, "integer", 1),
        Option("rnn_num_layers", 1, "integer", 1),
    ),
    "CNNModel": (Option("cnn_cfg", None, "mapping", optional=True),),
    "CNN": (
        Option("output_channels", (), "integers", 1),
        Option("kernel_size", 3, "integer", 1),
        Option("stride", 1, "integer", 1),
        Option("dilation", 1, "integer", 1),
        Option("padding", "none", "choice", choices=("none", "zeros", "reflect", "replicate", "circular")),
        Option("norm", "none", "choice", choices=("none", "batch", "layer")),
        Option("activation", "elu", "choice", choices=ACTIVATIONS),
        _switch("max_pool"),
        Option("global_pool", "none", "choice", choices=("none", "max", "avg")),
        _switch("flatten"),
    ),
    "GaussianDistribution": _GAUSSIAN,
    "HeteroscedasticGaussianDistribution": _GAUSSIAN,
    "BetaDistribution": (Option("action_range", (-1.0, 1.0), "numbers"),),
    "RandomNetworkDistillation": (
        Option("num_outputs", 1, "integer", 1),
        _dims("predictor_hidden_dims"),
        _dims("target_hidden_dims"),
        Option("activation", "elu", "choice", choices=ACTIVATIONS),
        _switch("state_normalization"),
        _switch("reward_normalization"),
        Option("weight", 0.0, "number"),
        Option("weight_schedule", None, "mapping", optional=True),
        Option("learning_rate", 1e-3, "number", 0),
    ),
    "Symmetry": (
        _switch("use_data_augmentation"),
        _switch("use_mirror_loss"),
        Option("mirror_loss_coeff", 0.0, "number"),
    ),
}
"""Declared entries by the name of rsl_rl's class; a class has those of its bases too."""

WEIGHT_SCHEDULES: Mapping[str, tuple[Option, ...]] = {
    "constant": (),
    "step": (Option("final_step", 0, "integer", 0), Option("final_value", 0.0, "number")),
    "linear": (
        Option("initial_step", 0, "integer", 0),
        Option("final_step", 0, "integer", 0),
        Option("final_value", 0.0, "number"),
    ),
}
"""Entries that a schedule of random network distillation's weight needs, by its mode."""
