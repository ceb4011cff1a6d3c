"""Small training configurations as rsl_rl's runner takes them."""

from typing import Any

GAUSSIAN = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}


def ppo_config(steps: int = 8, **algorithm: Any) -> dict[str, Any]:
    model = {
        "class_name": "MLPModel",
        "hidden_dims": [16, 16],
        "activation": "elu",
        "obs_normalization": True,
    }
    return {
        "num_steps_per_env": steps,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": model | {"distribution_cfg": dict(GAUSSIAN)},
        "critic": dict(model),
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": 2,
            "num_mini_batches": 2,
            "learning_rate": 1e-3,
            "schedule": "adaptive",
            "desired_kl": 0.01,
        }
        | algorithm,
    }


def recurrent_config(steps: int = 8, rnn_type: str = "lstm", **algorithm: Any) -> dict[str, Any]:
    config = ppo_config(steps, **algorithm)
    recurrent = {"class_name": "RNNModel", "rnn_type": rnn_type, "rnn_hidden_dim": 12, "hidden_dims": [16]}
    return config | {name: config[name] | recurrent for name in ("actor", "critic")}


def distillation_config(steps: int = 8) -> dict[str, Any]:
    models = ppo_config()
    return {
        "num_steps_per_env": steps,
        "save_interval": 100,
        "obs_groups": {"student": ["policy"], "teacher": ["policy"]},
        "student": models["actor"] | {"hidden_dims": [8]},
        "teacher": models["actor"],
        "algorithm": {"class_name": "Distillation", "num_learning_epochs": 1, "gradient_length": 4},
    }
