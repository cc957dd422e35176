"""What a run's advisors said in training and what followed it, for `advice.png`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.advisor.compose import JOURNAL, followed_of, only, reads_future
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.advisor.host.openai import server_of
from jaxtrade.advisor.host.registry import snapshots_of
from jaxtrade.advisor.table import WIDTH, apart, directions, load_table
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.errors import DataError, JournalError
from jaxtrade.evaluation.pictures import style, training
from jaxtrade.evaluation.pictures.training import Advisor
from jaxtrade.text import Tell
from jaxtrade.types import SessionSet

PICTURE = "advice.png"  # in the run folder


def draw(
    config: RunConfig,
    market: Market,
    train: SessionSet,
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    tell: Tell,
) -> bool:
    """Write `advice.png` to the folder of a finished training. Returns False for a run without
    advice.

    Args:
        train: the training sessions, the only ones whose outcomes are read. rows: of
            `metrics.jsonl`.
        tell: receives one line if the journal or the snapshot cannot be read any more. The training
            is then still whole, so this ends nothing.
    Raises OSError (disk).
    """
    if not config.advisor.on:
        return False
    try:
        visible = visible_rows(config, market, path)
    except (DataError, JournalError) as error:
        tell(f"warning: {PICTURE} is not drawn: {error}")
        return False
    if visible is None:
        return False
    followed = only(followed_of(market, config), market, train)
    suffixes = [f"/{i}" for i in range(len(visible))] if len(visible) > 1 else [""]
    advisors = [
        advisor_of(name, *rows_of_one, followed, suffix)
        for name, rows_of_one, suffix in zip(_names(config), visible, suffixes, strict=True)
    ]
    title = f"Advice on {market.contract.symbol}, fusion {config.advisor.fusion}"
    figure = training.advice_figure(
        advisors, rows, config.advisor.bins, config.advisor.horizon, title
    )
    return style.write(figure, path / PICTURE)


def _names(config: RunConfig) -> list[str]:
    """The advisors as the picture calls them."""
    panel = config.advisor.panel
    if not panel:
        return [_name(config.advisor.kind, config.advisor.options)]
    return [_name(member.kind, {**config.advisor.options, **member.options}) for member in panel]


def _name(kind: str, options: Mapping[str, Any]) -> str:
    """An advisor's kind, with the model of a server, and a note if it reads the future."""
    model = options.get("model") if server_of(kind) is not None else None
    named = kind if model is None else f"{model} at {kind}"
    return f"{named} (reads future prices)" if reads_future(kind) else named


def visible_rows(
    config: RunConfig, market: Market, path: Path
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """For each advisor the bars int[n] and rows float32[n, 6] of all its advice that became visible
    in training.

    They are in the run's journal, in the journal that it replays, or in the snapshot that it was
    given. None for a run without advice.

    Raises DataError or JournalError where that file cannot be read.
    """
    chosen = config.advisor
    head, _, rest = chosen.kind.partition(":")
    journal = Path(rest) if head == "replay" else path / JOURNAL
    deltas = read_journal(journal).deltas if journal.is_file() else ()
    found = apart(
        np.array([bar for delta in deltas for bar in delta.bars], np.int64),
        np.array([row for delta in deltas for row in delta.rows], np.float32).reshape(-1, WIDTH),
        len(market.bars),
        chosen.advisors,
    )
    snapshots = snapshots_of(config)
    for number, file in snapshots.items():
        snapshot = load_table(file, market)
        found[number] = (snapshot.bars, snapshot.rows)
    return found if snapshots or journal.is_file() else None


def advisor_of(
    name: str, bars: np.ndarray, rows: np.ndarray, followed: np.ndarray, suffix: str = ""
) -> Advisor:
    """An advisor's scored answers: those with a direction, about bars where one direction would
    have paid.

    Args:
        bars, rows: as `visible_rows`. followed: int8[T], 0 outside the training sessions. suffix:
            of its metrics.
    """
    side, came = directions(rows), followed[bars]
    scored = (side != 0) & (came != 0)
    confidence, hits = rows[scored, 3].astype(np.float64), side[scored] == came[scored]
    return Advisor(name, bars[scored], confidence, hits, len(bars), suffix)
