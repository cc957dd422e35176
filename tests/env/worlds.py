"""Small markets made by hand or by a seeded random walk, and parameters around them.

Nothing here comes from `jaxtrade.data`: the environment is tested against bars that a reader can
check.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.data.device import host_view
from jaxtrade.data.features.schema import CONTEXT_FEATURES, FIXED_COLUMNS, table_columns
from jaxtrade.env.state import (
    OFF,
    AccountParams,
    BracketParams,
    ContractParams,
    EnvParams,
    Trailing,
)
from jaxtrade.types import MarketData, Quotes, SessionSet, SessionTable, TickValue
from tests import compiling
from tests.paths import path_arrays, random_paths
from tests.quotes import random_ask

FEATURES = EnvConfig().features
TICK_MILLS = 12_500  # ES: $12.50 a tick
COMMISSION = 2_080


def i32(x):
    return jnp.asarray(x, jnp.int32)


def ints(tree, *names):
    return [int(getattr(tree, name)) for name in names]


class Bars(NamedTuple):
    """int64[T] ticks."""

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray


class Session(NamedTuple):
    start: int
    end: int
    first: int
    last: int
    complete: bool = True


def random_bars(seed, count, step=6, wick=5, gap=2, price=20_000):
    """A walk of up to +-step ticks a bar, with wicks and small gaps between a close and the next
    open.
    """
    rng = np.random.default_rng(seed)
    close = price + np.cumsum(rng.integers(-step, step + 1, count))
    open_ = np.concatenate([[price], close[:-1]]) + rng.integers(-gap, gap + 1, count)
    high = np.maximum(open_, close) + rng.integers(0, wick + 1, count)
    low = np.minimum(open_, close) - rng.integers(0, wick + 1, count)
    return Bars(open_, high, low, close)


def bars_of(rows):
    """Bars from (open, high, low, close) tuples; high and low are checked."""
    bars = Bars(*np.asarray(rows, np.int64).T)
    assert (bars.high >= np.maximum(bars.open, bars.close)).all()
    assert (bars.low <= np.minimum(bars.open, bars.close)).all()
    return bars


def mirror(bars, around=20_000):
    """The same bars upside down."""
    return Bars(
        2 * around - bars.open,
        2 * around - bars.low,
        2 * around - bars.high,
        2 * around - bars.close,
    )


def replace_after(bars, row, other):
    """`bars` up to and with `row`, then `other`."""
    return Bars(
        *(np.concatenate([a[: row + 1], b[row + 1 :]]) for a, b in zip(bars, other, strict=True))
    )


def true_range_sums(bars):
    """Sum of the last 14 true ranges, -1 until there are 14 (the first bar has none)."""
    sums = np.full(len(bars.close), -1)
    ranges = [0] + [
        int(max(bars.high[i], bars.close[i - 1]) - min(bars.low[i], bars.close[i - 1]))
        for i in range(1, len(bars.close))
    ]
    for i in range(14, len(sums)):
        sums[i] = sum(ranges[i - 13 : i + 1])
    return sums


def make_table(bars, sums, to_flat, seed=7):
    """float32[T, C] in the order of the schema; features are simple causal functions of the
    bars.
    """
    count = len(bars.close)
    volume = np.random.default_rng(seed).integers(50, 500, count).astype(np.float64)
    cumulative = np.cumsum(bars.close)
    previous = np.concatenate([bars.close[:1], bars.close[:-1]])
    columns = {
        "close": bars.close,
        "atr": np.maximum(sums / 14, 1),
        "volume_mean": np.cumsum(volume) / np.arange(1, count + 1),
        "hour": np.arange(count) % 390 / 390,
        "from_open_seed": np.arange(count) % 390 / 449,
        "to_close_seed": (449 - np.arange(count) % 390) / 449,
        "from_open": np.arange(count) % 390 / 449,
        "to_flat": to_flat / 449,
        "feature.close": np.zeros(count),
        "feature.volume": volume,
        "feature.sma_5": cumulative / np.arange(1, count + 1) - bars.close,
        "feature.sma_20": (bars.high + bars.low) / 2 - bars.close,
        "feature.rsi": 50 + np.clip(bars.close - bars.open, -40, 40),
        "feature.macd": bars.close - bars.open,
        "feature.momentum": bars.close - previous,
        "feature.atr": np.maximum(sums / 14, 0),
    }
    assert set(columns) == set(table_columns(FEATURES))
    assert FIXED_COLUMNS[0] == "close"
    return np.stack([columns[name] for name in table_columns(FEATURES)], axis=1).astype(np.float32)


def make_view(table, scaling="relative"):
    """The float view of a table, in quarter-point ticks."""
    return jax.tree.map(jnp.asarray, host_view(table, FEATURES, scaling, 0.25))


def make_context(bars):
    """float32[T, 28] each column another mixture of the bar's own prices."""
    mixtures = np.random.default_rng(3).integers(1, 9, (4, len(CONTEXT_FEATURES)))
    return ((np.stack(bars, axis=1) - 20_000) @ mixtures).astype(np.float32)


