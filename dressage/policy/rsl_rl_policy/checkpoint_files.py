"""Owns checkpoint files: those of rsl_rl's runner (`model_*.pt`), read without running code from them.

A file holds what rsl_rl's runner writes, so either loads the other's. What rsl_rl keeps nowhere (our version,
the counters of random network distillation) stands beside it under a key of its own. `iter` is rsl_rl's: the
number of the last update, counted from 0.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dressage.errors import CheckpointError
from dressage.policy.rsl_rl_policy.configuration import Algorithm
from dressage.policy.rsl_rl_policy.module_states import list_faults, load_states
from dressage.whole_files import whole_file

OWN = "dressage"
STATE, OPTIMIZER = "_state_dict", "optimizer_state_dict"
IN_MEMORY = Path("in memory")
PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Content:
    """What a checkpoint says besides the weights.

    Attributes:
        version: Number of updates behind it.
        note: What was kept with it.
    """

    version: int
    note: dict[str, Any]


def collect(algorithm: Algorithm, version: int, note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a checkpoint; its tensors are the live ones.

    Args:
        algorithm: Whose state.
        version: Number of updates behind it.
        note: Plain values and NumPy arrays, nested in dictionaries and lists.

    Raises:
        CheckpointError: If the note holds anything else.
    """
    content: dict[str, Any] = algorithm.save()
    content["iter"] = max(version - 1, 0)
    content["infos"] = _stored(dict(note), "note")
    content[OWN] = {"version": version, "rnd": _rnd_extras(algorithm)}
    return content


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint, whole or not at all."""
    with whole_file(path) as draft:
        torch.save(dict(content), draft)


def load(path: Path, algorithm: Algorithm) -> Content:
    """Load a checkpoint into an algorithm that goes on learning; nothing is changed unless the weights fit.

    Args:
        path: A file of ours or of rsl_rl's runner.
        algorithm: What takes it; a Distillation takes a PPO's actor as its teacher and starts from there.

    Raises:
        CheckpointError: If the file is missing, damaged, of other models, or holds more than tensors and
            plain values.
    """
    content = read(path, str(algorithm.device))
    wanted = algorithm.save()
    becomes_teacher = "teacher" + STATE in wanted and "actor" + STATE in content
    if becomes_teacher:
        wanted = {"actor" + STATE: wanted["teacher" + STATE]}
    _check_parts(path, content, list(wanted))
    _check_fit(path, content, {name: wanted[name] for name in wanted if not name.endswith(OPTIMIZER)})
    try:
        algorithm.load(content, None, True)
    except (KeyError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"The checkpoint {path} was made for another optimiser: {error}") from error
    _load_rnd_extras(algorithm, (content.get(OWN) or {}).get("rnd") or {})
    return Content(0 if becomes_teacher else _version(content), _restored(content.get("infos") or {}))


def load_weights(
    content: Mapping[str, Any], modules: Mapping[str, nn.Module], path: Path = IN_MEMORY
) -> Content:
    """Load the weights of a checkpoint into modules that act.

    Args:
        content: What `read` returned.
        modules: By name, such as `actor`.
        path: Where it was read from, for errors.

    Raises:
        CheckpointError: If modules or shapes differ.
    """
    states = {name + STATE: module.state_dict() for name, module in modules.items()}
    _check_parts(path, content, list(states))
    _check_fit(path, content, states)
    load_states(modules, {name: content[name + STATE] for name in modules})
    return Content(_version(content), _restored(content.get("infos") or {}))


def read(path: Path, device: str) -> dict[str, Any]:
    """Read a checkpoint of ours or of rsl_rl's runner.

    Args:
        path: The file.
        device: Where its tensors go.

    Raises:
        CheckpointError: If the file is missing, damaged, or holds more than tensors and plain values.
    """
    if not path.is_file():
        raise CheckpointError(f"There is no checkpoint {path}.")
    try:
        content = torch.load(path, weights_only=True, map_location=device)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"The checkpoint {path} is refused, since reading it would run code from it: it holds more than "
            "tensors and plain values. NumPy scalars in rsl_rl's `infos` do that; save it again with those "
            f"turned into Python numbers. ({str(error).splitlines()[0]})"
        ) from error
    # Bytes that are no checkpoint lead torch's reader anywhere: its stack runs empty, a text is no text.
    except (EOFError, LookupError, OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"The checkpoint {path} is damaged, or none: {error}") from error
    if not isinstance(content, dict) or "iter" not in content:
        raise CheckpointError(f"{path} is no checkpoint of rsl_rl's runner: it has no 'iter'.")
    return content


def _version(content: Mapping[str, Any]) -> int:
    """Return the number of updates: ours where the file says it, else rsl_rl's count from 0 plus one."""
    return int((content.get(OWN) or {}).get("version", content["iter"] + 1))


def _check_parts(path: Path, content: Mapping[str, Any], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in content]
    if missing:
        found = ", ".join(content)
        raise CheckpointError(f"The checkpoint {path} lacks {', '.join(missing)}; it has {found}.")


def _check_fit(path: Path, content: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse weights of other shapes before any of them is loaded."""
    faults = list_faults(
        {name.removesuffix(STATE): state for name, state in wanted.items()},
        {name.removesuffix(STATE): content[name] for name in wanted},
    )
    if faults:
        raise CheckpointError(f"The checkpoint {path} was made for other models: {'; '.join(faults)}.")


def _rnd_extras(algorithm: Algorithm) -> dict[str, Any]:
    """Return what random network distillation counts outside its state."""
    rnd = getattr(algorithm, "rnd", None)
    if rnd is None:
        return {}
    average = getattr(getattr(rnd.reward_normalizer, "disc_avg", None), "avg", None)
    return {"update_counter": rnd.update_counter, "discounted_average": average}


def _load_rnd_extras(algorithm: Algorithm, extras: Mapping[str, Any]) -> None:
    rnd = getattr(algorithm, "rnd", None)
    if rnd is None or not extras:
        return
    rnd.update_counter = extras["update_counter"]
    if hasattr(rnd.reward_normalizer, "disc_avg"):
        rnd.reward_normalizer.disc_avg.avg = extras["discounted_average"]


def _stored(value: Any, where: str) -> Any:  # noqa: ANN401 (walks any nested value)
    if isinstance(value, Mapping):
        return {str(name): _stored(item, f"{where}[{name!r}]") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, PLAIN):
        return value
    raise CheckpointError(
        f"{where} is a {type(value).__name__}; a checkpoint keeps plain values and arrays alone."
    )


def _restored(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {name: _restored(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value.cpu().numpy() if isinstance(value, Tensor) else value
