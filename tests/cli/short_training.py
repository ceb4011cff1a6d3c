"""Options of a training of a second; tests that share them share its compiled programs."""

SHORT = (
    *("--steps", "4096"),
    *(
        "--set",
        "NUM_ENVS=8",
        "--set",
        "NUM_EVAL_ENVS=3",
        "--set",
        "EVAL_FREQ=4",
        "--set",
        "NUM_HIDDEN_UNITS=8",
    ),
)
