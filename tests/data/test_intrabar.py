"""First-passage paths: hand-worked seconds, and real ones against a brute-force scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.bars import Bars
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.intrabar import POINTS, Passages, first_passages
from jaxtrade.data.market import build_market, load_market, seconds_of
from jaxtrade.data.splits import split_sessions
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.env.params import make_params
from jaxtrade.errors import ConfigError, DataError
from tests.data import real_seconds

START = 1_381_152_600  # 2013-10-07 13:30 UTC
PAIRS = 60_000  # random level pairs per market

Second = tuple[int, int, int, int]


def bars_from(rows: list[Second], times: list[int], length: int) -> Bars:
    table = np.asarray(rows, np.int32)
    return Bars(np.asarray(times, np.int64), *table.T, np.zeros(len(rows)), length, get_contract("ES"), f"{length} s")


def minute_of(*minutes: list[Second]) -> tuple[Bars, Bars]:
    """Minutes and their seconds, from seconds' (open, high, low, close)."""
    whole = [(m[0][0], max(s[1] for s in m), min(s[2] for s in m), m[-1][3]) for m in minutes]
    times = [START + 60 * i + j for i, m in enumerate(minutes) for j in range(len(m))]
    return (bars_from(whole, [START + 60 * i for i in range(len(minutes))], 60),
            bars_from([s for m in minutes for s in m], times, 1))


def flat(*prices: int) -> list[Second]:
    """Seconds of one price each."""
    return [(p, p, p, p) for p in prices]


def offsets(passages: Passages, row: int = 0) -> list[int]:
    return passages.path.points[row].tolist()


def retraces(passages: Passages, row: int = 0) -> tuple[int, ...]:
    path = passages.path
    return tuple(int(x[row]) for x in (path.fall, path.fall_from, path.rise, path.rise_from))


@pytest.mark.parametrize(("seconds", "points", "fall", "rise"), [
    (flat(100, 103, 105, 104), [5], (1, 5), (5, 0)),  # new highs in a row are one point
    (flat(100, 98, 95), [-5], (5, 0), (0, 0)),
    (flat(100, 103, 98, 101, 106, 97, 99), [3, -2, 6, -3], (9, 6), (8, -2)),
    (flat(100, 110, 104, 109, 96, 108), [10, -4], (14, 10), (12, -4)),
    (flat(100, 110, 104, 109), [10], (6, 10), (10, 0)),  # a retrace without a new extreme shows in `fall` alone
    (flat(100, 100, 100), [0], (0, 0), (0, 0)),
    # inside a second both orders count as possible: 104 after 99 too, and 100 after 104
    ([(100, 104, 100, 104), (104, 104, 99, 99)], [4, -1], (5, 4), (5, -1)),
    ([(100, 104, 100, 104), (104, 104, 103, 103)], [4], (4, 4), (4, 0)),
])
def test_paths_by_hand(seconds: list[Second], points: list[int], fall: tuple[int, int], rise: tuple[int, int]) -> None:
    passages = first_passages(*minute_of(seconds))
    assert offsets(passages) == points + points[-1:] * (POINTS - len(points))
    assert retraces(passages) == (*fall, *rise)
    assert not passages.path.ambiguous[0]


def test_a_second_with_both_extremes_is_ambiguous() -> None:
    passages = first_passages(*minute_of([(100, 102, 98, 100)], [(100, 102, 100, 101), (101, 103, 101, 101)]))
    assert passages.path.ambiguous.tolist() == [True, False]


def test_too_many_turns_are_ambiguous() -> None:
    zigzag = [100]
    for k in range(1, POINTS + 1):
        zigzag.append(100 + k * (-1) ** k)
    enough, more = flat(*zigzag), flat(*zigzag, 100 + (POINTS + 1) * (-1) ** (POINTS + 1))
    passages = first_passages(*minute_of(enough, more))
    assert passages.path.ambiguous.tolist() == [False, True]
    assert offsets(passages) == [k * (-1) ** k for k in range(1, POINTS + 1)]


def test_offsets_past_int16_are_ambiguous() -> None:
    minutes = flat(100_000, 132_767), flat(100_000, 132_768), flat(100_000, 80_000, 113_000)
    passages = first_passages(*minute_of(*minutes))
    assert passages.path.ambiguous.tolist() == [False, True, True]  # the last by its rise alone
    assert offsets(passages)[0] == 32_767
    assert passages.path.points.dtype == np.int16


