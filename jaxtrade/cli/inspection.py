"""`jaxtrade advise inspect`: report the content of a snapshot, a journal or a run's advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.advisor.compose import JOURNAL, LEDGER, followed_of
from jaxtrade.advisor.host.journal import ROWS_EACH, read_journal
from jaxtrade.advisor.host.paid import MICRO, Caps, Ledger
from jaxtrade.advisor.table import WIDTH, directions, load_table, read_snapshot
from jaxtrade.config import AdvisorConfig, RunConfig
from jaxtrade.data.market import load_market
from jaxtrade.errors import ConfigError, JournalError
from jaxtrade.text import aligned

BINS = AdvisorConfig().bins


def inspect(path: Path, config: RunConfig | None, as_json: bool) -> str:
    """The report on a snapshot, journal or run folder, as text or JSON.

    config: names the market of a snapshot, which is needed for hit rates. Raises ConfigError (no
        such file, or a market
    that is not needed), DataError, JournalError.
    """
    if not path.exists():
        raise ConfigError(
            f"{path}: there is no such file; expected a snapshot, a journal or a run's folder"
        )
    journal = _journal_of(path)
    if journal is not None and config is not None:
        raise ConfigError(
            f"{path}: hit rates are shown for snapshots alone; drop CONFIG and the flags of the market"
        )
    found = snapshot_report(path, config) if journal is None else journal_report(journal)
    if path.is_dir() and (ledger := path / LEDGER).is_file():
        found["spent"] = _spent(ledger)
    return (
        json.dumps(found, indent=2, sort_keys=True, allow_nan=False)
        if as_json
        else "\n".join(report_lines(found))
    )


def _journal_of(path: Path) -> Path | None:
    """The journal at a path: the file itself, or the journal in a run folder. None for a
    snapshot.
    """
    if path.is_dir():
        if not (path / JOURNAL).is_file():
            raise ConfigError(
                f"{path}: holds no {JOURNAL}; expected a run's folder that had an advisor"
            )
        return path / JOURNAL
    return path if path.suffix == ".jsonl" else None


def snapshot_report(path: Path, config: RunConfig | None) -> dict[str, Any]:
    """The report on a snapshot as JSON values. Contains hit rates if `config` gives the market."""
    followed, bins = None, BINS
    if config is None:
        snapshot = read_snapshot(path)
    else:
        market, bins = load_market(config), config.advisor.bins
        snapshot = load_table(path, market)
        followed = followed_of(market, config)
    return {
        "path": str(path),
        "what": "snapshot",
        "of": snapshot.manifest,
        "versions": 1 if len(snapshot.bars) else 0,
        "notes": [],
        **described(snapshot.bars, snapshot.rows, bins, followed),
    }


def journal_report(path: Path) -> dict[str, Any]:
    """The report on a journal as JSON values."""
    recorded = read_journal(path)
    if any(len(row) != WIDTH for delta in recorded.deltas for row in delta.rows):
        raise JournalError(f"{path}: rows are not {WIDTH} wide; it is no journal of this version")
    bars = np.array([bar for delta in recorded.deltas for bar in delta.bars], np.int64)
    rows = np.array([row for delta in recorded.deltas for row in delta.rows], np.float32).reshape(
        -1, WIDTH
    )
    if (size := recorded.header.get(ROWS_EACH)) is not None:
        bars = bars % size  # of a panel's members
    updates = [delta.update for delta in recorded.deltas]
    return {
        "path": str(path),
        "what": "journal",
        "of": recorded.header,
        "versions": len(recorded.deltas),
        "updates": [min(updates), max(updates)] if updates else [],
        "notes": list(recorded.notes),
        **described(bars, rows, BINS),
    }


def described(
    bars: np.ndarray, rows: np.ndarray, bins: int, followed: np.ndarray | None = None
) -> dict[str, Any]:
    """Count advice, in total and in `bins` equal ranges of confidence.

    Args:
        bars: int[n], the bars that the advice is about.
        rows: float32[n, 6], the advice.
        followed: int8[T], from `followed_of`. If given, each range has `scored` (advice with a
            direction, on bars where one direction was right) and `hits` (the scored advice that was
            right).
    """
    side = directions(rows)
    confidence = rows[:, 3].astype(np.float64)
    at = np.clip((confidence * bins).astype(int), 0, bins - 1)
    came = np.zeros(len(bars), np.int8) if followed is None else followed[bars]
    scored = (side != 0) & (came != 0)
    ranges = []
    for i in range(bins):
        inside = at == i
        here: dict[str, Any] = {"from": i / bins, "to": (i + 1) / bins, "rows": int(inside.sum())}
        if followed is not None:
            here |= {
                "scored": int((scored & inside).sum()),
                "hits": int((scored & inside & (side == came)).sum()),
            }
        ranges.append(here)
    spread = {
        name: {
            "least": float(values.min()),
            "mean": float(values.mean()),
            "most": float(values.max()),
        }
        for name, values in (
            ("confidence", confidence),
            ("risk", rows[:, 4].astype(np.float64)),
            ("horizon", rows[:, 5].astype(np.float64)),
        )
        if len(values)
    }
    return {
        "rows": len(bars),
        "bars": len(np.unique(bars)),
        "spread": spread,
        "ranges": ranges,
        "directions": {
            name: int((side == sign).sum())
            for name, sign in (("buy", 1), ("sell", -1), ("hold", 0))
        },
    }


def _spent(path: Path) -> dict[str, Any]:
    ledger = Ledger(path, Caps())
    try:
        spend = ledger.spent()
    finally:
        ledger.close()
    return {"calls": spend.calls, "tokens": spend.tokens, "cost": spend.cost / MICRO}


_HEAD = ("confidence", "rows", "scored", "hit rate")


def _range_cells(each: dict[str, Any]) -> list[str]:
    """A range of confidence as cells under `_HEAD`. The last two cells are present only if hits
    were counted.
    """
    cells = [f"{each['from']:.2f} - {each['to']:.2f}", str(each["rows"])]
    if "hits" in each:
        cells += [
            str(each["scored"]),
            f"{each['hits'] / each['scored']:.1%}" if each["scored"] else "-",
        ]
    return cells


def report_lines(found: dict[str, Any]) -> list[str]:
    """The report as text."""
    about = found["of"]
    identity = ", ".join(
        f"{key} {value}" for key, value in sorted(about.get("identity", {}).items())
    )
    lines = [
        f"{found['what']} {found['path']}",
        f"asked: {identity or about.get('advisor', 'not said')}",
    ]
    lines += [f"prompt: {about['prompt_version']}"] if "prompt_version" in about else []
    if "symbol" in about:
        asked = f", {about['asked']} asked about" if "asked" in about else ""
        lines.append(f"market: {about['symbol']}, {about['bars']} bars{asked}")
    over = (
        f", updates {found['updates'][0]} to {found['updates'][1]}" if found.get("updates") else ""
    )
    lines.append(
        f"{found['rows']} rows about {found['bars']} bars, {found['versions']} versions{over}"
    )
    lines.append(
        "directions: " + ", ".join(f"{count} {name}" for name, count in found["directions"].items())
    )
    lines += [
        f"{name}: {each['least']:g} to {each['most']:g}, mean {each['mean']:.4g}"
        for name, each in found["spread"].items()
    ]
    lines += aligned(
        [_HEAD if "hits" in found["ranges"][0] else _HEAD[:2], *map(_range_cells, found["ranges"])]
    )
    if (spent := found.get("spent")) is not None:
        lines.append(
            f"spent: {spent['calls']} calls, {spent['tokens']:,} tokens, {spent['cost']:.2f}"
        )
    return lines + [f"note: {note}" for note in found["notes"]]
