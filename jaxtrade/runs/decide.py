"""What the policy of a run does on bars that arrive, as JSON values (`jaxtrade decide`)."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from jaxtrade.config import RunConfig
from jaxtrade.config.load import agents_of, changed_config, config_of
from jaxtrade.data.bars import PRICES, Bars, Leg, Side
from jaxtrade.data.calendar.schedule import table_schedule
from jaxtrade.data.calendar.sessions import schedule_of
from jaxtrade.data.contracts import contract_of
from jaxtrade.data.market import decision_sessions
from jaxtrade.data.members import member_configs
from jaxtrade.data.read.validate import MAX_TICKS, QUOTE_FIELDS, TICK_NOISE
from jaxtrade.data.sources import bars_of
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.policy import LoadedPolicy, policy_digest
from jaxtrade.formatting import iso
from jaxtrade.runs.stored_run import chosen_number, open_run
from jaxtrade.stream.live import FLAT, ReportedPosition, Stream
from jaxtrade.stream.rows import StreamRow
from jaxtrade.text import did_you_mean, several

LATEST = 1 << 33  # UTC seconds, in the year 2242
LARGEST = 10**13  # prices and volumes are below it: float32 has to hold what features make of them
DOLLARS = (1 << 29) // 1000  # int32 holds so many in mills, and their sums

Number = Annotated[Decimal, Field(gt=-LARGEST, lt=LARGEST)]
Money = Annotated[Decimal, Field(ge=-DOLLARS, le=DOLLARS)]
Whole = Annotated[int, Field(ge=1, lt=1 << 20, strict=True)]


class PositionReport(BaseModel, extra="forbid"):
    """A position that a broker reports, with prices in points; `bars`: as `ReportedPosition`."""

    side: Literal["long", "short"]
    entry: Number
    quantity: Whole = 1
    stop: Number | None = None
    target: Number | None = None
    trailing: bool = False
    bars: Whole = 1


class Report(BaseModel):
    """A position, None while flat, and the account in dollars (`ReportedPosition`)."""

    position: PositionReport | None = None
    equity: Money | None = None
    high_water: Money | None = None
    session_equity: Money | None = None


def open_stream(
    run: Path | str,
    history: Bars | Path | str | None = None,
    *,
    symbol: str | None = None,
    seed: int | None = None,
    agent: int | None = None,
    set: Sequence[str] = (),
    trust_imports: bool = False,
) -> Stream:
    """Open the policy of a run on bars that arrive one at a time.

        stream = jaxtrade.open_stream("runs/NAME", "bars.csv")
        row = stream.push(bar)

    Args:
        history: the bars so far, or a file of them, which is read with the run's own keys. None: the
            run's own bars.
        symbol: which one, of a run with several.
        seed: which policy, of a run with several.
        agent: the same, of a sweep.
        set: `a.b=value` of keys that say how the file is read.
        trust_imports: as in `open_run`.

    Raises ConfigError (no run, or one of env.task=allocate; a policy or symbol that has to be
    chosen), CheckpointError (no policy), DataError (faults of the bars, or too few of them).
    """
    config, policy = choose_policy(run, symbol, seed, agent, trust_imports)
    return Stream(config, read_bars(config, history, set), policy)


def choose_policy(
    run: Path | str, symbol: str | None, seed: int | None, agent: int | None, trust: bool = False
) -> tuple[RunConfig, LoadedPolicy]:
    """Return the configuration of one symbol of a run, and the policy for it."""
    stored = open_run(run, trust)
    config = stored.config
    number = chosen_number(config, seed, agent)
    if config.sweep.on:
        config = config_of(config, agents_of(config)[number])
    if config.env.joint:
        raise ConfigError(
            f"{run}: env.task=allocate holds several symbols at once, and decisions are made for one "
            "symbol alone; train a run of env.task=entry, manage or advised"
        )
    members = {contract_of(each.data).symbol: each for each in member_configs(config)}
    chosen = [name for name in members if symbol is None or name == symbol.upper()]
    if len(chosen) != 1:
        raise ConfigError(
            f"{run}: symbol (--symbol) {symbol}: expected {' or '.join(members)}, which this run has"
        )
    return members[chosen[0]], stored.policy_of(seed, agent).for_symbol(chosen[0])


def read_bars(config: RunConfig, bars: Bars | Path | str | None, overrides: Sequence[str]) -> Bars:
    """Read a file as the run's own bars are read; None: these themselves."""
    if isinstance(bars, Bars):
        return bars
    if bars is not None:
        keys = {"source": "file", "file": str(bars), "start": None, "end": None, "quotes": None}
        config = changed_config(config, {f"data.{key}": value for key, value in keys.items()})
    return bars_of(changed_config(config, overrides) if overrides else config)


