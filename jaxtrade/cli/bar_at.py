"""The bar that a command means: by its index, by a time, or the last one that may be asked about in
training.
"""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.advisor.questions import QuestionBook, stamp
from jaxtrade.errors import ConfigError


def bar_at(book: QuestionBook, training: np.ndarray, at: str | None) -> int:
    """The index of the askable bar that `--at` names.

    Args:
        training: bool[T], the decision bars of the training sessions.
        at: a bar's index, or an ISO time with or without a zone (without: the exchange's). A time
            means the bar whose close is at it, or the last before it. None: the last askable bar of
            the training sessions.
    Raises ConfigError where the text is neither, lies outside the data, or means a bar that may not
    be asked about.
    """
    if at is None:
        known = np.flatnonzero(book.askable & training)
        if not len(known):
            raise ConfigError(
                "--at: not given, and no bar of the training sessions may be asked about; name one of "
                f"another session, such as --at {_nearest(book, 0)}"
            )
        return int(known[-1])
    bar = _by_index(book, at) if at.strip().isdecimal() else _by_time(book, at)
    if not book.askable[bar]:
        near = _nearest(book, bar)
        why = (
            "one of its values is not known yet (warm-up)"
            if bar < int(book.askable.argmax())
            else "it is no decision bar of a session, or one of its values is not known"
        )
        raise ConfigError(
            f"--at {at}: bar {bar} (close {_close(book, bar)}) may not be asked about: {why}; the "
            f"nearest that may is --at {near} (close {_close(book, near)})"
        )
    return bar


def _by_index(book: QuestionBook, at: str) -> int:
    bar, last = int(at), len(book.closes) - 1
    if bar > last:
        raise ConfigError(
            f"--at {at}: no such bar; the data have bars 0 to {last}{_range(book)}; the nearest that may "
            f"be asked about is --at {_nearest(book, last)}"
        )
    return bar


def _by_time(book: QuestionBook, at: str) -> int:
    try:
        when = datetime.datetime.fromisoformat(at.strip())
    except ValueError:
        example = _close(book, _nearest(book, len(book.closes) - 1))
        raise ConfigError(
            f"--at {ascii(at)[:60]}: neither a bar's index nor an ISO time; expected 1200 or {example} "
            f"(without a zone: {book.zone})"
        ) from None
    local = when if when.tzinfo is not None else when.replace(tzinfo=ZoneInfo(book.zone))
    seconds = local.timestamp()
    bar = int(np.searchsorted(book.closes, seconds, side="right")) - 1
    if bar < 0 or seconds > int(book.closes[-1]):
        near = _nearest(book, max(bar, 0))
        raise ConfigError(
            f"--at {at}: {local.isoformat()} lies outside the data{_range(book)}; the nearest bar that "
            f"may be asked about is --at {near} (close {_close(book, near)})"
        )
    return bar


def _nearest(book: QuestionBook, bar: int) -> int:
    """The askable bar with the nearest index; of two equally near ones the earlier."""
    known = np.flatnonzero(book.askable)
    return int(known[np.abs(known - bar).argmin()])


def _close(book: QuestionBook, bar: int) -> str:
    return stamp(int(book.closes[bar]), book.zone)


def _range(book: QuestionBook) -> str:
    return f" (closes {_close(book, 0)} to {_close(book, len(book.closes) - 1)})"
