"""What a cost function sees of one agent's step, and which of its answers count as costs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dressage.envs.functional import Info, PyTree
from dressage.errors import EnvironmentContractError, NonFiniteError


@dataclass(frozen=True)
class CostStep:
    """One agent's step, as a cost function sees it.

    Attributes:
        agent: The agent's name.
        observation: What the action led to.
        action: What the agent did, as the environment takes it.
        reward: The step's reward.
        terminated: Whether nothing follows for the agent.
        truncated: Whether it was cut.
        info: What the environment says of the agent besides.
        source: Where the whole truth lies: the PettingZoo environment itself, or a functional environment's
            state after the step.
    """

    agent: str
    observation: PyTree
    action: PyTree
    reward: Any
    terminated: Any
    truncated: Any
    info: Info
    source: Any


CostFunction: TypeAlias = Callable[[CostStep], Any]
"""From one agent's step to its cost, one finite number."""


@dataclass(frozen=True)
class CostFromInfo:
    """A cost function that reads a number the environment already reports under another key.

    Attributes:
        name: The key of `info`.
    """

    name: str

    def __call__(self, step: CostStep) -> Any:  # noqa: ANN401 (checked by whoever asked)
        """Return what stands under the key.

        Raises:
            EnvironmentContractError: If nothing does; the text names agent, key and what there is.
        """
        if self.name not in step.info:
            raise EnvironmentContractError(
                f"The info of agent {step.agent!r} has no {self.name!r} to take as a cost; "
                f"it has {sorted(map(str, step.info))}."
            )
        return step.info[self.name]


def concrete_cost(cost: Any, agent: str, place: str) -> float:  # noqa: ANN401 (whatever a user's function gave)
    """Return a cost as a number; a boolean counts as 0 or 1, a negative cost as what it is.

    Args:
        cost: A number, a 0-d array or one of shape `(1,)`.
        agent: Whose it is, for the text.
        place: Where it comes from, for the text.

    Raises:
        EnvironmentContractError: If it is no single number.
        NonFiniteError: If it is NaN or infinite.
    """
    value = np.asarray(cost)
    if value.dtype.kind not in "biuf" or value.shape not in {(), (1,)}:
        raise EnvironmentContractError(
            f"The cost of agent {agent!r} in {place} must be one number, got {cost!r}."
        )
    number = float(value.reshape(()))
    if not np.isfinite(number):
        raise NonFiniteError(f"The cost of agent {agent!r} in {place} is not finite: {number}.")
    return number
