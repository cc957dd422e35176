"""Symbol sets: what a configuration may say, the files of a folder, and a market made of
several.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import load_market
from jaxtrade.data.markets import join, load_markets
from jaxtrade.data.members import member_configs
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.data.sources import write_bars
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError
from jaxtrade.runs import files
from jaxtrade.runs.plan import check
from tests.data.conftest import set_to
from tests.messages import refused

PAIRS = ("EURUSD", "USDJPY")


def config(text="", **data):
    """The configuration of a section `data`, given as YAML or by its keys."""
    return make_config({"data": (parse_yaml(text, "data") if text else {}) | data})


CONTRADICTIONS = [
    ("{market: USDCHF, markets: [EURUSD]}", ("data.market = USDCHF", "data.markets")),
    ("{markets: [EURUSD, eurusd]}", ("data.markets", "EURUSD", "once")),
    (
        "{markets: [EURUSD, USDJPY], file: a.csv}",
        ("data.file", "data.markets", "2", "{EURUSD: {file:", "data.folder"),
    ),
    ("{markets: [EURUSD], seconds: a.csv}", ("data.seconds", "one symbol")),
    ("{markets: [EURUSD], folder: bars}", ("data.source = bundled", "data.source=file")),
    ("{folder: bars}", ("data.folder", "data.markets is empty")),
    ("{per_market: {EURUSD: {end: '2018'}}}", ("data.per_market", "data.markets is empty")),
    (
        "{markets: [EURUSD, USDJPY], per_market: {USDJYP: {price_scale: 0.001}}}",
        ("data.per_market.USDJYP", "(EURUSD, USDJPY)", "'USDJPY'"),
    ),
    (
        "{markets: [USDJPY], per_market: {USDJPY: {price_scales: 0.001}}}",
        ("data.per_market.USDJPY", "price_scales", "'price_scale'"),
    ),
    (
        "{markets: [USDJPY], per_market: {USDJPY: {markets: x}}}",
        ("data.per_market.USDJPY", "whole set"),
    ),
    (
        "{markets: [USDJPY], per_market: {markets: {USDJPY: {price_scale: 0.001}}}}",
        ("'data.per_market'", "'markets'", "{USDJPY: {price_scale: 0.001}}"),
    ),
    (
        "{markets: [USDJPY], per_market: {per_market: {USDJPY: {}}}}",
        ("'per_market'", "no symbol"),
    ),
    (
        "{markets: [USDJPY], per_market: {price_scale: 0.001}}",
        ("'price_scale'", "where a symbol"),
    ),
]


@pytest.mark.parametrize(
    ("data", "facts"),
    CONTRADICTIONS,
)
def test_keys_that_contradict_each_other_are_refused_before_anything_is_read(data, facts):
    with refused(*facts, kind=ConfigFaultsError):
        config(data)


def test_a_set_has_127_symbols_at_most():
    with refused("at most 127", kind=ConfigFaultsError):
        config(markets=[f"A{i}" for i in range(128)])


FAULTS = [
    (
        "{markets: [EURUSD, USDJYP]}",
        ("data.markets", "'USDJYP'", "unknown market", "'USDJPY'"),
    ),
    ("{markets: [EURUSD, NQ]}", ("bundled for NQ",)),
    (
        "{markets: [USDJPY], per_market: {USDJPY: {price_scale: -1.0}}}",
        ("data.per_market.USDJPY", "'data.price_scale' = -1"),
    ),
    (
        "{markets: [EURUSD, SPY], per_market: {SPY: {contract: GOOG}}}",
        ("data.per_market.SPY", "GOOG", "symbol is GOOG"),
    ),
    (
        "{markets: [EURUSD, GBPUSD], per_market: {GBPUSD: {start: 2019-01-01}}}",
        ("trade date", "EURUSD 2007-01-01..2018-12-31", "GBPUSD 2019-01-01..2022-03-04"),
    ),
    ("{markets: [EURUSD], source: file}", ("no file", "EURUSD", "data.folder")),
    (
        "{markets: [EURUSD], source: file, folder: no/such}",
        ("data.folder = 'no/such'",),
    ),
]


@pytest.mark.parametrize(
    ("data", "facts"),
    FAULTS,
)
def test_faults_of_a_symbol_are_found_before_jax_starts(data, facts):
    with refused(*facts, kind=(ConfigError, DataError)):
        check(config(data))


def test_an_advisor_is_refused_with_a_set():
    with refused("mock:skilled:0.6", "data.markets", " 2"):
        set_to("data.markets=[EURUSD,USDJPY] advisor.kind=mock:skilled:0.6 advisor.fusion=trust")


def test_symbols_may_be_written_small_and_keys_of_one_symbol_replace_the_common_ones():
    members = member_configs(
        config(
            markets=["eurusd", "usdjpy"],
            start="2018-01-01",
            per_market={"usdjpy": {"start": "2018-06-01", "price_scale": 0.001}},
        )
    )
    assert [
        (member.data.market, member.data.start, member.data.price_scale) for member in members
    ] == [("EURUSD", "2018-01-01", 1.0), ("USDJPY", "2018-06-01", 0.001)]
    assert all(not member.data.markets and not member.data.per_market for member in members)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two pairs in files named after them, and a file of neither."""
    made = tmp_path_factory.mktemp("bars")
    for symbol, name in (("EURUSD", "eurusd_hours.csv.gz"), ("USDJPY", "USDJPY.csv.gz")):
        bars = load_bundled(get_contract(symbol), start="2018-10-01", end="2018-12-31")
        write_bars(bars, made).rename(made / name)
    (made / "EURUSDX.csv").write_text("time,open\n")
    return made


