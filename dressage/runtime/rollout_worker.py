"""A worker: environment copies with an EVAL policy beside them, collecting whole fragments."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dressage.errors import (
    DressageError,
    EnvironmentContractError,
    EnvironmentRaisedError,
    NonFiniteError,
)
from dressage.policy.base_policy import EnvRet, Fragment, PolicyResponse, PolicyRole, RolloutEnv
from dressage.policy.finite import first_broken, is_finite, plain
from dressage.runtime.records import Collected, EpisodeSums, Hello, Order, RunSpec, WorkerState
from dressage.tracebacks import told

OF_ENVIRONMENT = ("observation", "reward", "cost", "final")
"""First parts of the names that an environment answers for; all others are the policy's."""

FACE = ("num_envs", "meta", "observe", "step", "state", "load_state", "close")
"""What a worker needs of its environment, as `RolloutEnv` declares it."""


class RolloutWorker:
    """One worker of a run; it is the same wherever it runs.

    Args:
        spec: What it is made of.
        index: Its number.
        seed: Seeds its environment and, unless `shares_stream`, its random stream.
        host: Whether fragments become NumPy arrays.
        shares_stream: Whether it draws from the process's stream as it stands, like the learner beside it;
            otherwise it has a stream of its own, which it puts in place while it works.
    """

    def __init__(
        self, spec: RunSpec, index: int, seed: int, *, host: bool = True, shares_stream: bool = False
    ) -> None:
        self._spec = spec
        self._index = index
        self._seed = seed
        self._host = host
        self._shares = shares_stream
        self._policy = spec.policy(spec.policy_config, PolicyRole.EVAL)
        self._stream: np.ndarray | None = None
        self._steps = 0
        with self._drawing():
            if not shares_stream:
                self._policy.seed(seed)
            self._env: RolloutEnv = self._make_env(seed)
        self._policy.init_eval(spec.eval_config, self._env.meta())
        self._present: EnvRet | None = None
        self._open = OpenEpisodes(self._env.num_envs)

    def hello(self) -> Hello:
        """Say what was made."""
        stream = self._policy.random_state() if self._stream is None else self._stream
        saves_state = self._env.state() is not None
        return Hello(self._env.meta(), self._env.num_envs, stream, saves_state, os.getpid())

    def collect(self, order: Order) -> Collected:
        """Collect a fragment.

        Raises:
            NonFiniteError: If a number is not finite; the text names environment, copy, step and field.
            EnvironmentRaisedError: If the environment raises.
        """
        began = time.perf_counter()
        self._policy.load_weights(order.weights)
        with self._drawing(order.stream), self._policy.collecting():
            fragment = self._collect()
        stream = None if order.stream is None else self._policy.random_state()
        episodes = self._open.add(fragment)
        return Collected(fragment, episodes, time.perf_counter() - began, stream)

    def rebuild(self, seed: int) -> None:
        """Make the environment anew, from another seed; recurrent state begins anew too."""
        self._env.close()
        self._seed = seed
        with self._drawing():
            self._env = self._make_env(seed)
        self._present = None
        self._policy.load_rollout_state({})
        self._open = OpenEpisodes(self._env.num_envs)

    def state(self) -> WorkerState:
        """Return all that the worker's future depends on besides weights."""
        stream = self._policy.random_state() if self._stream is None else self._stream
        return WorkerState(self._env.state(), self._policy.rollout_state(), stream, self._open.rows.copy())

    def load_state(self, state: WorkerState) -> None:
        """Go on from a state; without the environment's, that begins anew and only the stream goes on."""
        if not self._shares:
            self._keep_stream(state.stream)
        if state.environment is None:
            return
        with self._policy.collecting():
            self._env.load_state(state.environment)
        self._present = None
        self._policy.load_rollout_state(state.policy)
        self._open.rows = np.array(state.episodes)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _make_env(self, seed: int) -> RolloutEnv:
        try:
            made = self._spec.make_env(seed)
        except DressageError:
            raise
        except Exception as error:
            raise EnvironmentRaisedError(
                f"Worker {self._index}: making its environment raised {told(error)}"
            ) from error
        lacking = [name for name in FACE if not hasattr(made, name)]
        if lacking:
            raise EnvironmentContractError(
                f"Worker {self._index}: make_env returned a {type(made).__name__}, which has no "
                f"{', '.join(lacking)}. An rsl_rl VecEnv goes into VecEnvRollouts(env, name)."
            )
        return made

    def _collect(self) -> Fragment:
        ret = self._observe() if self._present is None else self._present
        transitions: list[PolicyResponse] = []
        for _ in range(self._policy.num_steps):
            response = self._act(ret, transitions)
            ret = self._step(response, transitions)
            transitions.append(self._policy.postprocess(ret, response))
        self._present = ret
        fragment = replace(self._policy.close_fragment(transitions, ret, host=self._host), seed=self._seed)
        self._check_finite(fragment)
        self._steps += fragment.num_steps
        return fragment

    def _observe(self) -> EnvRet:
        try:
            return self._env.observe()
        except DressageError:
            raise
        except Exception as error:
            raise self._raised("observe", 0, error) from error

    def _act(self, ret: EnvRet, before: list[PolicyResponse]) -> PolicyResponse:
        try:
            return self._policy.rollout_step(ret)
        except Exception:
            self._check_so_far(before, ret.observation)
            raise

    def _step(self, response: PolicyResponse, before: list[PolicyResponse]) -> EnvRet:
        try:
            return self._env.step(response.action)
        except DressageError:
            raise
        except Exception as error:
            self._check_so_far(before, response.observation)
            raise self._raised("step", len(before), error) from error

    def _raised(self, method: str, step: int, error: Exception) -> EnvironmentRaisedError:
        return EnvironmentRaisedError(
            f"Worker {self._index}, {self._env.meta().env_id}, step {self._steps + step}: {method} raised "
            f"{told(error)}"
        )

    def _check_finite(self, fragment: Fragment) -> None:
        broken = {name: rows for name, rows in fragment.steps.items() if not is_finite(rows)}
        if broken:
            firsts = {name: first_broken(plain(rows)) for name, rows in broken.items()}
            # Of equally early ones the environment's comes first: the policy's follow from it.
            name = min(firsts, key=lambda name: (firsts[name][0], not name.startswith(OF_ENVIRONMENT)))
            raise self._not_finite(name, *firsts[name])
        for name, rows in {**fragment.last, **fragment.finals}.items():
            if not is_finite(rows):
                step, copy = fragment.num_steps - 1, first_broken(plain(rows)[None])[1]
                field = f"final {name}" if name in fragment.finals else name
                raise self._not_finite(field, step, copy)

    def _check_so_far(self, before: list[PolicyResponse], observation: Any) -> None:  # noqa: ANN401
        """Look for what is not finite where a step failed: it breaks what comes after it."""
        for step, one in enumerate(before):
            self._check_row(step, {"observation": one.observation, "reward": one.reward})
        self._check_row(len(before), {"observation": observation})

    def _check_row(self, step: int, rows: Mapping[str, Any]) -> None:
        for name, row in _leaves(rows):
            if not is_finite(row):
                raise self._not_finite(name, step, first_broken(plain(row)[None])[1])

    def _not_finite(self, field: str, step: int, copy: int) -> NonFiniteError:
        whose = "environment" if field.startswith(OF_ENVIRONMENT) else "policy"
        return NonFiniteError(
            f"Worker {self._index}, environment {self._env.meta().env_id}, copy {copy}, step "
            f"{self._steps + step} (counted from 0 since the worker began): {field} is not finite. It comes "
            f"from the {whose}. The fragment reaches no update. To drop such fragments and go on with a "
            "fresh environment, set non_finite='quarantine'."
        )

    @contextmanager
    def _drawing(self, given: np.ndarray | None = None) -> Iterator[None]:
        """Draw from the stream given, else from the worker's own, else from the process's as it stands."""
        if given is not None:
            self._policy.load_random_state(given)
        if given is not None or self._shares:
            yield
            return
        outer = self._policy.random_state()
        if self._stream is not None:
            self._policy.load_random_state(self._stream)
        try:
            yield
        finally:
            self._stream = self._policy.random_state()
            self._policy.load_random_state(outer)

    def _keep_stream(self, stream: np.ndarray) -> None:
        self._stream = stream