def test_a_minute_without_seconds_is_ambiguous_and_counted() -> None:
    bars, fine = minute_of(flat(100, 101), flat(101, 102), flat(102, 103))
    passages = first_passages(bars, fine.rows([0, 1, 4, 5]))
    assert passages.covered.tolist() == [True, False, True]
    assert passages.path.ambiguous.tolist() == [False, True, False]
    assert "inside 2 of 3 bars; the others are resolved stop_first" in passages.notes[0]
    unused = first_passages(bars.rows([0, 2]), fine)
    assert unused.notes[-1] == "2 of 6 second bars lie in no bar and are not used"


@pytest.mark.parametrize("field", ["open", "high", "low", "close"])
def test_seconds_must_rebuild_the_bars(field: str) -> None:
    """One of 1,000 is a note and ambiguous; two are an error that shows what was found."""
    minutes = [flat(100, 103, 98, 101) for _ in range(1_000)]
    bars, fine = minute_of(*minutes)
    good = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close")}
    step = {"open": 1, "high": 1, "low": -1, "close": 1}[field]
    good[field][7] += step
    passages = first_passages(replace(bars, **good), fine)
    assert np.flatnonzero(passages.mismatched).tolist() == [7]
    assert np.flatnonzero(passages.path.ambiguous).tolist() == [7]
    assert any("1 of 1000 bars (0.100 %) are not rebuilt" in note for note in passages.notes)
    good[field][9] += step
    with pytest.raises(DataError, match=rf"do not rebuild 2 of 1000 bars.*\n.*2013-10-07T13:37:00Z: {field} "):
        first_passages(replace(bars, **good), fine)


def test_seconds_must_be_finer_and_overlap() -> None:
    bars, fine = minute_of(flat(100, 101), flat(101, 102))
    with pytest.raises(DataError, match="cannot order prices"):
        first_passages(fine, bars)
    with pytest.raises(DataError, match="no second lies inside any bar"):
        first_passages(bars, replace(fine, time=fine.time + 3_600))


# ---- real seconds against brute force


def first_point(points: np.ndarray, above: int, below: int) -> str:
    """What the environment reads off a path: the first point at or beyond one of two offsets."""
    for point in points.tolist():
        if point >= above:
            return "above"
        if point <= below:
            return "below"
    return "none"


