"""Intrabar paths: hand-worked seconds, and random and real ones against a scan of every second."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.intrabar import FALLS, first_passages, market_path
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import Bars
from jaxtrade.data.sources import seconds_of
from jaxtrade.data.splits import split_sessions
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.env.params import make_params
from jaxtrade.errors import ConfigError, DataError
from tests.data import real_seconds
from tests.messages import missing
from tests.paths import Inside, falls

START = 1_381_152_600  # 2013-10-07 13:30 UTC
PAIRS = 60_000  # random level pairs per market

Second = tuple[int, int, int, int]


def bars_from(rows, times, length):
    table = np.asarray(rows, np.int32)
    return Bars(
        np.asarray(times, np.int64),
        *table.T,
        np.zeros(len(rows)),
        length,
        get_contract("ES"),
        f"{length} s",
    )


def minute_of(*minutes):
    """Minutes and their seconds, from seconds' (open, high, low, close)."""
    whole = [(m[0][0], max(s[1] for s in m), min(s[2] for s in m), m[-1][3]) for m in minutes]
    times = [START + 60 * i + j for i, m in enumerate(minutes) for j in range(len(m))]
    return (
        bars_from(whole, [START + 60 * i for i in range(len(minutes))], 60),
        bars_from([s for m in minutes for s in m], times, 1),
    )


def flat(*prices):
    """Seconds of one price each."""
    return [(p, p, p, p) for p in prices]


def found(passages, row=0):
    """The falls of a row as (before, turn, end), for a long and for a short."""
    long, short = (
        [tuple(fall) for fall in side.T.tolist() if any(fall)] for side in passages.path.falls[row]
    )
    return long, short


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (flat(100, 103, 105, 104), [(5, 5, 4)], [(0, 0, -5)]),
        (flat(100, 98, 95), [(0, 0, -5)], []),  # deeper from the same high: one fall
        (flat(100, 103, 98, 101, 106, 97, 99), [(3, 3, -2), (6, 6, -3)], [(0, 0, -3), (2, 2, -6)]),
        (
            flat(100, 110, 104, 109, 112, 107),
            [(10, 10, 4)],
            [(0, 0, -12)],
        ),  # the fall from 112 is the shallower
        (flat(100, 110, 104, 112, 105), [(10, 10, 4), (12, 12, 5)], [(0, 0, -12)]),
        (flat(100, 100, 100), [], []),
        # inside a second: the high first for a long, the low first for a short
        (
            [(100, 104, 99, 104), (104, 104, 98, 98)],
            [(0, 4, -1), (4, 4, -2)],
            [(0, 1, -4), (1, 2, -4)],
        ),
        ([(100, 104, 100, 104), (104, 104, 103, 103)], [(0, 4, 0)], [(0, 0, -4)]),
        # a fall of the next second from that high is a fall of its own: the target may lie between
        ([(100, 104, 103, 104), (104, 104, 102, 102)], [(0, 4, 3), (4, 4, 2)], [(0, 0, -4)]),
    ],
)
def test_falls_by_hand(seconds, long, short):
    passages = first_passages(*minute_of(seconds))
    assert found(passages) == (long, short)
    assert not passages.path.ambiguous[0].any()


def test_falls_equal_those_of_plain_python():
    """Random minutes of 1 to 40 seconds; beyond K falls a side is ambiguous."""
    rng = np.random.default_rng(0)
    minutes: list[list[Second]] = []
    for _ in range(3_000):
        closes = 1_000 + np.cumsum(rng.integers(-9, 10, int(rng.integers(1, 41))))
        opens = np.concatenate([[1_000], closes[:-1]]) + rng.integers(-2, 3, len(closes))
        wicks = rng.integers(0, 5, (2, len(closes)))
        high, low = np.maximum(opens, closes) + wicks[0], np.minimum(opens, closes) - wicks[1]
        minutes.append(list(zip(*(x.tolist() for x in (opens, high, low, closes)), strict=True)))
    for _ in range(200):  # climbing or sinking, each retrace deeper than the last
        rungs = np.cumsum(rng.integers(10, 20, int(rng.integers(5, 12))))
        zigzag = np.stack([rungs, rungs - np.arange(1, len(rungs) + 1)], axis=1).reshape(-1)
        minutes.append(flat(1_000, *(1_000 + int(rng.choice([-1, 1])) * zigzag).tolist()))
    passages = first_passages(*minute_of(*minutes))
    overflows = 0
    for row, minute in enumerate(minutes):
        inside = Inside(tuple((s[1], s[2]) for s in minute))
        for i, side in enumerate((1, -1)):
            wanted = falls(minute[0][0], inside, side)
            assert passages.path.ambiguous[row, i] == (len(wanted) > FALLS)
            overflows += len(wanted) > FALLS
            if len(wanted) <= FALLS:
                assert found(passages, row)[i] == wanted, f"minute {row}, side {side}"
    assert overflows >= 50


