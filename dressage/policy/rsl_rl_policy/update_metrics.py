"""Owns the names and kinds of the metrics that an update of rsl_rl's algorithms gives."""

from collections.abc import Mapping, Sequence

from dressage.policy.base_policy import MetricKind
from dressage.policy.rsl_rl_policy.configuration import Algorithm
from dressage.policy.rsl_rl_policy.learning import Filled
from dressage.policy.rsl_rl_policy.off_policy import Corrected

METRIC_KINDS: Mapping[str, MetricKind] = {
    "training/time_outs_final_observation": "count",
    "training/time_outs_rsl_rl": "count",
}
"""What is not named is a mean."""


def filled_metrics(filled: Filled, lags: Sequence[int]) -> dict[str, float]:
    """Return what filling the storage found, and how old the weights were, updates."""
    metrics = {
        "training/time_outs_final_observation": float(filled.time_outs_final),
        "training/time_outs_rsl_rl": float(filled.time_outs_rsl_rl),
        "training/weights_lag": sum(lags) / len(lags),
    }
    if filled.intrinsic_reward is not None:
        metrics["training/intrinsic_reward"] = filled.intrinsic_reward
    return metrics


def corrected_metrics(corrected: Corrected | None) -> dict[str, float]:
    """Return what correcting for older weights found; nothing where there was nothing to correct."""
    if corrected is None:
        return {}
    return {
        "training/importance_ratio": corrected.mean_ratio,
        "training/importance_clipped": corrected.clipped_share,
    }


def loss_metrics(losses: Mapping[str, float]) -> dict[str, float]:
    """Return the losses that an algorithm's update returned."""
    return {
        f"training/{name if name == 'entropy' else name + '_loss'}": float(loss)
        for name, loss in losses.items()
    }


def state_metrics(algorithm: Algorithm) -> dict[str, float]:
    """Return where an algorithm stands after an update."""
    metrics = {"training/learning_rate": float(algorithm.learning_rate)}
    actor = getattr(algorithm, "actor", None)
    if actor is not None:
        metrics["training/action_std"] = float(actor.output_std.detach().mean())
    return metrics
