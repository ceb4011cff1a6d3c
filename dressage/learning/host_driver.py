"""The host driver: a Python loop around one compiled `act` and one compiled update.

Environments that no compiler can see step here. Keys, noise, targets and updates are those of the compiled
driver, so that one environment gives the same parameters through both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax import Array

from dressage.learning import scan_driver
from dressage.learning.compilation import compiler_options
from dressage.learning.evaluation import (
    EpisodeResults,
    Evaluation,
    copies_over,
    evaluation_key,
    play,
    sampling_keys,
)
from dressage.learning.faults import latch_fault, raise_fault
from dressage.learning.host_env import HostGroupedEnv, join_copies, rest_of_parts, split_copies
from dressage.learning.host_rollout import PartialRollout, first_done
from dressage.learning.metrics import ChunkSums
from dressage.learning.numpy_program import HostCall
from dressage.learning.records import AgentState, Experience, Fault, LearnerState, Observed, Outcome
from dressage.learning.runs import HostMetrics, evaluation_metrics
from dressage.learning.scan_driver import Groups

UNLIMITED = 100_000  # Steps after which an evaluation episode without a time limit counts as unfinished.


class Rollout(NamedTuple):
    """What a rollout brought, and what the next one starts from.

    Attributes:
        records: One `[T, ..., B]` record a group.
        observed: What each group acts on next.
        key: The run's key after it.
        shuffle_keys: Keys for the update, one a group.
    """

    records: tuple[Experience, ...]
    observed: tuple[Observed, ...]
    key: Array
    shuffle_keys: Array


class HostCollector:
    """Collects rollouts from environments on the host, and plays evaluation episodes there.

    Attributes:
        exact_resume: Whether the environments' state can be saved.
    """

    def __init__(
        self,
        make_env: Callable[[int], HostGroupedEnv],
        groups: Groups,
        copies: int,
        max_steps: int | None,
    ) -> None:
        self._make_env = make_env
        self._env = make_env(copies)
        self.exact_resume = self._env.saves_state
        self._eval_env: HostGroupedEnv | None = None
        self._max_steps = UNLIMITED if max_steps is None else max_steps
        self._groups = groups
        self._running: tuple[Any, Any] | None = None
        self._prepare = jax.jit(_prepare_rollout, static_argnums=(0, 1))
        self._act = HostCall(_act, compiler_options())
        self._play = HostCall(_play, compiler_options())

    def init(self, seed: int) -> LearnerState:
        """Reset the environments and draw parameters, with the compiled driver's keys."""
        keys = jax.random.split(jax.random.key(seed), 2 + len(self._groups))
        observed = self._env.reset(keys[1])
        begin = jax.jit(scan_driver.start, static_argnums=1, compiler_options=compiler_options())
        state: LearnerState = begin(self._groups, self._env.copies, (), observed, keys[0], keys[2:])
        # Not through the compiled program, which would round what NumPy holds in 64 bits.
        state = state.replace(environment=self._env.state())
        self._running = state.observed, state.environment
        return state

    def collect(self, state: LearnerState, steps: int, surplus: int = 0) -> Rollout:
        """Step every copy `steps` times; in the last step the last `surplus` copies rest.

        While the copies of one worker step, those of the others act.
        """
        observed = self._enter(state)
        key, shuffle_keys, noise = self._prepare(steps, self._env.copies, self._groups, state.key)
        noise = jax.tree.map(np.asarray, noise)
        parts, axes = self._env.parts, tuple(0 if group.single else 1 for group in self._groups)
        sizes = [part.copies for part in parts]
        starts = split_copies(observed, axes, sizes)
        drawn = split_copies(noise, [1 + axis for axis in axes], sizes)
        known = self._groups, state.agents
        rests = rest_of_parts(surplus, parts)
        rollouts = [
            PartialRollout(part, start, noise, steps, resting, self._groups, known, self._act)
            for part, start, noise, resting in zip(parts, starts, drawn, rests, strict=True)
        ]
        for rollout in rollouts:
            rollout.send()
        under_way = list(rollouts)
        while under_way:
            rollout = first_done(under_way)
            under_way.remove(rollout)
            if rollout.go_on():
                under_way.append(rollout)
        ends = [rollout.finish() for rollout in rollouts]
        along = join_copies([records for records, _ in ends], [1 + axis for axis in axes])
        observed = join_copies([seen for _, seen in ends], axes)
        return Rollout(along, observed, key, shuffle_keys)

    def after(
        self, rollout: Rollout, agents: tuple[AgentState, ...], fault: Fault, updates: Array
    ) -> LearnerState:
        """Return the state of training after a rollout has been learned from."""
        environment = self._env.state()
        self._running = rollout.observed, environment
        return LearnerState(agents, environment, rollout.observed, rollout.key, updates, fault)

    def evaluate(self, state: LearnerState, copies: int, evaluation: Evaluation) -> list[EpisodeResults]:
        """Play one episode in each of `copies` copies; returns the results of each group, `[..., B]`."""
        if self._eval_env is None or self._eval_env.copies != copies:
            self._eval_env = self._make_env(copies)
        env = self._eval_env
        key = jax.random.fold_in(evaluation_key(state.key), evaluation.seed)
        observed = self._begin(env.reset(key), copies)

        def keys_of(step: int) -> Array | None:
            return sampling_keys(key, step, len(self._groups)) if evaluation.stochastic else None

        finished = np.zeros(copies, bool)
        results = [_no_results(group.batch_shape(copies)) for group in self._groups]
        choose = self._play.bind((self._groups, state.agents), (observed, keys_of(0)))
        for step in range(self._max_steps):
            taken, memories = choose((observed, keys_of(step)))
            outcomes = env.step(jax.tree.map(np.asarray, taken), 0)
            over = np.asarray(copies_over(outcomes)) & ~finished
            results = [_note(one, outcome, over) for one, outcome in zip(results, outcomes, strict=True)]
            finished |= over
            if finished.all():
                break
            observed = scan_driver.remember(outcomes, memories)
        return results

    def restart(self, state: LearnerState) -> LearnerState:
        """Return the state with every copy at the start of a new episode."""
        observed = self._begin(self._env.reset(scan_driver.restart_key(state)), self._env.copies)
        environment = self._env.state()
        self._running = observed, environment
        agents = scan_driver.forget_open_episodes(state.agents)
        return state.replace(agents=agents, environment=environment, observed=observed)

    def close(self) -> None:
        """Close the environments."""
        for env in (self._env, self._eval_env):
            if env is not None:
                env.close()
        self._eval_env = None

    def _enter(self, state: LearnerState) -> tuple[Observed, ...]:
        """Bring the environments to where the state left them, or start them anew where that cannot be."""
        observed: tuple[Observed, ...] = state.observed
        if self._stands_at(state):
            return observed
        if self.exact_resume:
            self._env.set_state(state.environment)
            return observed
        return self.restart(state).observed

    def _stands_at(self, state: LearnerState) -> bool:
        """Whether the environments are where a state left them."""
        if self._running is None:
            return False
        observed, environment = self._running
        return state.observed is observed and state.environment is environment

    def _begin(self, seen: tuple[Observed, ...], copies: int) -> tuple[Observed, ...]:
        return tuple(group.begin(row, copies) for group, row in zip(self._groups, seen, strict=True))


