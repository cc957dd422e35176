"""`jaxtrade advise log`: one line per answered bar of a run, with its reason and with what
followed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.advisor.compose import CACHE, JOURNAL
from jaxtrade.advisor.host.journal import Recorded, read_journal
from jaxtrade.advisor.host.paid import cache_key, read_texts
from jaxtrade.advisor.host.replies import printable
from jaxtrade.advisor.host.types import DIRECTIONS, parse_advice, parse_pipe
from jaxtrade.advisor.questions import QuestionBook, in_sessions, make_book, stamp
from jaxtrade.advisor.table import WIDTH, directions, market_entries
from jaxtrade.cli.ask import HIT, MISS, UNSCORED, labels_of, outcome
from jaxtrade.cli.shared import say
from jaxtrade.cli.tables import columns, table
from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError, JournalError, StorageError
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import open_run
from jaxtrade.text import several

WIDE = 110  # columns of a line where the output is no terminal
HEAD = ("close", "bar", "update", "advice", "conf", "followed", "reason")


class Row(NamedTuple):
    """An answer that became visible. time: ISO time of the bar's close, in the exchange's zone.
    update: the update from which it was visible. followed: `hit`, `miss`, `too small` or `not
    scored`. reason: "" where no text is kept."""

    time: str
    bar: int
    update: int
    direction: str
    confidence: float
    followed: str
    reason: str
    advisor: str = ""


def log(path: Path, last: int | None, data: Path | None, as_json: bool) -> str:
    """The log of the run at `path`, as text or JSON.

    last: how many of the last answers are shown; None shows all. data: a file of the run's bars,
        instead of its own.
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
    """The run's journal. Raises ConfigError for a folder without one, which says where its advice
    came from.
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


def rows_of(path: Path, recorded: Recorded, data: Path | None = None) -> list[Row]:
    """The answers in a run's journal, in the order in which they became visible. Raises as
    `log`.
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
    rows = []
    for delta in recorded.deltas:
        values = np.array(delta.rows, np.float32).reshape(len(delta.bars), -1)
        if values.shape[1] != WIDTH:
            raise JournalError(
                f"{path / JOURNAL}: rows are not {WIDTH} wide; it is no journal of this version"
            )
        for at, side, confidence in zip(
            delta.bars, directions(values).tolist(), values[:, 3].tolist(), strict=True
        ):
            number, bar = divmod(at, size)
            followed = outcome(side, bar, labels) if training[bar] else UNSCORED
            rows.append(
                Row(
                    stamp(int(book.closes[bar]), book.zone),
                    bar,
                    delta.update,
                    DIRECTIONS[side],
                    round(confidence, 6),
                    followed,
                    reasons[number].get(bar, ""),
                    names[number],
                )
            )
    return rows


def _reasons(
    path: Path, recorded: Recorded, number: int, config: RunConfig, book: QuestionBook, size: int
) -> dict[int, str]:
    """bar -> the reason in the model's text, for the bars whose text the run's cache holds.

    number: of the advisor in its panel. size: T. A question that shows the advisor's own record
        (template `desk`)
    cannot be asked again in the same words, so its text is not found.
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
    parse = parse_pipe if book.template.answer == "pipe" else parse_advice
    return {keys[key]: printable(parse(text).reason).strip() for key, text in texts.items()}


def cells(row: Row) -> list[str]:
    """A row as cells under `HEAD`; a panel's member stands before the reason."""
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
    """Counts over all rows: answers, bars, updates, directions, and what followed."""
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
    """The totals as one line."""
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
