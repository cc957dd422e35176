"""Contract specifications, built-in or the user's own.

They are tick, tick value, costs and plausible prices of each market.

Money is in mills ($0.001); every tick value here is a whole number of mills. Commissions are per
side and contract, and include broker, exchange, clearing and NFA fees of a mid-priced retail
account. They are defaults that
`costs.commission` overrides. Slippage is the number of ticks that a fill of a market or stop order loses.

Tick sizes and multipliers come from the CME Group contract specifications. They agree with the
symbol-properties table of QuantConnect LEAN for every market that the table has (it lacks GC, CL
and their micros).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jaxtrade.config import DataConfig, RunConfig, find_file, name_config, read_values, validate
from jaxtrade.config.base import NotNegative, Positive
from jaxtrade.config.load import list_shipped
from jaxtrade.errors import ConfigError
from jaxtrade.text import did_you_mean

ZONE = "America/New_York"
Kind = Literal["future", "fx", "equity"]
Calendar = Literal[
    "cme_equity", "cme_metal_energy", "cme_fx", "fx", "us_equity"
]  # product groups with their own hours
# Markets with bars in the package, and the first and last trade date of these.
BUNDLED = {
    "ES": ("2013-10-07", "2020-01-07"),
    "EURUSD": ("2007-01-01", "2018-12-31"),
    "GBPUSD": ("2012-11-16", "2022-03-04"),
    "USDJPY": ("2012-11-16", "2022-03-04"),
    "USDCHF": ("2012-11-15", "2022-03-04"),
}
# price_ranges.csv holds the low and high of the cash index, rate or nearby month by calendar year,
# rounded outwards. Futures trade at a distance from their index, and the ranges only need to show
# that a file belongs to another market, so they are widened by this share. Oil traded below zero on
# 20 and 21 April 2020 (May 2020 expiry). The reader refuses prices below zero, so the ranges leave
# them out.
RANGE_MARGIN = 0.10
# Prices beyond a range by less than this share are a warning. The ranges come from one feed and one
# contract of each year, and another's bars may pass its lowest or highest price by a little. A
# wrong market or unit is off by far more.
RANGE_SLACK = 0.05


@dataclass(frozen=True)
class Contract:
    """Fixed numbers of one market.

    tick_size: points.
    tick_mills: value of one tick of one contract, in mills of `currency`.
    commission_mills: dollar mills per side and contract.
    slippage_ticks: ticks lost per market or stop fill.
    min_stop_ticks: smallest stop distance.
    micro: ten micros count as one mini in contract caps.
    turn_hour: exchange hour at which the next trade date begins (0 for shares: the trade date is
        the New York date).
    calendar: the product group whose hours and holidays apply.
    price_ranges: (year, low, high) in points; bars of that year must lie inside, or close to it
        (`RANGE_SLACK`).
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
        """Return plausible (low, high) in points for bars of a calendar year.

        None if no range is known.
        """
        ranges = ((low, high) for known, low, high in self.price_ranges if known == year)
        return next(ranges, None)

    def price_limits(self, year: int) -> tuple[float, float] | None:
        """Return the (low, high) in points beyond which bars of a year are refused.

        None if no range is known.
        """
        found = self.price_range(year)
        return found and (found[0] * (1 - RANGE_SLACK), found[1] * (1 + RANGE_SLACK))

    def file_text(self) -> str:
        """Return the contract as one line of a contract file, without price ranges."""
        values = {
            "symbol": self.symbol,
            "kind": self.kind,
            "currency": self.currency,
            "tick_size": self.tick_size,
            "tick_value": f"{self.tick_mills / 1000:g}",
            "commission": f"{self.commission_mills / 1000:g}",
            "slippage": self.slippage_ticks,
            "min_stop_ticks": self.min_stop_ticks,
            "calendar": self.calendar,
        } | ({"micro": "true"} if self.micro else {})
        return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"

    def under(self, config: RunConfig) -> Contract:
        """Return the contract with a configuration's costs and minimum stop in place of its own.

        The default minimum stop under `env.scaling: seed` is 1 tick. Raises ConfigError if the
        commission is not a whole number of mills.
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
    """Convert money to integer mills.

    Raises ConfigError naming `key` unless the result is whole, at least 0 and within half of
    int32's range.
    """
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


def _markets() -> dict[str, Contract]:
    """Read the markets of markets.csv, with the ranges of price_ranges.csv.

    Minimum stops are about $100 per mini (NQ: 5 points), several times the usual spread of one
    tick. CME charges more for metals, energy and currencies than for equity indices, so there are
    two pairs of commissions. Sizes: GC 100 troy ounces, CL 1,000 barrels, their micros a tenth of
    that; 6E 125,000 EUR.

    FX: a lot is 100,000 units of the base currency, and a tick is a tenth of a pip. Per lot it is
    worth $1 (EURUSD, GBPUSD), 100 JPY (USDJPY) or 1 CHF (USDCHF). With one-sided bars, the default
    slippage per side is half of a measured mean spread: EURUSD 1.17 pips (OANDA 2014), GBPUSD 0.76
    and USDJPY 0.32 pips (FXCM); USDCHF uses that of GBPUSD. With two-sided bars there is no
    slippage. $3.00 per side is a common commission of raw-spread accounts.
    """
    years, found = _table("price_ranges.csv"), {}
    for row in _table("markets.csv"):
        symbol, ranges = row["symbol"], []
        for year in years:
            low, high = map(float, year[row["range"]].split())
            ranges.append((int(year["year"]), low * (1 - RANGE_MARGIN), high * (1 + RANGE_MARGIN)))
        found[symbol] = Contract(
            symbol,
            cast(Kind, row["kind"]),
            Decimal(row["tick_size"]),
            whole_mills(row["tick_value"], f"{symbol} tick value"),
            row["currency"],
            whole_mills(row["commission"], f"{symbol} commission"),
            int(row["slippage_ticks"]),
            int(row["min_stop_ticks"]),
            row["micro"] == "yes",
            int(row["turn_hour"]),
            cast(Calendar, row["calendar"]),
            tuple(ranges),
        )
    return found


def _table(name: str) -> list[dict[str, str]]:
    with open(Path(__file__).with_name(name), newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


CONTRACTS: dict[str, Contract] = _markets()


def shipped_contracts() -> tuple[str, ...]:
    """List the contracts that come with the package and are no built-in market."""
    return tuple(path.stem for path in list_shipped("contracts"))


def get_contract(symbol: str) -> Contract:
    """Return the contract of a market symbol.

    Raises ConfigError with the known symbols, the nearest match, and the ways to name another
    market's contract.
    """
    contract = CONTRACTS.get(symbol.upper())
    if contract is None:
        raise unknown_market(f"data.market = '{symbol}'", symbol)
    return contract


def unknown_market(where: str, symbol: str) -> ConfigError:
    """Make the error for a symbol of no known market.

    where: the key or argument that names it.
    """
    others, name = shipped_contracts(), symbol.upper()
    near = did_you_mean(name, CONTRACTS)
    if name in others:
        near = f"; set data.contract={name} (--contract {name}; contract='{name}' in Python)"
    return ConfigError(
        f"{where}: unknown market (known: {', '.join(CONTRACTS)}; shipped contracts: "
        f"{', '.join(others)}){near}. For any other market, a share for example, write its figures into "
        "a file (docs/data.md, Markets) and set data.contract=FILE (--contract FILE; contract='FILE' in "
        "Python)"
    )


def require_bundled(symbol: str) -> None:
    """Raise ConfigError if the package has no bars of this market."""
    if symbol not in BUNDLED:
        raise ConfigError(
            f"data.market = {symbol}: no bars are bundled for {symbol} (bundled: {', '.join(BUNDLED)}); "
            "give yours in data.file with data.source=file (--data FILE), or set data.source=synthetic"
        )


# A user's own contract, from a YAML file or from one of the examples shipped in
# `configs/contracts`.

CALENDARS: dict[Kind, tuple[Calendar, ...]] = {
    "future": ("cme_equity", "cme_metal_energy", "cme_fx"),
    "fx": ("fx",),
    "equity": ("us_equity",),
}
TURN_HOUR: dict[Kind, int] = {"future": 18, "fx": 17, "equity": 0}
Year = Annotated[int, Field(ge=1990, le=2100)]
Price = Annotated[float, Field(gt=0)]


class ContractFile(BaseModel, frozen=True):
    """The keys of a contract file. The tick value is in `currency`, the commission in dollars."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    symbol: str = Field(pattern=r"^[A-Z0-9][A-Z0-9._]{0,15}$")
    """capitals and digits"""
    kind: Kind
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    """that prices are quoted in, e.g. USD"""
    tick_size: Positive
    """points"""
    tick_value: Positive
    """money of one tick of one contract, in `currency`"""
    commission: NotNegative
    """dollars per side per contract, all-in"""
    slippage: int = Field(ge=0, le=10_000)
    """ticks against us per market or stop fill"""
    min_stop_ticks: int = Field(ge=1, le=1_000_000)
    calendar: Calendar
    micro: bool = False
    """ten of them count as one mini in contract caps"""
    price_ranges: dict[Year, Annotated[tuple[Price, Price], Field(strict=False)]] = Field(
        default_factory=dict
    )
    """year -> [low, high] in points; bars more than 5 % outside are refused"""

    @model_validator(mode="after")
    def _consistent(self) -> ContractFile:
        if self.calendar not in CALENDARS[self.kind]:
            raise ValueError(
                f"calendar = {self.calendar} is not one of a market of kind {self.kind} "
                f"(expected {', '.join(CALENDARS[self.kind])})"
            )
        for year, (low, high) in self.price_ranges.items():
            if low >= high:
                raise ValueError(
                    f"price_ranges.{year} = [{low}, {high}]: the low must be below the high"
                )
        return self


