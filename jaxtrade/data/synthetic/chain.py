"""A mean-reverting market that is a finite Markov chain, so that its optimum can be computed exactly.

The price lives on six levels around an anchor and moves to a neighbouring one every minute, the more probably towards
the anchor the further away it is; at the outer levels it may stay. No two gaps between levels are alike: the last move
alone tells where the price is (a stay means an outer level, and the move before it which), so the relative observation
reveals the state.

A bar is a function of the levels it leaves and reaches. Every bar has the same range, and the last close lies inside
it, so the true range is constant: brackets and trails are constants, and the state of a trader is finite.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.bars import Bars
from jaxtrade.data.contracts import Contract
from jaxtrade.data.synthetic.grid import minute_bars, session_minutes, start_level, synthetic_schedule
from jaxtrade.errors import ConfigError

GAPS = (16, 28, 40, 34, 22)  # ticks between neighbouring levels
LEVELS = np.concatenate([[0], np.cumsum(GAPS)])  # ticks above the lowest level
RANGE = 48  # high - low of every bar, ticks
FIRST_VOLUME, LAST_VOLUME = 50, 150


def up_probabilities(pull: float) -> np.ndarray:
    """float64[6] probability of moving up from each level; the rest moves down (from the lowest level: stays)."""
    if not 0 < pull <= 1:
        raise ConfigError(f"data.synthetic_pull = {pull}: expected above 0 (no reversion) and at most 1")
    count = len(LEVELS)
    return 0.5 + pull * (0.5 - (np.arange(count) + 0.5) / count)


def transitions(pull: float) -> np.ndarray:
    """float64[6, 6] probability of the next level (column) from each level (row)."""
    up, count = up_probabilities(pull), len(LEVELS)
    matrix = np.zeros((count, count))
    for k in range(count):
        matrix[k, min(k + 1, count - 1)] += up[k]
        matrix[k, max(k - 1, 0)] += 1 - up[k]
    return matrix


def bar_between(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Prices [..., 4] (open, high, low, close) of bars between levels, int64 ticks above the lowest level.

    before, after: int[...] levels (0..5). The open is the last close; what the move leaves of the range is split
    between both ends.
    """
    open_, close = LEVELS[before], LEVELS[after]
    low = np.minimum(open_, close) - (RANGE - np.abs(close - open_)) // 2
    return np.stack([open_, low + RANGE, low, close], axis=-1)


def chain_levels(generator: np.random.Generator, count: int, pull: float) -> np.ndarray:
    """int64[count + 1] levels visited, the first drawn from the chain's stationary distribution."""
    up = up_probabilities(pull).tolist()
    matrix = transitions(pull)
    stationary = np.linalg.matrix_power(matrix, 1 << 12)[0]
    k, top = int(generator.choice(len(LEVELS), p=stationary / stationary.sum())), len(LEVELS) - 1
    path = [k]
    for draw in generator.random(count).tolist():
        k = min(k + 1, top) if draw < up[k] else max(k - 1, 0)
        path.append(k)
    return np.array(path)


def chain_bars(contract: Contract, sessions: int, seed: int, pull: float) -> Bars:
    """`sessions` sessions of the chain. Raises ConfigError for a pull outside (0, 1] or too many sessions."""
    schedule = synthetic_schedule(contract, sessions)
    stamps = np.concatenate([session_minutes(schedule, i) for i in range(sessions)])
    generator = np.random.default_rng([seed, sessions, 2])
    levels = chain_levels(generator, len(stamps), pull)
    base = max(round(start_level(contract, schedule)) - LEVELS[-1] // 2, RANGE)
    volume = generator.integers(FIRST_VOLUME, LAST_VOLUME + 1, len(stamps))
    return minute_bars(contract, stamps, base + bar_between(levels[:-1], levels[1:]), volume,
                       f"synthetic mean reversion {contract.symbol}, seed {seed}",
                       f"the bars are synthetic: a mean-reverting chain of {len(LEVELS)} price levels (pull {pull})")
