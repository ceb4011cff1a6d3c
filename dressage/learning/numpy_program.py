"""A traced function evaluated by NumPy, where starting a compiled program takes longer than its arithmetic.

Environments in Python empty a processor's caches between two calls. A compiled program then takes a quarter
of a millisecond to start, whatever it computes, which is as long as a small environment's step; the few NumPy
calls of a policy of 64-64 take a fifth of that. Nothing is written twice for it: the same function is traced,
and its operations are looked up here. Results differ from the compiled program's by rounding.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend import core

MOST = 4_000_000
"""Floating-point operations in matrix products up to which NumPy is the faster."""

_Function = Callable[..., Any]


class _UnknownOperationError(Exception):
    """An operation that has no counterpart here."""


@dataclass(frozen=True)
class _Step:
    """One operation on numbered places."""

    function: _Function
    inputs: tuple[int, ...]
    output: int


class NumpyProgram:
    """A function of two trees, `known` and `given`, as NumPy operations.

    Attributes:
        structure: The tree structure of `known` that it was traced for.
    """

    def __init__(self, function: _Function, known: Any, given: Any) -> None:  # noqa: ANN401 (any trees of arrays)
        known_leaves, self.structure = jax.tree.flatten(known)
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(known, given)
        self._result = jax.tree.structure(shapes)
        translation = _Translation()
        inputs = [translation.add() for _ in traced.jaxpr.invars]
        constants = [translation.add(np.asarray(value)) for value in traced.consts]
        self._outputs = translation.translate(traced.jaxpr, constants, inputs)
        self.flops = translation.flops
        self._places = translation.values
        self._known, self._given = inputs[: len(known_leaves)], inputs[len(known_leaves) :]
        self._before, self._after = self._split(translation.steps)

    @classmethod
    def small(cls, function: _Function, known: Any, given: Any) -> "NumpyProgram | None":  # noqa: ANN401
        """Trace a function; None where it is better compiled: too large, or with operations unknown here."""
        try:
            program = cls(function, known, given)
        except _UnknownOperationError:
            return None
        return program if program.flops <= MOST else None

    def bind(self, known: Any) -> _Function:  # noqa: ANN401
        """Compute all that depends on `known` alone; returns the function of `given`."""
        places = list(self._places)
        for place, leaf in zip(self._known, jax.tree.leaves(known), strict=True):
            places[place] = np.asarray(leaf)
        with np.errstate(all="ignore"):
            _run(self._before, places)

        def call(given: Any) -> Any:  # noqa: ANN401
            values = places.copy()
            for place, leaf in zip(self._given, jax.tree.leaves(given), strict=True):
                values[place] = np.asarray(leaf)
            with np.errstate(all="ignore"):
                _run(self._after, values)
            return jax.tree.unflatten(self._result, [values[place] for place in self._outputs])

        return call

    def _split(self, steps: list[_Step]) -> tuple[list[_Step], list[_Step]]:
        """Part the steps that need `given` from those that do not; leave out what no result needs."""
        needed, used = set(self._outputs), []
        for step in reversed(steps):
            if step.output in needed:
                needed.update(step.inputs)
                used.append(step)
        varying = set(self._given)
        before: list[_Step] = []
        after: list[_Step] = []
        for step in reversed(used):
            varies = not varying.isdisjoint(step.inputs)
            (after if varies else before).append(step)
            varying.update((step.output,) if varies else ())
        return before, after


def _run(steps: list[_Step], values: list[Any]) -> None:
    for step in steps:
        values[step.output] = step.function(*[values[place] for place in step.inputs])


class _Translation:
    """Operations of a jaxpr and of those within it, laid out in one row."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.steps: list[_Step] = []
        self.flops = 0

    def add(self, value: Any = None) -> int:  # noqa: ANN401
        """Make a place, empty or with a constant."""
        self.values.append(value)
        return len(self.values) - 1

    def translate(self, jaxpr: Any, constants: list[int], inputs: list[int]) -> list[int]:  # noqa: ANN401
        """Append a jaxpr's operations; returns the places of its results."""
        places: dict[Any, int] = dict(zip(jaxpr.constvars, constants, strict=True))
        places |= zip(jaxpr.invars, inputs, strict=True)

        def place_of(variable: Any) -> int:  # noqa: ANN401
            if isinstance(variable, core.Literal):
                return self.add(np.asarray(variable.val, _aval(variable).dtype))
            return places[variable]

        for equation in jaxpr.eqns:
            arguments = [place_of(variable) for variable in equation.invars]
            places |= zip(equation.outvars, self._apply(equation, arguments), strict=True)
        return [place_of(variable) for variable in jaxpr.outvars]

    def _apply(self, equation: Any, arguments: list[int]) -> list[int]:  # noqa: ANN401
        name, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
        if inner is not None and name in _CALLS:
            closed = inner if hasattr(inner, "consts") else core.ClosedJaxpr(inner, ())
            constants = [self.add(np.asarray(value)) for value in closed.consts]
            return self.translate(closed.jaxpr, constants, arguments)
        if name in _UNCHANGED or (name in _SHAPING and _same(equation.invars[0], equation.outvars[0])):
            return arguments
        if name == "dot_general":
            return [self._product(equation, arguments)]
        if name == "split":
            return self._parts(params["axis"], params["sizes"], arguments[0])
        if name not in _OPERATIONS:
            raise _UnknownOperationError(name)
        result = equation.outvars[0].aval
        described = params | {"shape": result.shape, "dtype": result.dtype}
        return [self._append(_OPERATIONS[name](described), *arguments)]

    def _append(self, function: _Function, *inputs: int) -> int:
        output = self.add()
        self.steps.append(_Step(function, inputs, output))
        return output

    def _parts(self, axis: int, sizes: tuple[int, ...], whole: int) -> list[int]:
        ends = np.cumsum(sizes).tolist()
        cuts = [
            (*[slice(None)] * axis, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)
        ]
        return [self._append(partial(_cut, cut), whole) for cut in cuts]

    def _product(self, equation: Any, arguments: list[int]) -> int:  # noqa: ANN401
        """Bring both sides into the order of `matmul`, each by a step of its own: one is often known."""
        (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
        left, right = (_aval(variable).shape for variable in equation.invars)
        batch = tuple(left[axis] for axis in left_batch)
        rows, columns = _others(left, left_sum, left_batch), _others(right, right_sum, right_batch)
        summed = math.prod(left[axis] for axis in left_sum)
        height, width = (
            math.prod(side[axis] for axis in axes) for side, axes in ((left, rows), (right, columns))
        )
        self.flops += 2 * math.prod(batch) * height * width * summed
        result = equation.outvars[0].aval.shape
        arranged = (
            self._arranged(arguments[0], left, (*left_batch, *rows, *left_sum), (*batch, height, summed)),
            self._arranged(
                arguments[1], right, (*right_batch, *right_sum, *columns), (*batch, summed, width)
            ),
        )
        product = self._append(np.matmul, *arranged)
        return product if result == (*batch, height, width) else self._append(_reshape(result), product)

    def _arranged(
        self, place: int, given: tuple[int, ...], order: tuple[int, ...], shape: tuple[int, ...]
    ) -> int:
        if order != tuple(range(len(order))):
            return self._append(lambda x: x.transpose(order).reshape(shape), place)
        return place if shape == given else self._append(_reshape(shape), place)


def _aval(variable: Any) -> Any:  # noqa: ANN401
    """What is known of a variable while tracing: its shape and dtype."""
    return variable.aval


def _others(shape: tuple[int, ...], *taken: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(shape)) if not any(axis in axes for axes in taken))


