"""Spaces of functional environments: small pytrees that sample and test inside compiled code.

`Box` keeps its bounds as leaves, so they may be traced arrays; sizes and dtypes are static. Gymnasium's
spaces are converted by `as_space`, ours by `to_gymnasium`.
"""

import math
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike, DTypeLike

from dressage.equations.action_scaling import UNBOUNDED
from dressage.errors import UnsupportedSpaceError

if TYPE_CHECKING:
    import gymnasium

Shape: TypeAlias = tuple[int, ...]
Space: TypeAlias = "Box | Discrete | MultiDiscrete"

Bound: TypeAlias = Any
"""An array of NumPy or JAX, possibly traced."""

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary"


@jax.tree_util.register_pytree_node_class
class Box:
    """Arrays within bounds.

    Args:
        low: Least values, a number or an array of `shape`; minus infinity where there is no bound.
        high: Greatest values, likewise.
        shape: Shape of an element; by default the bounds' own.
        dtype: Dtype of an element; 64-bit types become 32-bit where JAX computes in 32 bits.

    Raises:
        UnsupportedSpaceError: If the bounds do not fit the shape.
    """

    low: Bound  # [*shape] array, possibly traced
    high: Bound  # [*shape]
    shape: Shape
    dtype: np.dtype[Any]

    def __init__(
        self, low: ArrayLike, high: ArrayLike, shape: Shape | None = None, dtype: DTypeLike = np.float32
    ) -> None:
        self.dtype = jax.dtypes.canonicalize_dtype(dtype)
        self.shape = _common_shape(np.shape(low), np.shape(high)) if shape is None else tuple(shape)
        self.low = _bound(low, self.shape, self.dtype)
        self.high = _bound(high, self.shape, self.dtype)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw an element.

        Uniform between two bounds, shifted exponential at one, standard normal where there is none; integer
        boxes are uniform over `low..high` inclusive. A bound as large as the dtype's largest number is none.

        Args:
            key: A JAX random key.

        Returns:
            `[*shape]` of the space's dtype, always contained.
        """
        if not jnp.issubdtype(self.dtype, jnp.floating):
            return self._sample_integers(key)
        uniform_key, exponential_key, normal_key = jax.random.split(key, 3)
        below, above = self.bounded_below(), self.bounded_above()
        low = jnp.where(below, self.low, 0.0).astype(self.dtype)
        high = jnp.where(above, self.high, 0.0).astype(self.dtype)
        fraction = jax.random.uniform(uniform_key, self.shape, self.dtype)
        tail = jax.random.exponential(exponential_key, self.shape, self.dtype)
        free = jax.random.normal(normal_key, self.shape, self.dtype)
        # A weighted mean, since `high - low` may overflow.
        between = low * (1 - fraction) + high * fraction
        one_sided = jnp.where(below, low + tail, high - tail)
        drawn = jnp.where(below & above, between, jnp.where(below | above, one_sided, free))
        return jnp.clip(drawn, self.low, self.high)

    def contains(self, x: ArrayLike) -> jax.Array:
        """Whether `x` has the space's shape, a dtype that casts safely to its own, and values in bounds."""
        x = jnp.asarray(x)
        if x.shape != self.shape or not np.can_cast(x.dtype, self.dtype):
            return jnp.asarray(False)
        inside: jax.Array = jnp.all((x >= self.low) & (x <= self.high))
        return inside

    def bounded_below(self) -> jax.Array:
        """`[*shape]` bool, whether there is a finite lower bound."""
        finite: jax.Array = jnp.asarray(self.low) > _least(self.dtype)
        return finite

    def bounded_above(self) -> jax.Array:
        """`[*shape]` bool, whether there is a finite upper bound."""
        finite: jax.Array = jnp.asarray(self.high) < _greatest(self.dtype)
        return finite

    def to_gymnasium(self) -> "gymnasium.spaces.Box":
        """Return Gymnasium's equal; the bounds must be concrete."""
        import gymnasium

        scalar: Any = self.dtype.type
        return gymnasium.spaces.Box(np.asarray(self.low), np.asarray(self.high), self.shape, scalar)

    def _sample_integers(self, key: jax.Array) -> jax.Array:
        if self.dtype == np.bool_:
            return jnp.asarray(jax.random.bernoulli(key, shape=self.shape) & self.high | self.low)
        # `randint` excludes its upper end; drawing in the wide type keeps `high + 1` from wrapping.
        wide = jnp.int32 if self.dtype.itemsize < np.dtype(np.int32).itemsize else self.dtype
        upper = jnp.asarray(self.high, wide)
        drawn = jax.random.randint(key, self.shape, jnp.asarray(self.low, wide), upper + 1, wide)
        return jnp.clip(drawn, self.low, self.high).astype(self.dtype)

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[Shape, np.dtype[Any]]]:
        """Split into traced bounds and static rest, as JAX asks of a pytree."""
        return (self.low, self.high), (self.shape, self.dtype)

    @classmethod
    def tree_unflatten(cls, static: tuple[Shape, np.dtype[Any]], bounds: tuple[Any, Any]) -> Self:
        """Put together again; the bounds may be anything that JAX puts into a tree."""
        space = object.__new__(cls)
        space.shape, space.dtype = static
        space.low, space.high = bounds
        return space

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box) or (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        return bool(np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high))

    __hash__ = None  # type: ignore[assignment]  # bounds are arrays

    def __repr__(self) -> str:
        return f"Box({_short(self.low)}, {_short(self.high)}, {self.shape}, {self.dtype})"


