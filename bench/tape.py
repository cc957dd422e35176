"""What the twin reads: an account's rules as Python's integers, and every decision bar with its
observation made ready.

From an environment's own configuration and parameters, so that both sides of a bench trade the same
market under the same figures. Nothing here, and nothing in a tape, needs JAX: a process that only
steps the twin never imports it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxtrade.data.features.schema import NOW, Shape, feature_spec, shape_of
from jaxtrade.errors import ConfigError

if TYPE_CHECKING:
    from jaxtrade.config import EnvConfig
    from jaxtrade.env.state import EnvParams
    from jaxtrade.types import MarketView

OFF = 1 << 30  # `jaxtrade.env.state.OFF`: a limit of `AccountParams` that is switched off
FAR = 1 << 62  # past any money
INTRADAY, END_OF_DAY = 2, 1  # `jaxtrade.env.state.Trailing`
POSITION_SLOTS, FLAGS = 5, 3  # behind the window block; can_enter is the first flag
COVERED = {
    "task": "manage",
    "actions": "full",
    "scaling": "relative",
    "fill": "next_open",
    "mark": "extreme",
    "intrabar": "stop_first",
}


class Rules(NamedTuple):
    """worth: mills of one tick of the whole position. fees: mills of its commission on one side.
    Distances from the high-water mark (drawdown), the session's opening equity (daily_loss) and the
    start balance (target); FAR where there is none. cap: the drawdown floor never rises above it
    (-FAR: there is no such floor). live: the high-water mark follows live equity; end_of_day: a
    session's closing equity. max_steps: 0 for none. reward: per mill."""

    worth: int
    fees: int
    slippage: int
    be_ticks: int
    drawdown: int
    cap: int
    daily_loss: int
    daily_fails: bool
    target: int
    min_days: int
    live: bool
    end_of_day: bool
    episode_sessions: int
    max_steps: int
    random_start: bool
    reward: float


class Session(NamedTuple):
    """Positions on the tape: decision bars first..flat - 1, then the flat bar. row: market row of
    `first`. complete: False where the data end at the flat bar."""

    first: int
    flat: int
    row: int
    complete: bool


class Bar(NamedTuple):
    """Ticks. stop, target: distances of a bracket decided on at this bar's close; trail: of one
    ratcheted there.
    may_enter: calendar and warm-up. per_atr: 1 / ticks. seen: float32[D], the observation of one
        who is flat."""

    open: int
    high: int
    low: int
    close: int
    stop: int
    target: int
    trail: int
    may_enter: bool
    per_atr: float
    seen: np.ndarray


class Tape(NamedTuple):
    """The bars of every session of a split, one session after the other. About 1.5 kB per bar, most
    of it `seen`.
    """

    rules: Rules
    sessions: tuple[Session, ...]
    bars: tuple[Bar, ...]
    size: int  # D


class Columns(NamedTuple):
    """The bars of a tape as arrays: int64[n, 7], bool[n], float64[n], float32[n, D], see `Bar`."""

    ticks: np.ndarray
    may_enter: np.ndarray
    per_atr: np.ndarray
    seen: np.ndarray


def make_tape(config: EnvConfig, params: EnvParams) -> Tape:
    """The tape of an environment. Raises ConfigError at a configuration that the twin does not
    cover.
    """
    check_covered(config, params)
    starts, lasts, complete = (
        np.asarray(getattr(params.market.sessions, name)).tolist()
        for name in ("first", "last", "complete")
    )
    sessions: list[Session] = []
    parts: list[Columns] = []
    at = 0
    for i in np.asarray(params.sessions.ids)[: int(params.sessions.count)].tolist():
        rows = np.arange(starts[i], lasts[i] + 2)
        sessions.append(Session(at, at + len(rows) - 1, starts[i], complete[i]))
        parts.append(session_columns(config, params, rows))
        at += len(rows)
    return assembled(
        rules_of(config, params), sessions, Columns(*map(np.concatenate, zip(*parts, strict=True)))
    )


def assembled(rules: Rules, sessions: list[Session], columns: Columns) -> Tape:
    """Arrays as what Python reads fastest: tuples of its own numbers."""
    ticks, *others = columns
    bars = tuple(
        Bar(*row, *rest)
        for row, *rest in zip(
            ticks.tolist(),
            *(list(column) if column.ndim > 1 else column.tolist() for column in others),
            strict=True,
        )
    )
    return Tape(rules, tuple(sessions), bars, columns.seen.shape[1])


def check_covered(config: EnvConfig, params: EnvParams) -> None:
    """Raises ConfigError naming everything that the twin does not play."""
    faults = [
        f"env.{key} = {getattr(config, key)} (only {value})"
        for key, value in COVERED.items()
        if getattr(config, key) != value
    ]
    if params.market.ask is not None:
        faults.append("two-sided bars (only one-sided)")
    if params.market.tick_value is not None:
        faults.append("converted profits (only contracts in the account's currency)")
    if set(params.reward_weights) != {"equity_change"}:
        faults.append(
            f"reward terms {', '.join(sorted(params.reward_weights))} (only equity_change)"
        )
    if not int(params.sessions.count):
        faults.append("a split without sessions")
    if faults:
        raise ConfigError(
            f"the NumPy twin does not cover {'; '.join(faults)}. Use the package's own classes for it "
            "(jaxtrade.to_gymnasium)"
        )


