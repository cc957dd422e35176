"""Print one session bar by bar: observation, legal actions, chosen action and fills.

Each line shows the state before the decision, then the decision, then the result of the next bar.
"""

from __future__ import annotations

import datetime
import string
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxtrade.data.contracts import Contract
from jaxtrade.data.market import Market
from jaxtrade.data.splits import session_set
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.observation import MANAGE_SLOTS
from jaxtrade.env.portfolio.dynamics import PortfolioEnv
from jaxtrade.env.portfolio.params import Portfolio
from jaxtrade.env.portfolio.state import PortfolioParams
from jaxtrade.env.rules import NO_FLOOR
from jaxtrade.env.state import NO_LEVEL, EndReason, EnvParams, ExitReason
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import joint
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.record import DecisionBars, Record, decision_bars
from jaxtrade.evaluation.trades import assemble_trades
from jaxtrade.formatting import format_number, local, points, price
from jaxtrade.types import Learner, PyTree

SHORT = {
    "HOLD": "H",
    "BUY": "B",
    "SELL": "S",
    "MOVE_STOP_TO_BREAKEVEN": "E",
    "ENABLE_TRAIL": "T",
    "DISABLE_TRAIL": "D",
    "CLOSE": "C",
}
OTHERS = string.digits + string.ascii_lowercase  # by the id of an action without a letter
# Short names that fit the column.
CHOSEN = {
    "MOVE_STOP_TO_BREAKEVEN": "BREAKEVEN",
    "ENABLE_TRAIL": "TRAIL",
    "DISABLE_TRAIL": "NO TRAIL",
}
WIDTH = 5  # characters of an observation slot


def _session_index(market: Market | Portfolio, session: str) -> int:
    try:
        day = np.datetime64(datetime.date.fromisoformat(session), "D")
    except ValueError:
        raise ConfigError(
            f"session {session} (--session): expected a trade date YYYY-MM-DD"
        ) from None
    found = np.flatnonzero(market.trade_dates == day)
    if not len(found):
        days = ", ".join(str(date) for date in market.trade_dates[:10])
        more = f", ... {market.trade_dates[-1]}" if len(market.trade_dates) > 10 else ""
        raise ConfigError(
            f"session {session} (--session): not a session of this market (there are: {days}{more})"
        )
    return int(found[0])


def _only(params: Any, market: Market | Portfolio, session: str) -> tuple[Any, DecisionBars]:
    """Return the parameters with one session alone, and its decision bars."""
    sessions = session_set(np.asarray([_session_index(market, session)]), market.num_sessions)
    return params.replace(sessions=sessions), decision_bars(params.market, sessions)


def _fills(
    event: Any,
    at: int | tuple[int, int],
    contract: Contract,
    kinds: tuple[str, str] = ("order_exit", "entry"),
    before: str = "",
) -> list[str]:
    """Format the fills of a contract in the bar after a decision.

    Args:
        at: place of decision and symbol in the leaves of `event`.
        kinds: how the event names what an order closes and opens.
        before: stands before each fill.
    """
    reason = ExitReason(int(event.exit_reason[at])).name.lower()
    return [
        f"{before}{word} {quantity:+d} @ {price(getattr(event, f'{kind}_price')[at], contract)}"
        for word, kind in zip(("closed", "opened", reason), (*kinds, "exit"), strict=True)
        if (quantity := getattr(event, f"{kind}_quantity")[at])
    ]


def _seen_slots(env: TradingEnv) -> tuple[list[str], np.ndarray]:
    """Return names and indices of the slots to show.

    They are the features of the newest window bar, then all slots that belong to no bar, flags
    last. The context slots of the decision bar are left out, because they would not fit into
    a line.
    """
    names = env.observation_spec.names
    newest = {f"{name}[t-1]" for name in env.config.features}
    tail = [k for k, name in enumerate(names) if not name.endswith("]")]
    tail.sort(key=lambda k: names[k] in MANAGE_SLOTS)
    shown = [*(k for k, name in enumerate(names) if name in newest), *tail]
    return [names[k] for k in shown], np.asarray(shown)


def _dollars(mills: Any) -> str:
    return format_number(None if int(mills) == NO_FLOOR else int(mills) / 1000, "ratio")


