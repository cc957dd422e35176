"""What `jaxtrade init` prints about a file, and the questions that the file leaves open."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from jaxtrade.config import DataConfig
from jaxtrade.config.yaml12 import dump_yaml, parse_yaml
from jaxtrade.data.contracts import (
    CALENDARS,
    CONTRACTS,
    Contract,
    ContractFile,
    Kind,
    known_contract,
    load_contract,
    unknown_market,
)
from jaxtrade.data.examine import (
    CLEAR,
    MOST_CLOSED,
    Clock,
    FileFacts,
    candidates,
    clear_winner,
    clocks,
    contradicts,
    fits,
    market_named,
    price_unit,
)
from jaxtrade.data.formats.recognise import StatedKeys, UsualMeaning
from jaxtrade.data.read.stamps import known_zone
from jaxtrade.data.sources import needs_rates, rate_of
from jaxtrade.errors import ConfigError
from jaxtrade.formatting import iso
from jaxtrade.text import align, show

# Questions of a command to a person at a terminal, or the list of flags that answer them.

TRIES = 3


class InitQuestion(NamedTuple):
    """One thing that a command cannot know.

    text: the question.
    flag: how to answer it on the command line.
    check: raises ConfigError for an answer that is not allowed; None: one of the choices.
    choices: (answer, what speaks for it).
    usual: the answer to an empty line; None if there is none.
    key: of `data`, which the answer sets, if it sets one.
    best: choices that fit best where none is so clearly better that it is usual.
    """

    text: str
    flag: str
    check: Callable[[str], object] | None = None
    choices: tuple[tuple[str, str], ...] = ()
    usual: str | None = None
    key: str = ""
    best: tuple[str, ...] = ()

    def list_choices(self) -> list[str]:
        """Return the choices as numbered lines; those that fit best are marked."""
        marked = (*self.best, self.usual)
        rows = [
            (str(number), answer, f"{why}{' (best fit)' if answer in marked else ''}".strip())
            for number, (answer, why) in enumerate(self.choices, 1)
        ]
        return align(rows, (1, 2)) if rows else []

    def read(self, typed: str) -> str:
        """Return the answer to a line: a choice's number, or the answer itself.

        Raises ConfigError for one that is not allowed.
        """
        given, known = typed.strip() or self.usual or "", [answer for answer, _ in self.choices]
        if given.isdecimal() and 0 < int(given) <= len(known):
            given = known[int(given) - 1]
        if self.check is not None:
            self.check(given)
        elif given not in known:
            raise ConfigError(f"expected {', '.join(known)}, or its number; found '{given}'")
        return given


def may_ask(refused: bool) -> bool:
    """Return whether there is somebody to ask: a terminal, and no --non-interactive."""
    return not refused and sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: InitQuestion) -> str:
    """Return the answer, as typed.

    Raises ConfigError after three answers that are not allowed, or at the end of input.
    """
    for line in question.list_choices():
        show(f"  {line}")
    usual = "" if question.usual is None else f" [{question.usual}]"
    for _ in range(TRIES):
        try:
            return question.read(input(f"{question.text}{usual}: "))
        except EOFError:
            break
        except ConfigError as error:
            show(f"  {error}")
    raise ConfigError(f"no answer to '{question.text}'; give {question.flag}")


def read_value(model: type[BaseModel], key: str, given: str) -> Any:
    """Return an answer as the value of a model's key. Raises ConfigError if it cannot be."""
    field = model.model_fields[key]
    value = given if field.annotation is str else parse_yaml(given, key)
    try:
        return TypeAdapter(field.rebuild_annotation()).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigError(f"{error.errors()[0]['msg']}; found '{given}'") from None


SHOWN = 5
PLAIN = (
    UsualMeaning("exports in UTC", "UTC"),
    UsualMeaning("the exchange's clock of US markets", "America/New_York"),
    UsualMeaning("the clock of CME", "America/Chicago"),
    UsualMeaning("most FX brokers' servers", "America/New_York+7h"),
)
# Usual figures of a contract of each kind: commission, slippage and minimum stop in ticks.
USUAL: dict[Kind, tuple[str, str, str]] = {
    "future": ("2.30", "1", "10"),
    "fx": ("3.00", "4", "50"),
    "equity": ("0.50", "1", "10"),
}


def describe(seen: FileFacts) -> list[str]:
    """Describe what was recognised, as lines."""
    clock = (
        "as written; the file does not say the time zone"
        if seen.naive and seen.keys.time_zone is None
        else (f"in {seen.keys.time_zone}" if seen.naive else "UTC")
    )
    spans = [" ".join(re.split(r"[\t,;| ]+", text)) for text in seen.text]
    first, last = spans if seen.naive else (iso(int(seen.wall[0])), iso(int(seen.wall[-1])))
    low, high = (
        min(low for low, _ in seen.years.values()),
        max(high for _, high in seen.years.values()),
    )
    lines = [
        f"{seen.file}: read as {seen.layout.title}",
        "  columns   " + ", ".join(f"{field} = {name}" for field, name in seen.columns.items()),
        f"  bars      {seen.rows:,} rows, usually {seen.bar_seconds} s apart",
        f"  first     {first} ({clock})",
        f"  last      {last}",
        f"  prices    {low:.{seen.decimals}f} .. {high:.{seen.decimals}f}, smallest step "
        f"{seen.step:.{seen.decimals}f}; {'bid and ask' if seen.sides == 2 else 'one side'}",
    ]
    known = f"read as {seen.layout.title}"
    return [*lines, *(f"  note: {note}" for note in seen.notes if not note.startswith(known))]


