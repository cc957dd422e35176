"""`validation/latest.json` in a run's folder: the last validation session as the policy of now
trades it.

`jaxtrade watch` shows it. The run goes on if it cannot be written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtrade.evaluation.backtest import Lane, Record
from jaxtrade.evaluation.session_view import last_session
from jaxtrade.runs.setup import Setup
from jaxtrade.text import Tell

FILE = "validation/latest.json"


class LatestSession:
    """Collects the session of one evaluation (`see`), and writes it with its score (`write`).

    Of several agents it is the first one's, of several symbols the first symbol's.
    """

    def __init__(self, folder: Path, tell: Tell) -> None:
        """tell: receives the line about a file that cannot be written."""
        self._path, self._tell, self._told = folder / FILE, tell, False
        self._session: dict[str, Any] | None = None

    def see(self, setup: Setup, record: Record, lane: Lane) -> None:
        """Take what an agent did on a symbol."""
        if self._session is None:
            self._session = last_session(record, lane.decisions, setup.single, lane.params)

    def write(self, update: int, score: float, scores: Sequence[tuple[int, float]]) -> None:
        """Write the session that was seen, if any. scores: (update, score) of the evaluations
        before this one.
        """
        session, self._session = self._session, None
        if session is None:
            return
        every = [*scores, (update, score)]
        document = session | {
            "update": update,
            "score": score,
            "best": max(value for _, value in every),
            "scores": every,
        }
        temporary = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            if not self._told:
                self._told = True
                self._tell(
                    f"note: {self._path} cannot be written ({error.strerror}); the run goes on, and 'jaxtrade "
                    "watch' shows no newer validation session"
                )
