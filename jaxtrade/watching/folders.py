"""The runs below a folder, by the names under which the page knows them."""

from __future__ import annotations

import os
from pathlib import Path

MANIFEST = "manifest.json"
DEEPEST = 3  # folders of a curriculum's or a sweep's runs lie in that of the whole


def runs_below(folder: Path) -> dict[str, Path]:
    """Name -> folder of every run: `folder` itself if it is one, else those below it, newest first.

    Links are not followed, so nothing outside of `folder` is found.
    """
    if (folder / MANIFEST).is_file():
        return {folder.name: folder}
    found = list(_search(folder, 0))
    found.sort(key=lambda run: (run / MANIFEST).stat().st_mtime, reverse=True)
    return {run.relative_to(folder).as_posix(): run for run in found}


def _search(folder: Path, depth: int) -> list[Path]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:  # a run that is moved or deleted while we look
        return []
    runs = []
    for entry in entries:
        path = Path(entry.path)
        if (path / MANIFEST).is_file():
            runs.append(path)
        elif depth + 1 < DEEPEST:
            runs += _search(path, depth + 1)
    return runs