# --- the market ------------------------------------------------------------------------------------------------------


def contract_for(
    seen: FileFacts, market: str | None, contract: str | None, interactive: bool, folder: Path
) -> tuple[Contract | None, dict[str, str]]:
    """Return the contract and the keys of `data` that name it.

    The contract is None if it is not known and nobody can be asked.

    market, contract: as stated. The file's own name for its instrument is taken, unless its prices
        contradict it.
    folder: where a new contract file goes.

    Raises ConfigError.
    """
    if contract is not None:
        given = load_contract(contract)
        return given, {"market": given.symbol, "contract": contract}
    if market is None:
        named = {symbol for name in seen.names if (symbol := market_named(name))}
        own = known_contract(named.pop()) if len(named) == 1 else None
        if own is not None and not contradicts(seen, own):
            show(f"  the file names its instrument: {own.symbol}")
            return own, _keys(own)
        if not interactive:
            return None, {}
        market = ask(market_question(seen)).upper()
    known = known_contract(market)
    if known is not None:
        return known, _keys(known)
    if not interactive:
        raise unknown_market(f"market '{market}'", market)
    return new_contract(seen, market.upper(), folder)


def _keys(contract: Contract) -> dict[str, str]:
    return {"market": contract.symbol} | (
        {} if contract.symbol in CONTRACTS else {"contract": contract.symbol}
    )


def market_question(seen: FileFacts) -> InitQuestion:
    """Make the question which market the file is of."""
    found = candidates(seen)
    micros = all(each.symbol in CONTRACTS and CONTRACTS[each.symbol].micro for each in found[1:])
    usual = found[0].symbol if found and (len(found[0].why) > 1 or micros) else None
    choices = tuple((each.symbol, f"by {' and '.join(each.why)}") for each in found[:SHOWN])
    best = tuple(each.symbol for each in found if len(each.why) == len(found[0].why))
    return InitQuestion(
        "Which market is it (a symbol; a new one begins a contract file)?",
        f"--market {usual or 'SYMBOL'} (or --contract FILE)",
        lambda given: read_value(ContractFile, "symbol", given.upper()),
        choices,
        usual,
        best=() if usual else best,
    )


def new_contract(seen: FileFacts, symbol: str, folder: Path) -> tuple[Contract, dict[str, str]]:
    """Ask for the numbers of a contract, and write its file.

    Return it with the keys of `data` that name it.
    """
    path = folder / f"{symbol}.contract.yaml"
    if path.exists():
        raise ConfigError(
            f"{path}: exists already, and is not overwritten; give it with --contract {path}"
        )
    show(
        f"  jaxtrade does not know {symbol}. Its figures go into {path}; they are in its broker's specification."
    )

    values: dict[str, Any] = {"symbol": symbol}

    def figure(key: str, text: str, usual: str | None, *names: str) -> Any:
        question = InitQuestion(
            f"  {text}",
            "--contract FILE (docs/data.md, Markets)",
            None if names else partial(read_value, ContractFile, key),
            tuple((name, "") for name in names),
            usual,
        )
        values[key] = read_value(ContractFile, key, ask(question))
        return values[key]

    kind: Kind = figure("kind", "Kind", None, *CALENDARS)
    currency = figure("currency", "Currency of its prices", "USD")
    tick = figure("tick_size", "Tick: the smallest price step", f"{seen.step:.{seen.decimals}f}")
    units = {"future": None, "fx": 100_000, "equity": 100}[kind]
    worth = None if units is None else f"{units * tick:g}"
    figure("tick_value", f"Value of one tick of one contract, in {currency}", worth)
    commission, slippage, stop = USUAL[kind]
    figure("commission", "Commission in dollars per side and contract", commission)
    figure("slippage", "Slippage in ticks per market or stop fill", slippage)
    figure("min_stop_ticks", "Smallest stop distance in ticks", stop)
    figure("calendar", "Trading hours", CALENDARS[kind][0], *CALENDARS[kind])
    with path.open("x", encoding="utf-8") as file:
        file.write(f"# Written by jaxtrade init for {Path(seen.file).name}.\n" + dump_yaml(values))
    show(f"  written: {path}")
    return load_contract(str(path)), {"market": symbol, "contract": str(path)}


# --- how it is read --------------------------------------------------------------------------------------------------


