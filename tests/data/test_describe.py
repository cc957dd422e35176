from importlib import resources

import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import table_schedule
from jaxtrade.data.calendar.sessions import Hole, list_holes
from jaxtrade.data.contracts import ZONE, get_contract
from jaxtrade.data.describe import (
    RoundTurn,
    ambiguous_share,
    check,
    check_text,
    decision_rows,
    describe,
    describe_text,
    round_turn,
    stop_warning,
)
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import from_frame, load_bundled
from jaxtrade.data.synthetic import session_minutes
from jaxtrade.errors import DataError
from jaxtrade.formatting import local
from tests.data.conftest import set_to, table_of
from tests.data.damaged import FIELDS, regular_hours
from tests.messages import missing


def test_figures_of_the_real_week(es_market):
    facts = describe(es_market, RunConfig())
    assert facts["sessions"] == 5
    assert facts["decision_bars"] == 5 * 433
    assert facts["missing_window_bars"] == 0
    assert facts["round_turn_cost"] == pytest.approx(2 * (2.08 + 12.50))
    assert facts["median_stop_ticks"] == 8
    assert facts["cost_over_stop"] == pytest.approx(29.16 / 100)
    assert facts["fingerprint"] == es_market.fingerprint


def test_costs_are_money_first_and_warn_over_a_quarter_of_the_stop(es_market, nq_market):
    """Ticks say little to a newcomer: they stand behind the dollars. 29.16 of 100 dollars."""
    es, nq = (describe_text(market, RunConfig()) for market in (es_market, nq_market))
    warning = "WARNING: a round turn costs 29 %"
    assert not missing(es, "$2.08", "$12.50 per side", "$29.16 per", warning)
    assert "WARNING" not in nq
    assert "SYNTHETIC" in nq


def facts_of(bars, words=""):
    """What is said of a market of the bars."""
    config = set_to(words)
    return describe(build_market(bars, config), config)


def test_decision_hours_are_said(es_market):
    row = "  decisions      usually at bars that open 09:30 .. 16:56, flat by 16:59 (America/New_York)\n"
    assert row in describe_text(es_market, RunConfig())


