"""Lagrange multipliers of cost limits: projected gradient and PID control."""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.precision import as_float
from dressage.equations.returns import centre_advantages
from dressage.errors import ConfigError, NonFiniteError


def update_multiplier(
    multiplier: ArrayLike,
    cost: ArrayLike,
    limit: ArrayLike,
    learning_rate: ArrayLike,
    minimum: ArrayLike = 0.0,
    maximum: ArrayLike = jnp.inf,
    fresh: ArrayLike = True,
) -> Array:
    r"""Move a multiplier by the violation of its limit and project it back.

    $$\lambda \leftarrow \mathrm{clip}(\lambda + \eta\,(J_c - d),\ \lambda_{min},\ \lambda_{max})$$

    Args:
        multiplier: `[...]`, one per constraint, such as one per agent.
        cost: `[...]`, mean undiscounted cost of the episodes that finished since the last update.
        limit: `[...]`, what an episode may cost, in the same units.
        learning_rate: Per unit of cost, >= 0.
        minimum: Least multiplier, >= 0.
        maximum: Greatest multiplier, >= `minimum`.
        fresh: `[...]` bool; False where no episode finished, which leaves that multiplier as it is.

    Returns:
        The next multipliers, `[...]`. A NaN cost leaves its multiplier as it is.

    Raises:
        ConfigError: If the learning rate or `minimum` is negative, or `maximum` is below `minimum` (concrete
            values only; traced ones cannot be looked at).
        NonFiniteError: If a concrete, fresh cost is NaN.

    Reference:
        Ray et al. 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning". Departure: a plain
        projected gradient instead of Adam, whose steps do not depend on the size of the violation.
    """
    _check(learning_rate, minimum, maximum)
    _check_cost(cost, fresh)
    multiplier, cost = as_float(multiplier), as_float(cost)
    moved = jnp.clip(multiplier + learning_rate * (cost - limit), minimum, maximum)
    return jnp.where(jnp.asarray(fresh) & ~jnp.isnan(cost), moved, multiplier)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PIDMultiplier:
    r"""A multiplier under proportional, integral and derivative control of the violation.

    $$\Delta = J_c - d, \qquad I \leftarrow \mathrm{clip}(I + K_I \Delta,\ 0,\ \lambda_{max})$$

    $$\lambda = \mathrm{clip}(K_P \Delta + I + K_D (J_c - J_c^{previous})_+,\ \lambda_{min},\ \lambda_{max})$$

    Attributes:
        multiplier: `[...]`, the present output.
        integral: `[...]`, the integral term, its gain included; bounded, so that it cannot wind up.
        previous_cost: `[...]`, the last fresh cost.
        started: `[...]` bool, whether there was one; the derivative is 0 before.

    Reference:
        Stooke, Achiam, Abbeel 2020, "Responsive Safety in Reinforcement Learning by PID Lagrangian Methods",
        algorithm 2. Departure: the gain is applied before the sum and the integral has an upper bound.
    """

    multiplier: Array  # [...]
    integral: Array  # [...]
    previous_cost: Array  # [...]
    started: Array  # [...]

    @classmethod
    def start(cls, multiplier: ArrayLike = 0.0) -> Self:
        """Begin at a multiplier, which becomes the integral.

        Args:
            multiplier: `[...]`, >= 0.
        """
        value = as_float(multiplier)
        return cls(value, value, jnp.zeros_like(value), jnp.zeros(value.shape, bool))

    def update(
        self,
        cost: ArrayLike,
        limit: ArrayLike,
        proportional: ArrayLike,
        integral: ArrayLike,
        derivative: ArrayLike,
        minimum: ArrayLike = 0.0,
        maximum: ArrayLike = jnp.inf,
        fresh: ArrayLike = True,
    ) -> Self:
        """Take in the cost of the episodes finished since the last update.

        Args:
            cost: `[...]`, mean undiscounted cost of these episodes.
            limit: `[...]`, what an episode may cost, in the same units.
            proportional: Gain of the violation, >= 0.
            integral: Gain of its sum, >= 0; alone it makes `update_multiplier` with `minimum` 0.
            derivative: Gain of the cost's growth, >= 0.
            minimum: Least multiplier, >= 0.
            maximum: Greatest multiplier, >= `minimum`.
            fresh: `[...]` bool; False where no episode finished, which leaves everything as it is.

        Raises:
            ConfigError: If a concrete gain or `minimum` is negative, or `maximum` is below `minimum`.
            NonFiniteError: If a concrete, fresh cost is NaN.
        """
        for gain in (proportional, integral, derivative):
            _check(gain, minimum, maximum)
        _check_cost(cost, fresh)
        cost = as_float(cost)
        violation = cost - limit
        growth = jnp.where(self.started, jnp.maximum(cost - self.previous_cost, 0.0), 0.0)
        total = jnp.clip(self.integral + integral * violation, 0.0, maximum)
        output = jnp.clip(proportional * violation + total + derivative * growth, minimum, maximum)
        counted = jnp.asarray(fresh) & ~jnp.isnan(cost)
        return type(self)(
            multiplier=jnp.where(counted, output, self.multiplier),
            integral=jnp.where(counted, total, self.integral),
            previous_cost=jnp.where(counted, cost, self.previous_cost),
            started=self.started | counted,
        )