class OpenEpisodes:
    """Running returns and lengths of every copy's open episode.

    Attributes:
        rows: `[2, N]` float64: returns, lengths in steps.
    """

    def __init__(self, copies: int) -> None:
        self.rows = np.zeros((2, copies))

    def add(self, fragment: Fragment) -> EpisodeSums:
        """Count a fragment; returns the episodes that it finished."""
        rewards = plain(fragment.steps["reward"]).astype(np.float64)
        ends = plain(fragment.steps["terminated"]) | plain(fragment.steps["truncated"])
        if not ends.any():
            self.rows[0] += rewards.sum(axis=0)
            self.rows[1] += len(rewards)
            return EpisodeSums()
        # Running totals since the fragment's episodes began, as if none had ended: [2, T, N].
        totals = self.rows[:, None] + np.cumsum([rewards, np.ones_like(rewards)], axis=1)
        self.rows = totals[:, -1].copy()
        copies, steps = np.nonzero(ends.T)  # by copy, then by step
        reached = totals[:, steps, copies]
        same_copy = copies[1:] == copies[:-1]
        finished = reached.copy()
        finished[:, 1:] -= np.where(same_copy, reached[:, :-1], 0.0)
        last = np.append(~same_copy, True)
        self.rows[:, copies[last]] -= reached[:, last]
        returns, lengths = finished.sum(axis=1)
        return EpisodeSums(len(copies), float(returns), float(lengths))


def _leaves(rows: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, row in rows.items():
        if hasattr(row, "items"):
            yield from _leaves(dict(row.items()), f"{before}{name}/")
        else:
            yield f"{before}{name}", row
