"""Owns what rsl_rl must know of an environment to build its models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDict

from dressage.errors import ConfigError
from dressage.policy.base_policy import EnvMeta


@dataclass(frozen=True)
class RSLRLVecEnvMeta(EnvMeta):
    """What rsl_rl must know of a vector environment.

    Attributes:
        num_actions: Length of one copy's action.
        get_observations: Returns an example observation, a `TensorDict` `[N]` of groups, without taking a
            step.
        step_dt: Control period, seconds; random network distillation scales its reward by it.
        env: The environment itself, which a symmetry function may ask for.
    """

    num_actions: int | None = None
    get_observations: Callable[[], TensorDict] | None = None
    step_dt: float | None = None
    env: Any = None

    def checked(self) -> "CheckedMeta":
        """Return the parts that building a model needs.

        Raises:
            ConfigError: If one of them is missing.
        """
        if self.num_envs is None or self.num_actions is None or self.get_observations is None:
            given = {
                "num_envs": self.num_envs,
                "num_actions": self.num_actions,
                "get_observations": self.get_observations,
            }
            missing = ", ".join(name for name, value in given.items() if value is None)
            raise ConfigError(f"RSLRLVecEnvMeta lacks {missing}; rsl_rl builds its models from these.")
        return CheckedMeta(self, self.num_envs, self.num_actions, _check_example(self.get_observations()))


@dataclass(frozen=True)
class CheckedMeta:
    """A complete description.

    Attributes:
        meta: As it was given.
        num_envs: Environment copies, `N`.
        num_actions: Length of one copy's action.
        example: Observations by group, of any number of copies.
    """

    meta: RSLRLVecEnvMeta
    num_envs: int
    num_actions: int
    example: TensorDict


@dataclass(frozen=True)
class ExampleObservation:
    """An example observation that can be sent to another process, to be given as `get_observations`.

    Attributes:
        example: Observations by group, `[N]`.
    """

    example: TensorDict

    def __call__(self) -> TensorDict:
        """Return the example."""
        return self.example


def _check_example(example: Any) -> TensorDict:  # noqa: ANN401 (whatever a user's function returns)
    if not isinstance(example, TensorDict):
        raise ConfigError(
            f"get_observations must return a TensorDict of observation groups, got {type(example).__name__}. "
            "For example: TensorDict({'policy': observations}, batch_size=[num_envs])"
        )
    return example