def even_sessions(count, length, warm=40, tail=10):
    """`count` sessions of `length` bars: decisions start after `warm` bars, `tail` bars follow the
    last one.
    """
    return [
        Session(i * length, (i + 1) * length, i * length + warm, (i + 1) * length - tail - 1)
        for i in range(count)
    ]


def bars_to_flat(sessions, count):
    """Bars left until the flat bar `last + 1`, as a calendar would give them: the bars play no
    part.
    """
    rows = np.arange(count)
    left = np.zeros(count, np.int64)
    for s in sessions:
        left[s.start : s.end] = np.maximum(s.last + 1 - rows[s.start : s.end], 0)
    return left


def make_market(
    bars,
    sessions,
    tr_sum=None,
    table=None,
    paths=(),
    scaling="relative",
    context=False,
):
    """Market data around bars. `tr_sum`: a constant or a column instead of the true one. scaling:
    of the float view.
    context: with the slots that `advised` shows.
    """
    count = len(bars.close)
    sums = true_range_sums(bars) if tr_sum is None else np.broadcast_to(tr_sum, count)
    left = bars_to_flat(sessions, count)
    rows = np.asarray([s[:4] for s in sessions])
    view = make_view(make_table(bars, np.asarray(sums), left) if table is None else table, scaling)
    return MarketData(
        *(i32(x) for x in bars),
        i32(sums),
        i32(left),
        SessionTable(
            *(i32(rows[:, k]) for k in range(4)),
            date=i32(16_000 + np.arange(len(rows))),
            complete=jnp.asarray([s.complete for s in sessions]),
        ),
        view.replace(context=jnp.asarray(make_context(bars))) if context else view,
        jnp.zeros(8, jnp.uint32),
        path_arrays(bars.open, paths),
    )


