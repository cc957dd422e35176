"""The episode monitor on the device: hand-worked figures, and every ended episode against NumPy in
float64.
"""

import functools
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.config import EnvConfig
from jaxtrade.env import episode, monitor
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.execution import empty_event
from jaxtrade.env.monitor import FIGURES, close, keep, select_monitored
from jaxtrade.storage.monitor import LOST, ROWS
from tests.env.worlds import (
    contract,
    i32,
    ints,
    leaves_differ,
    make_params,
    rules,
    run_random,
    walk_market,
)

STEPS, ENVS, SYMBOLS = 150, 12, ("ES",)
PARAMS = make_params(
    walk_market(3, sessions=3, length=80, step=8), account=rules(drawdown=700_000), max_steps=25
)
ENV = TradingEnv(EnvConfig(task="entry", mark="close"))  # a small program


@functools.cache
def played():
    """Random actions with the monitor; episodes end by the step limit, a bust and the session."""
    return jax.tree.map(np.asarray, run_random(ENV, PARAMS.replace(monitor=True), 1, ENVS, STEPS))


# ---- by hand


def stats_after(equities):
    stats, before = episode.new_stats(PARAMS.replace(monitor=True)), 0
    for equity in equities:
        stats = episode.count_step(
            stats, i32(equity), {"equity_change": jnp.float32(0)}, jnp.bool_(False)
        )
        stats, before = episode.count_change(stats, i32(equity - before)), equity
    return stats


def test_an_episode_by_hand():
    """Equity 3000, 1000, 5000, 4000 mills: changes 3000, -2000, 4000, -1000; mean 1000, squared
    differences 4 + 9 + 9 + 4 = 26 million, so the deviation is sqrt(26e6 / 3) and the ratio 1000 /
    2943.92 = 0.339683."""
    found = select_monitored(stats_after([3000, 1000, 5000, 4000]), i32(4000))
    assert ints(found, "length", "drawdown", "max_drawdown") == [4, 1000, 2000]
    assert float(found.sharpe) == pytest.approx(0.339683, rel=1e-5)


def test_notional_by_hand():
    """Left 2 at 4,000 ticks, bought 3 at 4,001, sold 1 at 3,990: (8,000 + 12,003 + 3,990) ticks at
    12,500 mills.
    """
    event = empty_event(i32(0)).replace(
        order_exit_quantity=i32(-2),
        order_exit_price=i32(4000),
        entry_quantity=i32(3),
        entry_price=i32(4001),
        exit_quantity=i32(1),
        exit_price=i32(3990),
    )
    assert float(monitor.notional(event, contract())) == pytest.approx(23_993 * 12_500, rel=1e-6)
    converted = contract().replace(
        tick_over=i32(160)
    )  # a tick is worth 12,500 / 160 mills at the rate of this bar
    assert float(monitor.notional(event, converted)) == pytest.approx(
        23_993 * 12_500 / 160, rel=1e-6
    )
    assert float(monitor.notional(empty_event(i32(0)), contract())) == 0


@pytest.mark.parametrize("equities", [[], [700], [0, 0, 0], [2500, 5000, 7500, 10_000]])
def test_a_sharpe_ratio_without_variance_is_undefined(equities):
    """No step, one step, no change, and equal changes: the variance is 0 exactly, not a rounding
    error.
    """
    assert np.isnan(
        select_monitored(stats_after(equities), i32(equities[-1] if equities else 0)).sharpe
    )


def test_without_the_monitor_the_statistics_are_those_of_before():
    stats = episode.new_stats(PARAMS)
    assert stats.monitor is None
    assert episode.count_change(stats, i32(5)) is stats
    with pytest.raises(ValueError, match="monitor=True"):
        select_monitored(stats, i32(0))


# ---- properties


def _welford(changes):
    def add(now, change):
        counted, steps = now
        return (monitor.add_change(counted, change, steps + 1), steps + 1), None

    (counted, steps), _ = jax.lax.scan(add, (monitor.start(), jnp.int32(0)), changes)
    return monitor.sharpe(counted, steps)


WELFORD = jax.jit(_welford)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 20_000_000),
    st.integers(1, 3_000_000),
    st.floats(0, 1),
)
def test_float32_moments_agree_with_float64(seed, drift, spread, quiet):
    """2,000 changes with a drift of up to $20,000 a bar, large against their spread or not, and
    bars without any.
    """
    rng = np.random.default_rng(seed)
    drift %= 100 * spread  # beyond it float32 keeps fewer than five digits of the spread
    changes = np.where(
        rng.random(2000) < quiet, 0, drift + rng.integers(-spread, spread + 1, 2000)
    ).astype(np.int32)
    found, exact = float(WELFORD(changes)), changes.astype(np.float64)
    if (changes == changes[0]).all():
        assert np.isnan(found)
    else:
        np.testing.assert_allclose(found, exact.mean() / exact.std(ddof=1), rtol=1e-4, atol=1e-5)


# ---- whole rollouts