def answer_questions(
    seen: FileFacts, contract: Contract | None, stated: DataConfig
) -> list[InitQuestion]:
    """Make the questions for everything that neither the file nor the user says.

    contract: None if it is not known yet; the market that the file is likely of then stands for it.
    """
    asked: list[InitQuestion] = []
    if contract is None:
        contract = known_contract(market_question(seen).usual or "")
    if contract is not None and seen.keys.price_scale == 1.0 and not fits(seen, contract):
        unit = price_unit(seen, contract)
        if unit is not None and contradicts(seen, contract):
            asked.append(
                InitQuestion(
                    f"{contract.symbol} traded elsewhere; times {unit:g} the prices fit. Points per "
                    "unit of the file's prices?",
                    f"--set data.price_scale={unit:g}",
                    partial(read_value, DataConfig, "price_scale"),
                    usual=f"{unit:g}",
                    key="price_scale",
                )
            )
    if not seen.ordered:
        asked.append(
            InitQuestion(
                f"How is {seen.text[0]} written?",
                "--set data.date_order=mdy (or dmy)",
                choices=(("mdy", "the month first"), ("dmy", "the day first")),
                key="date_order",
            )
        )
    if len(seen.contracts) > 1 and stated.expiry is None and stated.roll == "off":
        usual = seen.contracts[0][0]
        asked.append(
            InitQuestion(
                "Which contract?",
                f"--set data.expiry={usual} (or data.roll=..., see docs/data.md)",
                None,
                tuple((code, f"{rows:,} rows") for code, rows in seen.contracts),
                usual,
                "expiry",
            )
        )
    if contract is not None and stated.conversion is None and needs_rates(contract):
        rate = rate_of(contract)
        if rate is not None:
            asked.append(
                InitQuestion(
                    f"Profits arise in {contract.currency}. Which file of bars of {rate.symbol}, of the "
                    "same time and stamped as these bars, converts them to dollars?",
                    "--set data.conversion=FILE",
                    _file,
                    key="conversion",
                )
            )
    return asked + _clock_questions(seen, contract)


def _file(given: str) -> None:
    if not Path(given).is_file():
        raise ConfigError(f"{given}: no such file")


def _clock_questions(seen: FileFacts, contract: Contract | None) -> list[InitQuestion]:
    """Make the questions about time zone and stamp side.

    They show what is usual for the layout and what the market's hours say.
    """
    missing = [
        key
        for key, absent in (
            ("time_zone", seen.naive and seen.keys.time_zone is None),
            ("stamp", seen.keys.stamp is None),
        )
        if absent
    ]
    found = clocks(seen, contract) if contract is not None and missing else []
    best = clear_winner(found)
    return [_clock_question(key, seen, contract, found, best) for key in missing]


def clock_warning(seen: FileFacts, contract: Contract, data: dict[str, Any]) -> str | None:
    """Return a warning if the keys of `data` put many bars into closed hours, and another clock few."""
    keys = {key: data[key] for key in ("time_zone", "stamp") if key in data}

    def best(stated: StatedKeys) -> list[Clock]:
        return clocks(replace(seen, keys=stated), contract)[:1]

    for own in best(seen.keys._replace(**keys)):
        for other in best(seen.keys._replace(time_zone=None, stamp=None)):
            if own.closed > MOST_CLOSED and CLEAR * other.closed < own.closed:
                return (
                    f"WARNING: with data.time_zone={own.time_zone} and data.stamp={own.stamp} "
                    f"{100 * own.closed:.2f} % of the bars lie in closed hours of {contract.symbol}; "
                    f"with {other.time_zone} and {other.stamp} {100 * other.closed:.2f} %"
                )
    return None


def _clock_question(
    key: str, seen: FileFacts, contract: Contract | None, found: list[Clock], best: Clock | None
) -> InitQuestion:
    """Return the question for `time_zone` or `stamp`. found: clocks, the best first."""
    whys: dict[str, list[str]] = {} if key == "time_zone" else {"open": [], "close": []}
    for clock in found[: 2 * SHOWN]:
        if contract is not None and not whys.get(getattr(clock, key)):  # its best clock alone
            beside = f"{clock.stamp} stamps" if key == "time_zone" else clock.time_zone
            share = f"{100 * clock.closed:.2f} % of the bars in closed hours of {contract.symbol}"
            whys[getattr(clock, key)] = [f"with {beside} {share}"]
    for item in seen.layout.usual or PLAIN:
        if value := getattr(item, key):
            whys.setdefault(value, []).append(f"usual for {item.whose}")
    choices = tuple((value, "; ".join(why)) for value, why in whys.items())
    if best is None:  # a key may be clear where the other is not: sides are close to each other
        best = clear_winner(
            [
                each
                for i, each in enumerate(found)
                if not i or getattr(each, key) != getattr(found[0], key)
            ]
        )
    usual = None if best is None else str(getattr(best, key))
    tied = tuple(getattr(clock, key) for clock in found if clock.closed == found[0].closed)
    text, other, check = (
        ("Time zone of the stamps (also another IANA name, perhaps with +7h)?", "ZONE", known_zone)
        if key == "time_zone"
        else ("Does a stamp name its bar's open or its close?", "open (or close)", None)
    )
    return InitQuestion(
        text, f"--set data.{key}={usual or other}", check, choices, usual, key, tied
    )