@pytest.mark.parametrize("market", ["spy", "eurusd"])
def test_paths_equal_a_brute_force_scan_of_real_seconds(market: str, shared: Path,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    bars, seconds = getattr(real_seconds, market)(shared)
    passages = first_passages(bars, seconds)
    assert passages.mismatched.sum() <= 0.001 * passages.covered.sum()
    rng = np.random.default_rng(0)
    begin = np.searchsorted(seconds.time, bars.time)
    end = np.searchsorted(seconds.time, bars.time + bars.bar_seconds)
    moved = np.flatnonzero(passages.covered & (bars.high > bars.low))
    counted: Counter[str] = Counter()
    for row in rng.choice(moved, PAIRS).tolist():
        opened, high, low = (int(x[row]) for x in (bars.open, bars.high, bars.low))
        # Levels inside and a little past the range, so that most pairs are touched on both sides.
        above, below = opened + int(rng.integers(1, high - opened + 3)), opened - int(rng.integers(1, opened - low + 3))
        if passages.path.ambiguous[row]:
            counted["ambiguous"] += 1
            continue
        inside = slice(begin[row], end[row])
        scanned = real_seconds.first_touch(seconds.high[inside], seconds.low[inside], above, below)
        read = first_point(passages.path.points[row], above - opened, below - opened)
        assert read == scanned, f"{market} bar {row}: levels {above}/{below}"
        counted[scanned] += 1
        counted["contested"] += low <= below and high >= above
    turns = 1 + (np.diff(passages.path.points[~passages.path.ambiguous].astype(int)) != 0).sum(axis=1)
    with capsys.disabled():
        print(f"\n{market}: {PAIRS:,} pairs, {dict(counted)}; at most {turns.max()} turns; "
              f"{int((passages.path.ambiguous & passages.covered).sum())} ambiguous of {int(passages.covered.sum())}; "
              f"{int(passages.mismatched.sum())} not rebuilt")
    assert counted["both"] == 0
    assert counted["contested"] > 5_000
    assert counted["above"] + counted["below"] > PAIRS / 4


def test_largest_retraces_of_real_seconds_by_brute_force(shared: Path) -> None:
    """fall: over all seconds, the running high (its own second's too) less the second's low; rise mirrored."""
    bars, seconds = real_seconds.spy(shared)
    path = first_passages(bars, seconds).path
    begin = np.searchsorted(seconds.time, bars.time)
    end = np.searchsorted(seconds.time, bars.time + bars.bar_seconds)
    for row in range(0, len(bars), 7):
        opened, fall, rise = int(bars.open[row]), (0, 0), (0, 0)
        top = bottom = opened
        for high, low in zip(seconds.high[begin[row]:end[row]].tolist(), seconds.low[begin[row]:end[row]].tolist(),
                             strict=True):
            top, bottom = max(top, high), min(bottom, low)
            fall = max(fall, (top - low, top - opened), key=lambda pair: pair[0])
            rise = max(rise, (high - bottom, bottom - opened), key=lambda pair: pair[0])
        assert (int(path.fall[row]), int(path.fall_from[row])) == fall
        assert (int(path.rise[row]), int(path.rise_from[row])) == rise


# ---- the market and its configuration


@pytest.fixture(scope="module")
def generated() -> tuple[Bars, Bars]:
    """Synthetic minutes and seconds that rebuild them: open, the extremes in a random order, close."""
    bars = synthetic_bars(get_contract("ES"), 4, 0)
    high_first = np.random.default_rng(1).random(len(bars)) < 0.5
    second, third = np.where(high_first, bars.high, bars.low), np.where(high_first, bars.low, bars.high)
    prices = np.stack([bars.open, second, third, bars.close], axis=1).reshape(-1)
    times = (bars.time[:, None] + np.array([0, 15, 30, 45])).reshape(-1)
    return bars, Bars(times, prices, prices, prices, prices, np.zeros(len(prices)), 15, bars.contract, "quarters")


def test_the_market_carries_the_paths_and_its_fingerprint_covers_them(generated: tuple[Bars, Bars]) -> None:
    bars, fine = generated
    config = make_config({"data": {"source": "synthetic"}})
    plain, with_path = build_market(bars, config), build_market(bars, config, fine)
    assert plain.data.path is None
    assert with_path.data.path is not None
    assert with_path.data.path.points.shape == (len(bars), POINTS)
    assert plain.fingerprint != with_path.fingerprint
    fewer = build_market(bars, config, fine.rows(slice(0, 400)))
    assert len({m.fingerprint for m in (plain, with_path, fewer)}) == 3
    assert any(f"bars of 15 s inside {len(bars)} of {len(bars)} bars" in note for note in with_path.notes)
    params = make_params(with_path, split_sessions(with_path, config.split)["train"],
                         make_config({"env": {"intrabar": "path"}}))
    assert params.market.path is not None


def test_path_without_seconds_is_a_configuration_error(generated: tuple[Bars, Bars]) -> None:
    config = make_config({"env": {"intrabar": "path"}})
    with pytest.raises(ConfigError, match="--seconds FILE"):
        load_market(config)
    with pytest.raises(ConfigError, match="--seconds FILE"):
        build_market(generated[0], config)
    plain = build_market(generated[0], RunConfig())
    with pytest.raises(ConfigError, match="--seconds FILE"):
        make_params(plain, split_sessions(plain, config.split)["train"], config)


def test_seconds_beside_synthetic_bars_are_refused() -> None:
    with pytest.raises(ConfigError, match="synthetic"):
        load_market(make_config({"data": {"source": "synthetic", "seconds": "x.csv"}}))


def test_seconds_are_read_with_the_keys_of_the_bars(write: Callable[..., Path], es_bars: Bars) -> None:
    """Stamp side, columns and scale apply to both files; a second off the tick grid is named with its line."""
    header = "t,o,h,l,c"
    data = {"source": "file", "stamp": "close", "price_scale": 0.01,
            "columns": {"time": "t", "open": "o", "high": "h", "low": "l", "close": "c"}}
    seconds = write(["2013-10-07T13:30:01Z,167025,167100,166975,167050",
                     "2013-10-07T13:30:02Z,167050,167051,167050,167050"], header, "seconds.csv")
    with pytest.raises(DataError, match=r"seconds\.csv:3: column 'h' = '167051': off the tick"):
        seconds_of(make_config({"data": data | {"file": "none.csv", "seconds": str(seconds)}}), es_bars)
