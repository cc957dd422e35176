"""Days drawn again in blocks of consecutive days: the bootstrap on which the other statistics
stand.

Days are resampled in blocks because neighbouring days resemble each other. All draws use stated
random seeds.
"""

from __future__ import annotations

import numpy as np

DRAWS = 10_000


def block_days(days: int) -> int:
    """Days per block: the cube root of the number of days.

    This rate is optimal for the bootstrap's estimate of a variance (Hall, Horowitz and Jing,
    Biometrika 82, 1995).
    """
    return max(1, round(days ** (1 / 3)))


def block_count(days: int, block: int) -> float:
    """How many blocks stand behind the days, as units of an interval; at least 2, or nothing could
    be said at all.
    """
    return max(days / block, 2.0)


def day_lots(generator: np.random.Generator, days: int, block: int, draws: int) -> np.ndarray:
    """float64[draws, days]: how often each draw contains each day, divided by the number of days;
    rows sum to 1.

    A product of it with daily figures gives their means over the drawn days. Days are drawn in
    blocks of `block` consecutive days, where the first day follows the last (circular block
    bootstrap, Politis and Romano 1992). The last block is cut so that a draw has as many days as
    there are.
    """
    blocks = -(-days // block)
    starts = generator.integers(0, days, (draws, blocks))
    # chosen[r, i]: the i-th day of draw r
    chosen = ((starts[:, :, None] + np.arange(block)) % days).reshape(draws, -1)[:, :days]
    cells = (chosen + days * np.arange(draws)[:, None]).ravel()
    return np.bincount(cells, minlength=draws * days).reshape(draws, days) / days


def resampled_means(
    difference: np.ndarray, block: int, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """float64[draws]: means of float64[S, D] over days and seeds that are drawn with replacement.

    Days are drawn in blocks (`day_lots`). Where S > 1, seeds are drawn independently of days
    (pigeonhole bootstrap, Owen 2007: a little too wide, never too narrow). Raises ValueError where
    `block` is not from 1 to D.
    """
    seeds, days = difference.shape
    if not 1 <= block <= days:
        raise ValueError(f"blocks of {block} days out of {days}")
    generator = np.random.default_rng([seed, days, block])
    lots = day_lots(generator, days, block, draws)
    if seeds == 1:
        return lots @ difference[0]
    shares = generator.multinomial(seeds, np.full(seeds, 1 / seeds), draws) / seeds
    return np.einsum("rs,sd,rd->r", shares, difference, lots, optimize=True)
