"""Contract specifications: tick, tick value, costs and plausible prices of each market.

Money is in mills ($0.001); every tick value here is a whole number of mills. Commissions are per
side and contract, and include broker, exchange, clearing and NFA fees of a mid-priced retail
account. They are defaults that
`costs.commission` overrides. Slippage is the number of ticks that a fill of a market or stop order loses.

Tick sizes and multipliers come from the CME Group contract specifications. They agree with the
symbol-properties table of QuantConnect LEAN for every market that the table has (it lacks GC, CL
and their micros).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from jaxtrade.config import RunConfig
from jaxtrade.config.load import shipped
from jaxtrade.errors import ConfigError

ZONE = "America/New_York"
Kind = Literal["future", "fx", "equity"]
Calendar = Literal[
    "cme_equity", "cme_metal_energy", "cme_fx", "fx", "us_equity"
]  # product groups with their own hours
BUNDLED = ("ES", "EURUSD", "GBPUSD", "USDJPY", "USDCHF")  # markets with bars in the package
# The ranges below are of the cash index. Futures trade at a distance from it, and the ranges only
# need to show that a file belongs to another market, so they are widened by this share.
RANGE_MARGIN = 0.10

# (low, high) of the cash index or rate by calendar year, rounded outwards.
_SP500 = {
    2007: (1363, 1577),
    2008: (741, 1472),
    2009: (666, 1131),
    2010: (1010, 1263),
    2011: (1074, 1371),
    2012: (1258, 1475),
    2013: (1426, 1850),
    2014: (1737, 2094),
    2015: (1867, 2135),
    2016: (1810, 2278),
    2017: (2245, 2695),
    2018: (2346, 2941),
    2019: (2443, 3248),
    2020: (2191, 3760),
    2021: (3662, 4809),
    2022: (3491, 4819),
    2023: (3794, 4794),
    2024: (4682, 6100),
    2025: (4835, 6950),
    2026: (5500, 9000),
}
_NASDAQ100 = {
    2007: (1710, 2240),
    2008: (1018, 2104),
    2009: (1040, 1882),
    2010: (1700, 2240),
    2011: (2034, 2439),
    2012: (2254, 2879),
    2013: (2640, 3595),
    2014: (3414, 4348),
    2015: (3787, 4740),
    2016: (3888, 4993),
    2017: (4863, 6515),
    2018: (5895, 7701),
    2019: (6147, 8800),
    2020: (6771, 12926),
    2021: (12208, 16765),
    2022: (10440, 16568),
    2023: (10671, 16970),
    2024: (16249, 22134),
    2025: (16542, 26200),
    2026: (20000, 36000),
}
_DOW = {
    2007: (11939, 14199),
    2008: (7449, 13280),
    2009: (6440, 10581),
    2010: (9614, 11626),
    2011: (10362, 12877),
    2012: (12035, 13662),
    2013: (13104, 16589),
    2014: (15340, 18104),
    2015: (15370, 18352),
    2016: (15450, 19988),
    2017: (19677, 24877),
    2018: (21712, 26952),
    2019: (22638, 28702),
    2020: (18213, 30638),
    2021: (29856, 36680),
    2022: (28660, 36953),
    2023: (31429, 37791),
    2024: (37122, 45074),
    2025: (36611, 48900),
    2026: (40000, 65000),
}
_RUSSELL2000 = {
    2007: (734, 856),
    2008: (371, 764),
    2009: (342, 636),
    2010: (580, 793),
    2011: (601, 869),
    2012: (729, 869),
    2013: (849, 1168),
    2014: (1040, 1220),
    2015: (1078, 1297),
    2016: (943, 1389),
    2017: (1335, 1560),
    2018: (1266, 1743),
    2019: (1331, 1682),
    2020: (966, 2011),
    2021: (1931, 2459),
    2022: (1641, 2273),
    2023: (1633, 2072),
    2024: (1898, 2467),
    2025: (1732, 2600),
    2026: (2000, 3600),
}
_EURUSD = {
    2007: (1.286, 1.498),
    2008: (1.232, 1.604),
    2009: (1.245, 1.515),
    2010: (1.187, 1.458),
    2011: (1.285, 1.494),
    2012: (1.204, 1.349),
    2013: (1.274, 1.390),
    2014: (1.209, 1.400),
    2015: (1.045, 1.211),
    2016: (1.033, 1.162),
    2017: (1.034, 1.210),
    2018: (1.121, 1.256),
    2019: (1.087, 1.157),
    2020: (1.063, 1.231),
    2021: (1.118, 1.235),
    2022: (0.953, 1.150),
    2023: (1.044, 1.128),
    2024: (1.033, 1.122),
    2025: (1.017, 1.192),
    2026: (1.000, 1.350),
}

_GBPUSD = {
    2007: (1.918, 2.116),
    2008: (1.435, 2.040),
    2009: (1.350, 1.705),
    2010: (1.423, 1.646),
    2011: (1.527, 1.675),
    2012: (1.523, 1.631),
    2013: (1.481, 1.661),
    2014: (1.548, 1.720),
    2015: (1.456, 1.593),
    2016: (1.140, 1.502),
    2017: (1.198, 1.366),
    2018: (1.247, 1.438),
    2019: (1.195, 1.352),
    2020: (1.140, 1.369),
    2021: (1.316, 1.425),
    2022: (1.035, 1.375),
    2023: (1.180, 1.315),
    2024: (1.229, 1.344),
    2025: (1.209, 1.379),
    2026: (1.150, 1.550),
}
_USDJPY = {
    2007: (107.2, 124.2),
    2008: (87.1, 112.0),
    2009: (84.8, 101.5),
    2010: (80.2, 95.0),
    2011: (75.3, 85.6),
    2012: (76.0, 86.8),
    2013: (86.5, 105.5),
    2014: (100.7, 121.9),
    2015: (115.8, 125.9),
    2016: (98.9, 121.7),
    2017: (107.3, 118.7),
    2018: (104.5, 114.6),
    2019: (104.1, 112.5),
    2020: (101.1, 112.3),
    2021: (102.5, 115.6),
    2022: (113.4, 152.0),
    2023: (127.2, 152.0),
    2024: (139.5, 162.0),
    2025: (139.8, 159.0),
    2026: (130.0, 185.0),
}
_USDCHF = {
    2007: (1.098, 1.250),
    2008: (0.963, 1.230),
    2009: (0.991, 1.197),
    2010: (0.930, 1.174),
    2011: (0.706, 0.978),
    2012: (0.893, 0.998),
    2013: (0.880, 0.984),
    2014: (0.870, 0.992),
    2015: (0.740, 1.033),
    2016: (0.944, 1.035),
    2017: (0.942, 1.034),
    2018: (0.918, 1.013),
    2019: (0.964, 1.024),
    2020: (0.875, 0.990),
    2021: (0.875, 0.948),
    2022: (0.909, 1.015),
    2023: (0.833, 0.944),
    2024: (0.837, 0.923),
    2025: (0.784, 0.920),
    2026: (0.650, 0.950),
}
# Prices of nearby months. Oil traded below zero on 20 and 21 April 2020 (May 2020 expiry). The
# reader refuses prices below zero, so these ranges leave them out.
_GOLD = {
    2007: (603, 845),
    2008: (681, 1034),
    2009: (801, 1228),
    2010: (1044, 1432),
    2011: (1308, 1924),
    2012: (1526, 1798),
    2013: (1179, 1698),
    2014: (1130, 1392),
    2015: (1045, 1308),
    2016: (1061, 1378),
    2017: (1146, 1362),
    2018: (1160, 1370),
    2019: (1266, 1566),
    2020: (1450, 2090),
    2021: (1673, 1963),
    2022: (1613, 2079),
    2023: (1804, 2152),
    2024: (1984, 2826),
    2025: (2607, 4600),
    2026: (3000, 7500),
}
_OIL = {
    2007: (49.9, 99.3),
    2008: (32.4, 147.3),
    2009: (33.2, 82.0),
    2010: (64.2, 92.1),
    2011: (74.9, 114.9),
    2012: (77.2, 110.6),
    2013: (85.6, 112.3),
    2014: (52.4, 107.8),
    2015: (33.9, 62.6),
    2016: (26.0, 54.6),
    2017: (42.0, 60.6),
    2018: (42.3, 76.9),
    2019: (44.3, 66.7),
    2020: (6.5, 65.7),
    2021: (47.1, 85.5),
    2022: (70.0, 130.6),
    2023: (63.6, 95.1),
    2024: (65.2, 87.7),
    2025: (55.1, 80.8),
    2026: (40.0, 130.0),
}
Ranges = Mapping[int, tuple[float, float]]


@dataclass(frozen=True)
class Contract:
    """Fixed figures of one market.

    tick_size: points. tick_mills: value of one tick of one contract, in mills of `currency`.
        commission_mills: dollar
    mills per side and contract. slippage_ticks: ticks lost per market or stop fill. min_stop_ticks:
    smallest stop distance. micro: ten micros count as one mini in contract caps. turn_hour:
    exchange hour at which the next trade date begins (0 for shares: the trade date is the New York
    date). calendar: the product group whose hours and holidays apply. price_ranges: (year, low,
    high) in points; bars of that year must lie inside.
    """

    symbol: str
    kind: Kind
    tick_size: Decimal
    tick_mills: int
    currency: str
    commission_mills: int
    slippage_ticks: int
    min_stop_ticks: int
    micro: bool
    turn_hour: int
    calendar: Calendar
    price_ranges: tuple[tuple[int, float, float], ...]
    zone: str = ZONE

    @property
    def decimals(self) -> int:
        """Number of decimals of a printed price."""
        exponent = self.tick_size.normalize().as_tuple().exponent
        return max(0, -int(exponent))

    def price_range(self, year: int) -> tuple[float, float] | None:
        """Plausible (low, high) in points for bars of a calendar year; None if no range is
        known.
        """
        for known, low, high in self.price_ranges:
            if known == year:
                return low, high
        return None

    def under(self, config: RunConfig) -> Contract:
        """The contract with a configuration's costs and minimum stop in place of its own.

        The default minimum stop under `env.scaling: seed` is 1 tick.

        Raises ConfigError if the commission is not a whole number of mills.
        """
        chosen = {}
        if config.costs.commission is not None:
            chosen["commission_mills"] = whole_mills(config.costs.commission, "costs.commission")
        if config.costs.slippage is not None:
            chosen["slippage_ticks"] = config.costs.slippage
        if config.brackets.min_stop_ticks is not None:
            chosen["min_stop_ticks"] = config.brackets.min_stop_ticks
        elif config.env.scaling == "seed":
            chosen["min_stop_ticks"] = 1
        return replace(self, **chosen)


def whole_mills(money: float | Decimal | str, key: str) -> int:
    """Money -> integer mills. Raises ConfigError naming `key` unless the result is whole, at least
    0 and within half of int32's range."""
    mills = Decimal(str(money)) * 1000
    if mills != mills.to_integral_value():
        raise ConfigError(
            f"{key} = {money}: not a whole number of mills (0.001); round it to three decimals"
        )
    if not 0 <= mills < 2**30:
        raise ConfigError(
            f"{key} = {money}: money must stay below {2**30 // 1000:,} and not be negative (int32 mills)"
        )
    return int(mills)


