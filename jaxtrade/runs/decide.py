"""What the policy of a run does on bars that arrive, as JSON values (`jaxtrade decide`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.load import agents_of, changed_config, config_of
from jaxtrade.data.bars import PRICES, Bars, Leg, Side
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
from jaxtrade.stream.live import FLAT, Decision, ReportedPosition, Stream
from jaxtrade.stream.rows import StreamRow
from jaxtrade.text import did_you_mean

DIGESTS = ("observation_sha256", "actions_sha256")
ACCOUNT = ("equity", "high_water", "session_equity")
POSITION = ("side", "entry", "quantity", "stop", "target", "trailing", "bars")
SIDES = {"long": 1, "short": -1}
LATEST = 1 << 33  # UTC seconds, in the year 2242
DIGITS = 13  # of prices, volumes and dollars: float32 has to hold what features make of them


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
    wanted = next(iter(members)) if symbol is None and len(members) == 1 else str(symbol).upper()
    if wanted not in members:
        asked = "" if symbol is None else f"symbol {symbol}: this run has no such symbol; "
        raise ConfigError(f"{run}: {asked}give symbol (--symbol) {' or '.join(members)}")
    return members[wanted], stored.policy_of(seed, agent).for_symbol(wanted)


def read_bars(config: RunConfig, bars: Bars | Path | str | None, overrides: Sequence[str]) -> Bars:
    """Read a file as the run's own bars are read; None: these themselves."""
    if isinstance(bars, Bars):
        return bars
    if bars is not None:
        if not Path(bars).is_file():
            raise DataError(f"{bars}: no such file; expected bars (CSV, CSV.gz or Parquet)")
        keys = {"source": "file", "file": str(bars), "start": None, "end": None, "quotes": None}
        config = changed_config(config, {f"data.{key}": value for key, value in keys.items()})
    return bars_of(changed_config(config, overrides) if overrides else config)


def ticks(value: Any, what: str, stream: Stream) -> int:
    """Convert a price in points to whole ticks. Raises DataError."""
    tick = stream.contract.tick_size
    exact = _number(what, value) / tick
    whole = round(exact)
    if not 0 < whole < MAX_TICKS or abs(exact - whole) > Decimal(TICK_NOISE):
        raise DataError(
            f"{what} = {value}: not a positive multiple of the tick of {stream.contract.symbol} ({tick})"
        )
    return whole


def _number(what: str, value: Any) -> Decimal:
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        found = Decimal("NaN")
    # 1e999999999 is a number, too, and rounded it would fill the memory.
    if not found.is_finite() or found.adjusted() >= DIGITS:
        raise DataError(f"{what} = {value!r}: expected a number of fewer than {DIGITS} digits")
    return found


def read_bar(message: Mapping[str, Any], stream: Stream) -> Bars:
    """Make the next bar of a stream from a message.

    message: `time`, the bar's open (ISO 8601 with an offset, or whole UTC seconds); `open`, `high`,
        `low`, `close`, or `bid_open` .. `ask_close` of two-sided bars, in points; `volume`;
        `expiry`, where another contract begins with this trade date.
    Raises DataError, naming the key, the value and what was expected.
    """
    last = stream.rows.bar
    fields = PRICES if last.ask is None else QUOTE_FIELDS
    if absent := [key for key in ("time", *fields) if key not in message]:
        raise DataError(f"no {', '.join(absent)}; expected {', '.join(('time', *fields))}, volume")
    found = [np.array([ticks(message[key], key, stream)], np.int32) for key in fields]
    sides = [Side(*found[:4]), *([Side(*found[4:])] if found[4:] else [])]
    for side in sides:
        low, high = int(side.low[0]), int(side.high[0])
        if not all(low <= int(price[0]) <= high for price in side):
            raise DataError("open and close have to lie between low and high; correct the bar")
    if len(sides) == 2:  # crossed quotes are widened, as in a file
        sides[1] = Side(*map(np.maximum, sides[1], sides[0]))
    volume = _number("volume", message.get("volume", 0))
    if volume < 0:
        raise DataError(f"volume = {volume}: expected a number that is not negative")
    bar = last.with_quotes(
        *sides,
        time=np.array([read_time(message["time"])], np.int64),
        volume=np.array([float(volume)]),
        source="bar",
        notes=(),
    )
    expiry = message.get("expiry")
    legs = bar.legs or (Leg(str(expiry or ""), "start"),)
    if expiry is None or str(expiry) == legs[-1].expiry or not legs[-1].expiry:
        return (
            bar
            if expiry is None
            else replace(bar, legs=(*legs[:-1], replace(legs[-1], expiry=str(expiry))))
        )
    date = bar.trade_dates[0]
    if date == last.trade_dates[0]:
        raise DataError(f"expiry = {expiry}: another contract may begin with a trade date only")
    return replace(bar, legs=(*legs, Leg(str(expiry), str(date))))


def read_time(time: Any) -> int:
    """Return the UTC seconds of a message's time. Raises DataError."""
    if isinstance(time, int) and not isinstance(time, bool) and 0 <= time < LATEST:
        return time
    try:
        moment = datetime.fromisoformat(str(time))
        seconds = moment.timestamp()
    except (ValueError, OverflowError):
        moment, seconds = None, 0.5
    if moment is None or moment.tzinfo is None or seconds % 1 or not 0 <= seconds < LATEST:
        raise DataError(
            f"time = {time!r}: expected the bar's open as YYYY-MM-DDTHH:MM:SS with an offset (Z, -05:00), "
            "or whole UTC seconds"
        )
    return int(seconds)


