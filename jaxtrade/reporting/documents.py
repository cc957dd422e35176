"""Reads the JSON files of a run for its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jaxtrade.errors import DataError


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file. Raises DataError if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); evaluate the run again: jaxtrade evaluate RUN") from None
