"""Several files that replace earlier ones together. Each is whole: a killed process leaves no half-written file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty folder for new files; at the end of the block they move to `folder`, over files of the same names.

    If the block raises, nothing moves. `folder` and its parents are created. What a killed process has left is removed
    by the next one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
        for path in sorted(new.iterdir()):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(new, ignore_errors=True)
