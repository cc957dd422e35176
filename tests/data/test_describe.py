from importlib import resources

import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.bundled import bundled
from jaxtrade.data.calendar.schedule import table_schedule
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.describe import (
    ambiguous_share,
    check,
    check_text,
    decision_rows,
    describe,
    describe_text,
)
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import from_frame
from jaxtrade.data.synthetic.grid import session_minutes
from jaxtrade.errors import DataError
from tests.data.damaged import regular_hours
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


def test_costs_are_money_first(es_market):
    """Ticks say little to a newcomer: they stand behind the dollars."""
    assert not missing(
        describe_text(es_market, RunConfig()), "$2.08", "$12.50 per side", "$29.16 per"
    )


def test_costs_over_a_quarter_of_the_stop_warn(es_market, nq_market):
    """29.16 of 100 dollars."""
    assert "WARNING: a round turn costs 29 %" in describe_text(es_market, RunConfig())
    assert "WARNING" not in describe_text(nq_market, RunConfig())
    assert "SYNTHETIC" in describe_text(nq_market, RunConfig())


def test_decision_hours_are_in_the_markets_zone(es_bars, es_market):
    """The bar of 16:56 is the last one after which a position can open and still be closed by
    16:59.
    """
    row = "  decisions      usually at bars that open 09:30 .. 16:56, flat by 16:59 (America/New_York)\n"
    assert row in describe_text(es_market, RunConfig())
    night = make_config({"session": {"overnight": True}})
    hours = describe(build_market(es_bars, night), night)["decision_hours"]
    assert hours == {"first": "18:00", "last": "16:56", "flat": "16:59", "zone": "America/New_York"}
    day = describe(build_market(regular_hours(es_bars), RunConfig()), RunConfig())["decision_hours"]
    assert (day["first"], day["last"], day["flat"]) == ("09:30", "15:58", "16:59")


@pytest.mark.slow
def test_decision_hours_of_hours():
    hourly = build_market(
        bundled(get_contract("EURUSD"), start="2014-01-06", end="2014-02-07"), RunConfig()
    )
    hours = describe(hourly, RunConfig())["decision_hours"]
    assert (hours["first"], hours["last"], hours["flat"]) == ("17:00", "13:00", "16:59")


def test_missing_window_bars_are_counted(es_bars, es_market):
    first = int(es_market.data.sessions.first[1])
    keep = ~np.isin(np.arange(len(es_bars)), [first + 5, first + 50])
    assert (
        describe(build_market(es_bars.rows(keep), RunConfig()), RunConfig())["missing_window_bars"]
        == 2
    )


def test_ambiguous_share_by_brute_force(es_market):
    config = make_config({"brackets": {"stop_atr": 0.2, "target_multiple": 1, "min_stop_ticks": 1}})
    market = build_market(es_market.bars, config)
    rows, bars, hits = decision_rows(market), market.bars, 0
    for t in rows:
        stop = max(1, -(-200 * int(market.data.tr_sum[t]) // 14_000))
        up, down = bars.high[t + 1] - bars.open[t + 1], bars.open[t + 1] - bars.low[t + 1]
        hits += bool(up >= stop and down >= stop)
    assert hits > 20
    assert ambiguous_share(market, config, rows) == hits / len(rows)


def test_check_reports_a_good_file_and_refuses_a_bad_one(tmp_path):
    config = make_config({"data": {"stamp": "open", "expiry": "201312", "end": "2013-10-14"}})
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
    frame = pd.DataFrame(
        {
            "time": stamps,
            "open": close,
            "high": close + 0.25,
            "low": close - 0.25,
            "close": close,
            "volume": 100,
        }
    )
    bars, config = from_frame(frame, contract, stamp="open"), RunConfig()
    facts = describe(build_market(bars, config), config)
    assert (facts["sessions"], facts["projected_sessions"], facts["calendar_verified_to"]) == (
        9,
        5,
        "2026-12-31",
    )
    note = "calendar: 2027-01-01..2027-01-08 projected by rule"
    assert [text[: len(note)] for text in facts["notes"] if "projected" in text] == [note]
    text = describe_text(build_market(bars, config), config)
    assert not missing(text, "until 2026-12-31", "5 of 9 sessions")
    assert f"note: {note}" in check_text(bars, config)


def test_verified_sessions_are_labelled_as_verified(es_market):
    assert "until 2026-12-31: every session" in describe_text(es_market, RunConfig())
    inferred = make_config({"data": {"calendar": "infer"}})
    assert "calendar       infer\n" in describe_text(es_market, inferred)
    assert describe(es_market, inferred)["calendar_verified_to"] is None
