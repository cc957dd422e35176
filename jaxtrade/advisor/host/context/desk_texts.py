"""Texts of the template `desk`: the rules that every account shares, and the advisor's own scored
record.

Nothing here knows a position, an open profit or a balance: these differ between environments, and a
question is shared by all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from jaxtrade.advisor.host.context.bar_tables import NONE

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
