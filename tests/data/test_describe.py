from importlib import resources

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.describe import ambiguous_share, check, check_text, decision_rows, describe, describe_text
from jaxtrade.errors import DataError


def test_figures_of_the_real_week(es_market):
    facts = describe(es_market, RunConfig())
    assert facts["sessions"] == 5
    assert facts["decision_bars"] == 5 * 433
    assert facts["missing_window_bars"] == 0
    assert facts["round_turn_cost"] == pytest.approx(2 * (2.08 + 12.50))
    assert facts["median_stop_ticks"] == 8
    assert facts["cost_over_stop"] == pytest.approx(29.16 / 100)
    assert facts["fingerprint"] == es_market.fingerprint


def test_costs_over_a_quarter_of_the_stop_warn(es_market, nq_market):
    assert "WARNING: a round turn costs more than 25 %" in describe_text(es_market, RunConfig())
    assert "WARNING" not in describe_text(nq_market, RunConfig())
    assert "SYNTHETIC" in describe_text(nq_market, RunConfig())


def test_missing_window_bars_are_counted(es_bars, es_market):
    from jaxtrade.data.market import build_market

    first = int(es_market.data.sessions.first[1])
    keep = ~np.isin(np.arange(len(es_bars)), [first + 5, first + 50])
    assert describe(build_market(es_bars.rows(keep), RunConfig()), RunConfig())["missing_window_bars"] == 2


def test_ambiguous_share_by_brute_force(es_market):
    config = make_config({"brackets": {"stop_atr": 200, "target_multiple": 1, "min_stop_ticks": 1}})
    from jaxtrade.data.market import build_market

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
    assert "read as ES, no fault" in text
    assert "2013-10-14: 125 of 1380 scheduled bars missing (9 %)" in text
    with pytest.raises(DataError, match="no such file"):
        check(str(tmp_path / "none.csv"), config)


def test_check_says_when_bars_are_too_few_to_train_on(es_bars):
    assert "too few to train on: 124 bars of history are needed" in check_text(es_bars.rows(slice(0, 100)), RunConfig())
    assert "too few" not in check_text(es_bars, RunConfig())
