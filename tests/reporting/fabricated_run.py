"""Writes a run directory with made-up figures, so that reports need no training."""

from pathlib import Path

import numpy as np

from dressage.config import Option
from dressage.reporting.film import write_film
from dressage.reporting.metric_rows import encode, eval_row, train_row
from dressage.reporting.run_folder import RunFolder, RunRecord, write_json

OPTIONS = (
    Option("LR", 5e-4, "number", minimum=0.0, help="Learning rate."),
    Option("NUM_ENVS", 64, "integer", minimum=1, unit="environments", help="Copies that run at once."),
)


def fabricate(
    path: Path, seeds: tuple[int, ...] = (0,), points: int = 10, evaluations: bool = True
) -> RunFolder:
    """Make a run that rises from -1200 to about -150 in `points` evaluations of 20 episodes."""
    folder = RunFolder(path)
    path.mkdir(parents=True)
    RunRecord(
        task="pendulum",
        algorithm="ppo",
        options={"LR": 1e-3, "NUM_ENVS": 64},
        changed={"LR": 1e-3},
        seeds=seeds,
        created="2026-01-02T03:04:05",
        versions={"python": "3.11.2", "jax": "0.10.2"},
        machine={"processor": "Abacus <2>", "cores": "2"},
    ).write(folder)
    rng = np.random.default_rng(0)
    lines = [
        encode(row) for point in range(1, points + 1) for row in _rows(rng, len(seeds), point, evaluations)
    ]
    folder.metrics.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def finish(
    folder: RunFolder, note: str = "One episode with the most likely actions: 200 steps, return -131.2."
) -> None:
    """Add a summary and a film."""
    write_film(folder.film, [np.full((40, 60, 3), shade, np.uint8) for shade in (30, 200)], 10.0)
    summary = {
        "status": "finished",
        "steps_requested": 500_000,
        "steps_taken": 500_736,
        "updates": 489,
        "time_s": 21.5,
        "start_up_s": 3.1,
        "steps_per_second": 171_234.5,
        "exact_resume": True,
        "returns": None,
        "film": {"path": folder.film.name, "note": note},
    }
    write_json(folder.summary, summary)


def _rows(rng: np.random.Generator, seeds: int, point: int, evaluations: bool) -> list[dict]:
    progress = {
        "updates": 49 * point,
        "steps": 50_176 * point,
        "time_s": 2.1 * point,
        "steps_per_second": 1.7e5,
    }
    level = -1200.0 * 0.65**point - 140.0
    one_each = {
        "train/episode_return": level + rng.normal(0, 30, seeds),
        "train/entropy": 1.4 - 0.1 * point + rng.normal(0, 0.02, seeds),
        "train/approx_kl": np.abs(rng.normal(0.01, 0.002, seeds)),
        "train/explained_variance": 1.0 - 0.6**point + rng.normal(0, 0.01, seeds),
        "train/value_loss": 2.0 * 0.8**point + np.abs(rng.normal(0, 0.02, seeds)),
        "train/clip_fraction": np.abs(rng.normal(0.1, 0.02, seeds)),
    }
    rows = [train_row(progress, one_each)]
    if evaluations:
        returns = level + rng.normal(0, 80, (seeds, 20))
        lengths, finished = np.full((seeds, 20), 200), np.ones((seeds, 20), bool)
        rows.append(
            eval_row(progress, {"eval/returns": returns, "eval/lengths": lengths, "eval/finished": finished})
        )
    return rows
