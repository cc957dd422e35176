"""The closing figures about an advisor: RL-Trainer's `LLM query rate` line, with what stands beside
it.

The rate is the share of training decisions at which the policy was shown advice. A decision is one
step of one environment; all updates of a training have equally many, so the mean of `advice_share`
over all updates is that share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.advisor.compose import JOURNAL
from jaxtrade.advisor.host.journal import JournalPosition, Recorded, check_position
from jaxtrade.errors import JournalError
from jaxtrade.runs.rundir import SUMMARY
from jaxtrade.storage import digests
from jaxtrade.storage.checkpoint import list_checkpoints

# What a run's folder knows about its advice journal besides the journal itself.
#
# A journal alone cannot show that whole lines are missing at its end. The folder can: checkpoints
# hold a place in the journal, `advice.json` the number of its lines, and a finished run has ended
# its journal.

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


LAST = (
    "hit_rate",
    "advice_scored",
    "trust",
    "agreement",
)  # metrics of which the last update's value counts


def closing_figures(
    figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The figures of `closing_line`, as JSON values; None where one is undefined or was not kept.

    figures: of `TrainingAdvisor.close`, or as many of them as exist; `kind` must. history: rows of
        metrics, one per
    update of the whole training.

    kind: of the advisor. query_rate: share of the decisions with advice. requests: sent to the
        advisor by the last
    process of the training. hit_rate, advice_scored, trust, agreement: metrics of the last update.
    """
    shares = [share for row in history if (share := _number(row.get("advice_share"))) is not None]
    last = history[-1] if history else {}
    return {
        "kind": figures["kind"],
        "query_rate": sum(shares) / len(shares) if shares else None,
        "requests": figures.get("asked"),
        **{name: _number(last.get(name)) for name in LAST},
    }


def closing_line(found: Mapping[str, Any]) -> str:
    """One line: `LLM query rate: NN.N %`, then requests, hit rate, trust and agreement. found:
    `closing_figures`.
    """
    scored = f"{int(found['advice_scored'] or 0):,} scored"
    requests = "no requests" if found["requests"] is None else f"{found['requests']:,} requests"
    trust = "n/a" if found["trust"] is None else f"{found['trust']:.3g} (log-odds)"
    return (
        f"LLM query rate: {_percent(found['query_rate'])} of decisions had advice (advisor {found['kind']}: "
        f"{requests}, hit rate {_percent(found['hit_rate'])} over {scored}, trust {trust}, agreement "
        f"{_percent(found['agreement'])})"
    )


def closing_of(
    path: Path, kind: str, history: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """`closing_figures` of the run in a folder; None if it had no advisor. kind: its
    `advisor.kind`.

    Without `advice.json` (a process was killed after its last update) the figures come from the
    metrics alone.
    """
    if kind in ("off", "none"):
        return None
    file = path / "advice.json"
    kept = digests.read_json(file) if file.is_file() else {}
    return closing_figures(kept | {"kind": kind}, history)


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"
