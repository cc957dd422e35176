"""Prepared markets: a second start has the same market, bit for bit, and never a wrong one."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import jaxtrade.data.bundled
from jaxtrade.config import RunConfig, load_config
from jaxtrade.data import market as market_module
from jaxtrade.data import prepared
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import FeatureSpec
from jaxtrade.data.market import Market, float_table, load_market
from jaxtrade.data.read.bars import load_bars
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.errors import ConfigError
from jaxtrade.parts import FEATURES
from jaxtrade.storage import markets, source
from jaxtrade.storage.markets import (
    FORMAT,
    VARIABLE,
    DamagedError,
    Entry,
    entry_path,
    evict,
    limit_bytes,
    markets_folder,
    read_entry,
    write_entry,
)
from jaxtrade.storage.programs import VARIABLE as PROGRAMS
from jaxtrade.storage.source import Source

SOURCE = Source("0" * 64, source._stamp(source.PACKAGE))
BUNDLED = Path(jaxtrade.data.bundled.__file__).parent
ES_FILE, EURUSD_FILE = BUNDLED / "es_1m_trade.csv.gz", BUNDLED / "eurusd_hour_bidask.csv.gz"
ES_WEEK = ("data.market=ES", "data.expiry=201312", "data.start=2013-10-07", "data.end=2013-10-11")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of prepared markets; small files are kept too."""
    monkeypatch.setenv(PROGRAMS, str(tmp_path / "programs"))
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(prepared, "LEAST_BYTES", 0)
    monkeypatch.setattr(source, "_COMMAND", [SOURCE])  # as in a process of the command
    return tmp_path / "programs" / "markets"


def of(file: Path, *overrides: str) -> RunConfig:
    return load_config(
        "quickstart", ["data.source=file", f"data.file={file}", "data.stamp=open", *overrides]
    )


def write_bars(path: Path, symbol: str, sessions: int = 6) -> Path:
    bars = synthetic_bars(get_contract(symbol), sessions)
    tick = float(bars.contract.tick_size)
    prices = {
        name: np.round(getattr(bars, name) * tick, 6) for name in ("open", "high", "low", "close")
    }
    pd.DataFrame({"time": bars.time, **prices, "volume": bars.volume + 0.1}).to_csv(
        path, index=False
    )
    return path


@pytest.fixture
def nq(tmp_path: Path) -> Path:
    return write_bars(tmp_path / "nq.csv", "NQ")


def five_minutes(folder: Path) -> tuple[Path, Path]:
    """A week of ES in bars of five minutes, and the minutes inside them."""
    bars = load_bars(
        ES_FILE,
        get_contract("ES"),
        stamp="open",
        expiry="201312",
        start="2013-10-07",
        end="2013-10-11",
    )
    frame = pd.DataFrame(
        {name: getattr(bars, name) * 0.25 for name in ("open", "high", "low", "close")}
    )
    frame.insert(0, "time", bars.time)
    frame.to_csv(folder / "minutes.csv", index=False)
    parts = frame.groupby(frame.time // 300 * 300)
    coarse = parts.agg({"open": "first", "high": "max", "low": "min", "close": "last"})
    coarse.to_csv(folder / "five.csv")
    return folder / "five.csv", folder / "minutes.csv"


def with_seconds(folder: Path) -> RunConfig:
    coarse, fine = five_minutes(folder)
    return of(coarse, "data.market=ES", f"data.seconds={fine}", "env.intrabar=path")


def with_rates(folder: Path) -> RunConfig:
    pounds, contract = (
        write_bars(folder / "gbpusd.csv", "GBPUSD"),
        write_bars(folder / "eurgbp.csv", "EURUSD"),
    )
    frame = pd.read_csv(contract)
    frame[["open", "high", "low", "close"]] = (frame[["open", "high", "low", "close"]] * 0.8).round(
        5
    )
    frame.to_csv(contract, index=False)
    return of(
        contract, "data.contract=EURGBP", f"data.conversion={pounds}", "data.start=2023-11-22"
    )


def with_calendar(folder: Path) -> RunConfig:
    calendar = folder / "calendar.csv"
    calendar.write_text(
        "date,open,close\n" + "".join(f"2013-10-{day:02d},18:00,17:15\n" for day in range(7, 12))
    )
    return of(ES_FILE, *ES_WEEK, f"data.calendar={calendar}")


CASES: dict[str, Callable[[Path], RunConfig]] = {
    "one contract": lambda folder: of(ES_FILE, *ES_WEEK),
    "context": lambda folder: of(ES_FILE, *ES_WEEK, "env.task=advised", "env.scaling=seed"),
    "spliced contracts": lambda folder: of(ES_FILE, "data.market=ES", "data.roll=volume"),
    "bid and ask, no volume": lambda folder: of(EURUSD_FILE, "data.market=EURUSD"),
    "trades and quotes": lambda folder: of(
        EURUSD_FILE,
        "data.market=EURUSD",
        f"data.quotes={EURUSD_FILE}",
        "data.columns={open: bid_open, high: bid_high, low: bid_low, close: bid_close}",
    ),
    "seconds": with_seconds,
    "converted at another file's rate": with_rates,
    "converted at its own price": lambda folder: of(
        write_bars(folder / "jpy.csv", "USDJPY"), "data.market=USDJPY"
    ),
    "fractional volume, close stamps": lambda folder: of(
        write_bars(folder / "nq.csv", "NQ"),
        "data.market=NQ",
        "data.stamp=close",
        "data.calendar=infer",
    ),
    "a calendar file": with_calendar,
}


def quiet(line: str) -> None:
    raise AssertionError(line)


def leaves(market: Market) -> dict[str, np.ndarray]:
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(market.data)[0]
    }


