"""Owns films: frames of an episode to a GIF or an MP4 file."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from dressage.errors import ConfigError, DressageError

Moment = TypeVar("Moment")

FORMATS = (".gif", ".mp4")
"""File endings that a film can have."""


def check_film_path(path: Path) -> None:
    """Refuse a file ending that no film has.

    Raises:
        ConfigError: If the ending is not `.gif` or `.mp4`.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"A film ends in {' or '.join(FORMATS)}; {path} does not.")


def write_film(path: Path, frames: Sequence[np.ndarray], frames_per_second: float) -> None:
    """Write frames as a film; a GIF repeats for ever.

    Args:
        path: Ends in `.gif` or `.mp4`.
        frames: At least one, each `[H, W, 3]` uint8, all of one size.
        frames_per_second: Pace, above 0.

    Raises:
        ConfigError: If the ending is not `.gif` or `.mp4`.
        DressageError: If ffmpeg fails.
    """
    check_film_path(path)
    draft = path.with_name(f"part-{path.name}")
    if path.suffix.lower() == ".gif":
        # A GIF counts in hundredths of a second, and viewers slow down what is shorter than two of them.
        hundredths = max(2, round(100.0 / frames_per_second))
        # imageio brings pillow with it, half a second of import that only a film needs.
        import imageio.v3 as imageio

        imageio.imwrite(draft, np.stack(frames), plugin="pillow", duration=10 * hundredths, loop=0)
    else:
        _write_mp4(draft, np.stack([_even_sized(frame) for frame in frames]), frames_per_second)
    draft.replace(path)


def thin_out(moments: Sequence[Moment], most: int) -> tuple[list[Moment], int]:
    """Keep every n-th moment of an episode so that at most `most` stay.

    Args:
        moments: Frames, or the states to draw.
        most: How many may stay, at least 1.

    Returns:
        The moments that stay, and n: the pace must be divided by it.
    """
    stride = max(1, -(-len(moments) // most))
    return list(moments[::stride]), stride


def shrink(frame: np.ndarray, widest: int) -> np.ndarray:
    """Shrink a frame by a whole factor, by averaging, until it is at most `widest` pixels wide and high.

    Args:
        frame: `[H, W, 3]` uint8.
        widest: Greatest side in pixels.
    """
    factor = max(1, -(-max(frame.shape[:2]) // widest))
    height, width = (side // factor * factor for side in frame.shape[:2])
    blocks = frame[:height, :width].reshape(height // factor, factor, width // factor, factor, 3)
    shrunk: np.ndarray = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
    return shrunk


def _write_mp4(path: Path, frames: np.ndarray, frames_per_second: float) -> None:
    from imageio.plugins.ffmpeg import get_exe

    # imageio's own writer forks this process, which JAX warns of, since its threads may then hang.
    raw = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{frames.shape[2]}x{frames.shape[1]}")
    coding = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart")
    quiet = (get_exe(), "-loglevel", "error", "-y")
    command = [*quiet, *raw, "-r", f"{frames_per_second:g}", "-i", "-", *coding, str(path)]
    done = subprocess.run(command, input=frames.tobytes(), capture_output=True, check=False)
    if done.returncode:
        raise DressageError(f"ffmpeg could not write {path}: {done.stderr.decode(errors='replace').strip()}")


def _even_sized(frame: np.ndarray) -> np.ndarray:
    # H.264 stores colour at half resolution, so it takes even sides only.
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
