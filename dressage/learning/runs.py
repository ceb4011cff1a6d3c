"""A training run in chunks: what command line and learners drive, wherever the experience comes from."""

from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.learning import scan_driver
from dressage.learning.compilation import compiler_options
from dressage.learning.evaluation import EpisodeResults, episode_results, evaluate, evaluation_key
from dressage.learning.faults import raise_fault
from dressage.learning.metrics import ChunkSums
from dressage.learning.records import LearnerState
from dressage.learning.scan_driver import GroupedEnv, Groups

HostMetrics = dict[str, np.ndarray]


class Run(Protocol):
    """A run that advances in chunks; every metric has a leading axis of seeds.

    Attributes:
        seeds: The seeds that are trained side by side.
        exact_resume: Whether the state holds all that the rest of the run depends on.
    """

    seeds: tuple[int, ...]
    exact_resume: bool

    def init(self) -> Any:  # noqa: ANN401 (the run's own state)
        """Return the state before the first update."""
        ...

    def advance(self, state: Any, updates: int) -> tuple[Any, HostMetrics]:  # noqa: ANN401
        """Make `updates` updates; the state given is used up."""
        ...

    def evaluate(self, state: Any) -> HostMetrics:  # noqa: ANN401
        """Play evaluation episodes; changes nothing."""
        ...

    def updates_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the number of updates behind a state."""
        ...

    def seed_state(self, state: Any, index: int) -> LearnerState:  # noqa: ANN401
        """Return the state of one seed."""
        ...


class CompiledRun:
    """Training of functional environments in compiled chunks, all seeds at once.

    One program serves chunks of every length; the state is donated, so memory stays flat.
    """

    exact_resume = True

    def __init__(
        self,
        env: GroupedEnv,
        groups: Groups,
        steps: int,
        seeds: tuple[int, ...],
        eval_env: GroupedEnv | None,
        max_steps: int,
    ) -> None:
        self.seeds = seeds
        self._groups = groups
        advance = partial(_advance, env, steps)
        begin = partial(scan_driver.init, env)
        if len(seeds) > 1:
            begin = jax.vmap(begin, in_axes=(None, 0))
            advance = jax.vmap(advance, in_axes=(None, 0, None))
        self._init = jax.jit(begin, compiler_options=compiler_options())
        samples = scan_driver.minibatch_size(groups, steps, env.copies, len(seeds))
        self._advance = jax.jit(advance, donate_argnums=1, compiler_options=compiler_options(samples))
        self._evaluate = None if eval_env is None else self._compile_evaluation(eval_env, max_steps)

    def init(self) -> LearnerState:
        """Return the state before the first update."""
        keys = jax.vmap(jax.random.key)(jnp.array(self.seeds))
        state: LearnerState = self._init(self._groups, keys if len(self.seeds) > 1 else keys[0])
        return state

    def advance(self, state: LearnerState, updates: int) -> tuple[LearnerState, HostMetrics]:
        """Make `updates` updates in one compiled call.

        Raises:
            NonFiniteError: If the environment gave a number that is not finite.
        """
        state, sums = self._advance(self._groups, state, jnp.int32(updates))
        raise_fault(state.fault, tuple(group.agents for group in self._groups), self.seeds)
        return state, {name: np.atleast_1d(values) for name, values in sums.means().items()}

    def evaluate(self, state: LearnerState) -> HostMetrics:
        """Play one deterministic episode in every evaluation copy of every seed; `[K, E]` each."""
        if self._evaluate is None:
            return {}
        return evaluation_metrics(self._evaluate(self._groups, state.agents, state.key))

    def updates_done(self, state: LearnerState) -> int:
        """Return the number of updates behind a state."""
        return int(np.max(state.updates))

    def seed_state(self, state: LearnerState, index: int) -> LearnerState:
        """Return the state of one seed."""
        if len(self.seeds) == 1:
            return state
        one: LearnerState = jax.tree.map(lambda leaf: leaf[index], state)
        return one

    def _compile_evaluation(self, env: GroupedEnv, max_steps: int) -> Any:  # noqa: ANN401 (a jitted function)
        play = partial(_evaluate, env, max_steps)
        if len(self.seeds) > 1:
            play = jax.vmap(play, in_axes=(None, 0, 0))
        return jax.jit(play, compiler_options=compiler_options())


def evaluation_metrics(results: EpisodeResults) -> HostMetrics:
    """Name the results of evaluation episodes, `[K, E]` each."""
    named = zip(("eval/returns", "eval/lengths", "eval/finished"), results, strict=False)
    return {name: np.atleast_2d(np.array(values)) for name, values in named}


def _advance(
    env: GroupedEnv, steps: int, groups: Groups, state: LearnerState, updates: Array
) -> tuple[LearnerState, ChunkSums]:
    return scan_driver.advance(env, groups, steps, state, updates)


def _evaluate(env: GroupedEnv, max_steps: int, groups: Groups, agents: Any, key: Array) -> EpisodeResults:  # noqa: ANN401
    rollouts, alive = evaluate(env, groups, agents, evaluation_key(key), max_steps)
    return episode_results(rollouts[0], alive)