def _ranges(table: Ranges) -> tuple[tuple[int, float, float], ...]:
    return tuple(
        (year, low * (1 - RANGE_MARGIN), high * (1 + RANGE_MARGIN))
        for year, (low, high) in table.items()
    )


def _future(
    symbol: str,
    tick: str,
    value: str,
    slippage: int,
    min_stop: int,
    index: Ranges,
    micro: bool,
    calendar: Calendar = "cme_equity",
) -> Contract:
    mini, tenth = ("2.08", "0.52") if calendar == "cme_equity" else ("2.30", "0.77")
    return Contract(
        symbol,
        "future",
        Decimal(tick),
        whole_mills(value, f"{symbol} tick value"),
        "USD",
        whole_mills(tenth if micro else mini, f"{symbol} commission"),
        slippage,
        min_stop,
        micro,
        18,
        calendar,
        _ranges(index),
    )


def _lot(symbol: str, tick: str, value: str, slippage: int, rates: Ranges) -> Contract:
    """A lot of 100,000 units of the base currency. value: value of one tick, in the quote
    currency.
    """
    return Contract(
        symbol,
        "fx",
        Decimal(tick),
        whole_mills(value, f"{symbol} tick value"),
        symbol[3:],
        3000,
        slippage,
        50,
        False,
        17,
        "fx",
        _ranges(rates),
    )


