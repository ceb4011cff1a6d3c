"""A cost for PettingZoo environments that report none: one environment, or a whole task."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from dressage.envs.adapters.pettingzoo import Options, ParallelTask, from_parallel_env
from dressage.envs.costs import CostFunction, CostStep, concrete_cost
from dressage.envs.multi_agent import COST
from dressage.errors import EnvironmentContractError

Stepped = tuple[dict[str, Any], dict[str, Any], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class CostWrapper(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo says nothing about its types
    """Adds `info[agent]["cost"]` to every step of a `ParallelEnv`; all else passes through.

    Args:
        env: The environment.
        cost: From one agent's `CostStep` to its cost, one finite number. It is called for every agent that
            acted in the step.
        key: Where the cost is put.
    """

    def __init__(self, env: ParallelEnv, cost: CostFunction, key: str = COST) -> None:
        super().__init__(env)
        self._cost = cost
        self._key = key
        self._steps = 0

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode; see `pettingzoo.ParallelEnv.reset`."""
        self._steps = 0
        started: tuple[dict[str, Any], dict[str, dict[str, Any]]] = self.env.reset(seed=seed, options=options)
        return started

    def step(self, actions: dict[str, Any]) -> Stepped:
        """Make one step and price it; see `pettingzoo.ParallelEnv.step`.

        Raises:
            EnvironmentContractError: If the cost is no single number, something that the function asks for is
                missing, or the environment reports a cost under the key already.
            NonFiniteError: If the cost is NaN or infinite. Both texts name agent and step.
        """
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._steps += 1
        priced = dict(infos)
        for agent in actions:
            if agent not in rewards:  # an action for an agent that was gone already
                continue
            told = dict(infos.get(agent, {}))
            step = CostStep(
                agent,
                observations.get(agent),
                actions[agent],
                rewards[agent],
                bool(terminated[agent]),
                bool(truncated[agent]),
                told,
                self.env,
            )
            priced[agent] = {**told, self._key: self._price(step)}
        return observations, rewards, terminated, truncated, priced

    def _price(self, step: CostStep) -> float:
        place = f"step {self._steps} of {self._name}"
        if self._key in step.info:
            raise EnvironmentContractError(
                f"The info of agent {step.agent!r} has a {self._key!r} already in {place}; "
                "give CostWrapper another key."
            )
        try:
            cost = self._cost(step)
        except (KeyError, IndexError) as error:
            raise EnvironmentContractError(
                f"The cost function found no {error} of agent {step.agent!r} in {place}; "
                f"its info has {sorted(map(str, step.info))}."
            ) from error
        return concrete_cost(cost, step.agent, place)

    @property
    def _name(self) -> str:
        return type(self.env.unwrapped).__name__


@dataclass(frozen=True)
class _CostMaker:
    """Makes a copy with its cost; it can be pickled where maker and function can."""

    maker: Callable[[Options], ParallelEnv]
    cost: CostFunction
    key: str

    def __call__(self, options: Options) -> CostWrapper:
        return CostWrapper(self.maker(options), self.cost, self.key)


def with_cost(
    task: ParallelTask | Callable[[], ParallelEnv], cost: CostFunction, key: str = COST
) -> ParallelTask:
    """Return a task whose copies all have a cost.

    Args:
        task: A task such as `make("pettingzoo:mpe2.simple_spread_v3")`, or a function that makes a
            `ParallelEnv`.
        cost: As in `CostWrapper`; for worker processes it must be possible to pickle it.
        key: As in `CostWrapper`.
    """
    made = task if isinstance(task, ParallelTask) else from_parallel_env(task)
    return replace(made, maker=_CostMaker(made.maker, cost, key))
