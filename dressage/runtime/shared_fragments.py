"""Fragments in memory that a worker's process and the learner's share: arrays lie there, names go by pipe.

A worker owns a buffer with a few slots and writes its fragments into them in turn; the learner reads them
where they lie. The memory has no name: the learner gets its descriptor, and the kernel frees it with the last
process that holds it. A fragment stays readable until its slot comes round again, which the engine does not
let happen before it has been learned from.
"""

import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dressage.policy.base_policy import Fragment
from dressage.policy.finite import plain
from dressage.runtime.records import Collected

ALIGNMENT = 64
"""Bytes: a cache line."""

IN_MEMORY = Path("/dev/shm")
PARTS = ("steps", "last", "finals")


@dataclass(frozen=True)
class Placed:
    """Where an array lies in a buffer."""

    part: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Parcel:
    """A collected fragment without its arrays.

    Attributes:
        collected: The fragment with empty mappings, and what came with it.
        places: Where its arrays lie.
        size: Bytes of the buffer; another than before means that the worker has a new one.
    """

    collected: Collected
    places: tuple[Placed, ...]
    size: int


class FragmentWriter:
    """A worker's buffer.

    Args:
        slots: How many fragments lie in it at once.

    Attributes:
        descriptor: File descriptor of the memory; -1 before the first fragment.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._next = 0
        self._slot_size = 0
        self._memory: mmap.mmap | None = None
        self.descriptor = -1

    def write(self, collected: Collected) -> tuple[Parcel, bool]:
        """Put a fragment's arrays into the next slot; returns the rest, and whether the buffer is new."""
        arrays = _arrays_of(collected.fragment)
        needed = sum(_padded(array.nbytes) for array in arrays.values())
        grown = self._memory is None or needed > self._slot_size
        if grown:
            self._grow(needed)
        assert self._memory is not None
        offset = self._next * self._slot_size
        self._next = (self._next + 1) % self._slots
        places: list[Placed] = []
        for (part, name), array in arrays.items():
            into = np.frombuffer(self._memory, array.dtype, array.size, offset).reshape(array.shape)
            into[...] = array
            places.append(Placed(part, name, str(array.dtype), array.shape, offset))
            offset += _padded(array.nbytes)
        rest = replace(collected, fragment=replace(collected.fragment, steps={}, last={}, finals={}))
        return Parcel(rest, tuple(places), self._slots * self._slot_size), grown

    def _grow(self, needed: int) -> None:
        """Take new memory, a quarter larger than needed: final observations vary in number."""
        self._slot_size = _padded(max(needed + needed // 4, ALIGNMENT))
        if self.descriptor >= 0:
            os.close(self.descriptor)  # The learner has its own; views of old slots stay readable there.
        folder = IN_MEMORY if IN_MEMORY.is_dir() else None
        with tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())
        os.ftruncate(self.descriptor, self._slots * self._slot_size)
        self._memory = mmap.mmap(self.descriptor, self._slots * self._slot_size)
        self._next = 0


class FragmentReader:
    """The learner's side of one worker's buffer."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def attach(self, descriptor: int, size: int) -> None:
        """Map new memory; the descriptor is closed."""
        self._memory = mmap.mmap(descriptor, size)
        os.close(descriptor)

    def read(self, parcel: Parcel) -> Collected:
        """Return the fragment, its arrays where they lie."""
        assert self._memory is not None
        parts: dict[str, dict[str, np.ndarray]] = {part: {} for part in PARTS}
        for place in parcel.places:
            count = int(np.prod(place.shape))
            array = np.frombuffer(self._memory, place.dtype, count, place.offset).reshape(place.shape)
            parts[place.part][place.name] = array
        steps, last, finals = (parts[part] for part in PARTS)
        fragment = replace(parcel.collected.fragment, steps=steps, last=last, finals=finals)
        return replace(parcel.collected, fragment=fragment)


def _arrays_of(fragment: Fragment) -> Mapping[tuple[str, str], np.ndarray]:
    return {(part, name): plain(array) for part in PARTS for name, array in getattr(fragment, part).items()}


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
