"""Owns the ways between single transitions, a fragment that travels, and a batch that rsl_rl learns from.

Names in a fragment are paths: `observation/GROUP`, `action`, `reward`, `terminated`, `truncated`, `value`,
`log_prob`, `distribution/I`, `hidden_state/MODULE/I` (`[T, N, layers, units]`), `bootstrap_value`,
`bootstraps_final`, and `extras/NAME`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from dressage.errors import EnvironmentContractError, RolloutError
from dressage.policy.base_policy import EnvRet, Fragment, PolicyResponse
from dressage.policy.rsl_rl_policy.layout import Layout
from dressage.policy.rsl_rl_policy.module_states import as_arrays, as_tensor
from dressage.policy.rsl_rl_policy.observations import checked_groups

Tensors = dict[str, Tensor]

SINGLE = ("action", "value", "log_prob", "reward", "terminated", "truncated", "bootstrap_value")
"""Fields of a transition that are one array, or None."""

NESTED = ("observation", "hidden_state", "extras")
"""Fields of a transition that are arrays by name."""

LAST = "last/"
"""Where a `TensorDict` keeps what held after the last step; every row of it says the same."""


def stack(
    transitions: Sequence[PolicyResponse],
    env_ret: EnvRet,
    hidden: Mapping[str, Tensor],
    layout: Layout,
    device: str,
    *,
    host: bool,
) -> Fragment:
    """Put transitions together.

    Args:
        transitions: Complete ones, in order.
        env_ret: What the environment returned last.
        hidden: Recurrent state after the last step by path, `[N, layers, units]`.
        layout: What observations must look like.
        device: Where the policy computes.
        host: Whether to return NumPy arrays.

    Raises:
        RolloutError: If there is none, one is still pending, or the weights changed on the way.
        EnvironmentContractError: If the environment overwrites the observations that it gave out.
    """
    _check_transitions(transitions)
    columns = _columns(transitions)
    _check_not_overwritten(columns, transitions[0].env_id)
    steps: Tensors = {name: torch.stack(column) for name, column in columns.items()}
    if "bootstrap_value" in steps:
        by_final = [transition.bootstrap_rule == "final_observation" for transition in transitions]
        rows_by_final = torch.tensor(by_final, device=device).unsqueeze(1)
        steps["bootstraps_final"] = steps["truncated"] & rows_by_final
    groups = checked_groups(env_ret.observation, layout, device, repr(env_ret.env_id))
    last: Tensors = {f"observation/{name}": groups[name] for name in groups.keys()} | dict(hidden)
    finals = _stack_finals(transitions)
    first = transitions[0]
    if not host:
        return Fragment(first.env_id, first.version, steps, last, finals)
    return Fragment(first.env_id, first.version, as_arrays(steps), as_arrays(last), as_arrays(finals))


def join(fragments: Sequence[Fragment], device: str) -> tuple[Tensors, Tensors, Tensors]:
    """Lay fragments side by side along the environments.

    Returns:
        Steps `[T, N, ...]`, what held last `[N, ...]`, and final observations `[M, ...]` with their `index`,
        all by path.

    Raises:
        RolloutError: If they differ in length or in what they hold.
    """
    names, length = set(fragments[0].steps), fragments[0].num_steps
    for fragment in fragments:
        if set(fragment.steps) != names:
            differing = ", ".join(sorted(names ^ set(fragment.steps)))
            raise RolloutError(
                f"The fragment of {fragment.env_id!r} differs from the others in: {differing}."
            )
        if fragment.num_steps != length:
            raise RolloutError(
                f"The fragment of {fragment.env_id!r} has {fragment.num_steps} steps where that of "
                f"{fragments[0].env_id!r} has {length}."
            )
    steps = {
        name: _cat([fragment.steps[name] for fragment in fragments], 1, device) for name in fragments[0].steps
    }
    last = {
        name: _cat([fragment.last[name] for fragment in fragments], 0, device) for name in fragments[0].last
    }
    return steps, last, _join_finals(fragments, device)


def to_tensordict(fragment: Fragment) -> TensorDict:
    """Return a fragment as a `TensorDict` `[T, N]`, the form that `update_dataset` takes too.

    What held after the last step stands under `last`, the same in every row of time without a copy.
    """
    length, copies = fragment.num_steps, fragment.num_envs
    flat = {name: as_tensor(array) for name, array in fragment.steps.items()}
    for name, array in fragment.last.items():
        tensor = as_tensor(array)
        flat[LAST + name] = tensor.expand(length, *tensor.shape)
    nested = TensorDict({}, batch_size=[length, copies])
    for name, tensor in flat.items():
        nested[tuple(name.split("/"))] = tensor
    return nested


def from_tensordict(batch: TensorDict, version: int) -> Fragment:
    """Undo `to_tensordict`.

    Args:
        batch: `[T, N]`.
        version: Version of the weights that acted.
    """
    flat = {"/".join(_path(key)): tensor for key, tensor in batch.items(True, True)}
    steps = {name: tensor for name, tensor in flat.items() if not name.startswith(LAST)}
    last = {name.removeprefix(LAST): tensor[-1] for name, tensor in flat.items() if name.startswith(LAST)}
    return Fragment("batch", version, steps, last)


def group(tensors: Mapping[str, Tensor], prefix: str) -> Tensors:
    """Return the tensors beneath a path, by the rest of their names."""
    start = prefix + "/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def numbered(tensors: Mapping[str, Tensor], prefix: str) -> tuple[Tensor, ...]:
    """Return the tensors beneath a path whose names are 0, 1, ... in that order."""
    below = group(tensors, prefix)
    return tuple(below[str(index)] for index in range(len(below)))


def _check_transitions(transitions: Sequence[PolicyResponse]) -> None:
    if not transitions:
        raise RolloutError("A fragment needs at least one transition.")
    pending = [step for step, transition in enumerate(transitions) if transition.reward is None]
    if pending:
        raise RolloutError(
            f"The response of step {pending[0]} is still pending: give it to postprocess first."
        )
    versions = sorted({transition.version for transition in transitions})
    if len(versions) > 1:
        raise RolloutError(f"Weights changed within a fragment: it was acted by versions {versions}.")


def _columns(transitions: Sequence[PolicyResponse]) -> dict[str, list[Tensor]]:
    """Return what transitions hold by path, step by step; all hold what the first does."""
    first = transitions[0]
    columns: dict[str, list[Tensor]] = {}
    for field in NESTED:
        for name in getattr(first, field).keys():
            columns[f"{field}/{name}"] = [getattr(one, field)[name] for one in transitions]
    for index in range(len(first.distribution_params)):
        columns[f"distribution/{index}"] = [one.distribution_params[index] for one in transitions]
    for field in SINGLE:
        if getattr(first, field) is not None:
            columns[field] = [getattr(one, field) for one in transitions]
    return columns


def _check_not_overwritten(columns: Mapping[str, Sequence[Tensor]], env_id: str) -> None:
    for path, column in columns.items():
        kind, _, name = path.partition("/")
        if kind != "observation" or not column[0].numel():
            continue
        places = [tensor.data_ptr() for tensor in column]
        if any(before == after for before, after in pairwise(places)):
            raise EnvironmentContractError(
                f"The environment {env_id!r} returned the observation group {name!r} in the same "
                "memory at two steps, so the earlier one is lost. Return a copy at every step."
            )


def _stack_finals(transitions: Sequence[PolicyResponse]) -> Tensors:
    found = [(step, transition.final) for step, transition in enumerate(transitions) if transition.final]
    if not found:
        return {}
    names = [name for name in found[0][1] if name != "rows"]
    stacked = {name: torch.cat([final[name] for _, final in found]) for name in names}
    pairs = [
        torch.stack([torch.full_like(final["rows"], step), final["rows"]], dim=1) for step, final in found
    ]
    return stacked | {"index": torch.cat(pairs)}


def _join_finals(fragments: Sequence[Fragment], device: str) -> Tensors:
    found: dict[str, list[Tensor]] = {}
    before = 0
    for fragment in fragments:
        for name, array in fragment.finals.items():
            tensor = as_tensor(array).to(device)
            shift = torch.tensor([0, before], device=device)
            found.setdefault(name, []).append(tensor + shift if name == "index" else tensor)
        before += fragment.num_envs
    return {name: torch.cat(tensors) for name, tensors in found.items()}


def _cat(parts: Sequence[Any], dim: int, device: str) -> Tensor:
    tensors = [as_tensor(part).to(device) for part in parts]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=dim)


def _path(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key
