"""`intrabar=path` on minute bars against backtesting.py playing the seconds themselves, trade for
trade.

The reference engine knows no paths: it is given every second as a bar of its own, decides at minute
closes only, and books the stop where one second holds stop and target. Ours sees minutes and their
paths. A second is made to begin at the close of the one before, so that no level is jumped inside a
minute (ours fills at the level); levels stand still inside a minute, so this changes nothing else.
A bar whose seconds do not tell is one bar there too.
"""

import numpy as np
import pytest

from jaxtrade.config import EnvConfig, make_config
from jaxtrade.data.market import build_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import make_params
from tests.data import real_seconds
from tests.differential import generated
from tests.differential.compare import Tally, compare_random
from tests.differential.ours import ohlc
from tests.differential.passes import HEADLINE, SLIPPED, TIGHT, run_passes
from tests.differential.reference import Fine
from tests.paths import path_arrays, random_paths

pytestmark = pytest.mark.slow

CONFIG = EnvConfig(task="manage", actions="full", quantity=3, random_start=False, intrabar="path")
REASONS = ("ORDER", "STOP", "BREAKEVEN", "TRAIL", "TARGET", "FLAT")


def joined(bars, row, fine):
    """Seconds (int64[F, 4]) of the rows of `bars`, each made to begin where the one before
    ended.
    """
    first = np.diff(row, prepend=-1) > 0
    opens = np.where(first, bars[row, 0], np.concatenate([fine[:1, 0], fine[:-1, 3]]))
    table = np.stack(
        [opens, np.maximum(fine[:, 1], opens), np.minimum(fine[:, 2], opens), fine[:, 3]], axis=1
    )
    return Fine(table, row)


def from_inside(bars, paths, seed):
    """Seconds of generated paths; each but the last closes anywhere in its range."""
    rng = np.random.default_rng(seed)
    row, fine = [], []
    for i, (bar, inside) in enumerate(zip(bars.tolist(), paths, strict=True)):
        seconds = inside.seconds if inside.known else ((bar[1], bar[2]),)
        for k, (high, low) in enumerate(seconds):
            close = bar[3] if k + 1 == len(seconds) else int(rng.integers(low, high + 1))
            row.append(i)
            fine.append((bar[0] if k == 0 else low, high, low, close))
    return joined(bars, np.array(row), np.array(fine))


def from_seconds(bars, seconds, ambiguous):
    """Real seconds; bars that they do not tell are played whole."""
    table = np.stack([bars.open, bars.high, bars.low, bars.close], axis=1).astype(np.int64)
    row = np.searchsorted(bars.time, seconds.time, "right") - 1
    used = (row >= 0) & (seconds.time < bars.time[row] + bars.bar_seconds) & ~ambiguous[row]
    rows = np.concatenate([row[used], np.flatnonzero(ambiguous)])
    fine = np.concatenate(
        [
            np.stack([seconds.open, seconds.high, seconds.low, seconds.close], axis=1)[used],
            table[ambiguous],
        ]
    ).astype(np.int64)
    order = np.argsort(rows, kind="stable")
    return joined(table, rows[order], fine[order])


def made(seed, sessions):
    data = generated.market(seed, sessions)
    bars = ohlc(data)
    paths = random_paths(seed, *bars.T.tolist())
    params = generated.rules_off(data.replace(path=path_arrays(bars[:, 0].tolist(), paths)))
    return params, from_inside(bars, paths, seed)


def real(shared):
    """A week of SPY, account rules off, built by the data layer."""
    bars, seconds = real_seconds.spy(shared)
    config = make_config(
        {
            "data": {"market": "ES", "calendar": "infer"},
            "env": {"intrabar": "path"},
            "account": {"preset": "rules_off_50k"},
            "costs": {"commission": 2.08, "slippage": 0},
        }
    )
    market = build_market(bars, config, seconds)
    assert market.data.path is not None
    params = make_params(market, split_sessions(market, config.split)["all"], config)
    return params, from_seconds(bars, seconds, np.asarray(market.data.path.ambiguous).any(axis=1))


def differs_without_the_path(params, fine):
    """The seconds matter: under the other orders the same comparison fails, in one of a few
    passes.
    """
    for mode in ("stop_first", "nearer_extreme"):
        with pytest.raises(AssertionError, match=r"trade \d+: ours|equity differs"):
            run_passes(
                CONFIG.model_copy(update={"intrabar": mode}),
                params,
                [TIGHT] * 3,
                first_seed=1,
                fine=fine,
            )


def test_trades_and_equity_are_identical_on_generated_seconds():
    params, fine = made(1, sessions=40)
    total = Tally()
    for seed, setting in enumerate((HEADLINE, TIGHT, SLIPPED)):
        total.add(compare_random(CONFIG, setting.apply(params), seed, fine=fine))
    assert total.trades >= 600
    assert all(total.reasons[reason] for reason in REASONS), total
    differs_without_the_path(params, fine)


def test_trades_and_equity_are_identical_on_spy_seconds(shared):
    params, fine = real(shared)
    total = compare_random(CONFIG, TIGHT.apply(params), 2, fine=fine)
    assert total.trades >= 150
    assert total.same_bar >= 10