def same(first: Market, second: Market) -> None:
    """Every bit of two markets, and every word."""
    one, two = leaves(first), leaves(second)
    assert one.keys() == two.keys()
    assert jax.tree.structure(first.data) == jax.tree.structure(second.data)
    for name, array in one.items():
        assert (array.dtype, array.shape) == (two[name].dtype, two[name].shape)
        assert array.tobytes() == two[name].tobytes(), name
    for name in ("contract", "columns", "fingerprint", "synthetic", "notes", "has_volume"):
        assert getattr(first, name) == getattr(second, name), name
    for name in ("bar_seconds", "contract", "source", "notes", "synthetic", "legs"):
        assert getattr(first.bars, name) == getattr(second.bars, name), name
    arrays = [
        (a, b)
        for name in ("time", "open", "high", "low", "close", "volume")
        for a, b in [(getattr(first.bars, name), getattr(second.bars, name))]
    ]
    assert (first.bars.ask is None) == (second.bars.ask is None)
    arrays += [
        *zip(first.bars.ask or (), second.bars.ask or (), strict=True),
        (first.table, second.table),
        (first.trade_dates, second.trade_dates),
    ]
    for a, b in arrays:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_second_start_has_the_same_market_without_reading(case, cache, tmp_path, monkeypatch):
    config = CASES[case](tmp_path)
    with monkeypatch.context() as off:
        off.setenv(VARIABLE, "0")
        without = load_market(config, quiet)
    assert not cache.exists()
    first = load_market(config, quiet)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(market_module, "bars_of", lambda config: pytest.fail("the file was read"))
    second = load_market(config, quiet)
    same(without, first)
    same(without, second)


@pytest.mark.skipif(os.name == "nt", reason="mode bits are POSIX")
def test_only_this_user_can_read_an_entry(cache, nq):
    load_market(of(nq, "data.market=NQ"), quiet)
    [entry] = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


# --- the key ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "override",
    [
        "env.window=21",
        "env.features=[close,sma_5]",
        "env.task=advised",
        "session.overnight=true",
        "data.window_reset=session",
        "data.calendar=infer",
        "data.end=2023-11-24",
        "data.columns={volume: time}",
        "data.market=MNQ",
        "data.splits=[{date: 2030-01-02, ratio: 2}]",
    ],
)
def test_a_configuration_that_makes_another_market_has_an_entry_of_its_own(
    cache, nq, override, monkeypatch
):
    load_market(of(nq, "data.market=NQ"), quiet)
    changed = of(nq, "data.market=NQ", override)
    found = load_market(changed, quiet)
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setenv(VARIABLE, "0")
    same(load_market(changed, quiet), found)


@pytest.mark.parametrize(
    "override",
    [
        "ppo.learning_rate=0.01",
        "env.scaling=seed",
        "brackets.stop_atr=2",
        "costs.slippage=3",
        "seed=9",
        "env.task=entry",
    ],
)
def test_a_configuration_that_does_not_change_the_market_shares_its_entry(
    cache, nq, override, monkeypatch
):
    load_market(of(nq, "data.market=NQ"), quiet)
    changed = of(nq, "data.market=NQ", override)
    found = load_market(changed, quiet)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setenv(VARIABLE, "0")
    same(load_market(changed, quiet), found)


