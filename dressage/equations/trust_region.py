"""The step of constrained policy optimisation: conjugate gradients, then a small problem in closed form."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.precision import as_float

# Reward and cost gradient count as parallel where the part of one that is free of the other is shorter than
# 1e-4 of it (in the metric of H): the quotient that would scale that part is rounding.
_PARALLEL = 1e-8

MatrixVectorProduct = Callable[[Array], Array]
_State = tuple[Array, Array, Array, Array]  # solution, residual, direction, squared residual


class StepCase(IntEnum):
    """Which branch of the trust-region problem gave a step."""

    UNCONSTRAINED = 0
    ACTIVE = 1
    RECOVERY = 2
    STATIONARY = 3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ConstrainedStep:
    r"""A step of constrained policy optimisation and how it came about.

    Outside recovery $x = (v - \nu w)/\lambda$ with the multipliers $\lambda$ (trust region) and $\nu$ (cost).

    Attributes:
        step: `[P]`, to be added to the parameters; zeros where `case` is `STATIONARY`.
        case: `[]` int32, a `StepCase`.
        multiplier: `[]`, of the trust region; that of the cost descent in recovery.
        cost_multiplier: `[]`, of the cost constraint, >= 0; 1 in recovery, where it stands for infinity.
        q: `[]`, reward gradient times its solution.
        r: `[]`, reward gradient times the cost gradient's solution.
        s: `[]`, cost gradient times its solution.
        residual: `[]`, the larger relative residual of the two solves.
        finite: `[]` bool, False where an input or a solve was not finite; the step is zero then.
    """

    step: Array  # [P]
    case: Array  # []
    multiplier: Array  # []
    cost_multiplier: Array  # []
    q: Array  # []
    r: Array  # []
    s: Array  # []
    residual: Array  # []
    finite: Array  # []


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Problem:
    """The solved systems and the scalars made of them."""

    v: Array  # [P], H^-1 g
    w: Array  # [P], H^-1 b
    u: Array  # [P], v without its part along w
    q: Array  # []
    r: Array  # []
    s: Array  # []
    free: Array  # [], A = q - r^2/s
    room: Array  # [], B = D - c^2/s
    has_reward: Array  # [] bool, q > 0
    has_cost: Array  # [] bool, s > 0


def cpo_step(
    g: ArrayLike,
    b: ArrayLike,
    hessian_vector_product: MatrixVectorProduct,
    c: ArrayLike,
    delta: ArrayLike,
    iterations: int = 10,
    damping: ArrayLike = 0.0,
) -> ConstrainedStep:
    r"""Solve the linearised constrained trust-region problem in closed form.

    $$\max_x\; g \cdot x \quad\text{where}\quad c + b \cdot x \le 0,\quad \tfrac12 x^\top H x \le \delta$$

    With $v = H^{-1}g$, $w = H^{-1}b$, $q = g\cdot v$, $r = g\cdot w$, $s = b\cdot w$, $A = q - r^2/s$,
    $D = 2\delta$, $B = D - c^2/s$:

    - unconstrained: $x = \sqrt{D/q}\,v$, where that keeps the cost constraint or no step could break it;
    - active: $x = -(c/s)\,w + \sqrt{B/A}\,(v - (r/s)\,w)$, without the second term where $A \le 10^{-8} q$;
    - recovery ($c > 0$, $B < 0$: no step is lawful): $x = -\sqrt{D/s}\,w$;
    - stationary: zero, where the gradient that is needed vanishes or something was not finite.

    Args:
        g: `[P]`, gradient of the reward surrogate (to be increased).
        b: `[P]`, gradient of the cost surrogate.
        hessian_vector_product: Maps `[P]` to `[P]`: product with the Hessian of the mean divergence.
        c: `[]`, excess of the cost over its limit, in the units of the cost surrogate; > 0 is unlawful.
        delta: `[]`, trust-region radius, nats, > 0.
        iterations: Conjugate-gradient steps of each of the two solves, >= 1.
        damping: Added to the diagonal of the Hessian, >= 0.

    Returns:
        The step and its diagnostics. A non-finite input or solve gives a zero step with `finite` False.

    Reference:
        Achiam et al. 2017, "Constrained Policy Optimization", equations 11 to 14 and, for the closed form,
        theorem 2. Departures: the two degenerate branches, and A in a form that does not cancel.
    """
    g, b, c, diameter = as_float(g), as_float(b), as_float(c), 2 * as_float(delta)

    def damped(x: Array) -> Array:
        return hessian_vector_product(x) + damping * x

    v, reward_residual = _solve(damped, g, iterations, tolerance=1e-10)
    w, cost_residual = _solve(damped, b, iterations, tolerance=1e-10)
    problem = _scalars(g, b, v, w, c, diameter)
    case = _choose(problem, c, diameter)
    step, multiplier, cost_multiplier = _steps(problem, case, c, diameter)
    residual = jnp.maximum(reward_residual, cost_residual)
    finite = jnp.isfinite(problem.q + problem.r + problem.s + c + residual) & jnp.all(jnp.isfinite(step))
    zero = jnp.zeros_like(problem.q)
    return ConstrainedStep(
        step=jnp.where(finite, step, 0.0),
        case=jnp.where(finite, case, StepCase.STATIONARY).astype(jnp.int32),
        multiplier=jnp.where(finite, multiplier, zero),
        cost_multiplier=jnp.where(finite, cost_multiplier, zero),
        q=problem.q,
        r=problem.r,
        s=problem.s,
        residual=residual,
        finite=finite,
    )


def conjugate_gradient(
    matvec: MatrixVectorProduct, b: ArrayLike, iterations: int = 10, tolerance: float = 1e-10
) -> Array:
    r"""Solve $Mx = b$ for a symmetric positive definite $M$ of which only products are known.

    Args:
        matvec: Maps `[P]` to `[P]`, the product with M.
        b: `[P]`.
        iterations: Steps at most, >= 1; P of them solve exactly but for rounding.
        tolerance: The solution stands once the residual is this fraction of `b`, in the Euclidean norm.

    Returns:
        The solution, `[P]`; zeros for a zero right side.

    Reference:
        Hestenes, Stiefel 1952, "Methods of Conjugate Gradients for Solving Linear Systems", section 3.
        Departure: the tolerance is relative, so that small gradients are solved like large ones.
    """
    return _solve(matvec, as_float(b), iterations, tolerance)[0]


def _solve(matvec: MatrixVectorProduct, b: Array, iterations: int, tolerance: float) -> tuple[Array, Array]:
    """Return the solution `[P]` and its relative residual `[]`."""
    largest = jnp.max(jnp.abs(b))
    scale = jnp.where(largest > 0, largest, 1.0)  # so that squares of tiny gradients do not underflow
    start = b / scale
    total = jnp.vdot(start, start)
    enough = tolerance**2 * total

    def advance(state: _State, _: None) -> tuple[_State, None]:
        return _conjugate_step(matvec, enough, state), None

    state = (jnp.zeros_like(start), start, start, total)
    (x, _, _, square), _ = jax.lax.scan(advance, state, length=iterations)
    relative = jnp.where(total > 0, square / jnp.where(total > 0, total, 1.0), total)
    return x * scale, _root(relative)


def _conjugate_step(matvec: MatrixVectorProduct, enough: Array, state: _State) -> _State:
    x, residual, direction, square = state
    product = matvec(direction)
    curvature = jnp.vdot(direction, product)
    # Frozen once solved; curvature that rounding made 0 or negative says no more. NaN goes on.
    done = (square <= enough) | (curvature <= 0)
    length = jnp.where(done, 0.0, square / jnp.where(done, 1.0, curvature))
    residual = residual - length * product
    next_square = jnp.where(done, square, jnp.vdot(residual, residual))
    turn = jnp.where(done, 0.0, next_square / jnp.where(done, 1.0, square))
    return x + length * direction, residual, residual + turn * direction, next_square


def _scalars(g: Array, b: Array, v: Array, w: Array, c: Array, diameter: Array) -> _Problem:
    q, r, s = jnp.vdot(g, v), jnp.vdot(g, w), jnp.vdot(b, w)
    smallest = np.finfo(s.dtype).tiny / np.finfo(s.dtype).eps
    has_cost = s > smallest
    slope = _ratio(r, s, has_cost)
    u = v - slope * w
    # Once more, for what rounding or an unfinished solve left: b.u = 0 is what keeps the constraint exact.
    remainder = _ratio(jnp.vdot(b, u), s, has_cost)
    u, slope = u - remainder * w, slope + remainder
    # q - r^2/s as a product of two small vectors: no cancellation where the gradients are nearly parallel.
    free = jnp.vdot(u, g - slope * b)
    room = diameter - _ratio(c * c, s, has_cost)
    return _Problem(v, w, u, q, r, s, free, room, has_reward=q > smallest, has_cost=has_cost)


def _choose(problem: _Problem, c: Array, diameter: Array) -> Array:
    plain_length = _root(_ratio(diameter, problem.q, problem.has_reward))
    plain_is_lawful = c + plain_length * problem.r <= 0
    out_of_reach = (c < 0) & (problem.room < 0)
    with_cost = jnp.where(
        out_of_reach | ((problem.room >= 0) & plain_is_lawful),
        StepCase.UNCONSTRAINED,
        jnp.where(problem.room >= 0, StepCase.ACTIVE, StepCase.RECOVERY),
    )
    case = jnp.where(
        problem.has_cost, with_cost, jnp.where(c > 0, StepCase.STATIONARY, StepCase.UNCONSTRAINED)
    )
    nothing_to_gain = (case == StepCase.UNCONSTRAINED) & ~problem.has_reward
    return jnp.where(nothing_to_gain, StepCase.STATIONARY, case)


def _steps(problem: _Problem, case: Array, c: Array, diameter: Array) -> tuple[Array, Array, Array]:
    """Return the chosen case's step, trust-region multiplier and cost multiplier."""
    plain_length = _root(_ratio(diameter, problem.q, problem.has_reward))
    is_free = problem.free > _PARALLEL * problem.q
    length = _root(_ratio(jnp.maximum(problem.room, 0.0), problem.free, is_free))
    retreat = _ratio(c, problem.s, problem.has_cost)
    recovery_length = _root(_ratio(diameter, problem.s, problem.has_cost))
    multiplier = _ratio(jnp.ones_like(length), length, length > 0)
    cost_multiplier = multiplier * retreat + _ratio(problem.r, problem.s, problem.has_cost)
    one, zero = jnp.ones_like(length), jnp.zeros_like(length)
    # One row a case, in the order of StepCase.
    steps = (
        plain_length * problem.v,
        length * problem.u - retreat * problem.w,
        -recovery_length * problem.w,
        jnp.zeros_like(problem.v),
    )
    multipliers = (
        _ratio(one, plain_length, plain_length > 0),
        multiplier,
        _ratio(one, recovery_length, recovery_length > 0),
        zero,
    )
    cost_multipliers = (zero, jnp.maximum(cost_multiplier, 0.0), one, zero)
    return (
        jax.lax.select_n(case, *steps),
        jax.lax.select_n(case, *multipliers),
        jax.lax.select_n(case, *cost_multipliers),
    )


def _ratio(numerator: Array, denominator: Array, is_safe: Array) -> Array:
    """Divide where that is safe, give 0 elsewhere, with a finite gradient in both."""
    return jnp.where(is_safe, numerator / jnp.where(is_safe, denominator, 1.0), 0.0)


def _root(square: Array) -> Array:
    """Return the square root, 0 (with gradient 0) where the square is not positive; NaN stays NaN."""
    return jnp.where(square <= 0, 0.0, jnp.sqrt(jnp.where(square <= 0, 1.0, square)))