def test_too_many_falls_are_ambiguous_for_their_side():
    zigzag = [100]
    for k in range(1, FALLS + 1):
        zigzag += [100 + 10 * k, 100 + 10 * k - k - 2]
    enough, more = flat(*zigzag), flat(*zigzag, 190, 179)
    path = first_passages(*minute_of(enough, more)).path
    assert path.ambiguous.tolist() == [[False, False], [True, False]]
    assert path.falls[0, 0].T.tolist() == [[10 * k, 10 * k, 9 * k - 2] for k in range(1, FALLS + 1)]


def test_offsets_are_not_cut():
    path = first_passages(*minute_of(flat(100_000, 80_000, 132_769))).path
    assert path.ambiguous.tolist() == [[False, False]]
    assert path.falls[0, 0].T.tolist()[0] == [0, 0, -20_000]
    assert path.falls[0, 1].T.tolist()[0] == [20_000, 20_000, -32_769]


def test_a_market_keeps_as_many_falls_as_one_of_its_bars_has():
    one, three = flat(100, 90, 95), flat(100, 99, 105, 103, 109, 106)
    kept = market_path((first_passages(*minute_of(one, three)),))
    assert kept is not None
    assert kept.falls.shape == (2, 2, 3, 3)
    still = market_path((first_passages(*minute_of(flat(100, 100, 100))),))
    assert still is not None
    assert still.falls.shape == (1, 2, 3, 1)
    alone = market_path((first_passages(*minute_of(one)),))
    assert alone is not None
    np.testing.assert_array_equal(kept.falls[:1, ..., : alone.falls.shape[-1]], alone.falls)


def test_a_minute_without_seconds_is_ambiguous_and_counted():
    bars, fine = minute_of(flat(100, 101), flat(101, 102), flat(102, 103))
    passages = first_passages(bars, fine.rows([0, 1, 4, 5]))
    assert passages.covered.tolist() == [True, False, True]
    assert passages.path.ambiguous.tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert not missing(passages.notes[0], "2 of 3 bars", "stop_first")
    unused = first_passages(bars.rows([0, 2]), fine)
    assert not missing(unused.notes[-1], "2 of 6", "not used")


@pytest.mark.parametrize("field", ["open", "high", "low", "close"])
def test_seconds_must_rebuild_the_bars(field):
    """One of 1,000 is a note and ambiguous; two are an error that shows what was found."""
    minutes = [flat(100, 103, 98, 101) for _ in range(1_000)]
    bars, fine = minute_of(*minutes)
    good = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close")}
    step = {"open": 1, "high": 1, "low": -1, "close": 1}[field]
    good[field][7] += step
    passages = first_passages(replace(bars, **good), fine)
    assert np.flatnonzero(passages.mismatched).tolist() == [7]
    assert np.flatnonzero(passages.path.ambiguous.all(axis=1)).tolist() == [7]
    assert any("1 of 1000 bars (0.100 %)" in note for note in passages.notes)
    good[field][9] += step
    with pytest.raises(DataError, match=rf"2 of 1000 bars.*\n.*2013-10-07T13:37:00Z: {field} "):
        first_passages(replace(bars, **good), fine)


def test_seconds_must_be_finer_and_overlap():
    bars, fine = minute_of(flat(100, 101), flat(101, 102))
    with pytest.raises(DataError, match="cannot order prices"):
        first_passages(fine, bars)
    with pytest.raises(DataError, match="no second lies inside"):
        first_passages(bars, replace(fine, time=fine.time + 3_600))


# ---- real seconds against brute force


def read(path, row, long, target, stop, trail, mark):
    """What the environment reads off a path, level by level: see `played`."""
    for before, turn, end in path.falls[row, 0 if long else 1].T.tolist():
        level = max(stop, max(mark, min(turn, target)) - trail)
        if before < target and end <= level:
            return "out", level
    return "none", 0


def played(seconds, target, stop, trail, mark):
    """Brute force over (high, low) of every second, in ticks from the open: a level that is `stop`,
    or lies `trail` below the highest mark (which starts at `mark`, and is capped at the target);
    inside a second the high, the level, the target. -> ("out", level), ("target", target) or
    ("none", 0)."""
    top = 0
    for high, low in seconds:
        top = max(top, high)
        level = max(stop, max(mark, min(top, target)) - trail)
        if low <= level:
            return "out", level
        if top >= target:
            return "target", target
    return "none", 0


