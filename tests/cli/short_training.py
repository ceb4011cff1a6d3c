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
