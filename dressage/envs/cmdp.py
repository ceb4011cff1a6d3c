"""Exact optima of finite constrained decision processes, by linear programming over occupancies."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog

from dressage.errors import ConfigError

Table = npt.NDArray[np.float64]

_SOLVED, _INFEASIBLE, _UNBOUNDED = 0, 2, 3  # status codes of scipy.optimize.linprog
_ROUNDING = 1e-9  # how far probabilities may miss their sum


@dataclass(frozen=True, eq=False)
class FiniteCMDP:
    """A decision process with `S` states, `A` actions and one cost.

    Attributes:
        transitions: `[S, A, S]` probability of each next state; what a row lacks to 1 ends the episode.
        rewards: `[S, A]` expected reward of a step.
        costs: `[S, A]` expected cost of a step.
        initial: `[S]` probability of each first state.

    Raises:
        ConfigError: If the shapes do not fit together, or something that should be a probability is none.
    """

    transitions: Table  # [S, A, S]
    rewards: Table  # [S, A]
    costs: Table  # [S, A]
    initial: Table  # [S]

    def __post_init__(self) -> None:
        states, actions = np.shape(self.rewards)
        shapes = {
            "transitions": (states, actions, states),
            "costs": (states, actions),
            "initial": (states,),
        }
        for name, shape in shapes.items():
            if np.shape(getattr(self, name)) != shape:
                raise ConfigError(
                    f"FiniteCMDP needs {name} of shape {shape} beside rewards of shape {(states, actions)}, "
                    f"got {np.shape(getattr(self, name))}."
                )
        mass = self.transitions.sum(axis=-1)
        if self.transitions.min() < -_ROUNDING or mass.max() > 1 + _ROUNDING:
            raise ConfigError("FiniteCMDP needs transitions >= 0 whose rows add up to at most 1.")
        if self.initial.min() < -_ROUNDING or abs(self.initial.sum() - 1) > _ROUNDING:
            raise ConfigError("FiniteCMDP needs initial >= 0 that adds up to 1.")


@runtime_checkable
class Finite(Protocol):
    """A task that can write itself down as a finite process."""

    def model(self) -> FiniteCMDP:
        """Return the process; time limits are not part of it."""


class CMDPSolution(NamedTuple):
    """An optimal policy under a cost limit, and what it reaches.

    Attributes:
        optimum: Expected return of an episode, discounted by `gamma`.
        cost: Expected cost of an episode, discounted alike; at most the limit.
        multiplier: By how much the optimum grows with the limit, per unit of cost, >= 0: the Lagrange
            multiplier at the optimum. Where the optimum has a kink in the limit, one of its slopes there.
        policy: `[S, A]` action probabilities; uniform where a state is never reached.
    """

    optimum: float
    cost: float
    multiplier: float
    policy: Table


def solve_cmdp(task: Finite | FiniteCMDP, limit: float | None, gamma: float = 1.0) -> CMDPSolution:
    r"""Find the policy of greatest return whose expected cost keeps a limit.

    $$\max_{\rho \ge 0} \sum_{s,a} \rho(s,a)\, r(s,a) \quad\text{where}\quad
    \sum_{s,a} \rho(s,a)\, c(s,a) \le d,\quad
    \sum_a \rho(s',a) = \mu(s') + \gamma \sum_{s,a} P(s'|s,a)\, \rho(s,a)$$

    The occupancy $\rho$ is how often, discounted, a policy does `a` in `s`; the policy is
    $\rho(s,a) / \sum_{a'} \rho(s,a')$. Episodes last until they terminate: a time limit is not part of the
    problem, unless the step is part of the state.

    Args:
        task: A task with `model()`, or the process itself.
        limit: Greatest expected cost of an episode, d; None for no limit.
        gamma: Discount a step of rewards and costs, in (0, 1]. At 1, policies that never end an episode are
            left out.

    Returns:
        Optimum, cost, multiplier and policy.

    Raises:
        ConfigError: If no policy keeps the limit (the text names the least cost that can be reached), the
            return has no bound, no policy ever ends an episode, or an argument is out of its range.

    Reference:
        Altman 1999, "Constrained Markov Decision Processes" (discounted and total cost).
    """
    name = type(task).__name__
    if limit is not None and not np.isfinite(limit):
        raise ConfigError(f"solve_cmdp's limit must be a finite number or None, got {limit!r}.")
    if not 0 < gamma <= 1:
        raise ConfigError(f"solve_cmdp's gamma must be > 0 and <= 1, got {gamma!r}.")
    process = task if isinstance(task, FiniteCMDP) else task.model()
    balance = _balance(process, gamma)
    result = _program(process, -process.rewards, balance, limit)
    if result.status == _INFEASIBLE:
        raise ConfigError(_infeasible(name, limit, _program(process, process.costs, balance, None)))
    if result.status == _UNBOUNDED:
        raise ConfigError(
            f"The return of {name} has no bound at gamma {gamma:g}: some policy earns for ever. "
            "Give a gamma below 1."
        )
    if result.status != _SOLVED:
        raise ConfigError(f"The linear program of {name} could not be solved: {result.message}")
    occupancy = np.maximum(result.x, 0.0).reshape(process.rewards.shape)
    return CMDPSolution(
        optimum=float(np.sum(process.rewards * occupancy)),
        cost=float(np.sum(process.costs * occupancy)),
        multiplier=0.0 if limit is None else max(0.0, -float(result.ineqlin.marginals[0])),
        policy=_policy(occupancy),
    )


def _balance(process: FiniteCMDP, gamma: float) -> Any:  # noqa: ANN401 (a sparse matrix, of untyped SciPy)
    """Return the matrix `[S, S A]` of what leaves a state less what enters it."""
    states, actions = process.rewards.shape
    leaving = sparse.kron(sparse.eye_array(states), np.ones((1, actions)))
    entering = sparse.csr_array(process.transitions.reshape(states * actions, states).T)
    return sparse.csr_array(leaving - gamma * entering)


def _program(process: FiniteCMDP, objective: Table, balance: Any, limit: float | None) -> OptimizeResult:  # noqa: ANN401
    """Minimise a linear objective over the occupancies that some policy has."""
    rows = (None, None) if limit is None else (process.costs.reshape(1, -1), [limit])
    return linprog(objective.ravel(), *rows, balance, process.initial, bounds=(0, None), method="highs")


def _infeasible(name: str, limit: float | None, cheapest: OptimizeResult) -> str:
    if cheapest.status == _SOLVED:
        return (
            f"No policy of {name} keeps the cost limit {limit:g}: the least expected cost of an episode that "
            f"one can reach is {cheapest.fun:.6g}. Give at least that."
        )
    return f"No policy of {name} ends its episodes with certainty. Give a gamma below 1."


def _policy(occupancy: Table) -> Table:
    visits = occupancy.sum(axis=-1, keepdims=True)
    uniform = np.full_like(occupancy, 1 / occupancy.shape[-1])
    np.divide(occupancy, visits, out=uniform, where=visits > 1e-12)
    return uniform