@jax.tree_util.register_static
class Discrete:
    """The integers `start .. start + n - 1`.

    Args:
        n: How many there are, at least 1.
        start: The first.
        dtype: An integer dtype.

    Raises:
        UnsupportedSpaceError: If `n` is below 1.
    """

    shape: Shape = ()

    def __init__(self, n: int, start: int = 0, dtype: DTypeLike = np.int32) -> None:
        if int(n) < 1:
            raise UnsupportedSpaceError(f"Discrete needs n >= 1, got {n}.")
        self.n, self.start = int(n), int(start)
        self.dtype = jax.dtypes.canonicalize_dtype(dtype)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one of the integers uniformly, a scalar."""
        return self.start + jax.random.randint(key, (), 0, self.n, self.dtype)

    def contains(self, x: ArrayLike) -> jax.Array:
        """Whether `x` is an integer scalar in the range."""
        x = jnp.asarray(x)
        if x.shape != () or not jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(False)
        return (x >= self.start) & (x < self.start + self.n)

    def to_gymnasium(self) -> "gymnasium.spaces.Discrete[np.int64]":
        """Return Gymnasium's equal."""
        import gymnasium

        return gymnasium.spaces.Discrete(self.n, start=self.start)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Discrete) and (self.n, self.start) == (other.n, other.start)

    def __hash__(self) -> int:
        return hash((Discrete, self.n, self.start))

    def __repr__(self) -> str:
        return f"Discrete({self.n}, start={self.start})"