@pytest.mark.slow
def test_a_folder_has_one_file_for_each_symbol(folder):
    chosen = config(source="file", folder=str(folder), markets=["USDJPY", "EURUSD"], stamp="open")
    assert [Path(str(member.data.file)).name for member in member_configs(chosen)] == [
        "USDJPY.csv.gz",
        "eurusd_hours.csv.gz",
    ]
    market = load_markets(chosen)
    assert market.symbols == ("USDJPY", "EURUSD")
    # The bars are those of the package, so each member is the market that the package's bars make.
    own = load_market(config(market="USDJPY", start="2018-10-01", end="2018-12-31"))
    assert market.members[0].fingerprint == own.fingerprint


def test_a_symbol_without_a_file_names_the_files_that_were_found(folder, tmp_path):
    chosen = config(source="file", folder=str(folder), markets=["EURUSD", "GBPUSD"], stamp="open")
    names = ("EURUSDX.csv", "USDJPY.csv.gz", "eurusd_hours.csv.gz")
    with refused("after GBPUSD", *names, "GBPUSD*{.csv,.csv.gz,", kind=DataError):
        check(chosen)
    shutil.copytree(folder, tmp_path / "two")
    shutil.copy(tmp_path / "two" / "USDJPY.csv.gz", tmp_path / "two" / "usdjpy-old.csv.gz")
    with pytest.raises(ConfigError, match=r"USDJPY\.csv.*usdjpy-old"):
        member_configs(
            config(source="file", folder=str(tmp_path / "two"), markets=list(PAIRS), stamp="open")
        )


def test_the_files_of_a_set_are_recorded_and_found_again_after_a_move(folder, tmp_path):
    run, old, new = tmp_path / "run", tmp_path / "old", tmp_path / "new"
    run.mkdir()
    shutil.copytree(folder, old)
    chosen = config(source="file", folder=str(old), markets=list(PAIRS), stamp="open")
    manifest = {"files": files.record(chosen, run)}
    assert set(manifest["files"]) == {f"data.per_market.{symbol}.file" for symbol in PAIRS}
    assert files.locate(chosen, manifest, run) == chosen  # nothing has moved
    old.rename(new)
    with pytest.raises(DataError, match=r"per_market\.EURUSD\.file = "):
        files.require(files.locate(chosen, manifest, run), manifest, run)
    moved = manifest["files"]["data.per_market.EURUSD.file"] | {
        "relative": "../new/eurusd_hours.csv.gz"
    }
    manifest["files"] = {"data.per_market.EURUSD.file": moved}
    located = files.locate(chosen, manifest, run)
    assert Path(str(located.data.per_market["EURUSD"]["file"])) == new / "eurusd_hours.csv.gz"


@pytest.mark.slow
def test_a_set_holds_the_members_one_after_the_other():
    market = load_markets(
        set_to("data.markets=[EURUSD,USDJPY,GBPUSD] data.start=2018-10-01 data.end=2018-12-31")
    )
    data, parts = market.data, [member.data for member in market.members]
    assert market.name == "EURUSD+USDJPY+GBPUSD"
    assert market.num_bars == sum(map(len, (member.bars for member in market.members)))
    for name in ("open", "high", "low", "close", "tr_sum", "bars_to_flat"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(data, name), joined)
    np.testing.assert_array_equal(data.symbol, np.repeat([0, 1, 2], np.diff(market.offsets)))
    assert data.symbol.dtype == np.int8
    of_gbpusd = data.ask.close[market.offsets[2] :], data.close[market.offsets[2] :]
    np.testing.assert_array_equal(*of_gbpusd)  # it has one side
    np.testing.assert_array_equal(data.tick_value.times[market.offsets[2] :], 1000)  # $1 a tick
    np.testing.assert_array_equal(data.tick_value.over[market.offsets[2] :], 1)
    pairs = zip(parts, market.offsets[:-1], strict=True)
    own = [np.asarray(part.sessions.first) + offset for part, offset in pairs]
    np.testing.assert_array_equal(data.sessions.first, np.concatenate(own))
    assert all(note.split(": ")[0] in market.symbols for note in market.notes)


def test_a_set_depends_on_the_order_and_the_content_of_its_members():
    made = {
        symbol: load_market(config(market=symbol, source="synthetic", synthetic_sessions=3))
        for symbol in ("ES", "NQ")
    }
    one, other = (join([made[a], made[b]], RunConfig()) for a, b in (("ES", "NQ"), ("NQ", "ES")))
    assert one.fingerprint != other.fingerprint
    assert one.data.tick_value is None
    assert one.data.ask is None
    with pytest.raises(ConfigError, match="found ES, ES"):
        join([made["ES"], made["ES"]], RunConfig())


def test_a_command_for_one_symbol_refuses_a_set():
    with pytest.raises(ConfigError, match=r"names 2 symbols \(EURUSD, USDJPY\)"):
        load_market(config(markets=list(PAIRS)))
