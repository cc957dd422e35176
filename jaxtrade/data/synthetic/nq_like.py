"""Synthetic minute bars on the real calendar: for tests, benchmarks and markets without bundled
data.

The price is a martingale that looks like an index future: U-shaped volatility and volume, quiet
nights, calm and volatile days, jumps, the tick grid, half days, and night minutes without a trade.
The direction of the price cannot be predicted, so no policy should earn more than its costs.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.calendar.schedule import local_seconds
from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.synthetic.grid import (
    minute_bars,
    session_minutes,
    start_level,
    synthetic_schedule,
)

SUBSTEPS = 8  # moves inside a minute; they give a bar its range
DAILY_VOLATILITY = {"future": 0.012, "fx": 0.005, "equity": 0.012}
TEMPER_MEMORY = 0.9  # how much of a day's volatility carries over to the next day
JUMPS_PER_SESSION = 0.7
JUMP_SIZE = 8.0  # in standard deviations of a minute
SILENT_NIGHT_MINUTES = 0.01  # share of minutes without a trade outside 09:30-16:00
# Relative volatility by exchange minute of the day: London at 03:00, the cash open, noon, the cash
# close, the evening.
CLOCK = (0, 180, 200, 480, 565, 570, 600, 720, 840, 930, 960, 975, 1080, 1100, 1440)
SHAPE = (0.35, 0.45, 0.75, 0.60, 0.80, 2.60, 1.80, 1.05, 1.10, 1.50, 1.70, 0.70, 0.60, 0.40, 0.35)


def synthetic_bars(contract: Contract, sessions: int = 40, seed: int = 0) -> Bars:
    """Generate `sessions` sessions of one-minute bars. The same arguments give the same bytes.

    Returns Bars with `synthetic=True`. Raises ConfigError if the calendar has fewer sessions.
    """
    schedule = synthetic_schedule(contract, sessions)
    generator = np.random.default_rng([seed, sessions])
    level, temper, parts = start_level(contract, schedule), 0.0, []
    for i in range(sessions):
        temper = TEMPER_MEMORY * temper + 0.15 * generator.standard_normal()
        bars = _session(
            generator, session_minutes(schedule, i), level, max(0.3, 1 + temper), contract
        )
        level = float(bars[-1, 4])
        parts.append(bars)
    rows = np.concatenate(parts)
    return minute_bars(
        contract,
        rows[:, 0],
        rows[:, 1:5],
        rows[:, 5],
        f"synthetic {contract.symbol}, seed {seed}",
        "the bars are synthetic: a martingale, no policy should earn more than its costs",
    )


def _session(
    generator: np.random.Generator,
    stamps: np.ndarray,
    level: float,
    temper: float,
    contract: Contract,
) -> np.ndarray:
    """Bars of one session, float64[n, 6]: time, open, high, low, close (ticks), volume. level: the
    previous close.
    """
    minute = local_seconds(stamps, contract.zone) % 86_400 / 60
    shape = np.interp(minute, CLOCK, SHAPE)
    day = DAILY_VOLATILITY[contract.kind] * level * temper
    sigma = (
        day * shape / np.sqrt((np.interp(np.arange(1440.0), CLOCK, SHAPE) ** 2).sum())
    )  # ticks per minute
    moves = (
        generator.standard_normal((len(stamps), SUBSTEPS)) * (sigma / np.sqrt(SUBSTEPS))[:, None]
    )
    jumps = generator.random(len(stamps)) < JUMPS_PER_SESSION / len(stamps)
    moves[:, 0] += jumps * generator.standard_normal(len(stamps)) * JUMP_SIZE * sigma
    path = np.maximum(np.rint(level + np.cumsum(moves).reshape(moves.shape)), 1.0)
    activity = 400 * shape * shape * (0.3 + 0.7 * generator.standard_exponential(len(stamps)))
    volume = np.maximum(np.rint(activity * np.sqrt(temper)), 1.0)
    night = (minute < 570) | (minute >= 960)
    silent = night & (generator.random(len(stamps)) < SILENT_NIGHT_MINUTES)
    silent[[0, -1]] = False
    bars = np.column_stack(
        [stamps, path[:, 0], path.max(axis=1), path.min(axis=1), path[:, -1], volume]
    )
    return bars[~silent]
