"""A random ask side over given bid bars: spreads that breathe, are sometimes nothing, and sometimes
wider than a stop.

Shared by the tests of the environment and of the oracle.
"""

import numpy as np

WIDE = 0.06  # share of bars whose spread passes a usual stop


def random_ask(seed, *bid):
    """open, high, low, close of an ask side, int64[T]: nowhere below the bid's, with extremes of
    its own.
    """
    open_, high, low, close = (np.asarray(prices, np.int64) for prices in bid)
    rng = np.random.default_rng([seed, 77])
    count = len(open_)
    wide = np.where(rng.random(count) < WIDE, rng.integers(5, 40, count), 0)
    at_open, at_high, at_low, at_close = rng.integers(0, 4, (4, count)) + wide
    opened, closed = open_ + at_open, close + at_close
    return (
        opened,
        np.maximum(np.maximum(opened, closed), high + at_high),
        np.minimum(np.minimum(opened, closed), low + at_low),
        closed,
    )
