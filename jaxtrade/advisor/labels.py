"""Labels: what followed each bar, in units of a round turn's cost."""

from __future__ import annotations

import numpy as np

from jaxtrade.advisor.outcomes import what_followed
from jaxtrade.config import RunConfig
from jaxtrade.data.conversion import ACCOUNT
from jaxtrade.data.market import Market


def round_turn(market: Market, config: RunConfig) -> int:
    """Cost in ticks of one round turn with one contract: two commissions, rounded up to whole
    ticks, and two slippages.

    Where profits are converted, the tick value of the first bar is used. Every later tick value
    would be from the future for some bars.
    """
    contract = market.contract.under(config)
    times, over = contract.tick_mills, 1
    if contract.currency != ACCOUNT and market.data.tick_value is not None:
        times, over = (
            int(np.asarray(part)[0])
            for part in (market.data.tick_value.times, market.data.tick_value.over)
        )
    return -(-2 * contract.commission_mills * over // times) + 2 * contract.slippage_ticks


def followed_of(market: Market, config: RunConfig) -> np.ndarray:
    """Labels of the decision bars, int8[T]: +1 where a buy would have paid, -1 where a sale would
    have paid, else 0.

    A trade pays if it is opened at the next bar's open, held for `advisor.horizon` bars and earns
    more than the cost of a round turn. On two-sided bars buys pay the ask and sales get the bid.

    The labels read each bar's future, in every session. Pass them through `only` before anything
    learns from them.
    """
    sessions, (bid, ask) = market.data.sessions, market.bars.sides
    first, last, cost = (
        np.asarray(sessions.first),
        np.asarray(sessions.last),
        round_turn(market, config),
    )
    rose = what_followed(ask.open, bid.close, first, last, config.advisor.horizon, cost) > 0
    fell = what_followed(bid.open, ask.close, first, last, config.advisor.horizon, cost) < 0
    return rose.astype(np.int8) - fell.astype(np.int8)
