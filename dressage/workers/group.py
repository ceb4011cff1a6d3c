"""What a group of workers is, and the half of it that is the same wherever the environments step.

A `Stepper` moves environments and leaves results in blocks; `StepperGroup` checks actions before it and
numbers after it, counts episodes, and hands out records that stay as they are.
"""

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from dressage.config import whole_number
from dressage.errors import ConfigError, EnvironmentContractError, NonFiniteError
from dressage.workers.blocks import Blocks, GroupBlocks
from dressage.workers.copies import place
from dressage.workers.history import EpisodeSums, EpisodeTotals, GroupHistory, History
from dressage.workers.layout import ROUNDING, ActionPart, AgentGroup, ParallelLayout
from dressage.workers.records import GroupObservation, GroupStep, HostObservation, HostParallelStep

Actions = Sequence[Any]
"""For each group an array `[A, B, *shape]` of environment actions, or a dict or tuple of such arrays."""


class WorkerGroup(Protocol):
    """Copies of a `ParallelEnv`, wherever they step.

    Attributes:
        num_envs: `B`, how many copies there are.
        layout: How their observations and actions lie in arrays.
    """

    num_envs: int
    layout: ParallelLayout

    @property
    def saves_state(self) -> bool:
        """Whether `save_state` gives all that the copies will do depends on."""
        ...

    def save_state(self) -> Any:  # noqa: ANN401 (any tree of arrays)
        """Return the state of all copies."""
        ...

    def load_state(self, saved: Any) -> None:  # noqa: ANN401
        """Go on from what `save_state` returned."""
        ...

    def reset(self, seeds: Sequence[int]) -> HostObservation:
        """Start an episode in every copy.

        Args:
            seeds: One seed for each copy, integers >= 0; later episodes go on from a copy's own generator.
        """
        ...

    def step(self, actions: Actions, resting: int = 0) -> HostParallelStep:
        """Step every copy; those whose episode ends are reset within the step.

        Args:
            actions: For each group the actions `[A, B, *shape]` as the environment takes them (start offsets
                added), a dict or tuple of such arrays for Dict and Tuple spaces. Rows of agents that are not
                there are not looked at.
            resting: How many copies, counted from the last, are left as they are.
        """
        ...

    def send(self, actions: Actions, resting: int = 0) -> None:
        """Start a step; what `receive` returns belongs to it."""
        ...

    def receive(self) -> HostParallelStep:
        """Wait for the step that `send` started."""
        ...

    def descriptor(self) -> int | None:
        """Return the file descriptor that becomes readable when a step is done; None where nothing tells."""
        ...

    def history(self, steps: int) -> History:
        """Return room for what `steps` steps will bring."""
        ...

    def receive_into(self, history: History) -> None:
        """Wait for the step that `send` started, and keep it behind those that were kept before."""
        ...

    def count(self, history: History) -> tuple[EpisodeTotals, ...]:
        """Return what every agent's episode had brought at each step, group by group.

        To be asked once for each history, before steps are kept in another.
        """
        ...

    def split(self) -> "tuple[WorkerGroup, ...]":
        """Return groups over the same copies, none of which waits for another; see `StepperGroup.split`."""
        ...

    def close(self) -> None:
        """End the environments and whatever they run in; may be called again."""
        ...


class Stepper(Protocol):
    """Moves the environments behind a `StepperGroup`.

    Attributes:
        blocks: Where actions and seeds are read from and results are left.
    """

    blocks: Blocks

    def reset(self) -> None:
        """Reset every copy with the blocks' seeds."""
        ...

    def send(self) -> None:
        """Start a step with the blocks' actions."""
        ...

    def receive(self) -> None:
        """Wait until the results of the step lie in the blocks."""
        ...

    def close(self) -> None:
        """End everything; may be called again."""
        ...