def _same(before: Any, after: Any) -> bool:  # noqa: ANN401
    """Whether two variables hold arrays of one shape and dtype."""
    one, other = _aval(before), _aval(after)
    return bool(one.shape == other.shape and one.dtype == other.dtype)


def _reshape(shape: tuple[int, ...]) -> _Function:
    return lambda x: x.reshape(shape)


def _broadcast(params: Mapping[str, Any]) -> _Function:
    shape, kept = params["shape"], params["broadcast_dimensions"]

    def broadcast(x: Any) -> Any:  # noqa: ANN401
        sizes = [1] * len(shape)
        for axis, size in zip(kept, x.shape, strict=True):
            sizes[axis] = size
        return np.broadcast_to(x.reshape(sizes), shape)

    return broadcast


def _cut(cut: tuple[slice, ...], x: Any) -> Any:  # noqa: ANN401
    return x[cut]


def _slice(params: Mapping[str, Any]) -> _Function:
    strides = params["strides"] or (1,) * len(params["shape"])
    cut = tuple(map(slice, params["start_indices"], params["limit_indices"], strides))
    return partial(_cut, cut)


def _choose(which: Any, *cases: Any) -> Any:  # noqa: ANN401
    return np.where(which, cases[1], cases[0]) if len(cases) == 2 else np.choose(which, cases)


