"""The options of the earlier library's PPO in order, with the defaults that it ships."""

from typing import Any

# By hand from its sources; its document prints the names alone.
SEED_DEFAULTS: dict[str, Any] = {
    "LR": 5e-4,
    "NUM_ENVS": 64,
    "NUM_STEPS": 16,
    "TOTAL_TIMESTEPS": 1_000_000,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "NUM_HIDDEN_LAYERS": 2,
    "NUM_HIDDEN_UNITS": 64,
    "KERNEL_INIT_TYPE": "xavier_uniform",
    "HIDDEN_ACTIVATION": "tanh",
    "STATE_INDEPENDENT_STD": True,
    "SQUASH": True,
    "ANNEAL_LR": False,
    "NORMALIZE_ENV": False,
    "FIXED_INIT": True,
    "OFFSET_STEP": False,
    "NUM_EVAL_ENVS": 20,
    "EVAL_FREQ": 10,
    "VERBOSE": True,
    "DEBUG": False,
}