@runtime_checkable
class SplitStepper(Protocol):
    """A `Stepper` whose workers can be told apart."""

    def split(self) -> Sequence[Stepper]:
        """Return a stepper for each worker, over neighbouring copies in their order."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """A `Stepper` whose end of a step can be seen from outside."""

    def descriptor(self) -> int:
        """Return the file descriptor that becomes readable when a step is done."""
        ...


@runtime_checkable
class StateSaver(Protocol):
    """A `Stepper` whose copies' state is within reach.

    Attributes:
        saves_state: Whether every copy can save its state.
    """

    saves_state: bool

    def save_state(self) -> Any:  # noqa: ANN401
        """Return the state of all copies."""
        ...

    def load_state(self, saved: Any) -> None:  # noqa: ANN401
        """Go on from what `save_state` returned."""
        ...


class StepperGroup:
    """A `WorkerGroup` over any stepper; usable in a `with` statement.

    After an error the group is closed: the environments are then in no state to go on from.

    Args:
        stepper: Moves the copies.
        layout: How they lie in arrays.
        first_copy: Number of the first copy, for error texts.
    """

    def __init__(self, stepper: Stepper, layout: ParallelLayout, first_copy: int = 0) -> None:
        self.layout = layout
        self._first_copy = first_copy
        self.num_envs = stepper.blocks.ended.shape[0]
        self._stepper = stepper
        self._parts = [[_PartCheck(part) for part in group.action.parts] for group in layout.groups]
        self._counts = [EpisodeSums(blocks.reward.shape) for blocks in stepper.blocks.groups]
        self._numbers = [
            numbers
            for blocks in stepper.blocks.groups
            for numbers in (blocks.final_observation, blocks.reward, blocks.cost, blocks.observation)
        ]
        self._steps = np.zeros(self.num_envs, np.int64)
        self._state = "new"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reset(self, seeds: Sequence[int]) -> HostObservation:
        """Start an episode in every copy; see `WorkerGroup.reset`.

        Raises:
            ConfigError: If there is not one seed for each copy, or a seed is no integer >= 0.
            EnvironmentContractError: If an environment breaks its contract.
            NonFiniteError: If an observation is not finite.
            EnvironmentRaisedError: If an environment raises.
            WorkerLostError: If a worker process dies or gives no answer in time.
        """
        self._check_open("new", "ready")
        given = list(seeds)
        whole = [seed for seed in map(whole_number, given) if seed is not None and seed >= 0]
        if len(given) != self.num_envs or len(whole) != len(given):
            raise ConfigError(f"reset needs {self.num_envs} seeds, integers >= 0, got {given}.")
        self._stepper.blocks.seeds[:] = whole
        self._steps[:] = 0
        for counts in self._counts:
            counts.restart()
        self._closing_on_error(self._stepper.reset)
        self._closing_on_error(self._check_observations)
        self._state = "ready"
        return tuple(_observation(blocks) for blocks in self._stepper.blocks.groups)

    @property
    def saves_state(self) -> bool:
        """Whether `save_state` gives all that the copies will do depends on; see `WorkerGroup`."""
        return isinstance(self._stepper, StateSaver) and self._stepper.saves_state

    def save_state(self) -> dict[str, Any]:
        """Return the state of all copies as arrays; they must have been reset, and not be stepping.

        Raises:
            RuntimeError: If they are not, or cannot save their state.
        """
        self._check_open("ready")
        return {
            "copies": self._saver().save_state(),
            "counts": [counts.arrays() for counts in self._counts],
        }

    def load_state(self, saved: dict[str, Any]) -> None:
        """Go on from what `save_state` returned.

        Raises:
            RuntimeError: If the copies are stepping, or cannot save their state.
        """
        self._check_open("new", "ready")
        self._saver().load_state(saved["copies"])
        for counts, arrays in zip(self._counts, saved["counts"], strict=True):
            counts.replace(arrays)
        self._state = "ready"

    def _saver(self) -> StateSaver:
        if isinstance(self._stepper, StateSaver) and self._stepper.saves_state:
            return self._stepper
        raise RuntimeError("These environments cannot save their state: they lack save_state and load_state.")

    def step(self, actions: Actions, resting: int = 0) -> HostParallelStep:
        """Step every copy; see `WorkerGroup.step`.

        Raises:
            EnvironmentContractError: If an action lies outside its space, or an environment breaks its
                contract.
            NonFiniteError: If an observation, a reward or a cost is not finite.
            EnvironmentRaisedError: If an environment raises.
            WorkerLostError: If a worker process dies or gives no answer in time.
        """
        self.send(actions, resting)
        return self.receive()

    def send(self, actions: Actions, resting: int = 0) -> None:
        """Start a step; see `step`."""
        self._check_open("ready")
        self._stepper.blocks.resting[:] = False
        self._stepper.blocks.resting[self.num_envs - resting :] = True
        if len(actions) != len(self.layout.groups):
            raise EnvironmentContractError(
                f"step needs actions for {len(self.layout.groups)} groups of agents, got {len(actions)}."
            )
        for group, given in enumerate(actions):
            self._write_actions(group, given)
        self._closing_on_error(self._stepper.send)
        self._state = "stepping"

    def receive(self) -> HostParallelStep:
        """Wait for the step that `send` started; see `step`."""
        history = self.history(1)
        self.receive_into(history)
        pairs = zip(history.groups, self.count(history), strict=True)
        return HostParallelStep(tuple(_group_step(*pair) for pair in pairs), history.ended[0])

    def descriptor(self) -> int | None:
        """Return the file descriptor that becomes readable when a step is done; None where nothing tells."""
        return self._stepper.descriptor() if isinstance(self._stepper, Announcing) else None

    def history(self, steps: int) -> History:
        """Return room for what `steps` steps will bring."""
        return History(self._stepper.blocks, steps)

    def receive_into(self, history: History) -> None:
        """Wait for the step that `send` started, and keep it behind those before; see `step`."""
        self._check_open("stepping")
        self._closing_on_error(self._stepper.receive)
        self._closing_on_error(self._check_results)
        self._state = "ready"
        self._steps += ~self._stepper.blocks.resting
        history.keep()

    def count(self, history: History) -> tuple[EpisodeTotals, ...]:
        """Return what every agent's episode had brought at each step, by group; see `WorkerGroup.count`."""
        pairs = zip(self._counts, history.groups, strict=True)
        return tuple(counts.add(steps, steps.over) for counts, steps in pairs)

    def split(self) -> "tuple[StepperGroup, ...]":
        """Return groups over the same copies, none of which waits for another; one where all step as one.

        This group is then of no more use than to be closed, which closes all of them.
        """
        if not isinstance(self._stepper, SplitStepper):
            return (self,)
        steppers = self._stepper.split()
        firsts = np.cumsum([0, *(stepper.blocks.ended.shape[0] for stepper in steppers)]).tolist()
        return tuple(
            StepperGroup(stepper, self.layout, first)
            for stepper, first in zip(steppers, firsts, strict=False)
        )

    def close(self) -> None:
        """End the environments and whatever they run in; may be called again."""
        self._state = "closed"
        self._stepper.close()

    def _check_open(self, *states: str) -> None:
        if self._state in states:
            return
        if self._state == "closed":
            raise RuntimeError("This group of workers is closed; make a new one.")
        due = (
            "receive" if self._state == "stepping" else "send or step" if self._state == "ready" else "reset"
        )
        raise RuntimeError(f"This group of workers waits for {due}.")

    def _closing_on_error(self, work: Any) -> None:  # noqa: ANN401 (a bound method)
        try:
            work()
        except BaseException:
            self.close()
            raise

    def _write_actions(self, group: int, given: Any) -> None:  # noqa: ANN401
        layout, blocks = self.layout.groups[group], self._stepper.blocks.groups[group]
        for check, block in zip(self._parts[group], blocks.actions, strict=True):
            name = check.part.name
            values = np.asarray(given if name is None else given[name])
            if values.shape != block.shape:
                raise EnvironmentContractError(
                    f"The actions of group {layout.agents}{_part(name)} must have shape {block.shape}, "
                    f"got {values.shape}."
                )
            bad = check.write(block, values, blocks.alive)
            if bad is not None:
                row, copy = bad
                raise EnvironmentContractError(
                    f"{self._place(copy)}: the action{_part(name)} of agent {layout.agents[row]!r} is "
                    f"{values[row, copy]}, which lies outside its space, {check.words()}."
                )

    def _check_results(self) -> None:
        if self._all_finite():
            return
        for layout, blocks in zip(self.layout.groups, self._stepper.blocks.groups, strict=True):
            self._check_finite(layout, blocks.final_observation, "final observation")
            self._check_finite(layout, blocks.reward, "reward")
            if self.layout.cost_key is not None:
                self._check_finite(layout, blocks.cost, f"cost {self.layout.cost_key!r}")
        self._check_observations()

    def _check_observations(self) -> None:
        for layout, blocks in zip(self.layout.groups, self._stepper.blocks.groups, strict=True):
            self._check_finite(layout, blocks.observation, "observation")

    def _all_finite(self) -> bool:
        """Whether no number can be wrong: a sum is infinite or NaN where one of its numbers is."""
        with np.errstate(over="ignore", invalid="ignore"):  # It is as well where it overflows.
            return math.isfinite(sum(float(numbers.sum()) for numbers in self._numbers))

    def _place(self, copy: int) -> str:
        return place(self._first_copy + copy, int(self._steps[copy]))

    def _check_finite(self, layout: AgentGroup, values: npt.NDArray[np.float32], field: str) -> None:
        broken = ~np.isfinite(values.reshape(*values.shape[:2], -1)).all(-1)
        if broken.any():
            row, copy = np.argwhere(broken)[0].tolist()
            numbers = values[row, copy].ravel()
            index = int(np.argmin(np.isfinite(numbers)))
            which = f" (component {index})" if values.ndim > 2 else ""
            raise NonFiniteError(
                f"{self._place(copy)}: the {field} of agent {layout.agents[row]!r}{which} is "
                f"{numbers[index]}: not finite, or too large for float32. "
                "Check the environment's dynamics and rewards at that point."
            )