def _quotient(params: Mapping[str, Any]) -> _Function:
    if np.issubdtype(params["dtype"], np.integer):
        raise _UnknownOperationError("div of integers")
    return np.divide


def _reduction(reduce: _Function) -> Callable[[Mapping[str, Any]], _Function]:
    return lambda params: lambda x: reduce(x, axis=params["axes"])


def _plain(function: _Function) -> Callable[[Mapping[str, Any]], _Function]:
    return lambda params: function


_CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2"}

_UNCHANGED = {"stop_gradient", "optimization_barrier", "copy"}

_SHAPING = {"broadcast_in_dim", "convert_element_type", "expand_dims", "reshape", "squeeze"}
"""Operations that leave an array as it is where shape and dtype stay."""

_OPERATIONS: dict[str, Callable[[Mapping[str, Any]], _Function]] = {
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "squeeze": lambda params: _reshape(params["shape"]),
    "reshape": lambda params: _reshape(params["shape"]),
    "expand_dims": lambda params: _reshape(params["shape"]),
    "transpose": lambda params: lambda x: x.transpose(params["permutation"]),
    "concatenate": lambda params: lambda *parts: np.concatenate(parts, params["dimension"]),
    "stack": lambda params: lambda *parts: np.stack(parts, params["axis"]),
    "convert_element_type": lambda params: lambda x: x.astype(params["new_dtype"], copy=False),
    "integer_pow": lambda params: lambda x: x ** params["y"],
    "logistic": _plain(lambda x: 0.5 * np.tanh(0.5 * x) + 0.5),  # Overflows for no x.
    "rsqrt": _plain(lambda x: 1 / np.sqrt(x)),
    "div": _quotient,
    "select_n": _plain(_choose),
    "clamp": _plain(lambda least, x, most: np.minimum(np.maximum(x, least), most)),
    "argmax": lambda params: lambda x: x.argmax(params["axes"][0]).astype(params["index_dtype"]),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_sum": _reduction(np.sum),
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
} | {
    name: _plain(function)
    for name, function in {
        "add": np.add,
        "add_any": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "neg": np.negative,
        "abs": np.abs,
        "tanh": np.tanh,
        "exp": np.exp,
        "expm1": np.expm1,
        "log": np.log,
        "log1p": np.log1p,
        "sqrt": np.sqrt,
        "square": np.square,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "eq": np.equal,
        "ne": np.not_equal,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "not": np.invert,
        "is_finite": np.isfinite,
    }.items()
}


class HostCall:
    """A function called once an environment step: by NumPy where that is faster, else compiled.

    Args:
        function: Maps the trees `known` and `given` to a tree of arrays.
        compiler_options: For `jax.jit`, where it is compiled.
    """

    def __init__(self, function: _Function, compiler_options: dict[str, Any] | None) -> None:
        self._function = function
        self._compiled = jax.jit(function, compiler_options=compiler_options)
        self._programs: dict[Any, NumpyProgram | None] = {}

    def bind(self, known: Any, given: Any) -> _Function:  # noqa: ANN401
        """Return the function of trees like `given`, for calls during which `known` stays as it is."""
        leaves, structure = jax.tree.flatten((known, given))
        described = structure, tuple((np.shape(leaf), jax.dtypes.result_type(leaf)) for leaf in leaves)
        if described not in self._programs:
            self._programs[described] = NumpyProgram.small(self._function, known, given)
        program = self._programs[described]
        return partial(self._compiled, known) if program is None else program.bind(known)
