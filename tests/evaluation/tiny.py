"""A market small enough to work by hand: two-day (or longer) ES-like bars whose every price is
given.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import Contract, get_contract
from jaxtrade.data.device import host_view
from jaxtrade.data.features.schema import table_columns
from jaxtrade.data.market import Market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.evaluators import evaluate
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.algorithms import first_policy
from jaxtrade.types import MarketData, SessionSet, SessionTable

WARM = 22  # bars before the first session's first decision


@dataclass(frozen=True)
class TinyBars:
    time: np.ndarray
    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    bar_seconds: int = 60
    ask: None = None  # one-sided, as `jaxtrade.data.read.bars.Bars` has it

    @property
    def sides(self):
        return self, self

    @property
    def mid(self):
        return self


@dataclass(frozen=True)
class TinyMarket:
    """The parts of `jaxtrade.data.market.Market` that the evaluation reads."""

    data: MarketData
    bars: TinyBars
    contract: Contract
    fingerprint: str = "ab" * 32
    synthetic: bool = True
    has_volume: bool = True

    @property
    def num_sessions(self):
        return len(self.data.sessions.first)

    members, parts, facts = Market.members, Market.parts, Market.facts
    symbols, name = Market.symbols, Market.name

    @property
    def every(self):
        return self.sessions(*range(self.num_sessions))

    def sessions(self, *ids):
        padded = list(ids) + [ids[0] if ids else 0] * (self.num_sessions - len(ids))
        return SessionSet(ids=jnp.asarray(padded, jnp.int32), count=jnp.int32(len(ids)))


def tiny_market(bars, lengths, tr_sum=140):
    """Sessions of `lengths` bars each (the last one the flat bar) after WARM bars at the first
    open.

    bars: int[sum(lengths), 4] open, high, low, close in ticks. tr_sum: of every bar (140: ATR of 10
        ticks).
    Session k is on 2024-01-02 + k from 09:30 New York time.
    """
    warm = np.repeat(bars[:1, :1], WARM, axis=0).repeat(4, axis=1)
    prices = np.concatenate([warm, bars]).astype(np.int32)
    start = WARM + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    end = start + np.array(lengths)
    to_flat = np.concatenate([np.zeros(WARM, int), *[np.arange(n - 1, -1, -1) for n in lengths]])
    opening = 1_704_205_800  # 2024-01-02T09:30:00-05:00
    time = np.concatenate(
        [
            opening - 60 * np.arange(WARM, 0, -1),
            *[opening + 86_400 * k + 60 * np.arange(n) for k, n in enumerate(lengths)],
        ]
    )
    n = len(lengths)
    table = SessionTable(
        start=jnp.asarray(start, jnp.int32),
        end=jnp.asarray(end, jnp.int32),
        first=jnp.asarray(start, jnp.int32),
        last=jnp.asarray(end - 2, jnp.int32),
        date=jnp.asarray(19_724 + np.arange(n), jnp.int32),
        complete=jnp.ones(n, bool),
    )
    columns = table_columns(RunConfig().env.features)
    view = np.ones((len(prices), len(columns)), np.float32)
    view[:, columns.index("close")] = prices[:, 3]
    seen = host_view(view, RunConfig().env.features, "relative", 0.25)
    data = MarketData(
        open=jnp.asarray(prices[:, 0]),
        high=jnp.asarray(prices[:, 1]),
        low=jnp.asarray(prices[:, 2]),
        close=jnp.asarray(prices[:, 3]),
        tr_sum=jnp.full(len(prices), tr_sum, jnp.int32),
        bars_to_flat=jnp.asarray(to_flat, jnp.int32),
        sessions=table,
        view=jax.tree.map(jnp.asarray, seen),
        fingerprint=jnp.zeros(8, jnp.uint32),
    )
    return TinyMarket(data, TinyBars(time.astype(np.int64), *prices.T), get_contract("ES"))


def walk(lengths, seed=0, scale=3.0):
    """int[sum(lengths), 4]: a random walk of bars around tick 8,000."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    close = 8_000 + np.round(np.cumsum(rng.normal(0, scale, n))).astype(int)
    open_ = np.concatenate([[8_000], close[:-1]]) + rng.integers(-1, 2, n)
    high = np.maximum(open_, close) + rng.integers(0, 5, n)
    low = np.minimum(open_, close) - rng.integers(0, 5, n)
    return np.stack([open_, high, low, close], axis=1)