def read_holding(report: Mapping[str, Any], stream: Stream) -> ReportedPosition:
    """Make the position and the account of a broker's report.

    report: `position`: None, or {side: long or short, entry, quantity, stop, target, trailing,
        bars}, prices in points; `equity`, `high_water`, `session_equity`: dollars.
    Raises DataError, naming the key, the value and what was expected.
    """
    start = round(float(stream.params.account.start_balance))
    money = {
        key: _mills(key, report[key]) - start for key in ACCOUNT if report.get(key) is not None
    }
    position = report.get("position")
    if position is None:
        return FLAT._replace(**money)
    if not isinstance(position, Mapping):
        raise DataError(f"position = {position!r}: expected null, or an object with side and entry")
    if unknown := [key for key in position if key not in POSITION]:
        raise DataError(f"position.{unknown[0]}: no such key{did_you_mean(unknown[0], POSITION)}")
    side = SIDES.get(str(position.get("side")))
    if side is None or "entry" not in position:
        raise DataError(f"position = {dict(position)}: expected side (long or short) and entry")
    numbers = {"quantity": position.get("quantity", 1), "bars": position.get("bars", 1)}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 20:
            raise DataError(f"position.{key} = {value!r}: expected a whole number of at least 1")
    levels = {
        key: ticks(position[key], f"position.{key}", stream)
        for key in ("entry", "stop", "target")
        if position.get(key) is not None
    }
    return ReportedPosition(
        side * numbers["quantity"],
        bars=numbers["bars"],
        trailing=int(bool(position.get("trailing", False))),
        **levels,
        **money,
    )


def _mills(key: str, dollars: Any) -> int:
    number, most = _number(key, dollars), (1 << 29) // 1000
    if abs(number) > most:
        raise DataError(f"{key} = {dollars}: more than ${most:,}, which int32 mills hold")
    return round(number * 1000)


@functools.lru_cache(maxsize=8)
def _identity(stream: Stream) -> dict[str, str]:
    assert stream.policy
    schema = stream.policy.schema
    return {
        "policy_sha256": policy_digest(stream.policy.policy),
        **{name: schema[name] for name in DIGESTS},
    }


def state_of(row: StreamRow) -> str:
    """Say what a bar is: `decision`, `flat`, `warm_up` or `closed`.

    `flat`: at its close no position may be open. `warm_up`: too little history. `closed`: outside
    the hours of decisions.
    """
    if row.decides:
        return "decision"
    return "flat" if row.flat else "closed" if row.ready else "warm_up"


def to_json(stream: Stream, row: StreamRow, decision: Decision | None) -> dict[str, Any]:
    """Describe a bar and the decision at its close as JSON values; prices are in points."""
    contract, names = stream.contract, stream.env.actions

    def points(level: int | None) -> float | None:
        return None if level is None else float(level * contract.tick_size)

    document: dict[str, Any] = {
        "time": iso(row.bar.time[0]),
        "closes": iso(row.bar.time[0] + row.bar.bar_seconds),
        "symbol": contract.symbol,
        "close": points(int(row.bar.mid.close[0])),
        "state": state_of(row),
        "action": None,
    }
    if decision is not None:
        held = int(decision.seen.state.position.quantity)
        change = int(decision.order.quantity) - held
        chances = decision.probabilities
        document |= {
            "action": decision.action,
            "order": None
            if change == 0
            else {"side": "buy" if change > 0 else "sell", "quantity": abs(change)},
            "stop": points(decision.stop),
            "target": points(decision.target),
            "mask": dict(zip(names, decision.seen.mask.tolist(), strict=True)),
            "probabilities": None
            if chances is None
            else dict(zip(names, map(float, chances), strict=True)),
        }
    return document | _identity(stream)


def decide_bars(
    run: Path | str,
    bars: Bars | Path | str | None = None,
    last: int | None = 1,
    report: Mapping[str, Any] | None = None,
    *,
    symbol: str | None = None,
    seed: int | None = None,
    agent: int | None = None,
    set: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Yield what a run's policy does at the last bars of a series, as JSON values.

    last: their number; None: all bars after the first two that can be decided on.
    report: position and account at the close of the last bar (`read_holding`), which is then the
        only one. Without it the account is new and flat at every bar.
    Others, and errors, as `open_stream`.
    """
    config, policy = choose_policy(run, symbol, seed, agent)
    series = read_bars(config, bars, set)
    schedule = schedule_of(series, config.data.calendar)
    first = decision_sessions(series, schedule, config).first
    earliest = int(first[0]) + 2 if len(first) else len(series)
    begin = shown = earliest if last is None else max(len(series) - last, earliest)
    if policy.has_memory and begin < len(series):  # which remembers the session so far
        day = np.searchsorted(series.date_starts, begin, side="right") - 1
        begin = max(int(series.date_starts[day]), earliest)
    stream = Stream(config, series.rows(slice(0, begin)), policy)
    for at in range(begin, len(series)):
        row = stream.push(series.rows(slice(at, at + 1)))
        holding = FLAT if report is None else read_holding(report, stream)
        decision = stream.decide(holding) if row.decides else None
        if at >= shown:
            yield to_json(stream, row, decision)


def decide_line(stream: Stream, line: str) -> dict[str, Any]:
    """Push the bar of one line of JSON (`read_bar`, `read_holding`), and return what is decided.

    Raises DataError for a line that is refused; the stream is then as it was.
    """
    try:
        message = json.loads(line, parse_float=Decimal, parse_constant=Decimal)
    except ValueError as error:
        raise DataError(f"no JSON: {error}; expected one object on one line") from None
    if not isinstance(message, dict):
        raise DataError("expected an object with time, open, high, low, close, volume")
    bar, holding = read_bar(message, stream), read_holding(message, stream)
    row = stream.push(bar)
    return to_json(stream, row, stream.decide(holding) if row.decides else None)