# Minimum stops are about $100 per mini (NQ: 5 points), several times the usual spread of one tick.
# CME charges more for metals, energy and currencies than for equity indices, so there are two pairs
# of commissions. Sizes: GC 100 troy ounces, CL 1,000 barrels, their micros a tenth of that; 6E
# 125,000 EUR. FX: a tick is a tenth of a pip. Per lot it is worth $1 (EURUSD, GBPUSD), 100 JPY
# (USDJPY) or 1 CHF (USDCHF). With one-sided bars, the default slippage per side is half of a
# measured mean spread: EURUSD 1.17 pips (OANDA 2014), GBPUSD 0.76 and USDJPY 0.32 pips (FXCM);
# USDCHF uses that of GBPUSD. With two-sided bars there is no slippage. $3.00 per side is a common
# commission of raw-spread accounts.
CONTRACTS: dict[str, Contract] = {
    contract.symbol: contract
    for contract in (
        _future("NQ", "0.25", "5.00", 1, 20, _NASDAQ100, False),
        _future("ES", "0.25", "12.50", 1, 8, _SP500, False),
        _future("YM", "1", "5.00", 2, 20, _DOW, False),
        _future("RTY", "0.10", "5.00", 2, 20, _RUSSELL2000, False),
        _future("MNQ", "0.25", "0.50", 1, 20, _NASDAQ100, True),
        _future("MES", "0.25", "1.25", 1, 8, _SP500, True),
        _future("M2K", "0.10", "0.50", 2, 20, _RUSSELL2000, True),
        _future("MYM", "1", "0.50", 2, 20, _DOW, True),
        _future("GC", "0.10", "10.00", 1, 10, _GOLD, False, "cme_metal_energy"),
        _future("CL", "0.01", "10.00", 1, 10, _OIL, False, "cme_metal_energy"),
        _future("MGC", "0.10", "1.00", 1, 10, _GOLD, True, "cme_metal_energy"),
        _future("MCL", "0.01", "1.00", 1, 10, _OIL, True, "cme_metal_energy"),
        _future("6E", "0.00005", "6.25", 1, 16, _EURUSD, False, "cme_fx"),
        _lot("EURUSD", "0.00001", "1", 6, _EURUSD),
        _lot("GBPUSD", "0.00001", "1", 4, _GBPUSD),
        _lot("USDJPY", "0.001", "100", 2, _USDJPY),
        _lot("USDCHF", "0.00001", "1", 4, _USDCHF),
    )
}