def two_sided_market(
    bid,
    ask,
    sessions,
    tr_sum=None,
    paths=(),
    ask_paths=(),
    scaling="relative",
):
    """Market data of bid and ask; ranges and the float table are those of the mid."""
    mid = Bars(*((b + a) // 2 for b, a in zip(bid, ask, strict=True)))
    seen = make_market(mid, sessions, tr_sum, scaling=scaling)
    return seen.replace(
        **{name: i32(prices) for name, prices in bid._asdict().items()},
        path=path_arrays(bid.open, paths, ask.open, ask_paths),
        ask=Quotes(*(i32(prices) for prices in ask)),
    )


def with_rates(market, seed=0):
    """The market with profits in another currency: a tick of about $12.50 whose money moves in
    every bar.
    """
    count = market.open.shape[0]
    walk = np.cumsum(np.random.default_rng([seed, 3]).uniform(-0.01, 0.01, count))
    over = np.clip(8_000 * np.exp(walk), 4_000, 16_000).astype(int)
    return market.replace(tick_value=TickValue(i32(np.full(count, 100_000_000)), i32(over)))


def walk_market(
    seed=0,
    sessions=8,
    length=160,
    paths=False,
    two_sided=False,
    scaling="relative",
    context=False,
    **walk,
):
    """A random walk; `paths`: with random orders of prices inside its bars; `two_sided`: with a
    random ask.
    """
    bars = random_bars(seed, sessions * length, **walk)
    if two_sided:
        ask = Bars(*random_ask(seed, *bars))
        inside = [
            random_paths(seed + i, *side) if paths else () for i, side in enumerate((bars, ask))
        ]
        return two_sided_market(
            bars,
            ask,
            even_sessions(sessions, length),
            paths=inside[0],
            ask_paths=inside[1],
            scaling=scaling,
        )
    return make_market(
        bars,
        even_sessions(sessions, length),
        paths=random_paths(seed, *bars) if paths else (),
        scaling=scaling,
        context=context,
    )


def rules(
    drawdown=None,
    daily_loss=None,
    target=None,
    floor_cap=None,
    min_days=0,
    stop_at_target=True,
    fail_on_daily_loss=False,
    max_contracts=1_000,
    risk_unit=500_000.0,
    trailing=Trailing.INTRADAY,
):
    """Account rules in mills; None is off. All off by default."""
    limits = (i32(OFF if x is None else x) for x in (drawdown, daily_loss, target, floor_cap))
    return AccountParams(
        *limits,
        i32(min_days),
        jnp.bool_(stop_at_target),
        jnp.bool_(fail_on_daily_loss),
        i32(max_contracts),
        jnp.float32(risk_unit),
        jnp.float32(50_000_000),
        i32(trailing),
    )


def contract(
    commission=COMMISSION,
    slippage=1,
    tick_mills=TICK_MILLS,
    min_stop=8,
    be_ticks=1,
):
    return ContractParams(
        i32(tick_mills),
        i32(commission),
        i32(slippage),
        i32(min_stop),
        i32(be_ticks),
        jnp.float32(0.25),
    )


def make_params(
    market,
    *,
    account=None,
    costs=None,
    brackets=(1500, 3, 1000),
    ids=None,
    episode_sessions=1,
    max_steps=0,
):
    """EnvParams; `ids` are the sessions of the split (all by default)."""
    total = market.sessions.start.shape[0]
    chosen = list(range(total)) if ids is None else list(ids)
    padded = chosen + [chosen[0]] * (total - len(chosen))
    costs = contract() if costs is None else costs
    if market.tick_value is not None:
        costs = costs.replace(tick_mills=None)
    return EnvParams(
        market,
        SessionSet(i32(padded), i32(len(chosen))),
        costs,
        rules() if account is None else account,
        BracketParams(*map(i32, brackets)),
        {"equity_change": jnp.float32(1)},
        i32(episode_sessions),
        i32(max_steps),
    )


def pick(mask, uniform):
    """int32[] HOLD in 7 of 10 cases, else a legal action, every one equally likely. uniform
    float32[] in [0, 1).
    """
    total = jnp.sum(mask)
    wanted = jnp.clip(((uniform - 0.7) / 0.3 * total).astype(jnp.int32), 0, total - 1)
    return jnp.argmax(jnp.cumsum(mask) > wanted).astype(jnp.int32)


class Trace(NamedTuple):
    """A batched run, leaves [steps, N, ...]: what stood before a step, what was done, what came
    out.
    """

    state: Any
    ref: Any
    action: jax.Array
    outcome: Any


def run_random(
    env,
    params,
    seed,
    envs,
    steps,
    choose=pick,
):
    """Random legal actions in `envs` environments with fused auto-reset, as one compiled
    program.
    """
    return _run_random(env, params, jax.random.key(seed), envs, steps, choose)


def _run(env, params, key, envs, steps, choose):
    key_reset, key_act = jax.random.split(key)
    state, ref = jax.vmap(env.reset, (0, None))(jax.random.split(key_reset, envs), params)
    uniform = jax.random.uniform(key_act, (steps, envs))

    def body(carry, u):
        state, ref = carry
        action = jax.vmap(choose)(ref.mask, u)
        next_state, next_ref, outcome = jax.vmap(env.step, (None, 0, 0, None))(
            key_act, state, action, params
        )
        return (next_state, next_ref), Trace(state, ref, action, outcome)

    return jax.lax.scan(body, (state, ref), uniform)[1]


_run_random = jax.jit(_run, static_argnums=(0, 3, 4, 5), compiler_options=compiling.fast())


def leaves_differ(a, b):
    """Paths of the leaves that are not byte-equal (NaN equals the same NaN)."""
    flat_a, flat_b = jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b)
    assert len(flat_a) == len(flat_b)
    return [
        jax.tree_util.keystr(path)
        for (path, x), (_, y) in zip(flat_a, flat_b, strict=True)
        if np.asarray(x).dtype != np.asarray(y).dtype
        or np.asarray(x).tobytes() != np.asarray(y).tobytes()
    ]