class Reference(NamedTuple):
    """The ended episodes in the order of their ends, float64[n, 6] as FIGURES, and their
    environments.
    """

    figures: np.ndarray
    env: np.ndarray


def reference(trace):
    """Every figure from the fills and the equity of the single steps, episode by episode."""
    info, params = trace.outcome.info, PARAMS
    event, start, tick = (
        info.event,
        float(params.account.start_balance),
        int(params.contract.tick_mills),
    )
    found, places = [], []
    begun = np.zeros(ENVS, int)
    for t in range(STEPS):
        for env in np.flatnonzero(trace.outcome.terminated[t] | trace.outcome.truncated[t]):
            steps = slice(begun[env], t + 1)
            equity = np.concatenate([[0], info.equity[steps, env].astype(np.float64)])
            drops, changes = np.maximum.accumulate(equity) - equity, np.diff(equity)
            traded = sum(
                np.abs(
                    getattr(event, f"{kind}_quantity")[steps, env].astype(np.float64)
                    * getattr(event, f"{kind}_price")[steps, env]
                ).sum()
                for kind in ("order_exit", "entry", "exit")
            )
            varies = len(changes) > 1 and changes.std() > 0
            found.append(
                [
                    trace.outcome.reward[steps, env].sum(dtype=np.float64),
                    len(changes),
                    drops[-1] / start,
                    traded * tick / start,
                    changes.mean() / changes.std(ddof=1) if varies else np.nan,
                    drops.max() / start,
                ]
            )
            places.append(env)
            begun[env] = t + 1
    return Reference(np.array(found), np.array(places))


def closed(rows, trace, symbols=SYMBOLS, params=PARAMS):
    seen = SimpleNamespace(
        terminated=jnp.asarray(trace.outcome.terminated),
        info=keep(trace.outcome),
        truncated=jnp.asarray(trace.outcome.truncated),
        final_ref=trace.outcome.final_ref,
    )
    return jax.tree.map(np.asarray, close(rows, symbols, seen, params))  # type: ignore[arg-type]


@pytest.mark.slow
def test_each_ended_episode_has_its_row_and_means_are_over_all_though_rows_are_lost():
    """A buffer with room for four has the first four, the rest is counted, and no mean changes."""
    expected, found, few = reference(played()).figures, closed(500, played()), closed(4, played())
    rows, ended = found[ROWS], len(expected)
    assert ended > 50
    assert np.isnan(expected[:, 4]).any()
    assert (expected[:, [2, 3, 5]] > 0).any(axis=0).all()
    np.testing.assert_allclose(rows[:ended, :6], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(few[ROWS], rows[:4])
    assert not rows[ended:].any()
    assert not rows[:, 6].any()
    assert [int(each[LOST]) for each in (found, few)] == [0, ended - 4]
    means = dict(zip(FIGURES, np.nanmean(expected, axis=0), strict=True))
    assert few.keys() - {ROWS, LOST} == {f"monitor/{name}" for name in means}
    for name, mean in means.items():
        assert float(few[f"monitor/{name}"]) == pytest.approx(mean, rel=1e-4, abs=1e-6)
    assert ROWS not in closed(0, played())


@pytest.mark.slow
def test_a_rollout_without_an_end_has_no_means():
    first = jax.tree.map(lambda x: x[:3], played())
    found = closed(5, first)
    assert all(np.isnan(found[f"monitor/{name}"]) for name in FIGURES)
    assert (found[ROWS] == 0).all()


def test_symbols_are_told_apart_by_the_row_of_the_market():
    """The first session is one symbol, the others another; each episode lies in one session."""
    rows = len(PARAMS.market.close)
    number = jnp.asarray(np.arange(rows) >= rows // 3, jnp.int8)
    market = SimpleNamespace(symbol=number)
    params = SimpleNamespace(market=market, account=PARAMS.account)
    found, expected = closed(500, played(), ("EURUSD", "GBPUSD"), params), reference(played())
    count = len(expected.figures)
    ended = played().outcome.terminated | played().outcome.truncated
    symbol = np.asarray(number)[played().outcome.final_ref.row[ended][:, 0]]
    np.testing.assert_array_equal(found[ROWS][:count, 6], symbol)
    assert 0 < symbol.sum() < count
    for which, name in enumerate(("EURUSD", "GBPUSD")):
        mean = np.nanmean(expected.figures[symbol == which], axis=0)
        for i, figure in enumerate(FIGURES):
            assert float(found[f"monitor/{name}/{figure}"]) == pytest.approx(
                mean[i], rel=1e-4, abs=1e-6
            )


@pytest.mark.slow
def test_the_monitor_changes_nothing_else():
    """States, references, rewards and the other statistics have the same bits with it and without
    it.
    """
    plain = run_random(ENV, PARAMS, 1, ENVS, STEPS)

    def without(trace):
        state, outcome = trace.state, trace.outcome
        return trace._replace(
            state=state.replace(stats=state.stats.replace(monitor=None)),
            outcome=outcome.replace(
                info=outcome.info.replace(stats=outcome.info.stats.replace(monitor=None))
            ),
        )

    assert leaves_differ(without(played()), plain) == []
