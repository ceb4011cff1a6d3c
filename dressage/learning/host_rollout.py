"""One rollout of a part of the host's copies: acts, has them step, and keeps what came of it."""

import select
from collections.abc import Sequence
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

TURN = 1.0
"""Seconds after which the part that was sent out first is waited for, however long that takes."""


def first_done(rollouts: Sequence["PartialRollout"]) -> "PartialRollout":
    """Wait for one of the rollouts; returns the first in line that has something to take in.

    In a fixed order a part that is done would wait for one that is not.
    """
    known = ((rollout.descriptor, rollout) for rollout in rollouts)
    waited_for = {descriptor: rollout for descriptor, rollout in known if descriptor is not None}
    if len(rollouts) == 1 or len(waited_for) < len(rollouts):
        return rollouts[0]
    poll = select.poll()
    for descriptor in waited_for:
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(1000 * TURN)}
    done = (rollout for descriptor, rollout in waited_for.items() if descriptor in ready)
    return next(done, rollouts[0])


class PartialRollout:
    """The rollout of one part, step by step.

    Args:
        part: Copies that step together.
        observed: What each group acts on first.
        noise: Each group's action noise for all steps, `[T, ..., B, ...]`.
        steps: `T`.
        surplus: How many copies, counted from the last, rest in the last step.
        groups: The agents and their learners.
        known: What `act` is given besides: groups and agents.
        act: `scan_driver.act` as a function of `known` and of what was observed and drawn.

    Attributes:
        descriptor: The file descriptor that becomes readable when what was sent is done; None where nothing
            tells.
    """

    def __init__(
        self,
        part: HostPart,
        observed: tuple[Observed, ...],
        noise: tuple[Any, ...],
        steps: int,
        surplus: int,
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
        self.descriptor = part.descriptor()
        self._steps = steps
        self._surplus = surplus
        self._done = 0
        self._sent: tuple[tuple[Any, ...], int] = ((), 0)

    def go_on(self) -> bool:
        """Take in a step and send out the next; whether there was one."""
        self._receive()
        if self._done == self._steps:
            return False
        self.send()
        return True

    def send(self) -> None:
        """Act and have the copies step; in the last step those that rest do not."""
        step = self._done
        resting = self._surplus if step == self._steps - 1 else 0
        outputs, actions, taken, memories = self._act((self._observed, self._drawn(step)))
        self._part.send(jax.tree.map(np.asarray, taken), resting)
        self._sent = memories, resting
        self._done = step + 1
        self._rows.append((self._observed, outputs, actions))

    def _receive(self) -> None:
        """Take in what the step that was last sent led to."""
        memories, resting = self._sent
        following = tuple(
            seen if memory is None else scan_driver.recall(seen, memory, self._recording.broken_off(group))
            for group, (seen, memory) in enumerate(zip(self._recording.receive(), memories, strict=True))
        )
        self._observed = self._keep_resting(following, resting) if resting else following

    def finish(self) -> tuple[tuple[Experience, ...], tuple[Observed, ...]]:
        """Return the records, `[T, ..., B]` each, and what each group acts on next."""
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