def _read(kind: Any, values: Any) -> Any:
    """Validate values as a type of pydantic. Raises DataError, naming the key and the value."""
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        fault = error.errors()[0]
        *_, key = where = [str(part) for part in fault["loc"]]
        hint = did_you_mean(key, PositionReport.model_fields) if "extra" in fault["type"] else ""
        raise DataError(
            f"{'.'.join(where)} = {fault['input']!r}: {fault['msg'].lower()}{hint}"
        ) from None


def ticks(value: Decimal, what: str, stream: Stream) -> int:
    """Convert a price in points to whole ticks. Raises DataError."""
    tick = stream.contract.tick_size
    whole = round(value / tick)
    if not 0 < whole < MAX_TICKS or abs(value / tick - whole) > Decimal(TICK_NOISE):
        raise DataError(
            f"{what} = {value}: not a positive multiple of the tick of {stream.contract.symbol} ({tick})"
        )
    return whole


def read_bar(message: Mapping[str, Any], stream: Stream) -> Bars:
    """Make the next bar of a stream from a message.

    message: `time`, the bar's open (ISO 8601 with an offset, or whole UTC seconds); `open`, `high`,
        `low`, `close`, or `bid_open` .. `ask_close` of two-sided bars, in points; `volume`, 0 if
        the history has none either; `expiry`, where another contract begins with this trade date.
    Raises DataError, naming the key, the value and what was expected.
    """
    last = stream.rows.bar
    given = message if stream.has_volume else {"volume": 0, **message}
    fields = PRICES if last.ask is None else QUOTE_FIELDS
    if absent := [key for key in (*fields, "volume") if given.get(key) is None]:
        raise DataError(f"{absent[0]}: missing; every bar needs {', '.join(fields)} and volume")
    numbers = _read(dict[str, Number], {key: given[key] for key in (*fields, "volume")})
    prices = np.array([[ticks(numbers[key], key, stream)] for key in fields], np.int32)
    sides = [Side(*side) for side in np.split(prices, len(last.quotes))]
    if not all(side.low <= price <= side.high for side in sides for price in side):
        raise DataError("open and close have to lie between low and high; correct the bar")
    if len(sides) == 2:  # crossed quotes are widened, as in a file
        sides[1] = Side(*map(np.maximum, *sides))
    if numbers["volume"] < 0:
        raise DataError(f"volume = {given['volume']}: expected a number that is not negative")
    bar = last.with_quotes(
        *sides,
        time=np.array([read_time(given.get("time"))]),
        volume=np.array([float(numbers["volume"])]),
        source="bar",
        notes=(),
    )
    expiry, date = given.get("expiry"), bar.trade_dates[0]
    if not expiry:
        return bar
    legs = bar.legs or (Leg(str(expiry), "start"),)
    if str(expiry) != legs[-1].expiry:
        if date == last.trade_dates[0]:
            raise DataError(f"expiry = {expiry}: another contract may begin with a trade date only")
        legs = (*legs, Leg(str(expiry), str(date)))
    return replace(bar, legs=legs)


def check_date(bar: Bars, stream: Stream) -> None:
    """Raise DataError for a bar on a trade date without a session: its time may be wrong.

    All bars after it would be older.
    """
    date, config = bar.trade_dates[0], stream.config
    if date != stream.rows.bar.trade_dates[0] and config.data.calendar == "table":
        known = table_schedule(bar.contract, date, date, bar.source)
        if known.find(bar.trade_dates)[0] < 0:
            raise DataError(
                f"time = {iso(bar.time[0])}: {bar.contract.symbol} has no session on {date}"
            )


def read_time(time: Any) -> int:
    """Return the UTC seconds of a message's time. Raises DataError."""
    seconds: float = time if type(time) is int else -1
    if isinstance(time, str):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(time)
            seconds = moment.timestamp() if moment.tzinfo else -1
    if seconds % 1 or not 0 <= seconds < LATEST:
        raise DataError(
            f"time = {time!r}: expected the bar's open as YYYY-MM-DDTHH:MM:SS with an offset (Z, -05:00), "
            "or whole UTC seconds"
        )
    return int(seconds)


def read_holding(report: Mapping[str, Any], stream: Stream) -> ReportedPosition:
    """Make the position and the account of a broker's report.

    report: the fields of `Report`; others are ignored.
    Raises DataError, naming the key, the value and what was expected.
    """
    found: Report = _read(Report, report)
    start, held = round(float(stream.params.account.start_balance)), found.position
    money = {
        key: round(1000 * dollars) - start
        for key, dollars in found
        if key != "position" and dollars is not None
    }
    if held is None:
        return FLAT._replace(**money)
    levels = {
        key: ticks(points, f"position.{key}", stream)
        for key in ("entry", "stop", "target")
        if (points := getattr(held, key)) is not None
    }
    quantity = held.quantity if held.side == "long" else -held.quantity
    return ReportedPosition(quantity, trailing=held.trailing, bars=held.bars, **levels, **money)


