"""Owns the look at a rollout before anything is learned from it: all is checked before any of it is used."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dressage.errors import NonFiniteError, RolloutError, StaleWeightsError
from dressage.policy.base_policy import Fragment
from dressage.policy.finite import first_broken, is_finite, plain
from dressage.policy.rsl_rl_policy.configuration import MODELS
from dressage.policy.rsl_rl_policy.layout import Layout, Shape, numbers_of

FLAGS = frozenset({"terminated", "truncated", "bootstraps_final"})
"""Fields that say yes or no."""

BOOTSTRAP = ("bootstrap_value", "bootstraps_final")
"""Fields that a rollout without time limits need not have."""


def check_fragment(fragment: Fragment, layout: Layout) -> None:
    """Refuse a rollout that the models cannot learn from; how many steps and copies it has is not looked at.

    Raises:
        RolloutError: If a field is missing, or has another shape or type.
        NonFiniteError: If a number is not finite.
    """
    whose = f"The fragment of {fragment.env_id!r}"
    for part, wanted in (("", layout.steps), ("last ", layout.last)):
        held: Mapping[str, Any] = fragment.last if part else fragment.steps
        missing = [part + name for name in wanted if name not in held]
        if missing:
            known = ", ".join(sorted(held)) or "nothing"
            raise RolloutError(f"{whose} lacks {', '.join(missing)}; it has: {known}.")
    length, copies = _size(fragment.steps["reward"], whose)
    for name, array in _with_shape(fragment.steps, layout.steps, (length, copies), whose):
        _check_kind(name, array, whose)
    for name, array in _with_shape(fragment.last, layout.last, (copies,), f"{whose}, after its last step:"):
        _check_kind(name, array, whose)
    if "bootstraps_final" in fragment.steps and "bootstrap_value" not in fragment.steps:
        raise RolloutError(f"{whose} lacks bootstrap_value, which bootstraps_final asks for.")
    _check_finals(fragment, layout, (length, copies), whose)
    _check_finite(fragment, whose)


def check_rollout_state(state: Mapping[str, Any], layout: Layout) -> None:
    """Refuse recurrent state of other modules or shapes; a policy without any takes what it will not read.

    Args:
        state: By `module/I`, `[N, layers, units]` each.
        layout: What it must look like.

    Raises:
        RolloutError: If a part is missing, unknown, or of another shape.
    """
    start = "hidden_state/"
    wanted = {
        name.removeprefix(start): (layout.num_envs, *shape)
        for name, shape in layout.steps.items()
        if name.startswith(start)
    }
    if not state or not wanted:
        return
    if state.keys() != wanted.keys():
        given, known = (", ".join(sorted(names)) for names in (state, wanted))
        raise RolloutError(f"The rollout state has {given}; this policy's has {known}.")
    for name, shape in wanted.items():
        if tuple(state[name].shape) != shape:
            raise RolloutError(
                f"The rollout state's {name} has shape {list(state[name].shape)}; this policy takes "
                f"{list(shape)}: copies, layers, units."
            )


def check_lags(given: Sequence[Fragment], version: int, mode: str, models: tuple[str, str]) -> list[int]:
    """Return how old the weights of every rollout are, in updates.

    Args:
        given: The rollouts.
        version: The learner's.
        mode: `sync` or `async`.
        models: Names of the learner's two models.

    Raises:
        StaleWeightsError: If they are older, or newer, than the mode and the algorithm allow.
        RolloutError: If correcting for older ones needs what a rollout lacks.
    """
    lags = [version - fragment.version for fragment in given]
    for fragment, lag in zip(given, lags, strict=True):
        if lag < 0 or (lag > 0 and mode == "sync"):
            raise StaleWeightsError(
                f"The fragment of {fragment.env_id!r} was acted by weights of version {fragment.version}, "
                f"and the learner has version {version}. Rollout mode 'sync' takes the current version "
                "alone; 'async' corrects older ones."
            )
    if any(lags) and models != MODELS["PPO"]:
        raise StaleWeightsError("Distillation learns from current weights alone; choose rollout mode 'sync'.")
    bare = [fragment.env_id for fragment in given if "bootstrap_value" not in fragment.steps]
    if any(lags) and bare:
        raise RolloutError(
            f"The fragment of {bare[0]!r} lacks bootstrap_value, which correcting for older weights needs."
        )
    return lags


def _with_shape(
    held: Mapping[str, Any], wanted: Mapping[str, Shape], leading: Shape, whose: str
) -> Iterator[tuple[str, Any]]:
    """Yield arrays by name, once their shapes are known to be right; `bootstrap...` may be missing."""
    optional: dict[str, Shape] = {name: () for name in BOOTSTRAP if name in held}
    for name, trailing in {**wanted, **optional}.items():
        shape = getattr(held[name], "shape", None)
        if shape is None:
            raise RolloutError(f"{whose} {name} is a {type(held[name]).__name__}, and no array.")
        if tuple(shape) != (*leading, *trailing):
            raise RolloutError(
                f"{whose} {name} has shape {list(shape)}; this policy takes {[*leading, *trailing]}."
            )
        yield name, held[name]


def _check_kind(name: str, array: Any, whose: str) -> None:  # noqa: ANN401
    kind = numbers_of(array)
    if name in FLAGS and kind != "bool":
        raise RolloutError(f"{whose} {name} holds {kind}; it says yes or no, so it must hold bool.")
    if kind.startswith(("object", "str", "<U", "complex")):
        raise RolloutError(f"{whose} {name} holds {kind}, and no numbers that can be learned from.")


def _check_finals(fragment: Fragment, layout: Layout, size: tuple[int, int], whose: str) -> None:
    finals = fragment.finals
    if not finals:
        return
    states = {name: shape for name, shape in layout.last.items() if name.startswith("hidden_state/")}
    wanted = {f"observation/{name}": shape for name, shape in layout.observations.items()} | states
    missing = [f"final {name}" for name in ("index", *wanted) if name not in finals]
    if missing:
        raise RolloutError(
            f"{whose} lacks {', '.join(missing)}; its finals have: {', '.join(sorted(finals))}."
        )
    index = plain(finals["index"])
    if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
        raise RolloutError(
            f"{whose} final index has shape {list(index.shape)} of {index.dtype}; it holds a step and a "
            "copy, [M, 2] whole numbers."
        )
    if len(index) and ((index < 0) | (index >= np.array(size))).any():
        raise RolloutError(f"{whose} final index names a step or a copy beyond its {size[0]} and {size[1]}.")
    for _ in _with_shape(finals, wanted, (len(index),), f"{whose}, of its final observations:"):
        pass


def _check_finite(fragment: Fragment, whose: str) -> None:
    for name, array in fragment.steps.items():
        if not is_finite(array):
            step, place = first_broken(plain(array))
            raise NonFiniteError(
                f"{whose}, step {step}, copy {place}: {name} is not finite. No such number reaches an update."
            )
    after = {f"{name} after the last step": array for name, array in fragment.last.items()}
    finals = {f"final {name}": array for name, array in fragment.finals.items()}
    for name, array in {**after, **finals}.items():
        if not is_finite(array):
            raise NonFiniteError(f"{whose}: {name} is not finite. No such number reaches an update.")


def _size(reward: Any, whose: str) -> tuple[int, int]:  # noqa: ANN401
    shape = tuple(getattr(reward, "shape", ()))
    if len(shape) != 2:
        raise RolloutError(f"{whose} reward has shape {list(shape)}; it must be [T, N], steps and copies.")
    return shape