def setup(market, sessions, **sections):
    """Environment, parameters and configuration; `sections` as in a YAML file."""
    config = make_config(sections)
    return TradingEnv(config.env), make_params(market, sessions, config), config  # type: ignore[arg-type]


HAND_BARS = np.array(
    [
        [8000, 8002, 7998, 8000],  # decision 0: buy
        [8001, 8006, 7999, 8004],  # filled at 8001 + 1
        [8004, 8010, 8003, 8009],
        [8009, 8011, 8001, 8002],
        [8002, 8005, 8000, 8005],
        [8006, 8008, 8004, 8007],  # flat bar: out at 8007 - 1
    ]
)


def hand_market(sessions):
    """`sessions` sessions of HAND_BARS, five decision bars each."""
    return tiny_market(np.tile(HAND_BARS, (sessions, 1)), [6] * sessions)


TWO_DAYS = tiny_market(walk([60, 60], scale=6.0), [60, 60])
LENGTHS = [60, 60, 40, 60]
WALK = tiny_market(walk(LENGTHS, scale=6.0), LENGTHS)


def rule(name, env, market=WALK):
    """A baseline by name."""
    agents = [
        baselines.flat(),
        baselines.random_masked(env),
        baselines.buy_and_hold(env),
        baselines.sma_cross(env, market.data, 3, 8),
    ]
    return next(agent for agent in agents if agent.name == name)


def backtested(market, which, agent=baselines.buy_and_hold, sessions=None, seed=0, **sections):
    """(record, decision bars, parameters) of `agent(env)`."""
    sessions = market.every if sessions is None else sessions
    env, params, _ = setup(market, sessions, **sections)
    decisions = decision_bars(market.data, sessions)
    record = backtest(env, agent(env), params, decisions, which, jax.random.key(seed))
    return record, decisions, params


def observed(env, record, params):
    """float32[L, D]: what a policy saw at each bar of a record."""
    return np.asarray(jax.jit(jax.vmap(env.observe, (0, None)))(record.ref, params))


def result_of(market, agents=None, **sections):
    """The evaluation of `agents(env)`, or of the baselines."""
    env, params, config = setup(market, market.every, **sections)
    chosen = None if agents is None else agents(env)
    return evaluate(env, params, market, market.every, config, chosen, provenance={"git": "abc"})


def evaluated(market, *agents, **sections):
    """The evaluation of `agent(env)` of each of `agents`."""
    return result_of(market, lambda env: [agent(env) for agent in agents], **sections)


@functools.cache
def walked():
    """The evaluation of WALK that several files look at. `random` wins, loses and busts."""
    names = ("random", "flat", "buy_hold", "sma_cross")
    account = {"drawdown": 800.0, "profit_target": 1_000.0}
    return evaluated(WALK, *(functools.partial(rule, name) for name in names), account=account)


def lively(config, env, by=100, fusion=None):
    """An untrained policy whose outputs are `by` times as large, so that it does act, and whose
    normaliser is not the identity.
    """
    size = env.observation_size
    policy = first_policy(config, env.num_actions, size, jax.random.key(1), fusion)
    rng = np.random.default_rng(0)
    stats = RunningStats(
        jnp.full((1, size), 9.0),
        jnp.asarray(rng.normal(size=(1, size)), jnp.float32),
        jnp.asarray(rng.uniform(0.5, 2.0, (1, size)), jnp.float32),
    )
    head = jax.tree.map(lambda x: by * x, policy.parameters["policy_head"])
    return policy.replace(normaliser=stats, parameters=policy.parameters | {"policy_head": head})
