"""A shield for finite processes that keeps the probability of ever violating under a bound."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError
from dressage.shield.decision import Decision, PyTree, Space, nearest_allowed
from dressage.shield.mask import discrete_space

Table = npt.NDArray[np.float64]

_ROUNDING = 1e-9  # how far probabilities may miss their sum
_CLOSE = 1e-13  # change of a probability at which the iteration ends
_SWEEPS = 100_000


@dataclass(frozen=True, eq=False)
class ProbabilisticShield:
    r"""Lets an action pass as long as the episode's probability of a violation stays under a bound.

    With the probability $p(s,a)$ of a violation in a step, the distribution $T(s'|s,a)$ of what follows
    otherwise, and $\beta(s)$, the least probability of ever violating from $s$ that any policy reaches, an
    action's own least probability is

    $$Q(s,a) = p(s,a) + (1 - p(s,a)) \sum_{s'} T(s'|s,a)\, \beta(s'), \qquad \beta(s) = \min_a Q(s,a)$$

    The state carries a bound $b$, the given one at the start of an episode. Allowed are the actions with

    $$Q(s,a) \le \beta(s) + \mathrm{sigmoid}(z)\, (b - \beta(s))$$

    where the parameter $z$ says which share of what is left may be risked now; the nearest allowed action is
    executed. What it does not use is carried on: $b' = \min(1,\ \beta(s') + (b - Q(s,a)) / (1 - p(s,a)))$.

    **Guarantee.** The probability of a violation in an episode is at most `bound`, for every policy and every
    sequence of parameters: $b \ge \beta(s)$ holds from the start and is handed on, so an action is always
    allowed, and $p + (1-p)\,E[b'] \le b$, so the bound, taken as 1 after a violation, falls in the mean.
    **Conditions:** true violation probabilities are at most `violation`, transitions without a violation are
    those of `transitions`, the shield sees the true state, and episodes start in states whose least
    probability is at most `bound` (`feasible` is False from the first step on otherwise).

    The policy sees $b$ as a multiple of `bound`.

    Attributes:
        violation: `[S, A]`, p: probability of a violation, or an upper bound of it.
        transitions: `[S, A, S]`, T: rows that add up to 1. A state in which episodes end leads to itself.
        bound: Greatest probability of a violation in an episode, in (0, 1].
        initial: States in which episodes may start.
        learned: Whether the share comes as a parameter; otherwise all that is left may be risked.

    Raises:
        ConfigError: If the tables do not fit together, or no policy keeps the bound from an initial state;
            the text names the least probability that one can reach.

    Reference:
        After Court, Belardinelli, Goodall 2025, "Probabilistic Shielding for Safe Reinforcement Learning",
        whose actions choose the successors' bounds themselves; here a share of the slack is one number, and
        what is left goes to all successors alike.
    """

    violation: Table
    transitions: Table
    bound: float
    initial: tuple[int, ...] = (0,)
    learned: bool = True

    def __post_init__(self) -> None:
        if np.ndim(self.violation) != 2 or not all(map(_is_array, (self.violation, self.transitions))):
            raise ConfigError(
                "ProbabilisticShield needs NumPy arrays, violation [S, A] and transitions [S, A, S], got "
                f"{type(self.violation).__name__} of {np.ndim(self.violation)} axes and "
                f"{type(self.transitions).__name__}."
            )
        states, actions = np.shape(self.violation)
        if np.shape(self.transitions) != (states, actions, states):
            raise ConfigError(
                f"ProbabilisticShield needs transitions of shape {(states, actions, states)} beside "
                f"violation of shape {(states, actions)}, got {np.shape(self.transitions)}."
            )
        starts: Any = self.initial
        if not (isinstance(starts, tuple) and starts and all(0 <= state < states for state in starts)):
            raise ConfigError(
                f"ProbabilisticShield's initial must be a tuple of states from 0 to {states - 1}, got "
                f"{self.initial!r}."
            )
        if not np.all((self.violation >= 0) & (self.violation <= 1)):
            state, action = _first(~((self.violation >= 0) & (self.violation <= 1)))
            raise ConfigError(
                "ProbabilisticShield needs a violation within [0, 1], got "
                f"{self.violation[state, action]:g} for action {action} in state {state}."
            )
        sums = self.transitions.sum(-1)
        lawful = (self.transitions >= 0).all(-1) & (np.abs(sums - 1) <= _ROUNDING)
        if not np.all(lawful):
            state, action = _first(~lawful)
            raise ConfigError(
                "ProbabilisticShield needs transitions >= 0 whose rows add up to 1; that of action "
                f"{action} in state {state} adds up to {sums[state, action]:g}, its least entry is "
                f"{self.transitions[state, action].min():g}."
            )
        if not 0 < self.bound <= 1:
            raise ConfigError(f"ProbabilisticShield's bound must be > 0 and <= 1, got {self.bound!r}.")
        least = max(float(self.least_probability[state]) for state in self.initial)
        if least > self.bound:
            raise ConfigError(
                f"ProbabilisticShield cannot keep the bound {self.bound:g}: the least probability of a "
                f"violation that a policy can reach is {least:.6g}. Give at least that."
            )

    @cached_property
    def least_probability(self) -> Table:
        """`[S]`, the least probability of ever violating from each state."""
        return least_violation(self.violation, self.transitions)

    @cached_property
    def action_probability(self) -> Table:
        """`[S, A]`, that probability after each action."""
        beyond = self.transitions @ self.least_probability
        both: Table = self.violation + (1 - self.violation) * beyond
        return both

    @property
    def parameter_dim(self) -> int:
        """1, or 0 if nothing is learned."""
        return 1 if self.learned else 0

    @property
    def memory_dim(self) -> int:
        """1, the bound that the state carries."""
        return 1

    def proposal_space(self, space: Space, agent: str) -> Space:
        """Return the agent's own space, which must be `Discrete` with the table's number of actions."""
        number = self.violation.shape[1]
        if getattr(discrete_space(space, agent, "ProbabilisticShield"), "n", None) != number:
            raise UnsupportedSpaceError(
                f"This ProbabilisticShield has {number} actions; agent {agent!r} acts in {space}. Give "
                "tables with as many actions."
            )
        return space

    def check_state(self, seen: PyTree, agent: str) -> None:
        """See that the shield is shown the index of a state; looks at shape and dtype alone.

        Raises:
            EnvironmentContractError: If it is not; the text names the agent and what it is.
        """
        _check_index(seen, f" of agent {agent!r}")

    def begin(self, seen: PyTree) -> Array:
        """Start with the whole bound, `[]`."""
        return jnp.asarray(self.bound, jnp.float32)

    def decide(self, memory: Array, seen: PyTree, proposal: Array, parameters: Array) -> Decision:
        """Let the proposal pass, or take the nearest action that is allowed; see `Shield.decide`.

        Args:
            memory: The bound that the state carries.
            seen: The state's index, integer `[]`; outside of the tables nothing is `feasible`.
            proposal: Index of the action.
            parameters: `[1]`, or `[0]` if nothing is learned.
        """
        _check_index(seen)
        state = jnp.asarray(seen)
        risks, least = _table(self.action_probability)[state], _table(self.least_probability)[state]
        share: Any = jax.nn.sigmoid(jnp.nan_to_num(parameters[0])) if self.learned else 1.0
        # The least risky action is allowed whatever rounding makes of an equality.
        threshold = jnp.maximum(least + share * (memory - least), jnp.min(risks))
        action, _ = nearest_allowed(proposal, risks, threshold)
        survival = 1 - _table(self.violation)[state, action]
        left = jnp.maximum(memory - risks[action], 0.0) / jnp.maximum(survival, 1e-6)
        known = (state >= 0) & (state < self.violation.shape[0])  # Indexing takes the nearest row otherwise.
        return Decision(action, action != proposal, known & (memory >= least * (1 - 1e-5)), left)

    def follow(self, memory: Array, seen: PyTree) -> Array:
        """Return the bound of the state that was reached: its least probability and what is left over."""
        return jnp.minimum(_table(self.least_probability)[jnp.asarray(seen)] + memory, 1.0)

    def features(self, memory: Array) -> Array:
        """Return the bound in units of the first one, `[1]`."""
        share: Array = (memory / self.bound)[None]
        return share


def least_violation(violation: Table, transitions: Table) -> Table:
    r"""Find the least probability of ever violating that a policy can reach from each state.

    States from which a policy can surely never violate are found first and have 0; on the others the equation
    of $\beta$ has one solution, and iterating it from 1 comes down to that from above, so that the result is
    never too small, wherever it stops.

    Args:
        violation: `[S, A]` probabilities of a violation in a step.
        transitions: `[S, A, S]` probabilities of what follows otherwise.

    Returns:
        `[S]`.

    Reference:
        Baier, Katoen 2008, "Principles of Model Checking", section 10.6.1 (minimal reachability).
    """
    sure = np.ones(violation.shape[0], bool)
    for _ in range(violation.shape[0]):
        stays = (violation == 0) & (transitions @ ~sure == 0)
        sure = sure & stays.any(axis=1)
    least = np.where(sure, 0.0, 1.0)
    for _ in range(_SWEEPS):
        following = np.min(violation + (1 - violation) * (transitions @ least), axis=1)
        following = np.where(sure, 0.0, np.minimum(following, least))
        if np.abs(following - least).max() < _CLOSE:
            return following
        least = following
    return least


def _check_index(seen: PyTree, whose: str = "") -> None:
    shown = [jnp.asarray(leaf) for leaf in jax.tree.leaves(seen)]
    if len(shown) == 1 and shown[0].shape == () and jnp.issubdtype(shown[0].dtype, jnp.integer):
        return
    found = " and ".join(f"{leaf.dtype} of shape {leaf.shape}" for leaf in shown) or "nothing"
    raise EnvironmentContractError(
        f"The ProbabilisticShield{whose} must be shown the index of a state, one integer; its view gives "
        f"{found}. Give a view(source, observation, agent) that returns that index."
    )


def _is_array(table: Any) -> bool:  # noqa: ANN401
    return isinstance(table, np.ndarray | jax.Array)


def _first(wrong: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the place of the first True."""
    return tuple(int(place) for place in np.argwhere(wrong)[0])


def _table(values: Table) -> Array:
    return jnp.asarray(values, jnp.float32)
