"""What followed advice, in words: hit, miss, too small a move, or not scored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxtrade.advisor.compose import followed_of, round_turn
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market

HIT, MISS, SMALL, UNSCORED = "hit", "miss", "too small", "not scored"


class Labels(NamedTuple):
    """What followed the bars of a market.

    came: int8[T], +1 where a buy would have paid, -1 where a sale would have paid, else 0. room:
        bool[T], bars whose
    horizon ends in their own session. horizon: bars. cost: ticks of a round turn. Both arrays read
    the future.
    """

    came: np.ndarray
    room: np.ndarray
    horizon: int
    cost: int


def labels_of(market: Market, config: RunConfig) -> Labels:
    """The labels of a market's bars, with the horizon `advisor.horizon`."""
    horizon = config.advisor.horizon
    return Labels(
        followed_of(market, config), room_of(market, horizon), horizon, round_turn(market, config)
    )


def room_of(market: Market, horizon: int) -> np.ndarray:
    """bool[T]: decision bars after which `horizon` bars of the same session follow."""
    sessions, room = market.data.sessions, np.zeros(len(market.bars), bool)
    for first, last in zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True):
        # A session's last bar is `last + 1`, its flat bar; advice at `last` itself needs a horizon
        # of one bar.
        room[first : max(int(first), min(int(last) + 2 - horizon, int(last) + 1))] = True
    return room


def outcome(side: int, bar: int, labels: Labels) -> str:
    """What followed advice about a bar. side: +1 to buy, -1 to sell, 0 to hold."""
    if side == 0 or not labels.room[bar]:
        return UNSCORED
    came = int(labels.came[bar])
    return SMALL if came == 0 else HIT if came == side else MISS


def explained(side: int, bar: int, labels: Labels) -> str:
    """`outcome`, with its reason, as a sentence."""
    found = outcome(side, bar, labels)
    if found == UNSCORED:
        return f"{found}: " + (
            "advice to hold says no direction"
            if side == 0
            else f"the session ends within the horizon of {labels.horizon} bars"
        )
    if found == SMALL:
        return (
            f"{found}: over {labels.horizon} bars the price moved by no more than the {labels.cost} ticks of a "
            "round turn, so this is not scored"
        )
    way = "rose" if int(labels.came[bar]) > 0 else "fell"
    return f"{found}: over {labels.horizon} bars the price {way} by more than the {labels.cost} ticks of a round turn"
