"""Gymnasium observations as float32 arrays, in one fixed order."""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import iterate

from dressage.envs.spaces import Box
from dressage.errors import EnvironmentContractError, UnsupportedSpaceError

Array = npt.NDArray[np.float32]


class Flattening:
    """How the observations of one space become float32.

    A `Box` keeps its shape. Everything else becomes one flat vector in Gymnasium's own order: a `Dict` in the
    order of its space (not of the dict that is observed), discrete values one-hot.

    Args:
        space: A single environment's observation space.
        name: The environment, for error texts.

    Raises:
        UnsupportedSpaceError: If the space has no fixed size, or holds no number.
    """

    def __init__(self, space: "gymnasium.Space[Any]", name: str) -> None:
        self._observed = space
        self._name = name
        if not space.is_np_flattenable:
            raise UnsupportedSpaceError(f"The observation of {name} has no fixed size: {space!r}.")
        box = space if isinstance(space, gymnasium.spaces.Box) else gymnasium.spaces.flatten_space(space)
        assert isinstance(box, gymnasium.spaces.Box), box
        self.space = Box(box.low, box.high, box.shape, np.float32)
        if np.prod(box.shape) == 0:
            raise UnsupportedSpaceError(f"The observation of {name} holds no numbers: {space!r}.")

    def single(self, observation: Any) -> Array:  # noqa: ANN401 (whatever the space holds)
        """Return one observation, `[*shape]`."""
        is_box = isinstance(self._observed, gymnasium.spaces.Box)
        values = observation if is_box else gymnasium.spaces.flatten(self._observed, observation)
        return self._checked(_float32(values), self.space.shape)

    def batch(self, observations: Any, space: "gymnasium.Space[Any]", number: int) -> Array:  # noqa: ANN401
        """Return the observations of all copies, `[B, *shape]`.

        Args:
            observations: What the vector environment returned.
            space: The vector environment's batched space.
            number: How many copies there are.
        """
        if isinstance(self._observed, gymnasium.spaces.Box):
            return self._checked(_float32(observations), (number, *self.space.shape))
        return np.stack([self.single(one) for one in iterate(space, observations)])

    def _checked(self, values: Array, shape: tuple[int, ...]) -> Array:
        if values.shape != shape:
            raise EnvironmentContractError(
                f"{self._name} observed an array of shape {values.shape}; its space says {shape}."
            )
        return values


def _float32(values: Any) -> Array:  # noqa: ANN401
    # A copy always: vector environments may reuse their own array. What float32 cannot hold becomes infinite,
    # which the learner reports with environment and step.
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)
