"""Owns a run of rsl_rl's algorithms: one engine a seed, driven in chunks, and their checkpoints."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dressage.errors import CheckpointError
from dressage.policy.base_policy import MetricKind
from dressage.policy.rsl_rl_policy.finished import FinishedPolicy, play_episodes
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy, RSLRLVecEnvMeta
from dressage.policy.torch_envs.catalog import SHIPPED, TorchTask
from dressage.policy.torch_envs.rollouts import MakeRollouts
from dressage.reporting.metric_rows import PLACE
from dressage.reporting.rollouts import UNLIMITED_STEPS, Episodes
from dressage.reporting.run_folder import write_json
from dressage.runtime import Engine
from dressage.runtime.metric_kinds import summarize_updates

EVALUATION_SEED = 1_000_003
"""Added to a run's seed, so that evaluations start where training did not."""

RENAMED = {"training": "train", "rollout": "train"}
"""Groups of the engine's metrics as every other run of the command line names them."""


@dataclass
class RowCollector:
    """Takes the rows of an engine.

    Attributes:
        rows: Metrics of the updates since the last look.
        events: What happened besides, since the last look.
    """

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def write(self, row: Mapping[str, Any]) -> None:
        """Take one row."""
        if row["kind"] == "event":
            self.events.append(row)
        else:
            self.rows.append({name: value for name, value in row.items() if name not in PLACE})

    def summary(self, kinds: Mapping[str, MetricKind]) -> dict[str, float]:
        """Return every metric over the updates since the last look, by its kind, and forget the rows."""
        found = summarize_updates(self.rows, kinds)
        self.rows.clear()
        return {_renamed(name): value for name, value in found.items()}

    def take_events(self) -> list[Mapping[str, Any]]:
        """Return the events since the last look."""
        found, self.events = self.events, []
        return found


@dataclass
class Seed:
    """One seed's training.

    Attributes:
        engine: Trains it.
        rows: Takes its rows.
        stream: torch's random stream, which engines of one process take turns with.
    """

    engine: Engine
    rows: RowCollector
    stream: np.ndarray