def replay_lines(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    algorithm: Learner,
    policy: PyTree,
    session: str,
) -> Iterator[str]:
    """Yield four header lines, then one line per decision bar.

    The greedy policy trades a new account under the run's rules.

    session: trade date YYYY-MM-DD. Raises ConfigError if it is not a trade date of the market.
    """
    params, decisions = _only(params, market, session)
    record = backtest(
        env, greedy(algorithm, policy, env), params, decisions, "account", jax.random.key(0)
    )
    observations = np.asarray(jax.vmap(env.observe, (0, None))(record.ref, params))
    return _lines(env, market, record, observations, session)


def _lines(
    env: TradingEnv, market: Market, record: Record, observations: np.ndarray, session: str
) -> Iterator[str]:
    contract = market.contract

    def level(ticks: Any, held: Any) -> str:
        return price(ticks, contract) if held and abs(int(ticks)) < NO_LEVEL else "-"

    closes_at = market.bars.mid.close
    wide = max(6, len(price(np.max(closes_at[record.row]), contract)))
    names = env.actions
    letters = [SHORT.get(name, OTHERS[i % len(OTHERS)]) for i, name in enumerate(names)]
    seen, indices = _seen_slots(env)
    flags = sum(name in MANAGE_SLOTS for name in seen)
    numbers = len(seen) - flags
    slots = " ".join(name.split("[")[0][:WIDTH].rjust(WIDTH) for name in seen[:numbers]) + (
        " flg" if flags else ""
    )
    before = f"{'close at':<8} {'close':>{wide}} {'pos':>3} {'stop':>{wide}} {'target':>{wide}}"
    decision = f"{'legal':<{len(names)}} {'chosen':<9}"
    after = f"{'P&L $':>9} {'floor $':>9} {'pos':>3} filled"
    yield (
        f"{contract.symbol} {session}: decisions at bar closes ({contract.zone}), fills in the next bar; legal: "
        + " ".join(f"{letter}={name}" for letter, name in zip(letters, names, strict=True))
    )
    yield f"observation slots shown, as the policy saw them: {' '.join(seen)}"
    yield (
        f"{'before':<{len(before)}} | {'seen: newest window bar, position':<{len(slots)}} | "
        f"{'decision':<{max(len(decision), 8)}} | after next bar (P&L and floor since the account's start)"
    )
    yield f"{before} | {slots} | {decision} | {after}"
    for i, row in enumerate(record.row):
        at = int(market.bars.time[row]) + market.bars.bar_seconds
        closes = local(at, contract.zone, "%H:%M:%S")
        held, _, stop, target, _ = record.ref.legs[i, 0]
        shown = observations[i, indices]
        values = " ".join(
            [
                # Two decimals, or none from 100 on.
                *(f"{x:{WIDTH}.{2 if abs(x) < 100 else 0}f}" for x in shown[:numbers]),
                *(["".join(f"{flag:.0f}" for flag in shown[numbers:])] if flags else []),
            ]
        )
        legal = "".join(letter if record.mask[i, k] else "." for k, letter in enumerate(letters))
        name = names[record.action[i]]
        chosen = CHOSEN.get(name, name) if record.active[i] else "(over)"
        end = f"  account ends: {EndReason(int(record.end[i])).name}" if record.end[i] else ""
        yield (
            f"{closes} {price(closes_at[row], contract):>{wide}} {held:>3d} {level(stop, held):>{wide}} "
            f"{level(target, held):>{wide}} | {values} | {legal} {chosen:<9} | {_dollars(record.equity[i]):>9} "
            f"{_dollars(record.event.floor[i]):>9} {record.quantity[i]:>3d} "
            f"{', '.join(_fills(record.event, i, contract))}{end}"
        ).rstrip()


