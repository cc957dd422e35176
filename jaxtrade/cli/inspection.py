"""What an advisor has said: `jaxtrade advise inspect`, `log` and `replay`.

`inspect` reports the content of a snapshot, a journal or a run's advice, `log` the answers one by
one, and `replay` trains with them again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.advisor.compose import CACHE, JOURNAL, LEDGER
from jaxtrade.advisor.host.journal import ROWS_EACH, LoadedJournal, read_journal
from jaxtrade.advisor.host.ledger import MICRO, Caps, Ledger, cache_key, read_texts
from jaxtrade.advisor.host.replies import printable
from jaxtrade.advisor.host.types import DIRECTIONS, PARSERS
from jaxtrade.advisor.questions import QuestionBook, followed_of, in_sessions, make_book
from jaxtrade.advisor.table import (
    directions,
    journal_rows,
    load_table,
    market_entries,
    read_snapshot,
)
from jaxtrade.cli.ask import HIT, MISS, UNSCORED, labels_of, outcome
from jaxtrade.cli.flags import columns, table
from jaxtrade.cli.shared import say
from jaxtrade.config import AdvisorConfig, RunConfig, make_config
from jaxtrade.config.sweep import flat
from jaxtrade.data.market import load_market
from jaxtrade.errors import ConfigError, JournalError, StorageError
from jaxtrade.evaluation.test_set_history import PREFIX
from jaxtrade.formatting import stamp
from jaxtrade.runs import rundir
from jaxtrade.runs.advice import SUMMARY, check_whole
from jaxtrade.runs.evaluate import open_run
from jaxtrade.runs.initial_state import source_again
from jaxtrade.runs.train import run
from jaxtrade.storage import checkpoint, digests
from jaxtrade.storage.archives import read_arrays
from jaxtrade.text import align, several, show

BINS = AdvisorConfig().bins


def inspect(path: Path, config: RunConfig | None, as_json: bool) -> str:
    """Report on a snapshot, journal or run folder, as text or JSON.

    config: names the market of a snapshot, which is needed for hit rates.

    Raises ConfigError (no such file, or a market that is not needed), DataError, JournalError.
    """
    if not path.exists():
        raise ConfigError(
            f"{path}: there is no such file; expected a snapshot, a journal or a run's folder"
        )
    journal = _journal_at(path)
    if journal is not None and config is not None:
        raise ConfigError(
            f"{path}: hit rates are shown for snapshots alone; drop CONFIG and the flags of the market"
        )
    found = snapshot_report(path, config) if journal is None else journal_report(journal)
    if path.is_dir() and (ledger := path / LEDGER).is_file():
        with closing(Ledger(ledger, Caps())) as kept:
            spend = kept.sum_spend()
        found["spent"] = spend._asdict() | {"cost": spend.cost / MICRO}
    return (
        json.dumps(found, indent=2, sort_keys=True, allow_nan=False)
        if as_json
        else "\n".join(report_lines(found))
    )


def _journal_at(path: Path) -> Path | None:
    """Find the journal at a path: the file itself, or the journal in a run folder.

    None for a snapshot.
    """
    if path.is_dir():
        if not (path / JOURNAL).is_file():
            raise ConfigError(
                f"{path}: holds no {JOURNAL}; expected a run's folder that had an advisor"
            )
        return path / JOURNAL
    return path if path.suffix == ".jsonl" else None


def snapshot_report(path: Path, config: RunConfig | None) -> dict[str, Any]:
    """Report on a snapshot, as JSON values. Contains hit rates if `config` gives the market."""
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
        **count_advice(snapshot.bars, snapshot.rows, bins, followed),
    }


def journal_report(path: Path) -> dict[str, Any]:
    """Report on a journal, as JSON values."""
    recorded = read_journal(path)
    bars, rows = journal_rows(path, recorded)
    if ROWS_EACH in recorded.header:
        bars %= recorded.header[ROWS_EACH]  # of a panel's members
    updates = [delta.update for delta in recorded.deltas]
    return {
        "path": str(path),
        "what": "journal",
        "of": recorded.header,
        "versions": len(recorded.deltas),
        "updates": [min(updates), max(updates)] if updates else [],
        "notes": list(recorded.notes),
        **count_advice(bars, rows, BINS),
    }


def count_advice(
    bars: np.ndarray, rows: np.ndarray, bins: int, followed: np.ndarray | None = None
) -> dict[str, Any]:
    """Count advice, in total and in `bins` equal ranges of confidence.

    Args:
        bars: int[n], the bars that the advice is about.
        rows: float32[n, 6], the advice.
        followed: int8[T], from `followed_of`. If given, each range has `scored` (advice with a
            direction, on bars where one direction was right) and `hits` (the scored advice that
            was right).
    """
    side, values = directions(rows), rows[:, 3:].T.astype(np.float64)
    counted = {"rows": np.ones(len(bars), bool)}
    if followed is not None:
        came = followed[bars]
        scored = (side != 0) & (came != 0)
        counted |= {"scored": scored, "hits": scored & (side == came)}
    at = np.clip((values[0] * bins).astype(int), 0, bins - 1)
    by_range = {
        name: np.bincount(at[each], minlength=bins).tolist() for name, each in counted.items()
    }
    return {
        "rows": len(bars),
        "bars": len(np.unique(bars)),
        "spread": {
            name: {
                "least": float(found.min()),
                "mean": float(found.mean()),
                "most": float(found.max()),
            }
            for name, found in zip(("confidence", "risk", "horizon"), values, strict=True)
            if len(found)
        },
        "ranges": [
            {"from": i / bins, "to": (i + 1) / bins}
            | {name: found[i] for name, found in by_range.items()}
            for i in range(bins)
        ],
        "directions": {
            name: int((side == sign).sum())
            for name, sign in (("buy", 1), ("sell", -1), ("hold", 0))
        },
    }


_HEAD = ("confidence", "rows", "scored", "hit rate")


def _range_cells(each: dict[str, Any]) -> list[str]:
    """Format a range of confidence as cells under `_HEAD`.

    The last two cells are present only if hits were counted.
    """
    cells = [f"{each['from']:.2f} - {each['to']:.2f}", str(each["rows"])]
    if "hits" in each:
        cells += [
            str(each["scored"]),
            f"{each['hits'] / each['scored']:.1%}" if each["scored"] else "-",
        ]
    return cells


def report_lines(found: dict[str, Any]) -> list[str]:
    """Format the report as text."""
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
    lines += align(
        [_HEAD if "hits" in found["ranges"][0] else _HEAD[:2], *map(_range_cells, found["ranges"])]
    )
    if (spent := found.get("spent")) is not None:
        lines.append(
            f"spent: {spent['calls']} calls, {spent['tokens']:,} tokens, {spent['cost']:.2f}"
        )
    return lines + [f"note: {note}" for note in found["notes"]]


# `jaxtrade advise log`: one line per answered bar of a run, with its reason and with what
# followed.

WIDE = 110  # columns of a line where the output is no terminal
HEAD = ("close", "bar", "update", "advice", "conf", "followed", "reason")


class Row(NamedTuple):
    """An answer that became visible.

    time: ISO time of the bar's close, in the exchange's zone.
    update: the update from which it was visible.
    followed: `hit`, `miss`, `too small` or `not scored`.
    reason: "" where no text is kept.
    """

    time: str
    bar: int
    update: int
    direction: str
    confidence: float
    followed: str
    reason: str
    advisor: str = ""


def format_journal(path: Path, last: int | None, data: Path | None, as_json: bool) -> str:
    """Format the log of the run at `path`, as text or JSON.

    last: how many of the last answers are shown; None shows all.
    data: a file of the run's bars, instead of its own.

    Raises ConfigError (no run, or none with a journal), DataError (its bars), JournalError.
    """
    journal = _journal_of(path)
    recorded = read_journal(journal)
    for note in recorded.notes:
        say(f"note: {note}")
    rows = rows_of(path, recorded, data)
    shown = rows if last is None else rows[-last:]
    if as_json:
        document = {
            "run": str(path),
            "totals": totals(rows),
            "rows": [row._asdict() for row in shown],
        }
        return json.dumps(document, indent=2, allow_nan=False)
    return "\n".join(
        [
            *(table([HEAD, *map(cells, shown)], columns() or WIDE, (1, 2, 4)) if shown else []),
            total_line(totals(rows)),
        ]
    )


def _journal_of(path: Path) -> Path:
    """Find the run's journal.

    Raises ConfigError for a folder without one, which says where its advice came from.
    """
    kind = rundir.read_run(path)[0].advisor.kind
    if (path / JOURNAL).is_file():
        return path / JOURNAL
    head, _, rest = kind.partition(":")
    hint = {
        "table": f"all of its advice was known from the first update; see jaxtrade advise inspect {rest}",
        "replay": f"its advice is that of the run in {Path(rest).parent}; name that folder",
    }.get(head, "nothing was asked; train with --advisor")
    raise ConfigError(f"{path}: no {JOURNAL} (advisor.kind = {kind}): {hint}")


def rows_of(path: Path, recorded: LoadedJournal, data: Path | None = None) -> list[Row]:
    """Read the answers in a run's journal, in the order in which they became visible.

    Raises as `format_journal`.
    """
    setup, _ = open_run(path, data, advisor=False)
    config, market = setup.config, setup.single
    if recorded.header.get("bars") != market_entries(market)["bars_sha256"]:
        raise JournalError(
            f"{path / JOURNAL}: header (line 1): it is about other bars than the run's"
        )
    book, labels = make_book(market, config), labels_of(market, config)
    training = in_sessions(market, setup.splits["train"])
    size, names = len(market.bars), [member.kind for member in config.advisor.panel] or [""]
    reasons = [_reasons(path, recorded, i, config, book, size) for i in range(len(names))]
    places, values = journal_rows(path / JOURNAL, recorded)
    updates = [delta.update for delta in recorded.deltas for _ in delta.bars]
    sides, confidences = directions(values).tolist(), values[:, 3].tolist()
    rows = []
    for at, update, side, confidence in zip(
        places.tolist(), updates, sides, confidences, strict=True
    ):
        number, bar = divmod(at, size)
        rows.append(
            Row(
                stamp(int(book.closes[bar]), book.zone),
                bar,
                update,
                DIRECTIONS[side],
                round(confidence, 6),
                outcome(side, bar, labels) if training[bar] else UNSCORED,
                reasons[number].get(bar, ""),
                names[number],
            )
        )
    return rows


def _reasons(
    path: Path,
    recorded: LoadedJournal,
    number: int,
    config: RunConfig,
    book: QuestionBook,
    size: int,
) -> dict[int, str]:
    """Map bars to the reason in the model's text, for the bars whose text the run's cache holds.

    number: of the advisor in its panel.
    size: T.

    A question that shows the advisor's own record (template `desk`) cannot be asked again in the
    same words, so its text is not found.
    """
    cache = Path(config.advisor.service.cache or path / CACHE)
    if not cache.is_file():
        return {}
    identity, head = recorded.header["identity"], f"{number}."
    if config.advisor.panel:
        identity = {
            name.removeprefix(head): text
            for name, text in identity.items()
            if name.startswith(head)
        }
    bars = dict.fromkeys(
        at % size for delta in recorded.deltas for at in delta.bars if at // size == number
    )
    keys = {
        cache_key(identity, question): bar
        for bar in bars
        if (question := book.question_or_none(bar)) is not None
    }
    try:
        texts = read_texts(cache, keys)
    except StorageError as error:
        say(f"note: {error}; reasons are left out")
        return {}
    parse = PARSERS[book.template.answer]
    return {keys[key]: printable(parse(text).reason).strip() for key, text in texts.items()}


def cells(row: Row) -> list[str]:
    """Format a row as cells under `HEAD`; a panel's member stands before the reason."""
    said = f"[{row.advisor}] {row.reason}".rstrip() if row.advisor else row.reason
    return [
        row.time[:16].replace("T", " "),
        str(row.bar),
        str(row.update),
        row.direction,
        f"{row.confidence:.2f}",
        row.followed,
        said,
    ]


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Count over all rows: answers, bars, updates, directions, and what followed."""
    followed, said = Counter(row.followed for row in rows), Counter(row.direction for row in rows)
    return {
        "answers": len(rows),
        "bars": len({row.bar for row in rows}),
        "updates": len({row.update for row in rows}),
        "directions": {name: said[name] for name in DIRECTIONS},
        "hits": followed[HIT],
        "misses": followed[MISS],
        "too_small": len(rows) - followed[HIT] - followed[MISS] - followed[UNSCORED],
        "not_scored": followed[UNSCORED],
    }


def total_line(found: Mapping[str, Any]) -> str:
    """Format the totals as one line."""
    if not found["answers"]:
        return "no answer has become visible"
    scored = found["hits"] + found["misses"]
    rate = f" ({100 * found['hits'] / scored:.1f} %)" if scored else ""
    said = ", ".join(f"{count:,} {name}" for name, count in found["directions"].items())
    return (
        f"{several(found['answers'], 'answer')} about {several(found['bars'], 'bar')}: {said}; {scored:,} scored, "
        f"{several(found['hits'], 'hit')}{rate}; {found['too_small']:,} too small, {found['not_scored']:,} not "
        "scored"
    )


# `jaxtrade advise replay`: train a run again from its journal alone, and compare both runs: bits
# and reports.

# Compares two runs of the same training, as a run and its replay: last state bit by bit, report
# and summary.

EVALUATION = "evaluation"  # in a run's folder
_TEXTS = (".json", ".txt", ".csv")  # plots are drawn from these
# Where and from what a run was made, how often its days were opened, and how long it took. These
# differ between a run and its replay.
_OWN = frozenset(
    (
        "provenance",
        "config_sha256",
        "compile_seconds",
        "steps_per_second",
        "recompiles",
        "warnings",
        "performance",
        "trials",
    )
)


def state_differences(one: Path, other: Path) -> list[str]:
    """Name the arrays that are not bit-identical in the two runs' last checkpoints.

    Raises ConfigError if a run has no checkpoint.
    """
    states = []
    for path in (one, other):
        saved = checkpoint.list_checkpoints(path / "checkpoints")
        if not saved:
            raise ConfigError(f"{path}: holds no checkpoint")
        arrays = read_arrays(saved[-1][1] / "state.npz")
        states.append({name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()})
    return _unequal(*states)


def report_differences(one: Path, other: Path) -> list[str]:
    """Write one line for each difference between the results of two runs.

    They are `summary.json`, and the reports of each split that `other` has evaluated. Left out are
    plots, times, and what names the run itself.
    """
    names = {
        file.relative_to(run)
        for split in (other / EVALUATION).iterdir()
        for run in (one, other)
        for file in (run / EVALUATION / split.name).rglob("*")
        if file.suffix in _TEXTS and file.name != digests.FILE
    }
    found = list[str]()
    for name in (Path(SUMMARY), *sorted(names)):
        if missing := [run for run in (one, other) if not (run / name).is_file()]:
            found.append(f"{name}: missing in {missing[0]}")
            continue
        first, second = (_places(run / name) for run in (one, other))
        found += [
            f"{name}, {place}: {first.get(place)!r} and {second.get(place)!r}"
            for place in _unequal(first, second)
        ]
    return found


def _places(file: Path) -> dict[str, Any]:
    """Map the places of a result, keys of JSON or lines of a text, to what stands there."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        keys = flat({"": json.loads(text)})
        return {key[1:]: value for key, value in keys if _OWN.isdisjoint(key.split("."))}
    lines = (line for line in text.splitlines() if not line.startswith(PREFIX))
    return {f"line {number}": line for number, line in enumerate(lines, 1)}