def penalized_advantages(
    advantages: ArrayLike,
    cost_advantages: ArrayLike,
    multiplier: ArrayLike,
    valid: ArrayLike | None = None,
) -> Array:
    r"""Mix reward and cost advantages into what a penalised policy follows.

    $$\hat A_i = \frac{(A^r_i - \mu^r) - \lambda\,(A^c_i - \mu^c)}{(1 + \lambda)\,\sigma}$$

    with $\sigma$ the deviation of the reward advantages alone. Standardising the two apart would divide the
    multiplier's fixed point by a deviation, so that it no longer were the dual variable of the limit. Where
    the reward advantages are flat, $\sigma$ is the deviation of the cost advantages; where both are, zeros
    come back.

    Args:
        advantages: Of the reward, any shape, not normalised.
        cost_advantages: Of the cost, the same shape, not normalised.
        multiplier: `[]`, >= 0. At 0 the result is exactly `normalize_advantages(advantages, valid)`.
        valid: Bool or 0/1, broadcastable; entries that are not valid enter no mean and come back as 0.

    Returns:
        The same shape.

    Reference:
        Ray et al. 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning", appendix B, for the
        division by $1 + \lambda$. Departure: one deviation for both, as above.
    """
    centred, deviation = centre_advantages(advantages, valid)
    cost_centred, cost_deviation = centre_advantages(cost_advantages, valid)
    scale = jnp.where(deviation == 0, cost_deviation, deviation)
    is_flat = scale == 0
    mixed = centred - multiplier * cost_centred
    # A flat reward is rounding, not signal: without a multiplier nothing is left to follow.
    mixed = jnp.where(deviation == 0, 0.0 - multiplier * cost_centred, mixed)
    return jnp.where(is_flat, 0.0, mixed / ((1 + multiplier) * jnp.where(is_flat, 1.0, scale)))


def _check(gain: ArrayLike, minimum: ArrayLike, maximum: ArrayLike) -> None:
    if _is_concrete(gain) and np.any(np.asarray(gain) < 0):
        raise ConfigError(f"the rate of a multiplier must be >= 0, got {gain}.")
    if _is_concrete(minimum) and np.any(np.asarray(minimum) < 0):
        raise ConfigError(f"the least multiplier must be >= 0, got {minimum}.")
    if _is_concrete(minimum) and _is_concrete(maximum) and np.any(np.asarray(maximum) < np.asarray(minimum)):
        raise ConfigError(f"the greatest multiplier must be >= the least ({minimum}), got {maximum}.")


def _check_cost(cost: ArrayLike, fresh: ArrayLike) -> None:
    if _is_concrete(cost) and _is_concrete(fresh) and np.any(np.isnan(np.asarray(cost)) & np.asarray(fresh)):
        raise NonFiniteError(f"the episodic cost of a multiplier's update is NaN, got {cost}.")


def _is_concrete(value: ArrayLike) -> bool:
    return not isinstance(value, jax.core.Tracer)