def shipped_contracts() -> tuple[str, ...]:
    """The contracts that come with the package and are no built-in market."""
    return tuple(path.stem for path in shipped("contracts"))


def get_contract(symbol: str) -> Contract:
    """The contract of a market symbol. Raises ConfigError with the known symbols, the nearest
    match, and the ways to name another market's contract."""
    contract = CONTRACTS.get(symbol.upper())
    if contract is not None:
        return contract
    others = shipped_contracts()
    if symbol.upper() in others:
        raise ConfigError(
            f"data.market = '{symbol}': unknown market, but a shipped contract has this name; set "
            f"data.contract={symbol.upper()} instead (--contract {symbol.upper()}; "
            f"contract='{symbol.upper()}' in Python)"
        )
    near = difflib.get_close_matches(symbol.upper(), CONTRACTS, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise ConfigError(
        f"data.market = '{symbol}': unknown market (known: {', '.join(CONTRACTS)}){hint} Shipped "
        f"contracts: {', '.join(others)} (data.contract=NAME). For any other market, a share for "
        "example, write its figures into a file (docs/data.md, Markets) and set data.contract=FILE "
        "(--contract FILE; contract='FILE' in Python)"
    )


def require_bundled(symbol: str) -> None:
    """Raises ConfigError if the package has no bars of this market."""
    if symbol not in BUNDLED:
        raise ConfigError(
            f"data.market = {symbol}: no bars are bundled for {symbol} (bundled: {', '.join(BUNDLED)}); "
            "give yours in data.file with data.source=file (--data FILE), or set data.source=synthetic"
        )
