"""Pictures of environments, also through wrappers."""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dressage.envs.functional import BaseEnv, PyTree
from dressage.envs.multi_agent import MultiAgentEnv
from dressage.envs.wrappers.base import Wrapper
from dressage.envs.wrappers.episodes import AutoReset
from dressage.envs.wrappers.multi_agent_base import MultiAgentWrapper, OneAgent
from dressage.errors import EnvironmentContractError


@runtime_checkable
class Drawable(Protocol):
    """An environment that can be drawn."""

    def render(self, state: PyTree) -> npt.NDArray[np.uint8]:
        """Draw one state on the host, uint8 `[H, W, 3]`."""


def can_render(env: BaseEnv | MultiAgentEnv) -> bool:
    """Whether an environment, or the one inside its wrappers, can be drawn."""
    if isinstance(env, OneAgent | MultiAgentWrapper | Wrapper | AutoReset):
        return can_render(env.env)
    return isinstance(env, Drawable)


def render(env: BaseEnv | MultiAgentEnv, state: PyTree) -> npt.NDArray[np.uint8]:
    """Draw one state of one environment.

    Args:
        env: The environment, wrapped or not.
        state: Its state, without a batch axis.

    Returns:
        uint8 `[H, W, 3]`.

    Raises:
        EnvironmentContractError: If the environment has no `render(state)`.
    """
    if isinstance(env, Drawable):
        return env.render(state)
    if isinstance(env, OneAgent):
        return render(env.env, state)
    if isinstance(env, MultiAgentWrapper | Wrapper | AutoReset):
        return render(env.env, state.inner)
    raise EnvironmentContractError(f"{type(env).__name__} has no render(state) that draws a picture.")