def _unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List the names in either mapping whose values differ."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


_MOST_LINES = 20  # differences that are printed


def replay(path: Path, target: Path) -> int:
    """Train the run at `path` again into `target` and print the differences.

    The advice is that in its journal and in its evaluations.

    Returns 0, or 1 if the runs differ. Raises ConfigError (not a finished run with a journal) or
    JournalError (the journal is damaged or cut, or belongs to another run).
    """
    config, manifest = rundir.read_run(path)
    journal = path / JOURNAL
    if not journal.is_file():
        raise ConfigError(
            f"{path}: no {JOURNAL}: this run had no advisor (advisor.kind={config.advisor.kind}), so "
            "there is nothing to replay; train with --advisor"
        )
    if not (path / SUMMARY).is_file():
        raise ConfigError(
            f"{path}: not finished, so there is nothing to compare with; jaxtrade train --resume {path}"
        )
    check_whole(journal, read_journal(journal))
    # Both variables change bits on a CPU, so they are restored before JAX starts. `run` checks that
    # the bars are those of the journal.
    os.environ["NPROC"], os.environ["XLA_FLAGS"] = manifest["nproc"], manifest.get("xla_flags", "")
    values = config.model_dump(mode="json")
    values["advisor"] |= {"kind": f"replay:{journal.resolve()}", "options": {}}
    source = source_again(path, manifest["source"]) if manifest.get("source") else None
    run(make_config(values, f"{path}, replayed", stored=True), target, source and source.path)
    differ = [
        *(f"state, {name}" for name in state_differences(path, target)),
        *report_differences(path, target),
    ]
    said = "DIFFERS" if differ else "the same state, bit for bit, and the same report"
    shown = [f"  {line}" for line in differ[:_MOST_LINES]]
    if len(differ) > _MOST_LINES:
        shown.append(f"  and {len(differ) - _MOST_LINES} more differences")
    show("\n".join([f"replay of {path} in {target}: {said}", *shown]))
    return 1 if differ else 0