def load_contract(name: str) -> Contract:
    """Load a contract from a file, or a shipped example such as `SPY`.

    Raises ConfigError with file, key and value of every fault.
    """
    path = find_file(name, "contracts", "contract")
    given = validate(ContractFile, read_values(path), name_config(path))
    tick_mills = whole_mills(given.tick_value, f"{name_config(path)}: tick_value")
    if tick_mills == 0:
        raise ConfigError(
            f"{name_config(path)}: tick_value = {given.tick_value}: a tick is worth at least one mill (0.001)"
        )
    same = ("symbol", "kind", "currency", "min_stop_ticks", "micro", "calendar")
    return Contract(
        **{name: getattr(given, name) for name in same},
        tick_size=Decimal(str(given.tick_size)),
        tick_mills=tick_mills,
        commission_mills=whole_mills(given.commission, f"{name_config(path)}: commission"),
        slippage_ticks=given.slippage,
        turn_hour=TURN_HOUR[given.kind],
        price_ranges=tuple(
            (year, low, high) for year, (low, high) in sorted(given.price_ranges.items())
        ),
    )


def contract_of(data: DataConfig) -> Contract:
    """Return the contract of `data.contract` if given, else the known contract of `data.market`."""
    return get_contract(data.market) if data.contract is None else load_contract(data.contract)


