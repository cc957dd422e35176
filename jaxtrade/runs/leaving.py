"""What commands about an evaluation leave beside it, so that a report shows it without computing it
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrade.errors import RunLockedError
from jaxtrade.runs import rundir
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.staged import staged
from jaxtrade.text import Tell

# Title of a grid, an attribution or a study -> its file, as `reporting.schema` names the sections.
FILES = {
    "intrabar order": "intrabar",
    "costs": "costs",
    "latency": "latency",
    "attribution": "attribution",
    "pass_probability": "challenge",
    "breakdown": "breakdown",
}


def leave(
    setup: Setup,
    path: Path,
    folder: Path,
    number: int,
    found: Mapping[str, Mapping[str, Any]],
    sha: str,
    tell: Tell,
) -> None:
    """Write documents into the folder of the evaluation that they are about.

    Args:
        path: of the run. folder: of the evaluation of a split. number: of the agent.
        found: symbol -> title of `FILES` -> document. sha: digest of the policy that they are
            about, which is kept in each: a later evaluation may be of another policy.
        tell: receives a line if there is no such evaluation, or another process writes to the run.
            Nothing is written then.
    """
    try:
        with rundir.locked(path):
            _leave(setup, setup.stack.folder(folder, number), found, sha, tell)
    except RunLockedError as error:
        tell(f"note: not kept for a report: {error}")


def _leave(
    setup: Setup, own: Path, found: Mapping[str, Mapping[str, Any]], sha: str, tell: Tell
) -> None:
    for symbol, documents in found.items():
        where = own / symbol if len(setup.symbols) > 1 else own
        if not (where / "evaluation.json").is_file():
            tell(
                f"note: {where}: there is no evaluation yet, so this is not kept for a report; evaluate the split "
                "first (jaxtrade evaluate RUN), then ask again"
            )
            continue
        with staged(where) as new:
            for title, document in documents.items():
                text = json.dumps({**document, "policy_sha256": sha}, indent=2, allow_nan=False)
                (new / f"{FILES[title]}.json").write_text(text + "\n", encoding="utf-8")
