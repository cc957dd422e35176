"""A user's own contract, from a YAML file or from one of the examples shipped in
`configs/contracts`.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jaxtrade.config import DataConfig, find_file, read_values, shown, validated
from jaxtrade.config.base import NotNegative, Positive
from jaxtrade.config.faults import suggest
from jaxtrade.data.contracts import (
    CONTRACTS,
    Calendar,
    Contract,
    Kind,
    get_contract,
    shipped_contracts,
    whole_mills,
)
from jaxtrade.errors import ConfigError

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
    """year -> [low, high] in points; bars outside are refused"""

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
    given = validated(ContractFile, read_values(path), shown(path))
    tick_mills = whole_mills(given.tick_value, f"{shown(path)}: tick_value")
    if tick_mills == 0:
        raise ConfigError(
            f"{shown(path)}: tick_value = {given.tick_value}: a tick is worth at least one mill (0.001)"
        )
    same = ("symbol", "kind", "currency", "min_stop_ticks", "micro", "calendar")
    return Contract(
        **{name: getattr(given, name) for name in same},
        tick_size=Decimal(str(given.tick_size)),
        tick_mills=tick_mills,
        commission_mills=whole_mills(given.commission, f"{shown(path)}: commission"),
        slippage_ticks=given.slippage,
        turn_hour=TURN_HOUR[given.kind],
        price_ranges=tuple(
            (year, low, high) for year, (low, high) in sorted(given.price_ranges.items())
        ),
    )


def contract_of(data: DataConfig) -> Contract:
    """The contract of `data.contract` if that is given, else the known contract of
    `data.market`.
    """
    return get_contract(data.market) if data.contract is None else load_contract(data.contract)


def known_contract(symbol: str) -> Contract | None:
    """The built-in market or shipped contract of this symbol; None if there is none."""
    symbol = symbol.upper()
    if symbol in CONTRACTS:
        return CONTRACTS[symbol]
    return load_contract(symbol) if symbol in shipped_contracts() else None


def contract_named(given: Contract | str) -> Contract:
    """A contract as it is, or the one that a name means: a market (`ES`), a shipped contract
    (`SPY`) or a contract file.

    Raises ConfigError with the known names, and with the way to state a contract of one's own.
    """
    if not isinstance(given, str):
        return given
    if (known := known_contract(given)) is not None:
        return known
    if Path(given).is_file():
        return load_contract(given)
    near = suggest(given.upper(), [*CONTRACTS, *shipped_contracts()])
    raise ConfigError(
        f"contract '{given}': not one that jaxtrade knows (markets: {', '.join(CONTRACTS)}; shipped "
        f"contracts: {', '.join(shipped_contracts())}), and no such file{near}. For another market, "
        "write its figures into a YAML file (docs/data.md, Markets) and give the file's name, or a "
        "jaxtrade.Contract"
    )
