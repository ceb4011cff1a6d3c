"""The records of single-agent PPO that users' callbacks see."""

import inspect
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from flax import struct
from jax import Array

from dressage.config import check_names


class Base(struct.PyTreeNode):
    """Base of PPO's frozen records, all of them pytrees; a name that is no field is refused.

    Attributes:
        OWNER: What error texts call the owner of the fields; None takes the class's name.
    """

    OWNER: ClassVar[str | None] = None

    def __new__(cls, *values: Any, **named: Any) -> Self:  # noqa: ANN401 (`__init__` takes the values)
        """Refuse unknown names before `__init__`, which `replace` calls, too, would raise a bare TypeError.

        Raises:
            ConfigError: If a name is unknown; the text has the nearest one that is known.
        """
        if not named.keys() <= cls.__dataclass_fields__.keys():
            parameters = inspect.signature(cls.__init__).parameters
            if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
                check_names(named, list(parameters)[1:], cls.OWNER or cls.__name__)
        return super().__new__(cls)


class Transition(Base):
    """Steps of evaluation, `[T, E]`: time first, one column an evaluation episode.

    Rows behind the end of a column's first episode repeat nothing that counts: `done` is False there, and
    `alive` says which rows belong to the episode.

    Attributes:
        done: Whether the episode ended with this step, for any reason.
        action: The policy's action, before squashing or clipping.
        value: The critic's estimate at the observation acted on.
        reward: Raw rewards.
        log_prob: Log-probability of the action.
        obs: Raw observations `[T, E, obs_dim]`.
        info: The environment's own, with `returned_episode_returns` and `returned_episode_lengths` added.
        alive: Whether the step belongs to the first episode.
    """

    done: Array
    action: Any
    value: Array
    reward: Array
    log_prob: Array
    obs: Array
    info: dict[str, Any]
    alive: Array | None = None

    def episode_metrics(self) -> dict[str, Array]:
        """Return mean and deviation of return and length over the episodes that finished."""
        finished = self.done.any(0)
        count = finished.sum()
        metrics = {"eval/total_episodes": count, "eval/unfinished_episodes": finished.size - count}
        for name in ("returns", "lengths"):
            values = jnp.where(self.done, self.info[f"returned_episode_{name}"], 0).sum(0).astype(jnp.float32)
            mean = jnp.sum(values) / count
            deviation = jnp.sqrt(jnp.sum(jnp.where(finished, (values - mean) ** 2, 0.0)) / count)
            metrics |= {f"eval/mean_{name}": mean, f"eval/std_{name}": deviation}
        return metrics


class Diagnostics(Base):
    """Means over the updates since the evaluation before; all scalars.

    Attributes:
        total_loss: The objective minimised.
        value_loss: Its value part, before `VF_COEF`.
        policy_loss: Its policy part.
        entropy_loss: The policy's entropy, in nats.
        approxkl: Estimated KL divergence of the update, in nats.
        clip_fraction: Share of samples whose ratio left the clip range.
        explained_variance: Share of the returns' variance that the critic foresaw.
        gradient_norm: Norm of the gradient before clipping.
        learning_rate: Learning rate of the first minibatch.
        skipped_minibatches: Share of minibatches left out since loss or gradient was not finite.
        episode_return: Mean return of training episodes, NaN where none ended.
        episode_length: Their mean length.
        episodes: Their number.
    """

    total_loss: Array
    value_loss: Array
    policy_loss: Array
    entropy_loss: Array
    approxkl: Array
    clip_fraction: Array
    explained_variance: Array
    gradient_norm: Array
    learning_rate: Array
    skipped_minibatches: Array
    episode_return: Array
    episode_length: Array
    episodes: Array

    def named(self) -> dict[str, Array]:
        """Return the diagnostics under the names that metrics use."""
        return {
            "train/loss": self.total_loss,
            "train/value_loss": self.value_loss,
            "train/policy_loss": self.policy_loss,
            "train/entropy": self.entropy_loss,
            "train/approx_kl": self.approxkl,
            "train/clip_fraction": self.clip_fraction,
            "train/explained_variance": self.explained_variance,
            "train/gradient_norm": self.gradient_norm,
            "train/learning_rate": self.learning_rate,
            "train/skipped_minibatches": self.skipped_minibatches,
            "train/episode_return": self.episode_return,
            "train/episode_length": self.episode_length,
            "train/episodes": self.episodes,
        }
