"""Intrabar paths: hand-worked seconds, and random and real ones against a scan of every second."""

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
from jaxtrade.env.params import make_params
from jaxtrade.errors import ConfigError, DataError
from tests.data import real_seconds
from tests.data.conftest import set_to
from tests.data.damaged import longer
from tests.env import worlds
from tests.messages import missing
from tests.paths import Inside, falls

START = 1_381_152_600  # 2013-10-07 13:30 UTC
PAIRS = 60_000  # random level pairs per market


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
        (flat(100, 98, 95), [(0, 0, -5)], []),  # deeper from the same high: one fall
        (flat(100, 103, 98, 101, 106, 97, 99), [(3, 3, -2), (6, 6, -3)], [(0, 0, -3), (2, 2, -6)]),
        # the fall from 112 is the shallower
        (flat(100, 110, 104, 109, 112, 107), [(10, 10, 4)], [(0, 0, -12)]),
        (flat(100, 100, 100), [], []),
        (flat(100_000, 80_000, 132_769), [(0, 0, -20_000)], [(20_000, 20_000, -32_769)]),
        # inside a second: the high first for a long, the low first for a short
        (
            [(100, 104, 99, 104), (104, 104, 98, 98)],
            [(0, 4, -1), (4, 4, -2)],
            [(0, 1, -4), (1, 2, -4)],
        ),
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
    minutes = []
    for seed, count in enumerate(rng.integers(1, 41, 3_000).tolist()):
        prices = np.stack(worlds.random_bars(seed, count, 9, 4, 2, 1_000), axis=1)
        minutes.append([tuple(second) for second in prices.tolist()])
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


def test_a_market_keeps_as_many_falls_as_one_of_its_bars_has():
    one, three, still = flat(100, 90, 95), flat(100, 99, 105, 103, 109, 106), flat(100, 100, 100)
    kept, alone, none = (
        market_path((first_passages(*minute_of(*minutes)),)).falls
        for minutes in ((one, three), (one,), (still,))
    )
    assert (kept.shape, none.shape) == ((2, 2, 3, 3), (1, 2, 3, 1))
    np.testing.assert_array_equal(kept[:1, ..., : alone.shape[-1]], alone)


def test_a_minute_without_seconds_is_ambiguous_and_counted():
    bars, fine = minute_of(flat(100, 101), flat(101, 102), flat(102, 103))
    passages = first_passages(bars, fine.rows([0, 1, 4, 5]))
    assert passages.covered.tolist() == [True, False, True]
    assert passages.path.ambiguous.tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert not missing(passages.notes[0], "2 of 3 bars", "stop_first")
    unused = first_passages(bars.rows([0, 2]), fine)
    assert not missing(unused.notes[-1], "2 of 6", "not used")


@pytest.mark.parametrize(("field", "step"), [("open", 1), ("high", 1), ("low", -1), ("close", 1)])
def test_seconds_must_rebuild_the_bars(field, step):
    """One of 1,000 is a note and ambiguous; two are an error that shows what was found."""
    bars, fine = minute_of(*[flat(100, 103, 98, 101)] * 1_000)

    def wrong(*rows):
        prices = getattr(bars, field).copy()
        prices[list(rows)] += step
        return replace(bars, **{field: prices})

    passages = first_passages(wrong(7), fine)
    assert np.flatnonzero(passages.mismatched).tolist() == [7]
    assert np.flatnonzero(passages.path.ambiguous.all(axis=1)).tolist() == [7]
    assert any("1 of 1000 bars (0.100 %)" in note for note in passages.notes)
    with pytest.raises(DataError, match=rf"2 of 1000 bars.*\n.*2013-10-07T13:37:00Z: {field} "):
        first_passages(wrong(7, 9), fine)


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
    counted = Counter()
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


def test_the_market_carries_the_paths_and_its_fingerprint_covers_them(es_bars):
    """Bars of five minutes with their minutes."""
    bars, config = longer(es_bars, 300), RunConfig()
    plain, with_path, fewer = (
        build_market(bars, config, *fine)
        for fine in ((), (es_bars,), (es_bars.rows(slice(0, 400)),))
    )
    assert plain.data.path is None
    assert with_path.data.path.falls.shape[:3] == (len(bars), 2, 3)
    assert 1 <= with_path.data.path.falls.shape[3] <= FALLS
    assert len({market.fingerprint for market in (plain, with_path, fewer)}) == 3
    said = f"bars of 60 s inside {len(bars)} of {len(bars)} bars"
    assert any(said in note for note in with_path.notes)
    sessions = split_sessions(with_path, config.split)["train"]
    params = make_params(with_path, sessions, set_to("env.intrabar=path"))
    assert params.market.path is not None


def test_path_without_seconds_is_a_configuration_error(es_bars, es_market):
    config = set_to("env.intrabar=path")
    sessions = split_sessions(es_market, config.split)["train"]
    for refused in (
        lambda: load_market(config),
        lambda: build_market(es_bars, config),
        lambda: make_params(es_market, sessions, config),
    ):
        with pytest.raises(ConfigError, match="--seconds FILE"):
            refused()


def test_seconds_beside_synthetic_bars_are_refused():
    with pytest.raises(ConfigError, match="synthetic"):
        load_market(set_to("data.source=synthetic data.seconds=x.csv"))


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
