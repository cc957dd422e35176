"""What a run's folder knows about its advice journal besides the journal itself.

A journal alone cannot show that whole lines are missing at its end. The folder can: checkpoints
hold a place in the journal, `advice.json` the number of its lines, and a finished run has ended its
journal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.advisor.compose import JOURNAL
from jaxtrade.advisor.host.journal import JournalPosition, Recorded, check_position
from jaxtrade.errors import JournalError
from jaxtrade.runs.rundir import SUMMARY
from jaxtrade.storage.checkpoint import list_checkpoints

FIGURES = "advice.json"  # in a run's folder


def check_whole(path: Path, recorded: Recorded) -> None:
    """Check a journal against the run folder that it lies in. Without such a folder, nothing can be
    checked.

    Raises JournalError, which names the first missing line: the newest checkpoint or `advice.json`
    knows more deltas, or the run has finished and the journal has no end.
    """
    folder = path.parent
    if path.name != JOURNAL or not (folder / "manifest.json").is_file():
        return
    figures = recorded_figures(path) or {}
    for where, position in _positions(folder):
        check_position(path, recorded, position, where)
    if (known := int(figures.get("deltas", 0))) > recorded.position.deltas:
        raise _cut(path, recorded, f"{folder / FIGURES} counts {known:,} deltas")
    # A journal that could not be ended, as on a full disk, is complete without an end.
    if (folder / SUMMARY).is_file() and not recorded.ended and figures.get("journal_ended", True):
        raise _cut(
            path,
            recorded,
            f"the run has finished ({folder / SUMMARY}), and a finished run ends its journal",
        )


def _cut(path: Path, recorded: Recorded, why: str) -> JournalError:
    return JournalError(
        f"{path}: line {recorded.position.deltas + 2} is missing: {why}; the journal was cut. Restore "
        "the file, or record a new one"
    )


def recorded_figures(path: Path) -> dict[str, Any] | None:
    """The figures about the advisor in the run folder of the journal at `path`; None if there are
    none.

    Raises JournalError where the file is not valid JSON.
    """
    file = path.parent / FIGURES
    if not file.is_file():
        return None
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise JournalError(
            f"{file}: not a JSON object ({error}); restore it, or delete it"
        ) from None


def _positions(folder: Path) -> Iterator[tuple[str, JournalPosition]]:
    """The place in the journal that each checkpoint was written after, the newest first.
    Checkpoints whose manifest cannot be read are left out: another may know."""
    for _, checkpoint in reversed(list_checkpoints(folder / "checkpoints")):
        try:
            found: Mapping[str, Any] = json.loads(
                (checkpoint / "manifest.json").read_text(encoding="utf-8")
            )
            memory = found["metadata"]["hooks"]["advice"]
            yield str(checkpoint), JournalPosition(int(memory["deltas"]), str(memory["sha256"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
