"""Options of a training of a second; tests that share them share its compiled programs."""

SETTINGS = (
    "NUM_ENVS=8",
    "NUM_STEPS=16",
    "UPDATE_EPOCHS=4",
    "NUM_MINIBATCHES=4",
    "NUM_EVAL_ENVS=3",
    "EVAL_FREQ=4",
    "NUM_HIDDEN_UNITS=8",
)
# 32 updates, whatever the task's preset is.
SHORT = ("--steps", "4096", *(word for setting in SETTINGS for word in ("--set", setting)))

MANY_AGENTS = {
    "num_envs": 2,
    "rollout_length": 10,
    "learning_epochs": 1,
    "mini_batches": 1,
    "network.hidden_sizes": "[4]",
    "total_timesteps": 40,
    "evaluations": 0,
}
"""The same for learners of several agents: two updates."""


def set_words(options):
    """Return options as words of the command line."""
    return [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
