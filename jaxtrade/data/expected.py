"""How many sessions a configuration's bars can have, and whether they suffice for its splits: known
before reading.

Imports neither JAX nor NumPy, so that a run that cannot be is refused at once.
"""

from __future__ import annotations

from datetime import date, timedelta

from jaxtrade.config import DataConfig, SplitConfig, WalkConfig
from jaxtrade.config.run import split_of
from jaxtrade.data.contracts import require_bundled
from jaxtrade.errors import ConfigError

# First and last trade date of the bundled bars. The default of ES is one week of them.
BUNDLED_DATES = {
    "ES": ("2013-10-07", "2020-01-07"),
    "EURUSD": ("2007-01-01", "2018-12-31"),
    "GBPUSD": ("2012-11-16", "2022-03-04"),
    "USDJPY": ("2012-11-16", "2022-03-04"),
    "USDCHF": ("2012-11-15", "2022-03-04"),
}
ES_WEEK = ("2013-10-07", "2013-10-11")
ES_EXPIRY = (
    "201312"  # the contract of ES that is read unless data.expiry or data.roll says otherwise
)
ES_CONTRACT = ("2013-10-07", "2013-12-20")


def bundled_dates(symbol: str, data: DataConfig) -> tuple[str, str]:
    """First and last trade date (ISO) of the bundled bars that `data` selects, before data.start
    and data.end.
    """
    if bundled_expiry(symbol, data) is None:
        return BUNDLED_DATES[symbol]
    return ES_WEEK if (data.expiry, data.start, data.end) == (None, None, None) else ES_CONTRACT


def bundled_expiry(symbol: str, data: DataConfig) -> str | None:
    """`ES_EXPIRY` if the bundled bars that `data` selects are of that contract alone, else None."""
    one = symbol == "ES" and data.roll == "off" and data.expiry in (None, ES_EXPIRY)
    return ES_EXPIRY if one else None


def date_range(data: DataConfig, symbol: str) -> tuple[str, str] | None:
    """First and last trade date (ISO) that the bars can have, if both are known before reading;
    None otherwise.
    """
    first, last = None, None
    if _is_copied(data) and data.source != "file" and symbol in BUNDLED_DATES:
        first, last = bundled_dates(symbol, data)
    # ISO dates compare as text.
    starts, ends = (
        [day for day in days if day is not None] for days in ((first, data.start), (last, data.end))
    )
    return (max(starts), min(ends)) if starts and ends else None


def _is_copied(data: DataConfig) -> bool:
    """Whether the bars are bundled ones, or synthetic ones like them."""
    return data.source == "bundled" or data.synthetic == "phase_randomised"


def most_sessions(data: DataConfig, symbol: str) -> int | None:
    """An upper limit of the number of sessions of the bars: their weekdays. None where only reading
    a file tells.

    symbol: of the contract. Raises ConfigError if the bars are bundled ones, and there are none for
        it.
    """
    if data.source == "file":
        return None
    if _is_copied(data):
        require_bundled(symbol)
    limits = [] if data.source == "bundled" else [data.synthetic_sessions]
    if days := date_range(data, symbol):
        limits.append(weekdays(*map(date.fromisoformat, days)))
    return min(limits)


def weekdays(first: date, last: date) -> int:
    """The number of days from Monday to Friday among first..last."""
    days = max((last - first).days + 1, 0)
    weeks, rest = divmod(days, 7)
    return 5 * weeks + sum((first + timedelta(days=i)).weekday() < 5 for i in range(rest))


def check_split(sessions: int, config: SplitConfig, at_most: bool = False) -> None:
    """Check that a training session is left. at_most: whether `sessions` is an upper limit.

    Raises ConfigError with the number that is needed.
    """
    known = split_of(config, sessions)
    test, validation, embargo = (
        known.test_sessions or 0,
        known.validation_sessions or 0,
        known.embargo_sessions or 0,
    )
    need = test + validation + ((test > 0) + (validation > 0)) * embargo + 1
    if sessions >= need:
        return
    asked = f"split.test_sessions = {test}, split.validation_sessions = {validation}" + (
        f", and split.embargo_sessions = {embargo} before each" if embargo else ""
    )
    raise ConfigError(
        f"split: {asked}: with one training session that takes {need} sessions, and the data have "
        f"{'at most ' if at_most else ''}{sessions}; lower them, or give more data"
    )


def check_walk_length(most: int, walk: WalkConfig, episode: int) -> None:
    """Check that one fold can be made of at most `most` sessions, as far as that is known before
    reading.

    episode: sessions of an episode. Raises ConfigError with the number that is needed.
    """
    if walk.mode == "cpcv":
        need, keys = walk.groups, f"walk.groups={walk.groups} (--groups)"
    else:
        need = walk.train + walk.embargo_of(most) + episode - 1 + walk.test
        keys = f"walk.train={walk.train} (--train), walk.test={walk.test} (--test)"
    if most < need:
        raise ConfigError(
            f"{keys}: one fold takes at least {need} sessions, embargo and purge included, and the data "
            f"have at most {most}: lower them, or give more data"
        )
