"""Synthetic markets on the real calendar. Each has a known answer, for tests, benchmarks and null
experiments.

`KINDS` has one row per value of `data.synthetic`. docs/synthetic.md describes each market and its answer.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtrade.config import DataConfig
from jaxtrade.data.bundled import bundled
from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.synthetic.chain import chain_bars
from jaxtrade.data.synthetic.nq_like import synthetic_bars
from jaxtrade.data.synthetic.surrogate import phase_randomised_bars
from jaxtrade.data.synthetic.walk import walk_bars
from jaxtrade.errors import ConfigError

__all__ = ["KINDS", "bars_of_kind", "synthetic_bars"]

TREND_DRIFT, REVERSION_PULL = 0.05, 0.4  # used if the configuration gives none

Maker = Callable[[Contract, DataConfig], Bars]
KINDS: dict[str, Maker] = {
    "nq_like": lambda contract, data: synthetic_bars(
        contract, data.synthetic_sessions, data.synthetic_seed
    ),
    "trend": lambda contract, data: walk_bars(
        contract,
        data.synthetic_sessions,
        data.synthetic_seed,
        TREND_DRIFT if data.synthetic_drift is None else data.synthetic_drift,
    ),
    "mean_reversion": lambda contract, data: chain_bars(
        contract,
        data.synthetic_sessions,
        data.synthetic_seed,
        REVERSION_PULL if data.synthetic_pull is None else data.synthetic_pull,
    ),
    "martingale": lambda contract, data: walk_bars(
        contract, data.synthetic_sessions, data.synthetic_seed
    ),
    "phase_randomised": lambda contract, data: phase_randomised_bars(
        bundled(contract, expiry=data.expiry, start=data.start, end=data.end),
        data.synthetic_sessions,
        data.synthetic_seed,
    ),
}
ONLY_OF = {"synthetic_drift": "trend", "synthetic_pull": "mean_reversion"}


def bars_of_kind(contract: Contract, data: DataConfig) -> Bars:
    """Generate the bars that `data.synthetic` and its keys describe, cut to data.start..end.

    Raises ConfigError for a key that belongs to another kind, too many sessions, or a market
    without bars to copy.
    """
    for key, kind in ONLY_OF.items():
        if getattr(data, key) is not None and data.synthetic != kind:
            raise ConfigError(
                f"data.{key} = {getattr(data, key)} is given but data.synthetic = {data.synthetic}; it "
                f"belongs to {kind}"
            )
    return KINDS[data.synthetic](contract, data).between(data.start, data.end)