def test_another_file_of_the_same_name_is_another_market(cache, nq):
    first = load_market(of(nq, "data.market=NQ"), quiet)
    text = nq.read_text()
    nq.write_text(text.rstrip("\n").rsplit("\n", 1)[0] + "\n")  # one bar fewer
    second = load_market(of(nq, "data.market=NQ"), quiet)
    assert len(second.bars) == len(first.bars) - 1
    assert len(list(cache.iterdir())) == 2
    nq.write_text(text)
    same(first, load_market(of(nq, "data.market=NQ"), quiet))
    assert len(list(cache.iterdir())) == 2


def test_the_same_file_elsewhere_is_named_as_it_is(nq, tmp_path):
    """Notes and errors name the file, so its name is part of the key."""
    load_market(of(nq, "data.market=NQ"), quiet)
    other = tmp_path / "copy.csv"
    other.write_bytes(nq.read_bytes())
    assert load_market(of(other, "data.market=NQ"), quiet).bars.source == str(other)


def test_other_code_or_libraries_make_another_entry(cache, nq, monkeypatch):
    config = of(nq, "data.market=NQ")
    load_market(config, quiet)
    with monkeypatch.context() as patch:
        patch.setattr(source, "_COMMAND", [SOURCE._replace(digest="other")])
        load_market(config, quiet)
    monkeypatch.setattr(prepared, "version", lambda name: "other")
    load_market(config, quiet)
    assert len(list(cache.iterdir())) == 3


def test_a_process_of_the_users_own_neither_leaves_nor_takes_a_market(cache, nq, monkeypatch):
    """It may have changed any part of this package: here, the table of features."""
    config = of(nq, "data.market=NQ")
    with monkeypatch.context() as patch:
        patch.setattr(source, "_COMMAND", [])
        patch.setattr(market_module, "float_table", lambda *args: 7 + 0 * float_table(*args))
        mine = load_market(config, quiet)
    assert not cache.exists()
    right = load_market(config, quiet)
    assert right.fingerprint != mine.fingerprint
    monkeypatch.setattr(source, "_COMMAND", [])
    monkeypatch.setattr(market_module, "float_table", lambda *args: 7 + 0 * float_table(*args))
    assert load_market(config, quiet).fingerprint == mine.fingerprint


def test_source_files_that_change_meanwhile_neither_leave_nor_take_a_market(cache, nq, monkeypatch):
    config = of(nq, "data.market=NQ")
    monkeypatch.setattr(prepared, "unchanged", lambda source: False)
    first = load_market(config, quiet)
    assert not cache.exists()
    monkeypatch.setattr(prepared, "unchanged", lambda source: True)
    load_market(config, quiet)
    monkeypatch.setattr(prepared, "unchanged", lambda source: False)
    monkeypatch.setattr(prepared, "read_entry", None)
    same(first, load_market(config, quiet))


def test_what_a_configuration_checks_is_checked_at_every_start(nq):
    load_market(of(nq, "data.market=NQ"), quiet)
    with pytest.raises(ConfigError, match=r"brackets\.target_multiple = 10000"):
        load_market(
            of(nq, "data.market=NQ", "brackets.stop_atr=100", "brackets.target_multiple=10000"),
            quiet,
        )
    with pytest.raises(ConfigError, match=r"env\.intrabar = path .*second"):
        load_market(of(nq, "data.market=NQ", "env.intrabar=path"), quiet)
    with pytest.raises(ConfigError, match=r"costs\.commission"):
        load_market(of(nq, "data.market=NQ", "costs.commission=0.00001"), quiet)


# --- what is not kept ------------------------------------------------------------------------------------------------


def test_nothing_is_kept_when_it_is_off_or_not_of_a_large_file(cache, nq, monkeypatch):
    load_market(load_config("quickstart", []), quiet)
    load_market(load_config("quickstart", ["data.source=synthetic", "data.market=NQ"]), quiet)
    monkeypatch.setattr(prepared, "LEAST_BYTES", 1 << 30)
    load_market(of(nq, "data.market=NQ"), quiet)
    monkeypatch.setattr(prepared, "LEAST_BYTES", 0)
    monkeypatch.setenv(VARIABLE, "0")
    load_market(of(nq, "data.market=NQ"), quiet)
    assert not cache.exists()