class HostRun:
    """Training on host environments, one seed; see `learning.runs.Run`."""

    def __init__(
        self,
        make_env: Callable[[int], HostGroupedEnv],
        groups: Groups,
        steps: int,
        seed: int,
        copies: int,
        eval_copies: int,
        max_steps: int | None,
    ) -> None:
        self.seeds: tuple[int, ...] = (seed,)
        self._eval_copies = eval_copies
        self._groups = groups
        self._steps = steps
        self._collector = HostCollector(make_env, groups, copies, max_steps)
        self.exact_resume = self._collector.exact_resume
        samples = scan_driver.minibatch_size(groups, steps, copies)
        self._learn = jax.jit(_learn, donate_argnums=1, compiler_options=compiler_options(samples))

    def init(self) -> LearnerState:
        """Reset the environments and draw parameters, with the compiled driver's keys."""
        return self._collector.init(self.seeds[0])

    def advance(self, state: LearnerState, updates: int) -> tuple[LearnerState, HostMetrics]:
        """Make `updates` updates.

        Raises:
            NonFiniteError: If the environment gave a number that is not finite.
        """
        sums = scan_driver.no_sums(self._groups)
        for _ in range(updates):
            rollout = self._collector.collect(state, self._steps)
            agents, fault, sums = self._learn(
                self._groups,
                state.agents,
                state.fault,
                rollout.records,
                rollout.shuffle_keys,
                state.updates,
                sums,
            )
            state = self._collector.after(rollout, agents, fault, state.updates + 1)
            raise_fault(fault, tuple(group.agents for group in self._groups))
        return state, {name: np.atleast_1d(values) for name, values in sums.means().items()}

    def evaluate(self, state: LearnerState) -> HostMetrics:
        """Play one deterministic episode in every evaluation copy; `[1, E]` each."""
        if self._eval_copies == 0:
            return {}
        return evaluation_metrics(self._collector.evaluate(state, self._eval_copies, Evaluation())[0])

    def updates_done(self, state: LearnerState) -> int:
        """Return the number of updates behind a state."""
        return int(state.updates)

    def seed_state(self, state: LearnerState, index: int) -> LearnerState:
        """Return the state of the one seed."""
        if index:
            raise IndexError(f"This run has one seed, got index {index}.")
        return state