@pytest.mark.parametrize(
    ("of_week", "words", "hours"),
    [
        # of 16:56: the last one after which a position can open and still be closed by 16:59
        (lambda es: es, "session.overnight=true", ("18:00", "16:56", "16:59")),
        (regular_hours, "", ("09:30", "15:58", "16:59")),
        pytest.param(
            lambda es: load_bundled(get_contract("EURUSD"), start="2014-01-06", end="2014-02-07"),
            "",
            ("17:00", "13:00", "16:59"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_decision_hours_are_in_the_markets_zone(es_bars, of_week, words, hours):
    found = facts_of(of_week(es_bars), words)["decision_hours"]
    names = ("first", "last", "flat", "zone")
    assert tuple(found[name] for name in names) == (*hours, "America/New_York")


def test_missing_window_bars_are_counted(es_bars, es_market):
    first = int(es_market.data.sessions.first[1])
    keep = ~np.isin(np.arange(len(es_bars)), [first + 5, first + 50])
    assert facts_of(es_bars.rows(keep))["missing_window_bars"] == 2


def test_ambiguous_share_by_brute_force(es_market):
    config = set_to("brackets.stop_atr=0.2 brackets.target_multiple=1 brackets.min_stop_ticks=1")
    market = build_market(es_market.bars, config)
    rows, bars, hits = decision_rows(market), market.bars, 0
    for t in rows:
        stop = max(1, -(-200 * int(market.data.tr_sum[t]) // 14_000))
        up, down = bars.high[t + 1] - bars.open[t + 1], bars.open[t + 1] - bars.low[t + 1]
        hits += bool(up >= stop and down >= stop)
    assert hits > 20
    assert ambiguous_share(market, config, rows) == hits / len(rows)


def test_check_reports_a_good_file_and_refuses_a_bad_one(tmp_path):
    config = set_to("data.stamp=open data.expiry=201312 data.end=2013-10-14")
    with resources.as_file(resources.files("jaxtrade.data.bundled") / "es_1m_trade.csv.gz") as path:
        text = check(str(path), config)
    assert "ES, no fault" in text
    assert "2013-10-14: 125 of 1380 scheduled bars missing (9 %)" in text
    with pytest.raises(DataError, match="no such file"):
        check(str(tmp_path / "none.csv"), config)


def test_check_says_when_bars_are_too_few_to_train_on(es_bars):
    assert "124 bars of history" in check_text(es_bars.rows(slice(0, 100)), RunConfig())
    assert "too few" not in check_text(es_bars, RunConfig())


def test_bars_after_the_verified_dates_are_read_and_labelled_as_projected():
    """ES over New Year 2027: five sessions after the last notice, with Friday 1 January closed by
    rule.
    """
    contract = get_contract("ES")
    schedule = table_schedule(contract, np.datetime64("2026-12-28"), np.datetime64("2027-01-08"))
    stamps = np.concatenate([session_minutes(schedule, i) for i in range(len(schedule.dates))])
    close = 7000 + 0.25 * np.cumsum(np.random.default_rng(0).integers(-3, 4, len(stamps)))
    prices = dict.fromkeys(FIELDS, close) | {"high": close + 0.25, "low": close - 0.25}
    frame = pd.DataFrame({"time": stamps, **prices, "volume": 100})
    bars, config = from_frame(frame, contract, stamp="open"), RunConfig()
    facts = describe(build_market(bars, config), config)
    assert (facts["sessions"], facts["projected_sessions"]) == (9, 5)
    assert facts["calendar_verified_to"] == "2026-12-31"
    note = "calendar: 2027-01-01..2027-01-08 projected by rule"
    assert [text[: len(note)] for text in facts["notes"] if "projected" in text] == [note]
    text = describe_text(build_market(bars, config), config)
    assert not missing(text, "until 2026-12-31", "5 of 9 sessions")
    assert f"note: {note}" in check_text(bars, config)


def test_verified_sessions_are_labelled_as_verified(es_market):
    assert "until 2026-12-31: every session" in describe_text(es_market, RunConfig())
    inferred = set_to("data.calendar=infer")
    assert "calendar       infer\n" in describe_text(es_market, inferred)
    assert describe(es_market, inferred)["calendar_verified_to"] is None


def warned(market, risk, words="", wide=0.0):
    """The warning about a median stop of NQ or MNQ of so many dollars, with a cost of $14.16."""
    contract = get_contract(market)
    config = set_to(f"data.source=synthetic data.market={market} brackets.stop_atr=6 {words}")
    tick = contract.tick_mills / 1000
    turn = RoundTurn(14.16, risk, tick, 0.0, risk / tick, wide, "")
    return stop_warning(turn, contract.under(config), config)


def test_a_stop_over_a_third_of_the_drawdown_is_named_with_the_sizes_that_fit():
    """The 50k account lets $2,500 go: a third is $833. NQ's least stop is $100."""
    said = warned("NQ", 2_020.0)
    fits = ("data.market=MNQ", "brackets.stop_atr=2.4", "$6,060")
    assert not missing(said, "$2,020", "81 %", "$2,500", "$833", *fits)
    assert warned("NQ", 833.0) is None
    # There are no bundled bars of MES, and the markets of a set are named elsewhere.
    assert missing(warned("ES", 2_020.0, "data.source=bundled"), "data.market") == ["data.market"]
    assert warned("NQ", 2_020.0, "account.drawdown=off") is None
    assert warned("MNQ", 202.0) is None
    assert not missing(warned("MNQ", 202.0, "env.quantity=10"), "env.quantity=4", "stop_atr=2.4")


def test_wide_stops_of_more_than_half_the_drawdown_are_warned_of():
    """Half is $1,250; three micros of a median of $146 have wide stops of $1,038, four $1,384."""
    assert warned("NQ", 500.0, wide=1_250.0) is None
    assert not missing(warned("NQ", 500.0, wide=1_300.0), "$500", "$1,300", "52 %")
    said = warned("NQ", 1_455.0, wide=3_460.0)
    assert not missing(
        said, "$3,460", "138 %", "($146; up to 3 contracts", "stop_atr=2.1", "$6,920"
    )


def test_the_half_hour_of_the_widest_stops(es_market):
    turn = round_turn(es_market, set_to("brackets.stop_atr=6"))
    assert turn.widest == "between 10:00 and 10:30"
    assert turn.risk < turn.wide < 2 * turn.risk


def test_only_sizes_that_fit_are_named():
    """A stop of $40 costs a third of itself: no multiple of the range helps there."""
    said = warned("NQ", 2_020.0, "account.drawdown=120")
    assert [name for name in ("data.market", "stop_atr=") if name in said] == []


def test_holes_are_listed_by_day(es_bars):
    """Two holes of a day, one of five minutes, which is none, and the break at the end of a day."""
    at = set(range(1000, 1010)) | set(range(1100, 1106)) | set(range(1200, 1205))
    keep = np.array([i not in at for i in range(len(es_bars))])
    bars = es_bars.rows(keep)
    schedule = table_of(bars)
    assert list_holes(es_bars, schedule) == []
    day = str(es_bars.trade_dates[1000])
    expected = [
        Hole(day, int(es_bars.time[a]), int(es_bars.time[b]), 60 * (b - a))
        for a, b in ((1000, 1010), (1100, 1106))
    ]
    assert list_holes(bars, schedule) == expected
    short = len(list_holes(es_bars, schedule, 0))  # of the bundled week itself
    for text in (
        check_text(bars, RunConfig()),
        describe_text(build_market(bars, RunConfig()), RunConfig()),
    ):
        [line] = [line for line in text.splitlines() if line.strip().startswith(f"{day}: ")]
        assert line.endswith("11:12-11:22 (10 min), 12:52-12:58 (6 min)")
        [line] = [line for line in text.splitlines() if line.startswith("  short gaps ")]
        assert line.split()[2] == f"{1 + short},"


def test_a_halt_is_no_hole_and_shortens_one(es_bars):
    """The market of 2013 stood still from 16:15 to 16:30."""
    clock = [local(int(each), ZONE, "%H:%M") for each in es_bars.time]
    first = clock.index("16:14")
    bars = es_bars.rows(np.arange(len(es_bars)) != first)
    assert list_holes(bars, table_of(bars)) == []
    keep = (np.arange(len(es_bars)) < first - 9) | (np.arange(len(es_bars)) > first)
    [hole] = list_holes(es_bars.rows(keep), table_of(es_bars))
    assert hole.seconds == 600
