"""One rollout of a part of the host's copies: acts, has them step, and keeps what came of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dressage.learning import scan_driver
from dressage.learning.host_env import HostPart
from dressage.learning.host_recording import Rows
from dressage.learning.numpy_program import HostCall
from dressage.learning.records import Experience, Observed
from dressage.learning.scan_driver import Groups


class PartialRollout:
    """The rollout of one part, step by step.

    Args:
        part: Copies that step together.
        observed: What each group acts on first.
        noise: Each group's action noise for all steps, `[T, ..., B, ...]`.
        steps: `T`.
        groups: The agents and their learners.
        known: What `act` is given besides: groups and agents.
        act: `scan_driver.act` as a function of `known` and of what was observed and drawn.
    """

    def __init__(
        self,
        part: HostPart,
        observed: tuple[Observed, ...],
        noise: tuple[Any, ...],
        steps: int,
        groups: Groups,
        known: Any,  # noqa: ANN401 (a tree)
        act: HostCall,
    ) -> None:
        self._part = part
        self._groups = groups
        self._observed = observed
        self._noise, self._noise_structure = jax.tree.flatten(noise)
        self._act = act.bind(known, (observed, self._drawn(0)))
        self._rows = Rows(steps)
        self._recording = part.record(steps)
        self._sent: tuple[tuple[Any, ...], int] | None = None

    def send(self, step: int, resting: int) -> None:
        """Act and have the copies step, less the last `resting`."""
        outputs, actions, taken, memories = self._act((self._observed, self._drawn(step)))
        self._part.send(jax.tree.map(np.asarray, taken), resting)
        self._sent = memories, resting
        self._rows.append((self._observed, outputs, actions))

    def receive(self) -> None:
        """Take in what the step that was last sent led to, if there is one."""
        if self._sent is None:
            return
        memories, resting = self._sent
        self._sent = None
        following = tuple(
            seen if memory is None else scan_driver.recall(seen, memory, self._recording.broken_off(group))
            for group, (seen, memory) in enumerate(zip(self._recording.receive(), memories, strict=True))
        )
        self._observed = self._keep_resting(following, resting) if resting else following

    def finish(self) -> tuple[tuple[Experience, ...], tuple[Observed, ...]]:
        """Return the records, `[T, ..., B]` each, and what each group acts on next."""
        self.receive()
        rows = zip(*self._rows.tree(), self._recording.outcomes(), strict=True)
        return tuple(Experience(*row) for row in rows), jax.tree.map(np.array, self._observed)

    def _drawn(self, step: int) -> Any:  # noqa: ANN401 (a tree)
        return jax.tree.unflatten(self._noise_structure, [leaf[step] for leaf in self._noise])

    def _keep_resting(self, following: tuple[Observed, ...], resting: int) -> tuple[Observed, ...]:
        """Let the copies that rested see and remember what they did before."""
        made = jnp.arange(self._part.copies) < self._part.copies - resting
        rows = zip(self._groups, following, self._observed, strict=True)
        return tuple(
            scan_driver.keep_resting(made, new, old, axis=0 if group.single else 1)
            for group, new, old in rows
        )
