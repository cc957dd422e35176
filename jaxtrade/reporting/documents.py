"""Reads the JSON files of a run for its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxtrade.storage import digests


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file as it was written. Raises DataError if it cannot be read, or has changed
    since.
    """
    return digests.read_json(path, "evaluate the run again: jaxtrade evaluate RUN")