class RslRlRun:
    """A run over several seeds, one after the other within every chunk; a `Trainable`.

    Args:
        task: What to train on.
        seeds: The seeds.
        steps_per_update: Environment steps of one update of one seed.
        total_steps: Environment steps of each seed, rounded up to whole updates.
        eval_episodes: Episodes of each evaluation; 0 for none.
        make_engine: Makes the engine of a seed, which writes rows to the collector.
    """

    def __init__(
        self,
        task: TorchTask,
        seeds: tuple[int, ...],
        steps_per_update: int,
        total_steps: int,
        eval_episodes: int,
        make_engine: Callable[[int, RowCollector], Engine],
    ) -> None:
        self.seeds = seeds
        self.steps_per_update = steps_per_update
        self.num_updates = -(-total_steps // steps_per_update)
        self._task = task
        self._eval_episodes = eval_episodes
        self._make_engine = make_engine
        self._state: list[Seed] = []

    @property
    def exact_resume(self) -> bool:
        """Whether every engine can save all that it goes on from."""
        if not self._state:
            return self._task.name in SHIPPED
        return all(seed.engine.exact_resume == "yes" for seed in self._state)

    def init(self) -> list[Seed]:
        """Start the engines; those of an earlier call end."""
        self.close()
        for seed in self.seeds:
            rows = RowCollector()
            engine = self._make_engine(seed, rows)
            self._state.append(Seed(engine, rows, engine.learner.random_state()))
        return self._state

    def advance(self, state: list[Seed], updates: int) -> tuple[list[Seed], dict[str, np.ndarray]]:
        """Make updates; metrics are `[K]` by name."""
        found = []
        for seed in state:
            seed.engine.learner.load_random_state(seed.stream)
            seed.engine.run(seed.engine.learner.version + updates, save=False)
            seed.stream = seed.engine.learner.random_state()
            found.append(seed.rows.summary(seed.engine.metric_kinds))
        names = sorted({name for one in found for name in one})
        return state, {name: np.array([one.get(name, np.nan) for one in found]) for name in names}

    def events(self) -> list[Mapping[str, Any]]:
        """Return what happened to the engines since the last look; of several seeds it says which."""
        several = len(self.seeds) > 1
        return [
            {**event, "of_seed": number} if several else event
            for seed, number in zip(self._state, self.seeds, strict=False)
            for event in seed.rows.take_events()
        ]

    def evaluate(self, state: list[Seed]) -> dict[str, np.ndarray]:
        """Play evaluation episodes by the mean action, `[K, E]` by name; training notices nothing."""
        if self._eval_episodes == 0:
            return {}
        played = [
            play(self._task, _finished(seed.engine), self._eval_episodes, EVALUATION_SEED + number)
            for seed, number in zip(state, self.seeds, strict=True)
        ]
        return {
            "eval/returns": np.stack([episodes.returns for episodes in played]),
            "eval/lengths": np.stack([episodes.lengths for episodes in played]),
            "eval/finished": np.stack([episodes.finished for episodes in played]),
        }

    def updates_done(self, state: list[Seed]) -> int:
        """Return the number of updates behind a state."""
        return state[0].engine.learner.version

    def steps_done(self, state: list[Seed]) -> int:
        """Return the environment steps that each seed has learned from."""
        return state[0].engine.counters.used_steps

    def policy(self, state: list[Seed], seed_index: int = 0) -> FinishedPolicy:
        """Return the policy of one seed."""
        return _finished(state[seed_index].engine)

    def close(self) -> None:
        """End the engines and their workers."""
        while self._state:
            self._state.pop().engine.close()


class EngineCheckpoints:
    """The checkpoints of all engines of a run: a folder an update, in it one of each engine and a note.

    Args:
        folder: Where they lie.
        keep: How many of the latest are kept.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def save(self, step: int, state: list[Seed], note: dict[str, Any]) -> None:
        """Write a checkpoint, whole or not at all; one of the same step is left as it is."""
        if step in self.steps():
            return
        draft = self._folder / f"{step}.part"
        shutil.rmtree(draft, ignore_errors=True)
        for index, seed in enumerate(state):
            # Engines share torch's stream in turns; each one's own belongs into its checkpoint.
            seed.engine.learner.load_random_state(seed.stream)
            seed.engine.save(draft / str(index))
        write_json(draft / "note.json", note)
        draft.rename(self._folder / str(step))
        for old in self.steps()[: -self._keep]:
            shutil.rmtree(self._folder / str(old))

    def steps(self) -> tuple[int, ...]:
        """Return the steps of all checkpoints, oldest first."""
        if not self._folder.is_dir():
            return ()
        return tuple(sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit()))

    def restore(self, state_like: list[Seed], step: int | None = None) -> tuple[list[Seed], dict[str, Any]]:
        """Have engines go on from a checkpoint, by default from the newest.

        Raises:
            CheckpointError: If there is none, it is damaged, or it was made for another run.
        """
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"There is no complete checkpoint in {self._folder}.")
        path = self._folder / str(steps[-1] if step is None else step)
        try:
            note: dict[str, Any] = json.loads((path / "note.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"The checkpoint {path} is incomplete: {error}.") from error
        for index, seed in enumerate(state_like):
            seed.engine.resume(path / str(index))
            seed.stream = seed.engine.learner.random_state()
        return state_like, note

    def discard_after(self, step: int) -> None:
        """Remove the checkpoints of later steps."""
        for later in (found for found in self.steps() if found > step):
            shutil.rmtree(self._folder / str(later))


def play(
    task: TorchTask, policy: FinishedPolicy, episodes: int, seed: int, *, stochastic: bool = False
) -> Episodes:
    """Play the first episode of each of several copies; torch's random stream stays where it was."""
    face = MakeRollouts(task, episodes)(seed)
    player = policy.player(episodes, stochastic=stochastic)
    before = player.random_state()
    player.seed(seed)
    try:
        limit = int(face.env.max_episode_length) or UNLIMITED_STEPS
        played = play_episodes(player, face, limit)
    finally:
        player.load_random_state(before)
        face.close()
    return Episodes(played.returns, played.lengths, played.finished)


def _finished(engine: Engine) -> FinishedPolicy:
    learner, meta = engine.learner, engine.meta
    assert isinstance(learner, RSLRLPolicy), "these runs train no other"
    assert isinstance(meta, RSLRLVecEnvMeta), "torch tasks describe themselves by no other"
    return FinishedPolicy.of(learner, meta)


def _renamed(name: str) -> str:
    group, slash, rest = name.partition("/")
    return RENAMED.get(group, group) + slash + rest
