"""Films: frames come back from GIF and MP4 with their pace."""

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np
import pytest

from dressage.errors import ConfigError
from dressage.reporting.film import shrink, thin_out, write_film

FRAMES = [np.full((21, 33, 3), shade, np.uint8) for shade in (0, 128, 255)]


def test_a_gif_holds_the_frames_and_their_pace_and_repeats(tmp_path):
    path = tmp_path / "film.gif"
    write_film(path, FRAMES, 20.0)
    back = imageio.imread(path, index=None, plugin="pillow")
    assert [frame[0, 0, 0] for frame in back] == [0, 128, 255]
    facts = imageio.immeta(path, index=0, plugin="pillow")
    assert (facts["duration"], facts["loop"]) == (50, 0)


def test_an_mp4_takes_frames_of_odd_size(tmp_path):
    path = tmp_path / "film.mp4"
    write_film(path, FRAMES * 4, 20.0)
    # imageio's own reader leaves pipes open, which is a warning and so an error here.
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert (frames, seconds) == (12, pytest.approx(0.6, abs=0.05))


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"A film ends in \.gif or \.mp4; film\.avi does not"):
        write_film(tmp_path.joinpath("film.avi").relative_to(tmp_path), FRAMES, 20.0)


def test_no_half_film_is_left_behind(tmp_path):
    write_film(tmp_path / "film.gif", FRAMES, 20.0)
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


def test_thinning_keeps_every_nth_moment():
    assert thin_out([1, 2, 3, 4, 5], 5) == ([1, 2, 3, 4, 5], 1)
    assert thin_out([1, 2, 3, 4, 5], 3) == ([1, 3, 5], 2)


def test_shrinking_averages_blocks_of_pixels():
    frame = np.zeros((5, 4, 3), np.uint8)
    frame[0, 0] = 100
    small = shrink(frame, 2)
    assert small.shape == (1, 1, 3)
    assert small[0, 0, 0] == 11  # one of nine
    assert shrink(frame, 5) is not None
    np.testing.assert_array_equal(shrink(frame, 5), frame)