@functools.lru_cache(maxsize=8)
def _identity(stream: Stream) -> dict[str, str]:
    assert stream.policy
    digests = ("observation_sha256", "actions_sha256")
    return {
        "policy_sha256": policy_digest(stream.policy.policy),
        **{name: stream.policy.schema[name] for name in digests},
    }


def state_of(row: StreamRow) -> str:
    """Say what a bar is: `decision`, `flat`, `warm_up` or `closed`.

    `flat`: at its close no position may be open. `warm_up`: too little history. `closed`: outside
    the hours of decisions.
    """
    if row.decides:
        return "decision"
    return "flat" if row.flat else "closed" if row.ready else "warm_up"


def _order(change: int) -> dict[str, Any] | None:
    """Describe what to buy or sell now, in contracts; None for 0."""
    side = "buy" if change > 0 else "sell"
    return {"side": side, "quantity": abs(change)} if change else None


def answer(stream: Stream, bar: Bars, report: Mapping[str, Any]) -> dict[str, Any]:
    """Push a bar, and describe the decision at its close as JSON values; prices are in points.

    report: what a broker reports at its close (`read_holding`).
    """
    holding = read_holding(report, stream)
    row = stream.push(bar)
    contract, names = stream.contract, stream.env.actions

    def points(level: int | None) -> float | None:
        return None if level is None else float(level * contract.tick_size)

    document: dict[str, Any] = {
        "time": iso(row.bar.time[0]),
        "closes": iso(row.bar.time[0] + row.bar.bar_seconds),
        "symbol": contract.symbol,
        "close": points(int(row.bar.mid.close[0])),
        "state": state_of(row),
        **dict.fromkeys(("action", "order", "stop", "target", "mask", "probabilities")),
    }
    if not row.decides and row.ready and holding.quantity:
        document["order"] = _order(-holding.quantity)
    if row.decides:
        decision = stream.decide(holding)
        held = int(decision.seen.state.position.quantity)
        chances = decision.probabilities
        document |= {
            "action": decision.action,
            "order": _order(int(decision.order.quantity) - held),
            "stop": points(decision.stop),
            "target": points(decision.target),
            "mask": dict(zip(names, decision.seen.mask.tolist(), strict=True)),
            "probabilities": None
            if chances is None
            else dict(zip(names, map(float, chances), strict=True)),
        }
    return document | _identity(stream)


def decide_bars(
    config: RunConfig,
    policy: LoadedPolicy,
    series: Bars,
    last: int | None = 1,
    report: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what a policy does at the last bars of a series, as JSON values.

    config, policy: of `choose_policy`.
    last: their number; None: all bars after the first two that can be decided on.
    report: position and account at the close of the last bar (`read_holding`), which is then the
        only one. Without it, and at the bars before, the account is new and flat.
    Raises as `Stream` and `read_holding`, and DataError if there is no bar to decide on.
    """
    schedule = schedule_of(series, config.data.calendar)
    first = decision_sessions(series, schedule, config).first
    earliest = int(first[0]) + 2 if len(first) else len(series)
    begin = shown = earliest if last is None else max(len(series) - last, earliest)
    if policy.has_memory and begin < len(series):  # which remembers the session so far
        dates = series.trade_dates
        begin = max(int(np.searchsorted(dates, dates[begin])), earliest)
    stream, count = Stream(config, series.rows(slice(0, begin)), policy), len(series)
    if begin == count:
        raise DataError(
            f"{series.source}: {several(count, 'bar')}, which all are history of the first decision; give "
            "one more"
        )
    for at in range(begin, count):
        last_bar = report if at == count - 1 else None
        found = answer(stream, series.rows(slice(at, at + 1)), last_bar or {})
        if at >= shown:
            yield found


def read_lines() -> Iterator[str]:
    """Yield the lines of standard input. Bytes that are no UTF-8 are replaced, and spoil one line."""
    for line in sys.stdin.buffer:
        yield line.decode(errors="replace")


def decide_line(stream: Stream, line: str) -> dict[str, Any]:
    """Push the bar of one line of JSON (`read_bar`, `read_holding`), and return what is decided.

    Raises DataError for a line that is refused; the stream is then as it was.
    """
    try:
        message = json.loads(line, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError) as error:
        raise DataError(f"no JSON: {error}; expected one object on one line") from None
    if not isinstance(message, dict):
        raise DataError("expected an object with time, open, high, low, close, volume")
    known = ("time", *PRICES, *QUOTE_FIELDS, "volume", "expiry", *Report.model_fields)
    for key in message:  # a misspelled position would be none
        if key not in known and (hint := did_you_mean(key, known)):
            raise DataError(f"{key}: no such key{hint}")
    bar = read_bar(message, stream)
    check_date(bar, stream)
    return answer(stream, bar, message)