def have_same_prices(one: str, other: str) -> bool:
    """Return whether two symbols are a built-in market and its micro: bars of one serve the other."""
    both = [CONTRACTS[symbol].price_ranges for symbol in (one, other) if symbol in CONTRACTS]
    return len(both) == 2 and both[0] == both[1]


def micro_of(contract: Contract) -> Contract | None:
    """Return the micro of a built-in market; None if it has none, or is one."""
    same = (
        m for m in CONTRACTS.values() if m.micro and have_same_prices(m.symbol, contract.symbol)
    )
    return None if contract.micro else next(same, None)


def known_contract(symbol: str) -> Contract | None:
    """Return the built-in market or shipped contract of this symbol; None if there is none."""
    symbol = symbol.upper()
    if symbol in CONTRACTS:
        return CONTRACTS[symbol]
    return load_contract(symbol) if symbol in shipped_contracts() else None


def contract_named(given: Contract | str) -> Contract:
    """Return a contract as it is, or the one that a name means.

    A name is a market (`ES`), a shipped contract (`SPY`) or a contract file. Raises ConfigError
    with the known names, and with the way to state a contract of one's own.
    """
    if not isinstance(given, str):
        return given
    if (known := known_contract(given)) is not None:
        return known
    if Path(given).is_file():
        return load_contract(given)
    raise unknown_market(f"contract '{given}': no such file, and", given)
