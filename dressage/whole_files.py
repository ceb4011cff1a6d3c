"""Owns how files are written: whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the path of a draft to write, which takes the file's place when the block ends.

    Where the block or the disk fails, the draft goes and the file stays what it was.

    Args:
        path: The file; the folder that it lies in must be there.

    Raises:
        OSError: If it cannot be written, for instance on a full disk; it names `path`, not the draft.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        # After a replacement there is none left.
        with contextlib.suppress(OSError):
            draft.unlink()
