"""Owns learning on several ranks at once: rsl_rl's own reduction, weighted where the shares differ."""

from typing import Any

import torch
from torch import Tensor, distributed, nn

from dressage.errors import ConfigError
from dressage.policy.base_policy import TrainConfig
from dressage.policy.rsl_rl_policy.configuration import Algorithm


def ranks_config(train_config: TrainConfig) -> dict[str, int] | None:
    """Return what rsl_rl calls `multi_gpu`, or None for a learner alone.

    Raises:
        ConfigError: If several learners are asked for, and there is no process group of that size.
    """
    if train_config.world_size == 1:
        return None
    size = distributed.get_world_size() if distributed.is_initialized() else 1
    if size != train_config.world_size:
        raise ConfigError(
            f"TrainConfig asks for {train_config.world_size} learners, and torch.distributed's default group "
            f"has {size}. It must exist before and hold the learners alone, since rsl_rl's normalisers "
            "reduce over it."
        )
    rank = train_config.rank
    return {"global_rank": rank, "local_rank": rank, "world_size": size}


def join_ranks(algorithm: Algorithm, num_envs: int) -> None:
    """Start all ranks from the same parameters, and weigh each rank's gradient by its share of the samples.

    Equal shares keep rsl_rl's own average, so nothing differs from it.

    Args:
        algorithm: What learns on this rank.
        num_envs: Environments of this rank.
    """
    algorithm.broadcast_parameters()
    size = distributed.get_world_size()
    shares = torch.zeros(size, device=algorithm.device)
    shares[distributed.get_rank()] = num_envs
    distributed.all_reduce(shares)
    if bool((shares == shares[0]).all()):
        return
    weight = float(num_envs * size / shares.sum())
    algorithm.reduce_parameters = _WeightedReduction(algorithm, algorithm.reduce_parameters, weight)


class _WeightedReduction:
    """Scales the gradients before rsl_rl averages over ranks, so that it becomes the average over samples."""

    def __init__(self, algorithm: Algorithm, average: Any, weight: float) -> None:  # noqa: ANN401 (a method)
        self._algorithm = algorithm
        self._average = average
        self._weight = weight

    def __call__(self) -> None:
        for gradient in self._gradients():
            gradient.mul_(self._weight)
        self._average()

    def _gradients(self) -> list[Tensor]:
        modules: list[nn.Module] = [
            module
            for name in ("actor", "critic", "student", "rnd")
            if (module := getattr(self._algorithm, name, None))
        ]
        return [p.grad for module in modules for p in module.parameters() if p.grad is not None]