def test_a_users_own_feature_is_computed_at_every_start(cache, nq, monkeypatch):
    """Its code is not part of the key."""
    monkeypatch.setattr(FEATURES, "_added", {})
    for factor in (1.0, 2.0):
        FEATURES._added.clear()
        register_feature(
            FeatureSpec("mine", "fraction", 1, "mine"),
            lambda bars, _, factor=factor: np.full(len(bars.close), factor),
        )
        market = load_market(of(nq, "data.market=NQ", "env.features=[close,mine]"), quiet)
        assert market.table[-1, -1] == factor
    assert not cache.exists()


def test_a_file_that_changes_while_it_is_read_is_not_kept(cache, nq, monkeypatch):
    read = market_module.bars_of

    def slow(config: RunConfig) -> Any:
        bars = read(config)
        nq.write_text(nq.read_text() + "\n")
        return bars

    monkeypatch.setattr(market_module, "bars_of", slow)
    load_market(of(nq, "data.market=NQ"), quiet)
    assert not cache.exists()


def test_a_folder_that_cannot_be_written_is_said(cache, nq, capsys):
    cache.parent.mkdir()
    cache.write_text("a file")
    market = load_market(of(nq, "data.market=NQ"))
    said = capsys.readouterr().err
    assert said.startswith("note: the prepared market ")
    assert "not kept" in said
    assert VARIABLE in said
    assert len(market.bars) > 0


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf"])
def test_a_limit_that_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match=f"{VARIABLE} = '{text}'"):
        limit_bytes({VARIABLE: text})


def test_the_limit_is_in_gigabytes():
    assert limit_bytes({}) == limit_bytes({VARIABLE: ""}) == 4_000_000_000
    assert limit_bytes({VARIABLE: "0.5"}) == 500_000_000
    assert limit_bytes({VARIABLE: "0"}) == 0


def test_the_folder_is_beside_the_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert markets_folder({"XDG_CACHE_HOME": "/c"}, "Linux") == Path("/c/jaxtrade/markets")
    assert markets_folder({PROGRAMS: "/mine"}, "Linux") == Path("/mine/markets")
    assert markets_folder({PROGRAMS: "gs://bucket/x", "XDG_CACHE_HOME": "/c"}, "Linux") == Path(
        "/c/jaxtrade/markets"
    )


# --- damage ----------------------------------------------------------------------------------------------------------


