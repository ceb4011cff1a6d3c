"""A run that logs every update and every episode, wherever the experience comes from.

`runs` advances many updates between two looks at them; learners that return a history need each one.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.learning import scan_driver
from dressage.learning.compilation import compiler_options
from dressage.learning.evaluation import EpisodeResults, Evaluation, evaluate_groups
from dressage.learning.faults import raise_fault
from dressage.learning.host_driver import HostCollector
from dressage.learning.host_env import HostGroupedEnv
from dressage.learning.records import AgentState, LearnerState
from dressage.learning.scan_driver import GroupedEnv, Groups
from dressage.learning.update_log import UpdateLog, advance_logged, finish_logged, learn_logged

LOGGED_NUMBERS = 1 << 20  # Most numbers of a log, per array; longer chunks gain nothing.
LONGEST_CHUNK = 16  # Updates; the host's part of a chunk is then below a percent.


class LoggedRun(Protocol):
    """Training of one or more seeds side by side; every log entry has a leading axis of updates.

    Attributes:
        groups: The agents and their learners.
        seeds: The seeds; states and logs of several have a leading axis of seeds.
        copies: Environment copies.
        capacity: Most updates that one `advance` makes.
        exact_resume: Whether the state holds all that the rest of the run depends on.
        faulted: What there is to go back to after a `NonFiniteError`.
        shortfall: Steps of each copy that shorter updates have left out so far.
    """

    faulted: "Faulted"
    shortfall: int
    groups: Groups
    seeds: tuple[int, ...]
    copies: int
    capacity: int
    exact_resume: bool

    def init(self) -> LearnerState:
        """Return the state before the first update."""
        ...

    def advance(self, state: LearnerState, updates: int) -> tuple[LearnerState, UpdateLog]:
        """Make up to `capacity` updates; the state given is used up.

        Raises:
            NonFiniteError: If the environment gave a number that is not finite; `faulted` is then the state
                to go on from.
        """
        ...

    def finish(self, state: LearnerState, steps: int, surplus: int) -> tuple[LearnerState, UpdateLog]:
        """Make one update of `steps` steps, in whose last one the last `surplus` copies rest."""
        ...

    def evaluate(self, state: LearnerState, copies: int, evaluation: Evaluation) -> list[EpisodeResults]:
        """Play one episode in each of `copies` copies; returns the results of each group.

        Arrays are `[..., B]` with a leading axis of seeds where there are several.
        """
        ...

    def restart(self, state: LearnerState) -> LearnerState:
        """Return the state with environments that start anew."""
        ...

    def close(self) -> None:
        """Release environments and worker processes."""
        ...


class Faulted(NamedTuple):
    """What a chunk of updates left that met with a number that is not finite.

    Attributes:
        state: Agents and counts from before the rollout with that number.
        log: The log of the chunk, or None.
        sound: How many updates of the log came before that rollout.
    """

    state: LearnerState
    log: UpdateLog | None = None
    sound: int = 0


class CompiledLoggedRun:
    """Training of functional environments, all seeds at once; see `LoggedRun`."""

    exact_resume = True

    def __init__(
        self,
        make_env: Callable[[int], GroupedEnv],
        groups: Groups,
        steps: int,
        copies: int,
        seeds: tuple[int, ...],
        max_steps: int,
    ) -> None:
        self.groups = groups
        self.seeds = seeds
        self.copies = copies
        self._env = make_env(copies)
        self._max_steps = max_steps
        rows = steps * copies * sum(len(group.agents) for group in groups) * len(seeds)
        self.capacity = max(1, min(LONGEST_CHUNK, LOGGED_NUMBERS // rows))
        self._steps = steps
        self._make_env = lru_cache(make_env)
        self._programs = _programs(scan_driver.minibatch_size(groups, steps, copies, len(seeds)))
        self.faulted: Faulted
        self.shortfall = 0

    def init(self) -> LearnerState:
        """Return the state before the first update."""
        keys = jax.vmap(jax.random.key)(jnp.array(self.seeds))
        state: LearnerState = self._programs.init(
            self._env, self._many, self.groups, keys if self._many else keys[0]
        )
        return state

    def advance(self, state: LearnerState, updates: int) -> tuple[LearnerState, UpdateLog]:
        """Make up to `capacity` updates in one compiled call."""
        shape, before = (self._env, self._many, self._steps, self.capacity), _updates(state)
        advanced = self._programs.advance(*shape, self.groups, state, jnp.int32(updates))
        return self._checked(advanced, before, self._steps)

    def finish(self, state: LearnerState, steps: int, surplus: int) -> tuple[LearnerState, UpdateLog]:
        """Make one shorter update."""
        before = _updates(state)
        advanced = self._programs.finish(self._env, self._many, steps, surplus, self.groups, state)
        finished = self._checked(advanced, before, steps)
        self.shortfall += self._steps - steps
        return finished

    def restart(self, state: LearnerState) -> LearnerState:
        """Return the state with environments that start anew."""
        restarted: LearnerState = self._programs.restart(self._env, self._many, self.groups, state)
        return restarted

    def evaluate(self, state: LearnerState, copies: int, evaluation: Evaluation) -> list[EpisodeResults]:
        """Play one episode in every evaluation copy."""
        shape = (self._make_env(copies), self._many, self._max_steps, evaluation.stochastic)
        results = self._programs.evaluate(
            *shape, self.groups, state.agents, state.key, jnp.uint32(evaluation.seed)
        )
        return [jax.tree.map(np.asarray, one) for one in results]

    def close(self) -> None:
        """Nothing to release."""

    def _checked(
        self, advanced: tuple[LearnerState, UpdateLog], before: int, steps: int
    ) -> tuple[LearnerState, UpdateLog]:
        """Return state and log on the host; raises what a chunk of rollouts of `steps` steps latched."""
        state, log = advanced[0], jax.tree.map(np.asarray, advanced[1])
        found = np.asarray(state.fault.field) > 0
        if found.any():
            sound = int(np.min(np.asarray(state.fault.step)[found])) // steps - before
            self.faulted = Faulted(
                state.replace(updates=jnp.full_like(state.updates, before + sound)), log, sound
            )
            shift = before * (self._steps - steps) - self.shortfall
            raise_fault(state.fault, tuple(group.agents for group in self.groups), self.seeds, shift)
        return state, log

    @property
    def _many(self) -> bool:
        """Whether states and logs have an axis of seeds."""
        return len(self.seeds) > 1


class HostLoggedRun:
    """Training on host environments, one seed; see `LoggedRun`."""

    capacity = 1

    def __init__(
        self,
        make_env: Callable[[int], HostGroupedEnv],
        groups: Groups,
        steps: int,
        copies: int,
        seed: int,
        max_steps: int | None,
    ) -> None:
        self.groups = groups
        self.seeds: tuple[int, ...] = (seed,)
        self.copies = copies
        self._steps = steps
        self._collector = HostCollector(make_env, groups, copies, max_steps)
        self.faulted: Faulted
        self.shortfall = 0
        self.exact_resume = self._collector.exact_resume
        options = compiler_options(scan_driver.minibatch_size(groups, steps, copies))
        self._learn = jax.jit(learn_logged, donate_argnums=1, static_argnums=6, compiler_options=options)

    def init(self) -> LearnerState:
        """Reset the environments and draw parameters, with the compiled driver's keys."""
        return self._collector.init(self.seeds[0])

    def advance(self, state: LearnerState, updates: int) -> tuple[LearnerState, UpdateLog]:
        """Make one update; `updates` is 1."""
        if updates != 1:
            raise ValueError(f"A run on the host makes one update at a time, got {updates}.")
        return self._update(state, self._steps, 0)

    def finish(self, state: LearnerState, steps: int, surplus: int) -> tuple[LearnerState, UpdateLog]:
        """Make one shorter update."""
        finished = self._update(state, steps, surplus)
        self.shortfall += self._steps - steps
        return finished

    def restart(self, state: LearnerState) -> LearnerState:
        """Return the state with environments that start anew."""
        return self._collector.restart(state)

    def evaluate(self, state: LearnerState, copies: int, evaluation: Evaluation) -> list[EpisodeResults]:
        """Play one episode in every evaluation copy."""
        return self._collector.evaluate(state, copies, evaluation)

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()

    def _update(self, state: LearnerState, steps: int, surplus: int) -> tuple[LearnerState, UpdateLog]:
        self.faulted = Faulted(state)
        rollout = self._collector.collect(state, steps, surplus)
        agents, fault, log = self._learn(
            self.groups,
            state.agents,
            state.fault,
            rollout.records,
            rollout.shuffle_keys,
            state.updates,
            surplus,
        )
        after = self._collector.after(rollout, agents, fault, state.updates + 1)
        if int(fault.field) > 0:
            self.faulted = Faulted(after.replace(updates=state.updates))
            shift = _updates(state) * (self._steps - steps) - self.shortfall
            raise_fault(fault, tuple(group.agents for group in self.groups), shift=shift)
        return after, jax.tree.map(np.asarray, log)