def rules_of(config: EnvConfig, params: EnvParams) -> Rules:
    """The traced figures as Python's own numbers."""
    contract, account = params.contract, params.account
    size = min(config.quantity, int(account.max_contracts))
    drawdown, daily_loss, target = (
        int(x) for x in (account.drawdown, account.daily_loss, account.target)
    )
    ends_at_target = target < OFF and bool(account.stop_at_target)
    assert contract.tick_mills is not None  # converted profits are refused
    return Rules(
        worth=size * int(contract.tick_mills),
        fees=size * int(contract.commission),
        slippage=int(contract.slippage),
        be_ticks=int(contract.be_ticks),
        drawdown=drawdown,
        cap=int(account.floor_cap) if drawdown < OFF else -FAR,
        daily_loss=daily_loss if daily_loss < OFF else FAR,
        daily_fails=bool(account.fail_on_daily_loss),
        target=target if ends_at_target else FAR,
        min_days=int(account.min_days),
        live=int(account.trailing) == INTRADAY,
        end_of_day=int(account.trailing) == END_OF_DAY,
        episode_sessions=int(params.episode_sessions),
        max_steps=int(params.max_steps),
        random_start=config.random_start,
        reward=float(params.reward_weights["equity_change"]) / float(account.risk_unit),
    )


def session_columns(config: EnvConfig, params: EnvParams, rows: np.ndarray) -> Columns:
    """Bars at the market rows `rows` (int[n])."""
    market, brackets = params.market, params.brackets
    prices = [
        np.asarray(side, np.int64)[rows]
        for side in (market.open, market.high, market.low, market.close)
    ]
    ranges = np.asarray(market.tr_sum, np.int64)[rows]
    stop = np.maximum(
        int(params.contract.min_stop), ceil_div(int(brackets.stop_atr) * ranges, 14_000)
    )
    trail = np.maximum(1, ceil_div(int(brackets.trail_atr) * ranges, 14_000))
    may_enter = (np.asarray(market.bars_to_flat)[rows] >= 2) & (ranges >= 0)
    seen = np.zeros(
        (len(rows), config.window * (len(config.features) + 3) + POSITION_SLOTS + FLAGS), np.float32
    )
    seen[:, : -POSITION_SLOTS - FLAGS] = windows(config, market.view, rows)
    seen[:, -FLAGS] = may_enter
    ticks = np.stack([*prices, stop, int(brackets.target_multiple) * stop, trail], axis=1)
    return Columns(
        ticks, may_enter, np.asarray(market.view.now, np.float64)[rows, NOW.index("per_atr")], seen
    )


def ceil_div(a: np.ndarray, b: int) -> np.ndarray:
    """Smallest integers >= a / b."""
    return -(-a // b)


def windows(config: EnvConfig, view: MarketView, rows: np.ndarray) -> np.ndarray:
    """float64[n, window * (F + 3)]: bars t - window .. t - 1 of each row t, oldest first, features
    then times; by the formula of `jaxtrade.data.features.view`."""
    past = rows[:, None] + np.arange(-config.window, 0)
    now = dict(zip(NOW, np.asarray(view.now, np.float64)[rows].T[..., None, None], strict=True))
    shapes = [shape_of(feature_spec(name).unit, "relative") for name in config.features] + [
        Shape()
    ] * 3
    level, per_atr, log_per_atr, log_per_volume = np.array(shapes, np.float64).T
    x = np.asarray(view.value, np.float64)[past]
    if view.level is not None:
        x += np.asarray(view.level, np.float64)[past] - level * now["close"]
    x *= np.where(per_atr, now["per_atr"], 1.0)
    x += log_per_atr * now["log_per_atr"] + log_per_volume * now["log_per_volume"]
    return x.reshape(len(rows), -1)


def save(tape: Tape, path: Path) -> None:
    """For other processes, see `load`. `path` ends in .npz."""
    columns = list(zip(*tape.bars, strict=True))
    arrays = Columns(np.array(columns[:7]).T, *map(np.array, columns[7:]))
    np.savez(
        path, rules=json.dumps(tape.rules), sessions=np.array(tape.sessions), **arrays._asdict()
    )


@functools.lru_cache(maxsize=2)
def load(path: str) -> Tape:
    """A tape that `save` wrote, once per process: its environments share it."""
    with np.load(path) as saved:
        sessions = [
            Session(first, flat, row, bool(complete))
            for first, flat, row, complete in saved["sessions"].tolist()
        ]
        rules = Rules(*json.loads(saved["rules"].item()))
        return assembled(rules, sessions, Columns(*(saved[name] for name in Columns._fields)))