class SeedBySeed:
    """Several one-seed runs trained in turn: what `vmap` is to functional environments."""

    def __init__(self, runs: list[HostRun]) -> None:
        self.seeds = tuple(run.seeds[0] for run in runs)
        self.exact_resume = all(run.exact_resume for run in runs)
        self._runs = runs

    def init(self) -> tuple[LearnerState, ...]:
        """Return every seed's state before its first update."""
        return tuple(run.init() for run in self._runs)

    def advance(
        self, state: tuple[LearnerState, ...], updates: int
    ) -> tuple[tuple[LearnerState, ...], HostMetrics]:
        """Make `updates` updates of every seed."""
        advanced = [run.advance(one, updates) for run, one in zip(self._runs, state, strict=True)]
        return tuple(after for after, _ in advanced), _side_by_side([metrics for _, metrics in advanced])

    def evaluate(self, state: tuple[LearnerState, ...]) -> HostMetrics:
        """Evaluate every seed; `[K, E]` each."""
        return _side_by_side([run.evaluate(one) for run, one in zip(self._runs, state, strict=True)])

    def updates_done(self, state: tuple[LearnerState, ...]) -> int:
        """Return the number of updates behind a state."""
        return self._runs[0].updates_done(state[0])

    def seed_state(self, state: tuple[LearnerState, ...], index: int) -> LearnerState:
        """Return the state of one seed."""
        return state[index]


def _side_by_side(metrics: list[HostMetrics]) -> HostMetrics:
    return {name: np.concatenate([one[name] for one in metrics]) for name in metrics[0]}


def _prepare_rollout(
    steps: int, copies: int, groups: Groups, key: Array
) -> tuple[Array, Array, tuple[Any, ...]]:
    key, noise_keys, shuffle_keys = scan_driver.update_keys(key, len(groups))
    return key, shuffle_keys, scan_driver.draw_noise(groups, noise_keys, steps, copies)


_Known: TypeAlias = tuple[Groups, tuple[AgentState, ...]]


def _act(known: _Known, given: tuple[tuple[Observed, ...], tuple[Any, ...]]) -> tuple[Any, ...]:
    return scan_driver.act(*known, *given)


def _play(
    known: _Known, given: tuple[tuple[Observed, ...], Array | None]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    (groups, agents), (observed, keys) = known, given
    drawn = (None,) * len(groups) if keys is None else keys
    played = [play(*row) for row in zip(groups, agents, observed, drawn, strict=True)]
    return tuple(one.taken for one in played), tuple(one.memory for one in played)


def _no_results(shape: tuple[int, ...]) -> EpisodeResults:
    return EpisodeResults(
        np.full(shape, np.nan), np.zeros(shape, np.int32), np.zeros(shape, bool), np.full(shape, np.nan)
    )


def _note(results: EpisodeResults, outcome: Outcome, over: np.ndarray) -> EpisodeResults:
    """Write down the results of the copies whose first episode ended with this step, `[B]`."""
    costs = None
    if outcome.episode_costs is not None and results.costs is not None:
        costs = np.where(over, outcome.episode_costs, results.costs)
    return EpisodeResults(
        np.where(over, outcome.episode_returns, results.returns),
        np.where(over, outcome.episode_lengths, results.lengths),
        results.finished | over,
        costs,
    )


def _learn(
    groups: Groups,
    agents: tuple[AgentState, ...],
    fault: Fault,
    rollouts: tuple[Experience, ...],
    keys: Array,
    updates: Array,
    sums: ChunkSums,
) -> tuple[tuple[AgentState, ...], Fault, ChunkSums]:
    fault = latch_fault(fault, rollouts, updates, scan_driver.categories(groups))
    agents, learning = scan_driver.learn(groups, agents, rollouts, keys, fault)
    return agents, fault, sums.add(learning, rollouts)
