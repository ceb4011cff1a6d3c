"""The point nearest to a proposal within linear constraints and a box, by an exact quadratic program."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

# In float32 a point on a constraint of unit normal misses it by about 1e-7 of its own size.
_TOLERANCE = 2e-6
_FLAT = 1e-10  # squared length below which a unit normal counts as spanned by the active ones
_NO_NORMAL = 1e-12  # length below which a row is about nothing
_RETREATS = 400  # gradient steps towards the least violating point


_Attempt = tuple[Array, Array, Array]  # point, whether to search on, whether nothing is lawful
_Retreat = tuple[Array, Array, Array]  # point, point ahead of it, count


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Projection:
    """What `project` found.

    Attributes:
        point: `[n]`, within the box.
        feasible: `[]` bool, whether some point keeps all constraints; where none does, `point` violates them
            least.
    """

    point: Array  # [n]
    feasible: Array  # []


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Rows:
    """Constraints `normals . u <= offsets` of unit normals, the box among them."""

    normals: Array  # [k, n]
    offsets: Array  # [k], infinite where there is none


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Search:
    """Where the dual method stands; at most `n` rows are active, since their normals are independent."""

    point: Array  # [n]
    slots: Array  # [n] int32, rows that are active; -1 where free
    prices: Array  # [n], their multipliers, >= 0
    entering: Array  # [] int32, row that is being made active; -1 for none
    price: Array  # [], its multiplier so far
    stuck: Array  # [] bool, no point keeps all rows
    count: Array  # [] int32


def project(
    proposal: ArrayLike, normals: ArrayLike, offsets: ArrayLike, low: ArrayLike, high: ArrayLike
) -> Projection:
    r"""Find the point nearest to a proposal that keeps linear constraints and bounds.

    $$\min_u\; \|u - p\|^2 \quad\text{where}\quad A u \le b,\quad l \le u \le h$$

    The dual active-set method adds the most violated constraint, moves along the normals of those that are
    active, drops one whose multiplier reaches 0, and ends after finitely many steps at the exact solution.
    With one constraint that is the closed form $p - \max(0, a \cdot p - b)\, a / \|a\|^2$. Where no point
    keeps everything, the sum of squared violations (of constraints whose normals have length 1) is minimised
    within the box by accelerated projected gradients, and of the points that violate least the nearest one is
    returned. The box itself is never left.

    Args:
        proposal: `[n]`, p; outside the box it counts as the nearest point there, NaN as 0.
        normals: `[m, n]`, A; a row of zeros is a constraint that no point can help.
        offsets: `[m]`, b; infinite for no constraint.
        low: `[n]`, l, minus infinity where there is no bound.
        high: `[n]`, h, at least `low`.

    Returns:
        The point, and whether it keeps the constraints, to 2e-6 of its size.

    Reference:
        Goldfarb, Idnani 1983, "A numerically stable dual method for solving strictly convex quadratic
        programs", with the identity as Hessian; Beck, Teboulle 2009, "A fast iterative shrinkage-thresholding
        algorithm for linear inverse problems", for the infeasible case.
    """
    low, high = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
    start = jnp.clip(jnp.nan_to_num(jnp.asarray(proposal, jnp.float32)), low, high)
    rows, hopeless = _unit_rows(jnp.asarray(normals, jnp.float32), jnp.asarray(offsets, jnp.float32))

    def attempt(_: int, carry: _Attempt) -> _Attempt:
        point, needed, infeasible = carry
        least = _least_violating(start, rows, low, high, needed & infeasible)
        kept = jnp.maximum(rows.offsets, jnp.where(infeasible, rows.normals @ least, -jnp.inf))
        found = _search(start, _with_box(replace(rows, offsets=kept), low, high), needed)
        reached = jnp.where(needed, jnp.where(found.stuck, least, found.point), point)
        return reached, needed & found.stuck, infeasible | (needed & found.stuck)

    # The second attempt asks for no more than can be had; it ends at once where the first one found a point.
    begin = start, jnp.asarray(True), jnp.asarray(False)
    point, _, infeasible = jax.lax.fori_loop(0, 2, attempt, begin)
    return Projection(jnp.clip(point, low, high), ~infeasible & ~hopeless)


def _unit_rows(normals: Array, offsets: Array) -> tuple[_Rows, Array]:
    """Scale normals to length 1; say whether a row without a normal is violated whatever one does."""
    length = jnp.sqrt(jnp.sum(jnp.square(normals), axis=1))
    empty = length <= _NO_NORMAL
    scale = jnp.where(empty, 1.0, length)
    hopeless = jnp.any(empty & (offsets < 0))
    kept = jnp.where(empty, jnp.inf, offsets / scale)
    return _Rows(jnp.where(empty[:, None], 0.0, normals / scale[:, None]), kept), hopeless


def _with_box(rows: _Rows, low: Array, high: Array) -> _Rows:
    one = jnp.eye(low.shape[0])
    normals = jnp.concatenate([rows.normals, one, -one])
    return _Rows(normals, jnp.concatenate([rows.offsets, high, -low]))


def _search(proposal: Array, rows: _Rows, needed: Array) -> _Search:
    size = proposal.shape[0]
    begin = _Search(
        point=proposal,
        slots=jnp.full(size, -1, jnp.int32),
        prices=jnp.zeros(size),
        entering=jnp.int32(-1),
        price=jnp.zeros(()),
        stuck=jnp.asarray(False),
        count=jnp.int32(0),
    )
    limit = 6 * rows.offsets.shape[0] + 12  # far more than it takes; rounding must not make it endless

    def going(search: _Search) -> Array:
        return (search.entering >= 0) & ~search.stuck & (search.count < limit)

    begin = _enter(begin, rows)
    begin = replace(begin, entering=jnp.where(needed, begin.entering, -1))
    ended: _Search = jax.lax.while_loop(going, lambda search: _advance(search, rows), begin)
    settled: _Search = replace(ended, stuck=ended.stuck | (ended.entering >= 0))
    return settled


def _enter(search: _Search, rows: _Rows) -> _Search:
    """Choose the most violated row as the next to become active; -1 where all are kept."""
    excess = rows.normals @ search.point - rows.offsets
    is_active = jnp.any(jnp.arange(excess.shape[0])[:, None] == search.slots[None], axis=1)
    excess = jnp.where(is_active, -jnp.inf, excess)
    worst = jnp.argmax(excess).astype(jnp.int32)
    violated = excess[worst] > _TOLERANCE * (1 + jnp.max(jnp.abs(search.point)))
    return replace(search, entering=jnp.where(violated, worst, -1), price=jnp.zeros(()))


def _advance(search: _Search, rows: _Rows) -> _Search:
    """Move until the entering row is kept, or until an active one has to be dropped."""
    taken = search.slots >= 0
    active = jnp.where(taken[:, None], rows.normals[search.slots], 0.0)  # [n, n]
    normal = rows.normals[search.entering]
    weights = jnp.where(taken, _solve(active @ active.T + jnp.diag(1.0 - taken), active @ normal), 0.0)
    free = normal - weights @ active
    room = jnp.where(jnp.all(taken), 0.0, jnp.vdot(free, free))
    movable = room > _FLAT
    excess = jnp.vdot(normal, search.point) - rows.offsets[search.entering]
    full = jnp.where(movable, excess / jnp.where(movable, room, 1.0), jnp.inf)
    shrinking = taken & (weights > 0)
    limits = jnp.where(shrinking, search.prices / jnp.where(shrinking, weights, 1.0), jnp.inf)
    dropped = jnp.argmin(limits)
    length = jnp.minimum(full, limits[dropped])
    stuck = jnp.isinf(length)
    length = jnp.where(stuck, 0.0, length)
    moved = replace(
        search,
        point=search.point - jnp.where(movable, length, 0.0) * free,
        prices=jnp.where(taken, jnp.maximum(search.prices - length * weights, 0.0), 0.0),
        price=search.price + length,
        stuck=stuck,
        count=search.count + 1,
    )
    joins = full <= limits[dropped]
    slot = jnp.where(joins, jnp.argmin(taken), dropped)
    changed = replace(
        moved,
        slots=moved.slots.at[slot].set(jnp.where(joins, search.entering, -1)),
        prices=moved.prices.at[slot].set(jnp.where(joins, moved.price, 0.0)),
    )
    following: _Search = jax.tree.map(partial(jnp.where, joins), _enter(changed, rows), changed)
    return following


def _solve(matrix: Array, right: Array) -> Array:
    """Solve a small positive definite system by elimination, which the compiler unrolls and fuses."""
    system = jnp.concatenate([matrix, right[:, None]], axis=1)
    for column in range(matrix.shape[0]):
        row = system[column] / system[column, column]
        system = (system - system[:, column, None] * row).at[column].set(row)
    return system[:, -1]


def _least_violating(start: Array, rows: _Rows, low: Array, high: Array, needed: Array) -> Array:
    """Minimise the sum of squared violations over the box; no step is made where that is not needed."""
    rate = 1.0 / jnp.maximum(jnp.sum(jnp.square(rows.normals)), 1.0)

    def going(carry: _Retreat) -> Array:
        return needed & (carry[2] < _RETREATS)

    def retreat(carry: _Retreat) -> _Retreat:
        point, ahead, count = carry
        excess = jnp.maximum(rows.normals @ ahead - rows.offsets, 0.0)
        moved = jnp.clip(ahead - rate * (excess @ rows.normals), low, high)
        return moved, moved + count / (count + 3.0) * (moved - point), count + 1.0

    found, _, _ = jax.lax.while_loop(going, retreat, (start, start, jnp.zeros(())))
    return found
