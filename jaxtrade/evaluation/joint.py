"""The evaluation of `allocate`: its agents over a session set, and their metrics.

The agents decide at every decision bar.

As in `evaluation.backtest`: the strategy pass has the account rules off; in the account pass an
account that ends is followed by a new one at the next session.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import name_account, resolve_account
from jaxtrade.data.markets import Portfolio
from jaxtrade.env import rules
from jaxtrade.env.episode import end_reason
from jaxtrade.env.execution import select
from jaxtrade.env.portfolio.dynamics import PortfolioEnv, next_session
from jaxtrade.env.portfolio.state import PortfolioEvent, PortfolioParams, PortfolioState
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.state import EndReason, ObservationRef
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.baselines import forget_episode, keep_carry, random_legal, sma_signs
from jaxtrade.evaluation.evaluate import agent_key, data_labels, rules_of
from jaxtrade.evaluation.frames import fills_frame, joint_frame
from jaxtrade.evaluation.record import DecisionBars, EvaluationSteps, decision_bars, without_rules
from jaxtrade.evaluation.result import NOTHING, AgentResult, EvaluationResult, floor_of
from jaxtrade.evaluation.side_by_side import RULE_ENDS
from jaxtrade.evaluation.trades import BarClock, account_outcome, joint_fills
from jaxtrade.formatting import money
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import Array, Learner, PyTree, SessionSet

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("flat", "random", "buy_hold", "sma_cross")


class TargetDecision(NamedTuple):
    """A decision.

    state: with the order counted.
    quantity: int32[S] contracts.
    illegal: bool[].
    action: int32[] id, or -1 for a baseline.
    """

    state: PortfolioState
    quantity: Array
    illegal: Array
    action: Array


# (carry, state, its reference, parameters, key) -> (carry, decision)
Act = Callable[
    [PyTree, PortfolioState, ObservationRef, PortfolioParams, Array], tuple[PyTree, TargetDecision]
]


class JointAgent(NamedTuple):
    """A named agent. carry is traced; act is static, and equal for agents that share a program."""

    name: str
    act: Act
    carry: PyTree
    about: str
    forget: Callable[[PyTree, Array], PyTree] = keep_carry


def policy_agent(
    env: PortfolioEnv, algorithm: Learner, policy: PyTree, explore: bool = False
) -> JointAgent:
    """Make the agent of a policy: it takes the best legal action, or draws one."""
    name, about = (
        ("sampled", "drawn from the policy")
        if explore
        else ("greedy", "best legal action of the policy")
    )
    act = JointPolicyAct(env, algorithm.act, explore)
    return JointAgent(name, act, (policy, algorithm.carry), about, forget_episode)


@dataclass(frozen=True)
class JointPolicyAct:
    """`Learner.act`.

    Carry: (policy, its memory). An illegal action changes nothing and is counted.
    """

    env: PortfolioEnv
    algorithm_act: Any
    explore: bool

    def __call__(
        self,
        carry: PyTree,
        state: PortfolioState,
        ref: ObservationRef,
        params: PortfolioParams,
        key: Array,
    ) -> tuple[PyTree, TargetDecision]:
        policy, memory = carry
        memory, action, _ = self.algorithm_act(policy, memory, ref, params, key, self.explore)
        return (policy, memory), TargetDecision(
            *self.env.place_order(state, action, params), action
        )


class Knowledge(NamedTuple):
    """What the baselines know.

    which: int32[] index into NAMES.
    signs: int32[T, S] of the moving averages.
    units: int32[S] contracts of a full position.
    """

    which: Array
    signs: Array
    units: Array


@dataclass(frozen=True)
class Baseline:
    """All baselines as one program; `Knowledge.which` chooses."""

    env: PortfolioEnv

    def __call__(
        self,
        carry: Knowledge,
        state: PortfolioState,
        ref: ObservationRef,
        params: PortfolioParams,
        key: Array,
    ) -> tuple[Knowledge, TargetDecision]:
        action = random_legal(ref, key)
        drawn = TargetDecision(*self.env.place_order(state, action, params), action)
        # It reads what states of one and of several symbols share.
        ready = rules.may_open(state, params)  # type: ignore[arg-type]
        held, sign = state.legs.quantity, carry.signs[state.row]
        bought = jnp.where(ready & (held == 0).all(), carry.units, held)
        crossed = jnp.where(
            sign == 0,
            held,
            jnp.where(ready, sign * carry.units, jnp.where(sign * held < 0, 0, held)),
        )
        quantity = jnp.select(
            [carry.which == i for i in range(len(NAMES))],
            [jnp.zeros_like(held), drawn.quantity, bought, crossed],
        )
        random = carry.which == NAMES.index("random")
        counted = jax.tree.map(lambda a, b: jnp.where(random, a, b), drawn.state, state)
        return carry, TargetDecision(
            counted, quantity.astype(jnp.int32), jnp.bool_(False), jnp.where(random, action, -1)
        )


def position_of(env: PortfolioEnv, market: Portfolio, cap: int) -> np.ndarray:
    """Return the largest equal number of units in every symbol that the caps allow.

    int64[S], contracts. cap: contracts that the account may hold.
    """
    chosen, count = env.allocate, len(market.symbols)
    sizes = np.broadcast_to(np.array(chosen.size), (count,))
    most = chosen.max_units
    if chosen.max_total:
        most = min(most, chosen.max_total // count)
    return min(most, cap // int(sizes.sum())) * sizes


def joint_agents(
    env: PortfolioEnv,
    market: Portfolio,
    params: PortfolioParams,
    config: RunConfig,
    algorithm: Learner,
    policy: PyTree,
) -> list[JointAgent]:
    """Make the joint agents: the policy, greedy and sampled, then the baselines.

    The baselines are flat, random, buy-and-hold and moving averages per symbol.
    """
    fast, slow = config.evaluation.sma_fast, config.evaluation.sma_slow
    # Averages of each symbol's own closes, read at its row of the shared bar.
    rows = np.asarray(params.market.rows)
    signs = np.stack(
        [sma_signs(member.data, fast, slow)[rows[:, s]] for s, member in enumerate(market.members)],
        axis=1,
    )
    units = position_of(env, market, int(params.account.max_contracts))
    about = {
        "flat": "never trades",
        "random": "uniform over the legal actions",
        "buy_hold": "buys every symbol, equally many units, at each session's first decision bar; out at the flat "
        "bar",
        "sma_cross": f"each symbol long while its SMA {fast} > SMA {slow}, short while below",
    }
    return [
        policy_agent(env, algorithm, policy),
        policy_agent(env, algorithm, policy, explore=True),
        *(
            JointAgent(
                name,
                Baseline(env),
                Knowledge(
                    jnp.int32(i), jnp.asarray(signs, jnp.int32), jnp.asarray(units, jnp.int32)
                ),
                about[name],
            )
            for i, name in enumerate(NAMES)
        ),
    ]


class JointRecord(NamedTuple):
    """One pass, leaves [L] for L decision bars, or [L, S].

    A bar after the end of an account counts as inactive.

    equity: int32 mills of the account of the bar.
    account: int32 its number, from 0.
    end: int32 `EndReason` by rule.
    reward: float32.
    action: int32 id, or -1.
    mark: int32[L, S] open profit at the close.
    """

    event: PortfolioEvent
    equity: Any
    quantity: Any
    account: Any
    active: Any
    end: Any
    reward: Any
    illegal: Any
    action: Any
    trades: Any
    wins: Any


def backtest(
    env: PortfolioEnv,
    agent: JointAgent,
    params: PortfolioParams,
    decisions: DecisionBars,
    rules_on: bool,
    key: Array,
) -> JointRecord:
    """Record one pass (NumPy leaves). `params.sessions` must be the set of `decisions`."""
    params = params.replace(monitor=False)  # an evaluation has no training episodes to count
    if not rules_on:
        params = params.replace(account=without_rules(params.account))
    first = np.append(True, decisions.session[1:] != decisions.session[:-1])
    found = _run(
        env,
        agent.act,
        agent.forget,
        agent.carry,
        params,
        jnp.asarray(decisions.rows, jnp.int32),
        jnp.asarray(first),
        jax.random.key_data(key),
    )
    return jax.device_get(found)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run(
    env: PortfolioEnv,
    act: Any,
    forget: Any,
    carry: PyTree,
    params: PortfolioParams,
    rows: Array,
    first: Array,
    key_data: Array,
) -> JointRecord:
    key = jax.random.wrap_key_data(key_data)
    begin = env.reset_at(params, 0, rows[0]).replace(sessions_left=params.sessions.count)

    def body(
        now: tuple[Any, ...], seen: tuple[Array, Array]
    ) -> tuple[tuple[Any, ...], JointRecord]:
        state, carry, number, over, sessions = now
        row, opens = seen
        at_start = sessions == 0
        fresh = begin.replace(row=row, slot=sessions)
        renewed = opens & (over | at_start)
        state = select(
            renewed, fresh, select(opens & ~at_start, next_session(state, params), state)
        )
        number, over = number + (opens & over), over & ~opens
        sessions = sessions + opens
        episode = opens & ((sessions - 1) % params.episode_sessions == 0)
        carry = forget(carry, renewed | episode)
        carry, want = act(
            carry, state, env.ref(state, params), params, jax.random.fold_in(key, row)
        )
        moved, event = env.transition(want.state, want.quantity, params)
        reason = end_reason(moved, params)  # type: ignore[arg-type]  # what both kinds of states share
        ended = functools.reduce(jnp.logical_or, [reason == each for each in RULE_ENDS]) & ~over
        step = StepEvent(want.action, want.illegal, event, env.actions)  # type: ignore[arg-type]
        terms = weighted_terms(state, moved, step, params)  # type: ignore[arg-type]  # terms of several symbols
        nothing = jax.tree.map(jnp.zeros_like, event)
        after = select(over, state, moved)
        record = JointRecord(
            select(over, nothing, event),
            after.account.equity,
            after.legs.quantity,
            number,
            ~over,
            jnp.where(ended, reason, EndReason.NONE).astype(jnp.int32),
            jnp.where(over, 0.0, total(terms)),
            want.illegal & ~over,
            want.action,
            after.stats.trades - state.stats.trades,
            after.stats.wins - state.stats.wins,
        )
        return (after, carry, number, over | ended, sessions), record

    start = (begin, carry, jnp.int32(0), jnp.bool_(False), jnp.int32(0))
    return jax.lax.scan(body, start, (rows, first))[1]


def strategy_metrics(
    record: JointRecord, decisions: DecisionBars, symbols: tuple[str, ...], start_balance: float
) -> dict[str, Any]:
    """Compute metrics of the strategy pass.

    Names as in `evaluation.trades`, where they exist there.

    turnover: notional of all fills over the start balance.
    costs: all but slippage.
    profit.SYMBOL: its share of net_profit.
    exposure: share of bars after which anything was held.
    """
    event, equity = record.event, record.equity.astype(np.int64)
    trades = int(record.trades.sum())
    net = int(equity[-1]) / 1000
    profit = event.profit.astype(np.int64).sum(axis=0)
    if int(profit.sum()) != int(equity[-1]):
        raise RuntimeError(
            f"profits of the symbols sum to {profit.sum()} mills, equity is {equity[-1]}"
        )
    ordered = (event.close_quantity != 0) | (event.open_quantity != 0)
    return {
        "net_profit": net,
        "return_pct": 100 * net / start_balance,
        "sharpe_daily": metrics.daily_sharpe(metrics.session_pnl(equity, decisions.last)),
        "max_drawdown": metrics.max_drawdown(equity) / 1000,
        "trades": trades,
        "win_rate": int(record.wins.sum()) / trades if trades else None,
        "orders": int(ordered.sum()),
        "turnover": float(event.turnover.astype(np.int64).sum()) / 1000 / start_balance,
        "costs": int(event.cost.astype(np.int64).sum()) / 1000,
        "exposure": float((record.quantity != 0).any(axis=1).mean()),
        "illegal_actions": int(record.illegal.sum()),
        **{
            f"profit.{symbol}": int(money) / 1000
            for symbol, money in zip(symbols, profit, strict=True)
        },
    }


@dataclass(frozen=True, repr=False)
class JointResult(EvaluationResult):
    """The evaluation of an account that holds several symbols.

    Its trades are fills, as in `trades.csv`, and its equity is as in `equity.csv`.

    tick_sizes: of each symbol, in points.
    """

    tick_sizes: tuple[Decimal, ...] = ()
    tables = MappingProxyType({"fills": "trades.csv", "equity": "equity.csv"})
    pictures = ("profits",)

    def _parts(self) -> dict[str, Any]:
        return {"task": "allocate"}

    def _sections(self) -> list[str]:
        return []

    def verdict(self) -> str:
        return self.compare(hint=True, orders="orders")

    def trades_of(self, name: str) -> pd.DataFrame:
        return self.agent(name).trades

    def equity_of(self, name: str) -> pd.DataFrame:
        agent = self.agent(name)
        of = agent.strategy, agent.account, self.decisions, self.clock
        return joint_frame(*of, self.settings["symbols"])

    def _tick_size(self) -> list[str]:
        return [str(each) for each in self.tick_sizes]

    def _trade_columns(self, agent: AgentResult) -> dict[str, np.ndarray]:
        return joint_fills(agent.strategy.event)

    def _pass(self, record: Any) -> dict[str, np.ndarray]:
        return {
            "action": record.action,
            "legal": ~record.illegal,
            "quantity": record.quantity,
            "equity": record.equity,
            "floor": floor_of(record),
            "account": record.account,
            "active": record.active,
            "end": record.end,
            "profit": record.event.profit,
            **{f"event.{name}": values for name, values in joint_fills(record.event).items()},
        }


def evaluate_joint(
    env: PortfolioEnv,
    params: PortfolioParams,
    market: Portfolio,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[JointAgent] | None = None,
    *,
    algorithm: Learner | None = None,
    policy: PyTree = None,
    provenance: Mapping[str, Any] = NOTHING,
    trained_on: SessionSet | None = None,
    notes: Sequence[str] = (),
    programs: Programs | None = None,
    begun: Callable[[str], None] = lambda what: None,
    steps: EvaluationSteps | None = None,
) -> EvaluationResult:
    """Run every agent over all decision bars of `sessions`, with account rules off and on.

    Arguments as in `evaluation.evaluate.evaluate_symbol`, but `begun` is called before each pass of
    each agent, and no programs are begun or shared. Raises DataError if the set is empty,
    ConfigError unless either agents, or both algorithm and policy, are given.
    """
    del programs, steps
    if (algorithm is None) != (policy is None) or (agents is None) == (policy is None):
        raise ConfigError("evaluation: give either agents, or algorithm and policy")
    if agents is None:
        assert algorithm is not None
        agents = joint_agents(env, market, params, config, algorithm, policy)
    decisions: Any = decision_bars(params.market, sessions)  # type: ignore[arg-type]  # reads its sessions alone
    params, balance = (
        params.replace(sessions=sessions),
        resolve_account(config.account).start_balance,
    )
    results = []
    for agent in agents:
        key, records = agent_key(jax.random.key(config.seed), agent.name), {}
        for which in ("account", "strategy"):
            begun(f"{agent.name}, {which} pass")
            records[which] = backtest(env, agent, params, decisions, which == "account", key)
        results.append(
            AgentResult(
                agent.name,
                agent.about,
                records["strategy"],
                records["account"],
                fills_frame(records["strategy"], decisions, market),
                strategy_metrics(records["strategy"], decisions, market.symbols, balance),
                account_outcome(records["account"], decisions),
            )
        )
    labels = data_labels(market, decisions, trained_on)
    if not market.has_volume:
        labels.append("bars without volume: the volume features of their symbols are constant")
    bars = market.data
    return JointResult(
        tuple(results),
        decisions,
        BarClock(
            market.times,
            market.bar_seconds,
            Decimal(1),
            2,
            "UTC",
        ),
        np.asarray(bars.open),
        np.asarray(bars.high),
        np.asarray(bars.low),
        np.asarray(bars.close),
        balance,
        _settings(env, market, decisions, config),
        (*labels, *notes),
        dict(provenance),
        tuple(env.actions),
        tick_sizes=tuple(contract.tick_size for contract in market.contracts),
    )


def _settings(
    env: PortfolioEnv, market: Portfolio, decisions: DecisionBars, config: RunConfig
) -> dict[str, Any]:
    chosen = config.allocate
    costs = [f"{chosen.cost_bp:g} bp"] if chosen.cost_bp else []
    costs += (
        [f"impact {chosen.impact_bp:g} bp per {money(chosen.impact_base, 0)}"]
        if chosen.impact_bp
        else []
    )
    costs += [f"${chosen.fee:g} a fill"] if chosen.fee else []
    each = [contract.under(config) for contract in market.contracts]
    costs += [
        f"{c.symbol} ${c.commission_mills / 1000:g} and {c.slippage_ticks} ticks a side"
        for c in each
    ]
    preset = resolve_account(config.account)
    return {
        "market": "-".join(market.symbols),
        "symbols": list(market.symbols),
        **metrics.sessions_of(decisions.date),
        "decision_bars": len(decisions.rows),
        "task": env.config.task,
        "allocate": chosen.model_dump(mode="json"),
        "costs": "costs: " + ", ".join(costs),
        "start_balance": preset.start_balance,
        "account": name_account(config.account),
        "rules": rules_of(preset),
        "seed": config.seed,
        "config_sha256": config.digest(),
        "data_sha256": market.fingerprint,
    }
