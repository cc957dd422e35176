"""A first or last session that the export cut short is named, and not held out for the test."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.config import RunConfig, load_config
from jaxtrade.data.calendar.schedule import find_sessions, trade_dates
from jaxtrade.data.calendar.sessions import cut_short
from jaxtrade.data.contracts import get_contract, load_contract
from jaxtrade.data.describe import check_text, describe_text
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.formatting import iso
from tests import vendors
from tests.data.conftest import set_to, table_of, utc
from tests.data.damaged import regular_hours
from tests.messages import missing

OVERNIGHT = set_to("session.overnight=true")


def cuts(bars, config=None):
    return cut_short(bars, table_of(bars), config or RunConfig())


def row_at(bars, stamp):
    return int(np.searchsorted(bars.time, utc(stamp)))


def until(bars, stamp):
    """The bars that open before a UTC stamp, as an export of that moment has them."""
    return bars.rows(slice(0, row_at(bars, stamp)))


def since(bars, stamp):
    return bars.rows(slice(row_at(bars, stamp), None))


def test_an_export_that_ends_within_the_day(es_bars):
    (cut,) = cuts(until(es_bars, "2013-10-11T15:00"))  # 11:00 in New York
    assert (str(cut.date), cut.last, str(cut.before), cut.found, cut.due, cut.edge) == (
        "2013-10-11",
        True,
        "2013-10-10",
        90,
        434,
        "10:59",
    )
    assert cut.text().startswith("WARNING: 2013-10-11: ")
    assert not missing(cut.text(), "90 of 434 bars", "10:59", "data.end=2013-10-10")


def test_an_export_that_ends_in_the_evening_lacks_the_next_session(es_bars):
    (cut,) = cuts(until(es_bars, "2013-10-11T00:00"))
    assert (str(cut.date), cut.found, cut.edge) == ("2013-10-11", 0, None)
    assert not missing(cut.text(), "2013-10-11: ", "0 of 434 bars", "no decision")


def test_an_export_that_begins_within_the_day(es_bars):
    (cut,) = cuts(since(es_bars, "2013-10-07T15:30"))
    assert (str(cut.date), cut.last, cut.found, cut.edge) == ("2013-10-07", False, 314, "11:30")
    assert not missing(cut.text(), "2013-10-07: ", "first session", "314 of 434 bars", "11:30")


def test_two_sessions_suffice_and_one_does_not(es_bars):
    assert [str(cut.date) for cut in cuts(until(es_bars, "2013-10-08T15:00"))] == ["2013-10-08"]
    assert cuts(until(es_bars, "2013-10-07T15:00")) == ()


def test_the_decision_window_counts(es_bars):
    """A file that begins at 07:00 in New York lacks nothing of regular hours, and eleven hours of
    the whole session.
    """
    bars = since(es_bars, "2013-10-07T11:00")
    assert cuts(bars) == ()
    assert [(str(cut.date), cut.edge) for cut in cuts(bars, OVERNIGHT)] == [("2013-10-07", "07:00")]


@pytest.mark.slow
def test_whole_files_say_nothing(es_bars):
    assert cuts(es_bars) == cuts(es_bars, OVERNIGHT) == ()
    assert cuts(regular_hours(es_bars)) == ()  # all sessions end at 16:00, before the flat time
    eurusd = load_bundled(get_contract("EURUSD"), start="2013-10-07", end="2013-11-08")
    assert cuts(eurusd) == ()
    assert cuts(es_bars.rows(es_bars.time % 120 == 0)) == ()  # a thin market


@pytest.mark.parametrize("name", ["quickstart", "advised"])
def test_shipped_configurations_say_nothing(name):
    assert not [note for note in load_market(load_config(name)).notes if "cut short" in note]


def test_an_early_close_of_the_calendar_is_a_whole_session(es_bars):
    """The week of Thanksgiving 2013, made of another one: both Thursday and Friday close early, at
    13:15.
    """
    bars = replace(es_bars, time=es_bars.time + 49 * 86_400 + 3600, places=None)
    schedule = table_of(bars)
    traded = bars.rows(find_sessions(schedule, bars.time, trade_dates(bars.time, bars.contract))[1])
    assert iso(traded.time[-1]) == "2013-11-29T18:14:00Z"
    assert cuts(traded) == ()
    (cut,) = cuts(until(traded, "2013-11-29T17:00"))
    assert (str(cut.date), cut.found, cut.due, cut.edge) == ("2013-11-29", 150, 224, "11:59")


def test_shares(es_bars):
    bars = regular_hours(es_bars)
    share = replace(bars, contract=replace(load_contract("SPY"), price_ranges=()))
    assert cuts(share) == ()
    assert [str(cut.date) for cut in cuts(until(share, "2013-10-11T18:00"))] == ["2013-10-11"]


@pytest.mark.slow
def test_a_long_bar_before_the_flat_time_is_no_cut(es_bars):
    """Hours of FX never end at 16:59. One that is missing at the end is one of 24, and two are a
    cut.
    """
    eurusd = load_bundled(get_contract("EURUSD"), start="2013-10-07", end="2013-11-08")
    assert cuts(eurusd.rows(slice(0, -1))) == ()
    assert [cut.found for cut in cuts(eurusd.rows(slice(0, -8)))] == [16]


def test_the_notes_of_every_command(es_bars):
    bars = until(es_bars, "2013-10-11T19:00")
    for text in (
        check_text(bars, RunConfig()),
        describe_text(build_market(bars, RunConfig()), RunConfig()),
    ):
        assert not missing(text, "WARNING: 2013-10-11: ", "330 of 434 bars")


# --- jaxtrade init ----------------------------------------------------------------------------------------------------


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """init(bars, ...) -> (what `jaxtrade init` says of a file of them, the configuration)."""
    monkeypatch.chdir(tmp_path)

    def run(bars, *words):
        (tmp_path / "bars.csv").write_bytes(vendors.databento(bars))
        assert main(["init", "bars.csv", "--non-interactive", *words]) == 0
        return capsys.readouterr().out, load_config("bars.yaml")

    return run


def test_init_leaves_a_cut_last_session_out(es_bars, init):
    said, config = init(until(es_bars, "2013-10-11T15:00"))
    assert not missing(
        said, "left out: 2013-10-11", "90 of 434 bars", "10:59", "data.end=2013-10-10"
    )
    assert "WARNING" not in said
    assert config.data.end == "2013-10-10"
    market = load_market(config)
    assert str(market.trade_dates[-1]) == "2013-10-10"
    assert not [note for note in market.notes if "cut short" in note]
    assert ": 4 sessions." in Path("bars.yaml").read_text()


def test_init_says_that_a_session_without_decisions_is_not_traded(es_bars, init):
    said, config = init(until(es_bars, "2013-10-11T00:00"))
    assert not missing(said, "2013-10-11: ", "0 of 434 bars", "no decision")
    assert config.data.end is None
    assert str(load_market(config).trade_dates[-1]) == "2013-10-10"


@pytest.mark.parametrize(
    ("end", "stated", "kept"),
    [
        ("2013-10-11T15:00", ["--set", "data.end=2013-10-11"], "2013-10-11"),
        ("2013-10-08T15:00", [], None),  # nothing else is left to test on
    ],
)
def test_init_keeps_a_cut_session_where_it_must(es_bars, init, end, stated, kept):
    said, config = init(until(es_bars, end), *stated)
    assert f"WARNING: {end[:10]}: the last session" in said
    assert config.data.end == kept


def test_init_of_a_whole_file_sets_no_dates(es_bars, init):
    said, config = init(es_bars)
    assert "cut short" not in said
    assert (config.data.start, config.data.end) == (None, None)