class _PartCheck:
    """Checks and writes one part of the actions of a group."""

    def __init__(self, part: ActionPart) -> None:
        self.part = part
        self._whole = np.dtype(part.dtype).kind in "iub"
        low, high = (np.array(bound).reshape(part.shape) for bound in (part.low, part.high))
        self._low, self._high = low, high
        self._bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())
        # What every component allows, as is quickly told.
        self._common = (int(low.max()), int(high.min())) if self._whole else None
        if self._whole:
            self._least, self._most = low, high
        else:
            with np.errstate(invalid="ignore"):
                self._least = low - ROUNDING * np.maximum(1.0, np.abs(low))
                self._most = high + ROUNDING * np.maximum(1.0, np.abs(high))

    def words(self) -> str:
        """Say what is allowed."""
        kind = "integers" if self._whole else "numbers"
        return f"{kind} from {self._low.tolist()} to {self._high.tolist()}"

    def write(
        self, block: npt.NDArray[Any], values: npt.NDArray[Any], alive: npt.NDArray[np.bool_]
    ) -> tuple[int, int] | None:
        """Write actions in the space's dtype; returns agent and copy of the first that is not allowed.

        What rounding to float32 has carried past a bound is put back onto it.
        """
        if self._common is not None and values.dtype.kind in "iu":
            least, most = self._common
            if values.min() >= least and values.max() <= most:
                block[...] = values
                return None
        if self._whole and values.dtype.kind not in "iub":
            whole = values == np.round(values)
            right = whole & (values >= self._least) & (values <= self._most)
        elif self._bounded:
            right = (values >= self._least) & (values <= self._most)  # False for NaN
        else:
            right = np.isfinite(values)
        if not right.all():
            wrong = ~right.reshape(*right.shape[:2], -1).all(-1) & alive
            if wrong.any():
                row, copy = np.argwhere(wrong)[0].tolist()
                return row, copy
        if self._bounded and not self._whole:
            np.clip(values, self._low, self._high, out=block, casting="unsafe")
        else:
            block[...] = (
                values if not self._whole or values.dtype.kind in "iub" else np.where(right, values, 0)
            )
        return None


def _observation(blocks: GroupBlocks) -> GroupObservation:
    mask = blocks.mask.copy() if blocks.mask.shape[-1] else None
    return GroupObservation(blocks.observation.copy(), blocks.alive.copy(), mask)


def _group_step(kept: GroupHistory, totals: EpisodeTotals) -> GroupStep:
    mask = kept.mask[0] if kept.mask.shape[-1] else None
    return GroupStep(
        observation=GroupObservation(kept.observation[0], kept.alive[0], mask),
        final_observation=kept.final_observation[0],
        reward=kept.reward[0],
        cost=kept.cost[0],
        terminated=kept.terminated[0],
        truncated=kept.truncated[0],
        alive_before=kept.alive_before[0],
        final_observation_missing=kept.missing[0],
        episode_return=totals.returns[0],
        episode_length=totals.lengths[0],
        episode_cost=totals.costs[0],
        intervened=kept.intervened[0],
    )


def _part(name: str | int | None) -> str:
    return "" if name is None else f" {name!r}"
