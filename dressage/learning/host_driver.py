"""The host driver: a Python loop around one compiled `act` and one compiled update.

Environments that no compiler can see step here. Keys, noise, targets and updates are those of the compiled
driver, so that one environment gives the same parameters through both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from dressage.learning import scan_driver
from dressage.learning.evaluation import EpisodeResults, play
from dressage.learning.faults import latch_fault, raise_fault
from dressage.learning.host_env import HostGroupedEnv
from dressage.learning.metrics import ChunkSums
from dressage.learning.records import AgentState, Experience, Fault, LearnerState, Observed
from dressage.learning.runs import HostMetrics, evaluation_key, evaluation_metrics
from dressage.learning.scan_driver import Groups

UNLIMITED = 100_000  # Steps after which an evaluation episode without a time limit counts as unfinished.


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
        exact_resume: bool,
    ) -> None:
        self.seeds: tuple[int, ...] = (seed,)
        self.exact_resume = exact_resume
        self._make_env = make_env
        self._env = make_env(copies)
        self._eval_env: HostGroupedEnv | None = None
        self._eval_copies = eval_copies
        self._max_steps = UNLIMITED if max_steps is None else max_steps
        self._groups = groups
        self._steps = steps
        self._running: LearnerState | None = None
        self._prepare = jax.jit(partial(_prepare_rollout, steps, copies))
        self._act = jax.jit(scan_driver.act)
        self._learn = jax.jit(_learn, donate_argnums=1)
        self._play = jax.jit(_play)

    def init(self) -> LearnerState:
        """Reset the environments and draw parameters, with the compiled driver's keys."""
        keys = jax.random.split(jax.random.key(self.seeds[0]), 2 + len(self._groups))
        observed = self._env.reset(keys[1])
        begin = jax.jit(partial(scan_driver.start, self._groups, self._env.copies))
        state: LearnerState = begin(self._env.state(), observed, keys[0], keys[2:])
        self._running = state
        return state

    def advance(self, state: LearnerState, updates: int) -> tuple[LearnerState, HostMetrics]:
        """Make `updates` updates.

        Raises:
            NonFiniteError: If the environment gave a number that is not finite.
        """
        state = self._enter(state)
        sums = scan_driver.no_sums(self._groups)
        for _ in range(updates):
            state, sums = self._update(state, sums)
            raise_fault(state.fault, tuple(group.agents for group in self._groups))
        self._running = state
        return state, {name: np.atleast_1d(values) for name, values in sums.means().items()}

    def evaluate(self, state: LearnerState) -> HostMetrics:
        """Play one deterministic episode in every evaluation copy; `[1, E]` each."""
        if self._eval_copies == 0:
            return {}
        if self._eval_env is None:
            self._eval_env = self._make_env(self._eval_copies)
        return evaluation_metrics(self._play_episodes(self._eval_env, state))

    def updates_done(self, state: LearnerState) -> int:
        """Return the number of updates behind a state."""
        return int(state.updates)

    def seed_state(self, state: LearnerState, index: int) -> LearnerState:
        """Return the state of the one seed."""
        if index:
            raise IndexError(f"This run has one seed, got index {index}.")
        return state

    def _enter(self, state: LearnerState) -> LearnerState:
        """Bring the environments to where the state left them, or start them anew where that cannot be."""
        if state is self._running:
            return state
        if self.exact_resume:
            self._env.set_state(state.environment)
            return state
        key = jax.random.fold_in(state.key, state.updates)
        return state.replace(observed=self._env.reset(key))

    def _update(self, state: LearnerState, sums: ChunkSums) -> tuple[LearnerState, ChunkSums]:
        key, shuffle_keys, noise = self._prepare(self._groups, state.key)
        noise = jax.tree.map(np.asarray, noise)
        observed, rows = state.observed, []
        for step in range(self._steps):
            drawn = jax.tree.map(lambda leaf, step=step: leaf[step], noise)
            outputs, actions, taken = self._act(self._groups, state.agents, observed, drawn)
            outcomes = self._env.step(tuple(np.asarray(action) for action in taken))
            rows.append(scan_driver.record_rows(observed, outputs, actions, outcomes))
            observed = tuple(outcome.observed for outcome in outcomes)
        rollouts = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
        agents, fault, sums = self._learn(
            self._groups, state.agents, state.fault, rollouts, shuffle_keys, state.updates, sums
        )
        after = LearnerState(agents, self._env.state(), observed, key, state.updates + 1, fault)
        return after, sums

    def _play_episodes(self, env: HostGroupedEnv, state: LearnerState) -> EpisodeResults:
        observed = env.reset(evaluation_key(state.key))
        finished = np.zeros(env.copies, bool)
        returns, lengths = np.full(env.copies, np.nan), np.zeros(env.copies, np.int32)
        for _ in range(self._max_steps):
            taken = self._play(self._groups, state.agents, observed)
            outcome = env.step(tuple(np.asarray(action) for action in taken))[0]
            ended = np.asarray(outcome.episode_ends) & ~finished
            returns = np.where(ended, outcome.episode_returns, returns)
            lengths = np.where(ended, outcome.episode_lengths, lengths)
            finished |= ended
            if finished.all():
                break
            observed = (outcome.observed,)
        return EpisodeResults(returns, lengths, finished)


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


def _play(
    groups: Groups, agents: tuple[AgentState, ...], observed: tuple[Observed, ...]
) -> tuple[Array, ...]:
    return tuple(play(*row)[2] for row in zip(groups, agents, observed, strict=True))


def _learn(
    groups: Groups,
    agents: tuple[AgentState, ...],
    fault: Fault,
    rollouts: tuple[Experience, ...],
    keys: Array,
    updates: Array,
    sums: ChunkSums,
) -> tuple[tuple[AgentState, ...], Fault, ChunkSums]:
    fault = latch_fault(fault, rollouts, updates)
    agents, learning = scan_driver.learn(groups, agents, rollouts, keys, fault)
    return agents, fault, sums.add(learning, rollouts)