@pytest.mark.slow
@pytest.mark.parametrize("market", ["spy", "eurusd"])
def test_paths_equal_a_scan_of_every_real_second(market, shared):
    """Random stops, targets, trailing distances and earlier marks on either side of the open, longs
    and shorts: which was met first, and the level of a floor that trails the highs of this very
    bar."""
    bars, seconds = getattr(real_seconds, market)(shared)
    passages = first_passages(bars, seconds)
    assert passages.mismatched.sum() <= 0.001 * passages.covered.sum()
    rng = np.random.default_rng(0)
    begin = np.searchsorted(seconds.time, bars.time)
    end = np.searchsorted(seconds.time, bars.time + bars.bar_seconds)
    moved = np.flatnonzero(passages.covered & (bars.high > bars.low))
    counted: Counter[str] = Counter()
    for row, long in zip(
        rng.choice(moved, PAIRS).tolist(), (rng.random(PAIRS) < 0.5).tolist(), strict=True
    ):
        opened, sign = int(bars.open[row]), 1 if long else -1
        up, down = int(bars.high[row]) - opened, opened - int(bars.low[row])
        best, worst = (up, down) if long else (down, up)
        # Levels inside and a little past the range, so that most pairs are touched on both sides.
        target, stop = int(rng.integers(1, best + 3)), -int(rng.integers(1, worst + 3))
        trail = int(rng.integers(1, best + worst + 2)) if rng.random() < 0.5 else 1_000_000
        mark = int(rng.integers(0, trail)) if rng.random() < 0.5 else -1_000_000
        if passages.path.ambiguous[row].any():
            counted["ambiguous"] += 1
            continue
        inside = slice(begin[row], end[row])
        pair = (sign * (seconds.high[inside] - opened), sign * (seconds.low[inside] - opened))
        scanned = played(
            list(zip(*(x.tolist() for x in (pair if long else pair[::-1])), strict=True)),
            target,
            stop,
            trail,
            mark,
        )
        reported = read(passages.path, row, long, target, stop, trail, mark)
        reported = ("target", target) if reported[0] == "none" and best >= target else reported
        assert reported == scanned, (
            f"{market} bar {row}: target {target}, stop {stop}, trail {trail}, mark {mark}"
        )
        counted[scanned[0]] += 1
        counted["trailed"] += scanned[0] == "out" and scanned[1] > stop
        counted["contested"] += worst >= -stop and best >= target
    assert counted["contested"] > 5_000
    assert counted["trailed"] > 5_000
    assert counted["out"] + counted["target"] > PAIRS / 4


# ---- the market and its configuration


@pytest.fixture(scope="module")
def generated():
    """Synthetic minutes and seconds that rebuild them: open, the extremes in a random order,
    close.
    """
    bars = synthetic_bars(get_contract("ES"), 4, 0)
    high_first = np.random.default_rng(1).random(len(bars)) < 0.5
    second, third = (
        np.where(high_first, bars.high, bars.low),
        np.where(high_first, bars.low, bars.high),
    )
    prices = np.stack([bars.open, second, third, bars.close], axis=1).reshape(-1)
    times = (bars.time[:, None] + np.array([0, 15, 30, 45])).reshape(-1)
    return bars, Bars(
        times, prices, prices, prices, prices, np.zeros(len(prices)), 15, bars.contract, "quarters"
    )


def test_the_market_carries_the_paths_and_its_fingerprint_covers_them(
    generated,
):
    bars, fine = generated
    config = make_config({"data": {"source": "synthetic"}})
    plain, with_path = build_market(bars, config), build_market(bars, config, fine)
    assert plain.data.path is None
    assert with_path.data.path is not None
    assert with_path.data.path.falls.shape[:3] == (len(bars), 2, 3)
    assert 1 <= with_path.data.path.falls.shape[3] <= FALLS
    assert plain.fingerprint != with_path.fingerprint
    fewer = build_market(bars, config, fine.rows(slice(0, 400)))
    assert len({m.fingerprint for m in (plain, with_path, fewer)}) == 3
    assert any(
        f"bars of 15 s inside {len(bars)} of {len(bars)} bars" in note for note in with_path.notes
    )
    params = make_params(
        with_path,
        split_sessions(with_path, config.split)["train"],
        make_config({"env": {"intrabar": "path"}}),
    )
    assert params.market.path is not None


def test_path_without_seconds_is_a_configuration_error(generated):
    config = make_config({"env": {"intrabar": "path"}})
    with pytest.raises(ConfigError, match="--seconds FILE"):
        load_market(config)
    with pytest.raises(ConfigError, match="--seconds FILE"):
        build_market(generated[0], config)
    plain = build_market(generated[0], RunConfig())
    with pytest.raises(ConfigError, match="--seconds FILE"):
        make_params(plain, split_sessions(plain, config.split)["train"], config)


def test_seconds_beside_synthetic_bars_are_refused():
    with pytest.raises(ConfigError, match="synthetic"):
        load_market(make_config({"data": {"source": "synthetic", "seconds": "x.csv"}}))


def test_seconds_are_read_with_the_keys_of_the_bars(write, es_bars):
    """Stamp side, columns and scale apply to both files; a second off the tick grid is named with
    its line.
    """
    header = "t,o,h,l,c"
    data = {
        "source": "file",
        "stamp": "close",
        "price_scale": 0.01,
        "columns": {"time": "t", "open": "o", "high": "h", "low": "l", "close": "c"},
    }
    seconds = write(
        [
            "2013-10-07T13:30:01Z,167025,167100,166975,167050",
            "2013-10-07T13:30:02Z,167050,167051,167050,167050",
        ],
        header,
        "seconds.csv",
    )
    with pytest.raises(DataError, match=r"seconds\.csv:3: .*'h' = '167051'"):
        seconds_of(
            make_config({"data": data | {"file": "none.csv", "seconds": str(seconds)}}), es_bars
        )