def _updates(state: LearnerState) -> int:
    return int(np.max(state.updates))


def _over_seeds(many: bool, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
    return jax.vmap(function, in_axes=axes) if many else function


class Programs(NamedTuple):
    """The compiled functions of all runs: runs over equal environments share what is compiled."""

    init: Any
    advance: Any
    finish: Any
    evaluate: Any
    restart: Any


@lru_cache
def _programs(samples: int) -> Programs:
    """Return the functions for minibatches of so many samples."""
    compiled = partial(jax.jit, compiler_options=compiler_options(samples))
    return Programs(
        init=jax.jit(_init, static_argnums=(0, 1), compiler_options=compiler_options()),
        advance=compiled(_advance, static_argnums=(0, 1, 2, 3), donate_argnums=5),
        finish=compiled(_finish, static_argnums=(0, 1, 2, 3), donate_argnums=5),
        evaluate=compiled(_evaluate, static_argnums=(0, 1, 2, 3)),
        restart=jax.jit(_restart, static_argnums=(0, 1)),
    )


def _init(env: GroupedEnv, many: bool, groups: Groups, key: Array) -> LearnerState:
    state: LearnerState = _over_seeds(many, partial(scan_driver.init, env), (None, 0))(groups, key)
    return state


def _advance(
    env: GroupedEnv,
    many: bool,
    steps: int,
    capacity: int,
    groups: Groups,
    state: LearnerState,
    updates: Array,
) -> tuple[LearnerState, UpdateLog]:
    def advance(groups: Groups, state: LearnerState, updates: Array) -> tuple[LearnerState, UpdateLog]:
        return advance_logged(env, groups, steps, capacity, state, updates)

    advanced: tuple[LearnerState, UpdateLog] = _over_seeds(many, advance, (None, 0, None))(
        groups, state, updates
    )
    return advanced


def _finish(
    env: GroupedEnv, many: bool, steps: int, surplus: int, groups: Groups, state: LearnerState
) -> tuple[LearnerState, UpdateLog]:
    def finish(groups: Groups, state: LearnerState) -> tuple[LearnerState, UpdateLog]:
        return finish_logged(env, groups, steps, surplus, state)

    finished: tuple[LearnerState, UpdateLog] = _over_seeds(many, finish, (None, 0))(groups, state)
    return finished


def _evaluate(
    env: GroupedEnv,
    many: bool,
    steps: int,
    stochastic: bool,
    groups: Groups,
    agents: tuple[AgentState, ...],
    key: Array,
    seed: Array,
) -> tuple[EpisodeResults, ...]:
    play = partial(evaluate_groups, env, steps, stochastic)
    results: tuple[EpisodeResults, ...] = _over_seeds(many, play, (None, 0, 0, None))(
        groups, agents, key, seed
    )
    return results


def _restart(env: GroupedEnv, many: bool, groups: Groups, state: LearnerState) -> LearnerState:
    def restart(groups: Groups, state: LearnerState) -> LearnerState:
        return scan_driver.restart(env, groups, state)

    restarted: LearnerState = _over_seeds(many, restart, (None, 0))(groups, state)
    return restarted
