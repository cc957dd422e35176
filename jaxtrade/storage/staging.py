"""Several files that replace earlier ones together.

Each is whole: a killed process leaves no half-written file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from jaxtrade.storage import digests


@contextmanager
def stage_files(folder: Path, noted: bool = True) -> Iterator[Path]:
    """Give an empty folder for new files; at the end of the block they move to `folder`.

    They replace files of the same names. If the block raises, nothing moves. `folder` and its
    parents are created. What a killed process has left is removed by the next one.
    noted: whether the digests of the files are kept beside them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        files = sorted(new.iterdir())
        made = {path.name: path for path in files if path.is_file()}
        with digests.replace_files(folder, made) if noted else nullcontext():
            for path in files:
                path.replace(folder / path.name)
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(
            error.errno, error.strerror, str(folder)
        ) from None  # plots and archives name no file
    finally:
        shutil.rmtree(new, ignore_errors=True)
