"""A walk of one tick per minute: a martingale without drift, a trend with drift. Its answers are
exact.

Every bar opens at the previous close and moves one tick up or down; it touches no other price. The
levels of brackets, break-even stops and trails are all on the grid of closes. So no bar contains
both a stop and a target, no fill is between two closes, and an exit at a level is an exit at a
close. Without drift, every policy's expected result before costs is therefore exactly zero, under
every intrabar order. With drift d, a position held for n bars has an expected result of d * n
ticks.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.synthetic import FIRST_VOLUME, LAST_VOLUME
from jaxtrade.data.synthetic.grid import (
    minute_bars,
    session_minutes,
    start_level,
    synthetic_schedule,
)
from jaxtrade.errors import ConfigError

SAFETY = 8.0  # a falling walk must stay this many standard deviations above zero


def walk_bars(contract: Contract, sessions: int, seed: int, drift: float = 0.0) -> Bars:
    """Generate `sessions` sessions of the walk. It rises one tick a minute with probability (1 +
    drift) / 2, else it falls one tick.

    Args:
        drift: expected ticks per bar, between -1 and 1; 0 gives the martingale.
    Raises:
        ConfigError: a drift outside that range, a drift that may lead to prices below zero, or too
            many sessions.
    """
    if not -1 < drift < 1:
        raise ConfigError(
            f"data.synthetic_drift = {drift}: a bar moves one tick, so its mean lies between -1 and 1"
        )
    schedule = synthetic_schedule(contract, sessions)
    stamps = np.concatenate([session_minutes(schedule, i) for i in range(sessions)])
    level = round(start_level(contract, schedule))
    lowest = level + min(drift, 0.0) * len(stamps) - SAFETY * np.sqrt(len(stamps))
    if lowest < 1:
        raise ConfigError(
            f"data.synthetic_sessions = {sessions}: {len(stamps):,} bars of drift {drift} from "
            f"{level:,} ticks could fall below zero; lower it, or data.synthetic_drift"
        )
    generator = np.random.default_rng([seed, sessions, 1])
    steps = np.where(generator.random(len(stamps)) < (1 + drift) / 2, 1, -1)
    close = level + np.cumsum(steps)
    before = close - steps
    prices = np.stack([before, np.maximum(before, close), np.minimum(before, close), close], axis=1)
    volume = generator.integers(FIRST_VOLUME, LAST_VOLUME + 1, len(stamps))
    name = "martingale" if drift == 0 else "trend"
    note = (
        "the bars are synthetic: a martingale of one-tick steps, every policy expects to lose exactly its costs"
        if drift == 0
        else f"the bars are synthetic: a walk that drifts by {drift} ticks a bar"
    )
    return minute_bars(
        contract, stamps, prices, volume, f"synthetic {name} {contract.symbol}, seed {seed}", note
    )