def flipped(place: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = int(place * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return change


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "nothing left": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "one byte more": lambda data: data + b"x",
    "only the head": lambda data: data[: data.index(b"\n", data.index(b"\n") + 1) + 1],
    "not JSON": lambda data: FORMAT + b"{\n",
    "no object": lambda data: FORMAT + b"[]\n",
    "another format": lambda data: data.replace(b"market 2", b"market 1", 1),
    "another shape": lambda data: data.replace(b'"shape": [', b'"shape": [9', 1),
    "a word of the notes": lambda data: data.replace(b'"notes"', b'"motes"', 1),
    "two arrays exchanged": lambda data: data.replace(b'"name": "open"', b'"name": "OPEN"', 1),
    **{f"a bit at {place}": flipped(place) for place in (0.0, 0.0001, 0.01, 0.3, 0.6, 0.9, 1.0)},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_said_not_used_and_made_again(cache, nq, damage):
    config = of(nq, "data.market=NQ")
    first = load_market(config, quiet)
    [entry] = cache.iterdir()
    whole = entry.read_bytes()
    damaged = DAMAGES[damage](whole)
    assert damaged != whole
    entry.write_bytes(damaged)
    said = []
    same(first, load_market(config, said.append))
    assert len(said) == 1
    assert f"the prepared market {entry} is not used" in said[0]
    assert entry.read_bytes() == whole
    same(first, load_market(config, quiet))


def test_objects_are_not_unpickled(tmp_path):
    assert write_entry(tmp_path, "k", Entry({"a": np.arange(3)}, {}), 10**6)
    path = entry_path(tmp_path, "k")
    data = path.read_bytes()
    head, _, arrays = data.removeprefix(FORMAT).partition(b"\n")
    told = json.loads(head.replace(b'"<i8"', b'"|O"'))
    del told["digest"]
    path.write_bytes(FORMAT + markets._line(told, markets._text_digest(told)) + arrays)
    with pytest.raises(DamagedError, match="array 'a'"):
        read_entry(path)


def test_every_bit_of_an_entry_is_checked(tmp_path):
    assert write_entry(tmp_path, "k", Entry({"a": np.arange(3, dtype=np.int16)}, {"b": 1}), 10**6)
    path = entry_path(tmp_path, "k")
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            with pytest.raises(DamagedError):
                read_entry(path)


# --- the folder ------------------------------------------------------------------------------------------------------


def entry_of(count: int) -> Entry:
    return Entry({"a": np.zeros(count, np.uint8)}, {"note": "x", "step": 0.1, "none": None})


def test_an_entry_comes_back_as_it_was(tmp_path):
    arrays = {
        "a": np.arange(6, dtype=np.int32).reshape(2, 3),
        "b": np.array(["2013-10-07"], "datetime64[D]"),
        "c": np.zeros((0, 4), np.float32),
        "d": np.array([True, False]),
        "e": np.asfortranarray(np.eye(3)),
    }
    facts = {"note": "caf\u00e9", "step": 0.1 + 0.2, "none": None, "list": [["a", 1]]}
    assert write_entry(tmp_path / "x" / "y", "k", Entry(arrays, facts), 10**6)
    found = read_entry(entry_path(tmp_path / "x" / "y", "k"))
    assert found is not None
    assert found.facts == facts
    assert list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)
    assert read_entry(entry_path(tmp_path, "other")) is None


def test_the_entries_used_longest_ago_go_first(tmp_path):
    """Each takes 10,000 bytes and a head; three fit. Reading `a` makes `b` the oldest."""
    limit = 35_000
    for age, name in enumerate("abc"):
        assert write_entry(tmp_path, name, entry_of(10_000), limit)
        os.utime(entry_path(tmp_path, name), (age + 1, age + 1))
    read_entry(entry_path(tmp_path, "a"))
    assert write_entry(tmp_path, "d", entry_of(10_000), limit)
    assert {path.stem for path in tmp_path.iterdir()} == {"a", "c", "d"}
    os.utime(entry_path(tmp_path, "c"), (1, 1))
    os.utime(entry_path(tmp_path, "d"), (2, 2))
    assert write_entry(tmp_path, "e", entry_of(20_000), limit)
    assert {path.stem for path in tmp_path.iterdir()} == {"a", "e"}


def test_an_entry_above_the_limit_is_not_written(tmp_path):
    assert write_entry(tmp_path, "a", entry_of(100), 10_000)
    assert not write_entry(tmp_path, "b", entry_of(20_000), 10_000)
    assert [path.stem for path in tmp_path.iterdir()] == ["a"]


def test_files_of_killed_writers_go_and_other_files_stay(tmp_path):
    for name, age in ((".k.1.ab", 10), (".k.2.cd", 10**6), ("README", 10**6)):
        (tmp_path / name).write_text("x")
        now = (tmp_path / name).stat().st_mtime
        os.utime(tmp_path / name, (now - age, now - age))
    evict(tmp_path, 0, tmp_path / "none")
    assert {path.name for path in tmp_path.iterdir()} == {".k.1.ab", "README"}


WRITER = """
import sys
from pathlib import Path
import numpy as np
from jaxtrade.storage.markets import Entry, entry_path, read_entry, write_entry
folder, value = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(60):
    assert write_entry(folder, "same", Entry({"a": np.full(50_000, 7)}, {}), 10**6)
    write_entry(folder, f"own-{value}-{turn}", Entry({"a": np.full(50_000, value)}, {}), 10**6)
    found = read_entry(entry_path(folder, "same"))
    assert found is None or (found.arrays["a"] == 7).all()
print("done")
"""


def test_processes_that_write_the_same_entry_do_not_disturb_each_other(tmp_path):
    """Both also drive each other's entries out. A reader finds a whole entry or none."""
    root = Path(__file__).parents[2]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "m"), str(value)],
            cwd=root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for value in (1, 2)
    ]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert (out, process.returncode) == ("done\n", 0), err
    assert not list((tmp_path / "m").glob(".*"))
    assert sum(path.stat().st_size for path in (tmp_path / "m").iterdir()) <= 10**6 + 400_200
