"""From a run's configuration to its market."""

from __future__ import annotations

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import Bars, load_bars
from jaxtrade.data.bundled import bundled
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import Market, build_market
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.errors import ConfigError


def bars_of(config: RunConfig) -> Bars:
    """The bars that `config.data` names: bundled, synthetic or a file.

    Raises ConfigError (unknown market, contradictory keys) or DataError (the file).
    """
    data = config.data
    contract = get_contract(data.market)
    if data.source != "file" and data.file is not None:
        raise ConfigError(f"data.file = '{data.file}' is given but data.source = {data.source}; set data.source=file")
    if data.source == "bundled":
        return bundled(contract, expiry=data.expiry, start=data.start, end=data.end)
    if data.source == "synthetic":
        return synthetic_bars(contract, data.synthetic_sessions, data.synthetic_seed).between(data.start, data.end)
    if data.file is None:
        raise ConfigError("data.source = file needs data.file (or --data FILE)")
    return load_bars(data.file, contract, columns=data.columns, time_zone=data.time_zone, stamp=data.stamp,
                     price_scale=data.price_scale, expiry=data.expiry, start=data.start, end=data.end)


def load_market(config: RunConfig) -> Market:
    """The market of a run, on device. Raises ConfigError or DataError."""
    return build_market(bars_of(config), config)