def joint_lines(
    env: PortfolioEnv,
    params: PortfolioParams,
    market: Portfolio,
    algorithm: Learner,
    policy: PyTree,
    session: str,
) -> Iterator[str]:
    """Yield the `replay_lines` of `allocate`: two header lines, then one line per decision bar."""
    params, decisions = _only(params, market, session)
    agent = joint.policy_agent(env, algorithm, policy)
    record = joint.backtest(env, agent, params, decisions, True, jax.random.key(0))
    closes, symbols = np.asarray(market.data.close), market.symbols
    wide = max(8, *(len(price(closes[:, s].max(), c)) for s, c in enumerate(market.contracts)))
    chosen = max(len(name) for name in env.actions)
    yield (
        f"{market.name} {session}: decisions at bar closes (UTC), fills in the next bar (P&L and floor since the "
        "account's start)"
    )
    heads = " ".join(f"{symbol:>{wide}} {'pos':>4}" for symbol in symbols)
    yield f"{'close at':<8} {heads} | {'chosen':<{chosen}} | {'P&L $':>10} {'floor $':>10} filled"
    held = np.zeros(len(symbols), int)
    for i, row in enumerate(decisions.rows):
        prices = " ".join(
            f"{price(closes[row, s], contract):>{wide}} {held[s]:>4d}"
            for s, contract in enumerate(market.contracts)
        )
        held = record.quantity[i]
        name = env.actions[record.action[i]] if record.active[i] else "(over)"
        end = f"  account ends: {EndReason(int(record.end[i])).name}" if record.end[i] else ""
        fills = [
            fill
            for s, contract in enumerate(market.contracts)
            for fill in _fills(
                record.event, (i, s), contract, ("close", "open"), f"{contract.symbol} "
            )
        ]
        yield (
            f"{local(int(market.times[row]) + market.bar_seconds, 'UTC', '%H:%M:%S')} {prices} | {name:<{chosen}} | "
            f"{_dollars(record.equity[i]):>10} {_dollars(record.event.floor[i]):>10} "
            f"{', '.join(fills)}{end}"
        ).rstrip()


# One session of an account pass as plain data: price, trades, equity and floor, for a page that
# draws it.


def last_session(
    record: Record, decisions: DecisionBars, market: Market, params: EnvParams
) -> dict[str, Any]:
    """Return the last session of a record, for `json.dumps`.

    Args:
        record: of an account pass over `decisions`.
        params: those of the pass.

    Returns:
        symbol, date (trade date, ISO), decimals of a price, and:
        lists by bar: time ("HH:MM", exchange time of the bar's open), open, high, low, close
            (points, mid prices of two-sided bars), equity and floor (dollars of profit of the
            account after the bar; floor None where there is none or the account has ended),
            position (contracts).
        trades: side, contracts, entry and exit (indices of bars), entry_price, exit_price
            (points), reason, net (dollars).
    """
    chosen = np.flatnonzero(decisions.session == len(decisions.ids) - 1)
    rows = (
        decisions.rows[chosen] + 1
    )  # an action at the close of a bar takes effect in the next one
    bars, contract = market.bars.mid, market.contract
    floor, active = record.event.floor[chosen], record.active[chosen]
    trades = assemble_trades(record, decisions, params)
    trades = trades.where(trades.session == len(decisions.ids) - 1)

    return {
        "symbol": contract.symbol,
        "date": str(decisions.date[-1]),
        "decimals": contract.decimals,
        "time": [local(int(t), contract.zone, "%H:%M") for t in market.bars.time[rows]],
        **{
            name: [points(x, contract) for x in np.asarray(getattr(bars, name))[rows]]
            for name in ("open", "high", "low", "close")
        },
        "equity": [int(x) / 1000 for x in record.equity[chosen]],
        "floor": [
            int(x) / 1000 if on and x != NO_FLOOR else None
            for x, on in zip(floor, active, strict=True)
        ],
        "position": [int(x) for x in record.quantity[chosen]],
        "trades": [
            {
                "side": "long" if trades.side[k] > 0 else "short",
                "contracts": int(trades.contracts[k]),
                "entry": int(trades.entry_row[k] - rows[0]),
                "exit": int(trades.exit_row[k] - rows[0]),
                "entry_price": points(trades.entry_price[k], contract),
                "exit_price": points(trades.exit_price[k], contract),
                "reason": ExitReason(int(trades.reason[k])).name.lower().replace("_", " "),
                "net": int(trades.net[k]) / 1000,
            }
            for k in range(len(trades))
        ],
    }
