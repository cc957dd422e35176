"""One session bar by bar: what was seen, what was legal, what was chosen, what was filled."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.data.splits import session_set
from jaxtrade.env.actions import task_actions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason, EnvParams, Event, ExitReason
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.agents import greedy
from jaxtrade.evaluation.backtest import Record, backtest, decision_bars
from jaxtrade.types import Algorithm, PyTree

if TYPE_CHECKING:
    from jaxtrade.data.market import Market

SHORT = {"HOLD": "H", "BUY": "B", "SELL": "S", "MOVE_STOP_TO_BREAKEVEN": "E", "ENABLE_TRAIL": "T",
         "DISABLE_TRAIL": "D", "CLOSE": "C"}


def _session_index(market: Market, session: str) -> int:
    try:
        day = np.datetime64(datetime.date.fromisoformat(session), "D")
    except ValueError:
        raise ConfigError(f"--session {session}: expected a trade date YYYY-MM-DD") from None
    found = np.flatnonzero(market.trade_dates == day)
    if not len(found):
        days = ", ".join(str(date) for date in market.trade_dates[:10])
        more = f", ... {market.trade_dates[-1]}" if len(market.trade_dates) > 10 else ""
        raise ConfigError(f"--session {session}: not a session of this market (there are: {days}{more})")
    return int(found[0])


def _fills(event: Event, i: int, price: Callable[[Any], str]) -> str:
    """What was filled in the bar after decision `i`; `event` leaves are [L]."""
    parts = []
    if event.order_exit_quantity[i]:
        parts.append(f"closed {event.order_exit_quantity[i]:+d} @ {price(event.order_exit_price[i])}")
    if event.entry_quantity[i]:
        parts.append(f"opened {event.entry_quantity[i]:+d} @ {price(event.entry_price[i])}")
    if event.exit_quantity[i]:
        reason = ExitReason(int(event.exit_reason[i])).name.lower()
        parts.append(f"{reason} {event.exit_quantity[i]:+d} @ {price(event.exit_price[i])}")
    return ", ".join(parts)


def replay_lines(env: TradingEnv, params: EnvParams, market: Market, algorithm: Algorithm, policy: PyTree,
                 session: str) -> Iterator[str]:
    """Lines of text, one per decision bar, of the greedy policy with a new account under the run's rules.

    Raises ConfigError where `session` is not a trade date of the market.
    """
    sessions = session_set(np.asarray([_session_index(market, session)]), market.num_sessions)
    params = params.replace(sessions=sessions)
    decisions = decision_bars(market.data, sessions)
    record = backtest(env, greedy(algorithm, policy, env), params, decisions, "account", jax.random.key(0))
    return _lines(env, params, market, record, session)


def _lines(env: TradingEnv, params: EnvParams, market: Market, record: Record, session: str) -> Iterator[str]:
    contract, zone = market.contract, ZoneInfo(market.contract.zone)
    tick = float(contract.tick_size)

    def price(ticks: Any) -> str:
        return f"{int(ticks) * tick:.{contract.decimals}f}"

    names = [action.name for action in task_actions(env.config)]
    atr = np.asarray(jnp.take(params.market.view.table[:, market.columns.index("atr")], record.row)) * tick
    yield (f"{contract.symbol} {session}: decisions at bar closes ({contract.zone}), fills in the next bar; legal: "
           + " ".join(f"{SHORT[name]}={name}" for name in names))
    yield (f"{'close':>8} {'price':>12} {'atr':>8} {'pos':>4} {'legal':<7} {'chosen':<22} {'equity':>10} {'floor':>10}"
           "  filled in the next bar")
    for i, row in enumerate(record.row):
        closes = datetime.datetime.fromtimestamp(int(market.bars.time[row]) + market.bars.bar_seconds, zone)
        legal = "".join(SHORT[name] if record.mask[i, k] else "." for k, name in enumerate(names))
        chosen = names[record.action[i]] if record.active[i] else "(account over)"
        end = f"  account ends: {EndReason(int(record.end[i])).name}" if record.end[i] else ""
        yield (f"{closes:%H:%M:%S} {price(market.bars.close[row]):>12} {atr[i]:>8.4g} {record.carried[i]:>4d} "
               f"{legal:<7} {chosen:<22} {record.equity[i] / 1000:>10.2f} {record.event.floor[i] / 1000:>10.2f}"
               f"  {_fills(record.event, i, price)}{end}")