@jax.tree_util.register_static
class MultiDiscrete:
    """Arrays of integers, each component with its own number of values.

    Args:
        nvec: How many values each component has, an array of any shape, each at least 1.
        start: The first value of each component, a number or an array of `nvec`'s shape.
        dtype: An integer dtype.

    Raises:
        UnsupportedSpaceError: If a count is below 1 or `start` does not fit `nvec`.
    """

    def __init__(self, nvec: npt.ArrayLike, start: npt.ArrayLike = 0, dtype: DTypeLike = np.int32) -> None:
        counts = np.asarray(nvec)
        if counts.size == 0 or counts.min() < 1:
            raise UnsupportedSpaceError(f"MultiDiscrete needs counts >= 1, got {counts.tolist()}.")
        self.nvec = counts.astype(np.int64)  # [*shape]
        self.start = _bound(start, counts.shape, np.dtype(np.int64))  # [*shape]
        self.shape: Shape = counts.shape
        self.dtype = jax.dtypes.canonicalize_dtype(dtype)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw every component uniformly and independently, `[*shape]`."""
        drawn = jax.random.randint(key, self.shape, 0, jnp.asarray(self.nvec, jnp.int32))
        return (drawn + jnp.asarray(self.start, jnp.int32)).astype(self.dtype)

    def contains(self, x: ArrayLike) -> jax.Array:
        """Whether `x` is an integer array of the shape with every component in its range."""
        x = jnp.asarray(x)
        if x.shape != self.shape or not jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(False)
        return jnp.all((x >= self.start) & (x < self.start + self.nvec))

    def to_gymnasium(self) -> "gymnasium.spaces.MultiDiscrete":
        """Return Gymnasium's equal."""
        import gymnasium

        return gymnasium.spaces.MultiDiscrete(self.nvec, dtype=self.dtype.type, start=self.start)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiDiscrete) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"MultiDiscrete({self.nvec.tolist()}, start={self.start.tolist()})"

    def _key(self) -> tuple[Any, ...]:
        return self.shape, tuple(self.nvec.ravel().tolist()), tuple(self.start.ravel().tolist())


def as_space(space: object) -> Space:
    """Return one of our spaces for one of ours or of Gymnasium's.

    Args:
        space: A `Box`, `Discrete` or `MultiDiscrete` of this module or of Gymnasium, or a Gymnasium
            `MultiBinary`, which becomes a `MultiDiscrete` of twos.

    Raises:
        UnsupportedSpaceError: If it is anything else; the text names the space.
    """
    if isinstance(space, Box | Discrete | MultiDiscrete):
        return space
    import gymnasium

    dtype: Any = getattr(space, "dtype", None)
    if isinstance(space, gymnasium.spaces.Box):
        return Box(space.low, space.high, space.shape, dtype)
    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return MultiDiscrete(space.nvec, space.start, dtype)
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return MultiDiscrete(np.full(space.shape, 2), dtype=dtype)
    raise UnsupportedSpaceError(f"The space {space!r} is not supported here. Supported: {SUPPORTED}.")


def size(space: Space) -> int:
    """Return how many numbers an element of the space has."""
    return math.prod(space.shape)


def _bound(value: ArrayLike | npt.ArrayLike, shape: Shape, dtype: np.dtype[Any]) -> Bound:
    if _common_shape(np.shape(value), shape) != shape:
        raise UnsupportedSpaceError(f"A bound of shape {np.shape(value)} does not fit the shape {shape}.")
    if isinstance(value, jax.Array):
        return jnp.broadcast_to(value.astype(dtype), shape)
    numbers = np.asarray(value)
    if dtype.kind in "iu":
        # A bound beyond what the dtype holds is no bound: 64-bit spaces become 32-bit ones here.
        numbers = np.clip(numbers, _least(dtype), _greatest(dtype))
    with np.errstate(over="ignore"):
        return np.broadcast_to(numbers.astype(dtype), shape)


def _common_shape(first: Shape, second: Shape) -> Shape:
    try:
        return np.broadcast_shapes(first, second)
    except ValueError as error:
        raise UnsupportedSpaceError(f"A bound of shape {first} does not fit the shape {second}.") from error


def _least(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 (a number of the dtype's own kind)
    if dtype.kind == "b":
        return False
    if jnp.issubdtype(dtype, jnp.floating):
        return max(_float_limits(dtype).min, -UNBOUNDED)
    return np.iinfo(dtype).min


def _greatest(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401
    if dtype.kind == "b":
        return True
    if jnp.issubdtype(dtype, jnp.floating):
        return min(_float_limits(dtype).max, UNBOUNDED)
    return np.iinfo(dtype).max


def _float_limits(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 (the type of limits differs between dtypes)
    limits: Any = jnp.finfo
    return limits(dtype)


def _short(bound: Bound) -> str:
    if isinstance(bound, jax.core.Tracer) or not hasattr(bound, "ravel"):
        return "traced"
    values = np.unique(np.asarray(bound))
    return str(values[0]) if values.size == 1 else str(np.asarray(bound).tolist())
