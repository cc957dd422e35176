"""Texts of the blocks that a prompt may show: earlier bars, the session's levels, rules and record.

Prices and volumes are raw. Nothing here knows a position, an open profit or a balance: these differ
between environments, and a question is shared by all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from jaxtrade.errors import DataError

NONE = "none yet"  # in place of a part that does not exist
WINDOW: Mapping[str, str] = MappingProxyType(
    {
        "head": "Last {count} bars of {length}, oldest first: time of the close (month-day hour:minute), then prices",
        "volume": " and volume",
        "columns": "time,open,high,low,close",
        "volume_column": ",volume",
        "stamp": "%m-%d %H:%M",
        "fine_stamp": "%m-%d %H:%M:%S",
        "volume_format": ".0f",
        "none": NONE,
    }
)
HIGHER: Mapping[str, str] = MappingProxyType(
    {
        **WINDOW,
        "head": "Last completed bars of {length}, oldest first",
        "missing": "Bars of {length}: {none}",
    }
)
LEVELS: Mapping[str, str] = MappingProxyType(
    {
        "session": "Session since {since}: {levels}",
        "opening": "Opening range (first {minutes} minutes): {levels}",
        "prior": "Prior day: {levels}",
        "left": "Time to the session's close: {left}",
        "minutes": "{minutes} minutes",
        "name": "{name} {price}",
        "since": "%H:%M",
        "none": NONE,
    }
)


class PriceBar(NamedTuple):
    """A bar. time: wall time of its close. Prices in the quote unit. volume: None where bars have
    none.
    """

    time: str
    open: float
    high: float
    low: float
    close: float
    volume: float | None


def length_of(seconds: int) -> str:
    """The length of a bar in words: 1 minute, 5 minutes, 15 seconds."""
    count, noun = (seconds // 60, "minute") if seconds % 60 == 0 else (seconds, "second")
    return f"{count} {noun}" + ("" if count == 1 else "s")


def window_block(rows: Sequence[PriceBar], seconds: int, decimals: int) -> str:
    """The last bars as a table. Raises DataError for values that no bar has."""
    head = WINDOW["head"].format(count=len(rows), length=length_of(seconds))
    return f"{head}{WINDOW['volume'] if rows[-1].volume is not None else ''}:\n{_table(rows, decimals)}"


def higher_block(tables: Mapping[int, Sequence[PriceBar]], decimals: int) -> str:
    """A table for each length in minutes. Raises DataError for values that no bar has."""
    parts = []
    for minutes, rows in tables.items():
        length = length_of(60 * minutes)
        parts.append(
            f"{HIGHER['head'].format(length=length)}:\n{_table(rows, decimals)}"
            if rows
            else HIGHER["missing"].format(length=length, none=NONE)
        )
    return (
        "\n".join(parts)
        if parts
        else HIGHER["missing"].format(length="longer time frames", none=NONE)
    )


def levels_block(
    session: Mapping[str, float] | None,
    since: str,
    opening: Mapping[str, float] | None,
    minutes: int,
    prior: Mapping[str, float] | None,
    left: int | None,
    decimals: int,
) -> str:
    """The session's levels, the opening range and the prior day: prices by name, or None for a part
    that does not exist. since: wall time of the session's opening. minutes: of the opening range.
    left: minutes to the close."""
    return "\n".join(
        [
            LEVELS["session"].format(since=since, levels=_levels(session, decimals)),
            LEVELS["opening"].format(minutes=minutes, levels=_levels(opening, decimals)),
            LEVELS["prior"].format(levels=_levels(prior, decimals)),
            LEVELS["left"].format(
                left=NONE if left is None else LEVELS["minutes"].format(minutes=left)
            ),
        ]
    )


def _levels(prices: Mapping[str, float] | None, decimals: int) -> str:
    if prices is None:
        return NONE
    return ", ".join(
        LEVELS["name"].format(name=name, price=f"{price:.{decimals}f}")
        for name, price in prices.items()
    )


def _table(rows: Sequence[PriceBar], decimals: int) -> str:
    volume = rows[-1].volume is not None
    lines = [WINDOW["columns"] + (WINDOW["volume_column"] if volume else "")]
    for row in rows:
        _check(row)
        cells = [row.time, *(f"{price:.{decimals}f}" for price in row[1:5])]
        lines.append(
            ",".join(cells + ([f"{row.volume:{WINDOW['volume_format']}}"] if volume else []))
        )
    return "\n".join(lines)


def _check(row: PriceBar) -> None:
    """Raises DataError for a normalised or broken bar: prices not positive, out of order, or a
    negative volume.
    """
    prices = row[1:5]
    if (
        not all(math.isfinite(price) and price > 0 for price in prices)
        or row.high < max(prices)
        or row.low > min(prices)
    ):
        raise DataError(
            f"bar closed at {row.time}: open {row.open:g}, high {row.high:g}, low {row.low:g}, close "
            f"{row.close:g}; expected raw prices above 0 with the high highest and the low lowest"
        )
    if row.volume is not None and not (math.isfinite(row.volume) and row.volume >= 0):
        raise DataError(
            f"bar closed at {row.time}: volume {row.volume:g}; expected a raw volume, 0 or more"
        )


DIRECTIONS: Mapping[int, str] = MappingProxyType({1: "long", -1: "short", 0: "flat"})
FOLLOWED: Mapping[int, str] = MappingProxyType({1: "up", -1: "down", 0: "undecided"})
ACCOUNT: Mapping[str, str] = MappingProxyType(
    {
        "rules": "Rules of every account: start balance ${balance:,.2f}; drawdown limit {drawdown}; daily loss limit "
        "{daily}; profit target {target}",
        "limit": "${limit:,.2f}",
        "none": "none",
        "intraday": " below the highest equity so far",
        "end_of_day": " below the highest equity at a session's close",
        "static": " below the start balance",
        "costs": "A round turn with one contract: commission ${commission:,.2f}, slippage {money:,.2f} {currency} "
        "({slippage} ticks); together {total} ticks, rounded up",
        "spread": ". Fills pay the spread between bid and ask besides",
        "tick": "Tick: {size} points, {value:,.2f} {currency} per contract",
        "left": "Positions are closed in: {left}",
        "minutes": "{minutes} minutes",
        "missing": NONE,
    }
)
RECORD: Mapping[str, str] = MappingProxyType(
    {
        "head": "Your own record: your answers about earlier bars whose next {horizon} bars have "
        "passed. Up and down mean "
        "a move by more than the cost of a round turn, undecided anything else.",
        "rates": "Hits by stated confidence: {rates}",
        "rate": "{low:.2f} to {high:.2f}: {hits} of {count}",
        "empty": "{low:.2f} to {high:.2f}: {none}",
        "last": "Last {count} answers, oldest first: time of the bar's close, "
        "direction, confidence, what followed",
        "row": "{time},{direction},{confidence:.2f},{followed}",
        "none": "Your own record: " + NONE,
        "stamp": "%m-%d %H:%M",
        **{f"said{k}": v for k, v in DIRECTIONS.items()},
        **{f"came{k}": v for k, v in FOLLOWED.items()},
    }
)


class AccountRules(NamedTuple):
    """What is the same for every environment. Money in dollars, unless `currency` (of the tick
    value) says otherwise.

    drawdown, daily_loss, target: None where the account has no such rule. trailing: as in the
        account presets.
    commission: of a round turn. slippage: ticks of a round turn. total: whole ticks of a round
        turn. tick_value: of one
    contract. two_sided: whether fills pay a spread.
    """

    balance: float
    drawdown: float | None
    trailing: str
    daily_loss: float | None
    target: float | None
    commission: float
    slippage: int
    total: int
    tick_size: str
    tick_value: float
    currency: str
    two_sided: bool


def account_block(rules: AccountRules, left: int | None) -> str:
    """The rules and costs. left: minutes until positions are closed; None where that is not
    known.
    """
    drawdown = _limit(rules.drawdown) + ("" if rules.drawdown is None else ACCOUNT[rules.trailing])
    return "\n".join(
        [
            ACCOUNT["rules"].format(
                balance=rules.balance,
                drawdown=drawdown,
                daily=_limit(rules.daily_loss),
                target=_limit(rules.target),
            ),
            ACCOUNT["costs"].format(
                commission=rules.commission,
                slippage=rules.slippage,
                total=rules.total,
                money=rules.slippage * rules.tick_value,
                currency=rules.currency,
            )
            + (ACCOUNT["spread"] if rules.two_sided else ""),
            ACCOUNT["tick"].format(
                size=rules.tick_size, value=rules.tick_value, currency=rules.currency
            ),
            ACCOUNT["left"].format(
                left=NONE if left is None else ACCOUNT["minutes"].format(minutes=left)
            ),
        ]
    )


def _limit(limit: float | None) -> str:
    return ACCOUNT["none"] if limit is None else ACCOUNT["limit"].format(limit=limit)


class Scored(NamedTuple):
    """One earlier answer. time: wall time of its bar's close. direction, followed: -1, 0 or +1."""

    time: str
    direction: int
    confidence: float
    followed: int


def record_block(rates: Sequence[tuple[int, int]], last: Sequence[Scored], horizon: int) -> str:
    """The record. rates: (hits, scored answers) of equal ranges of confidence, from low to high.
    last: the answers shown, oldest first."""
    if not last and not any(count for _, count in rates):
        return RECORD["none"]
    bins, parts = len(rates), []
    for number, (hits, count) in enumerate(rates):
        low, high = number / bins, (number + 1) / bins
        parts.append(
            RECORD["rate"].format(low=low, high=high, hits=hits, count=count)
            if count
            else RECORD["empty"].format(low=low, high=high, none=NONE)
        )
    lines = [RECORD["head"].format(horizon=horizon), RECORD["rates"].format(rates="; ".join(parts))]
    if last:
        lines += [
            RECORD["last"].format(count=len(last)) + ":",
            *(
                RECORD["row"].format(
                    time=each.time,
                    direction=DIRECTIONS[each.direction],
                    confidence=each.confidence,
                    followed=FOLLOWED[each.followed],
                )
                for each in last
            ),
        ]
    return "\n".join(lines)
