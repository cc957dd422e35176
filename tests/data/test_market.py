"""The session table, the float table and the fingerprint, on the real ES week and on cut or changed
copies of it.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from importlib import resources
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.calendar.sessions import window_minutes
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.features.columns import compute_features
from jaxtrade.data.features.schema import CONTEXT_FEATURES, FIXED_COLUMNS
from jaxtrade.data.market import build_market, feature_input, history_needed, load_market
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import set_to
from tests.messages import missing

NEW_YORK = ZoneInfo("America/New_York")


def clock(market, row):
    return datetime.fromtimestamp(int(market.bars.time[int(row)]), NEW_YORK).strftime("%m-%d %H:%M")


def column(market, name):
    return market.table[:, market.columns.index(name)]


def test_the_real_week_has_five_full_sessions(es_market):
    sessions = es_market.data.sessions
    days = [str(day)[5:] for day in es_market.trade_dates]
    assert days == ["10-07", "10-08", "10-09", "10-10", "10-11"]
    assert [clock(es_market, row) for row in sessions.first] == [f"{day} 09:30" for day in days]
    assert [clock(es_market, row + 1) for row in sessions.last] == [f"{day} 16:58" for day in days]
    # 449 minutes from 09:30 to 16:59 less the 15-minute halt; the flat bar is one of them
    assert (np.asarray(sessions.last) - np.asarray(sessions.first) + 2).tolist() == [434] * 5
    assert np.asarray(sessions.complete).all()
    assert clock(es_market, sessions.start[0]) == "10-06 18:00"
    assert clock(es_market, sessions.end[0] - 1) == "10-07 17:14"
    assert [window_minutes(es_market.contract, night) for night in (False, True)] == [449, 1379]


def test_bars_to_flat_counts_the_calendar(es_market):
    to_flat = np.asarray(es_market.data.bars_to_flat)
    last = np.asarray(es_market.data.sessions.last)
    assert to_flat[last].tolist() == [1] * 5
    assert to_flat[last + 1].tolist() == [0] * 5
    assert (
        to_flat[np.asarray(es_market.data.sessions.first)].tolist() == [448] * 5
    )  # 09:31 to 16:59


@pytest.mark.slow
def test_fx_hours_have_no_volume():
    market = load_market(set_to("data.market=EURUSD data.start=2014-05-01 data.end=2014-05-31"))
    assert not market.has_volume
    assert any("volume slots are constant" in note for note in market.notes)
    assert window_minutes(market.contract, False) == 1439


def test_the_fixed_columns_of_the_first_decision_bar(es_market):
    row = int(es_market.data.sessions.first[0])  # 09:30, closes 09:31
    bars = es_market.bars
    assert column(es_market, "close")[row] == bars.close[row]
    ranges = [
        max(bars.high[i], bars.close[i - 1]) - min(bars.low[i], bars.close[i - 1])
        for i in range(row - 13, row + 1)
    ]
    assert int(es_market.data.tr_sum[row]) == sum(ranges)
    assert column(es_market, "atr")[row] == np.float32(sum(ranges) / 14)
    assert column(es_market, "volume_mean")[row] == np.float32(
        bars.volume[row - 19 : row + 1].mean()
    )
    assert column(es_market, "hour")[row] == 0
    assert column(es_market, "from_open_seed")[row] == 0
    assert column(es_market, "to_close_seed")[row] == 1  # 449 minutes from 09:30 to 16:59
    assert column(es_market, "from_open")[row] == 0
    assert column(es_market, "to_flat")[row] == np.float32(448 / 449)


def test_clock_columns_outside_the_window_are_not_clipped(es_market):
    evening = int(es_market.data.sessions.start[1])  # 18:00 of the day before
    assert column(es_market, "from_open_seed")[evening] == np.float32(510 / 449)
    assert column(es_market, "from_open")[evening] == np.float32(-930 / 449)
    flat = int(es_market.data.sessions.last[0]) + 1
    assert column(es_market, "to_flat")[flat] == 0
    assert column(es_market, "to_flat")[flat + 5] == np.float32(-5 / 449)


def test_stored_features_are_gaps_in_ticks(es_market):
    row = int(es_market.data.sessions.first[2]) + 100
    close = es_market.bars.close.astype(float)
    assert column(es_market, "feature.close")[row] == 0
    assert column(es_market, "feature.sma_5")[row] == np.float32(
        close[row - 4 : row + 1].mean() - close[row]
    )
    assert column(es_market, "feature.momentum")[row] == close[row] - close[row - 10]
    assert column(es_market, "feature.volume")[row] == es_market.bars.volume[row]
    assert es_market.columns[:8] == FIXED_COLUMNS


def test_every_float_is_finite(es_market, nq_market):
    for market in (es_market, nq_market):
        assert np.isfinite(market.table).all()


@pytest.mark.parametrize("features", ["close", "ema_50,rsi_14", "macd,vwap"])
def test_decisions_start_after_the_longest_warm_up(es_bars, features):
    config = set_to(f"session.overnight=true env.window=7 env.features=[{features}]")
    market = build_market(es_bars, config)
    values = compute_features(
        feature_input(es_bars), config.env.features, np.zeros(len(es_bars), int)
    )
    first = int(market.data.sessions.first[0])
    assert np.isfinite(values[first - 7 :]).all()
    assert first == max(
        7 + int(np.isnan(values).any(axis=1).sum()), 19
    )  # 19: the mean volume's 20 bars


TABLES = [
    ("", False),
    ("", True),
    ("data.market=EURUSD data.start=2012-11-01 data.end=2014-01-31", False),
    ("data.market=NQ data.source=synthetic data.synthetic_sessions=6", True),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "overnight"),
    TABLES,
)
def test_the_session_table_by_brute_force(keys, overnight):
    """Bar by bar with the standard library's clocks: window, flat bar and bars to flat of every
    session.
    """
    market = load_market(set_to(f"session.overnight={str(overnight).lower()} {keys}"))
    bars, sessions = market.bars, market.data.sessions
    evening = 17 if market.contract.kind == "fx" else 18
    early = (
        {"2012-12-24": 14, "2012-12-31": 14, "2013-12-24": 14, "2013-12-31": 14}
        if evening == 17
        else {"2023-11-23": 13, "2023-11-24": 13.25}
    )
    rows = {}
    for i, seconds in enumerate(bars.time.tolist()):
        wall = datetime.fromtimestamp(seconds, NEW_YORK)
        rows.setdefault(f"{wall + timedelta(hours=24 - evening):%Y-%m-%d}", []).append(i)
    to_flat = np.asarray(market.data.bars_to_flat)
    for n, day in enumerate(str(d) for d in market.trade_dates):
        date = datetime.fromisoformat(day)
        close = early.get(day, 17)
        flat = (
            (date + timedelta(hours=close) - timedelta(minutes=1))
            .replace(tzinfo=NEW_YORK)
            .timestamp()
        )
        opening = date.replace(hour=9, minute=30, tzinfo=NEW_YORK)
        if overnight or evening == 17:
            opening = (date - timedelta(days=1)).replace(hour=evening, tzinfo=NEW_YORK)
        ends = [i for i in rows[day] if bars.time[i] + bars.bar_seconds <= flat]
        starts = [i for i in rows[day] if bars.time[i] >= opening.timestamp() and i >= 123]
        assert int(sessions.last[n]) + 1 == ends[-1], day
        assert int(sessions.first[n]) == starts[0], day
        assert (int(sessions.start[n]), int(sessions.end[n]) - 1) == (rows[day][0], rows[day][-1])
        for i in rows[day]:
            left = (flat - bars.time[i] - bars.bar_seconds) // bars.bar_seconds
            assert to_flat[i] == max(left, 0), day


# --- holes, ends, shortage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "complete"), [("16:57", False), ("16:58", True), ("17:05", True), ("16:14", False)]
)
def test_data_that_end_inside_a_session_truncate_it(es_bars, cut, complete):
    """The calendar is asked for the next bar."""
    end = int(datetime(2013, 10, 11, int(cut[:2]), int(cut[3:]), tzinfo=NEW_YORK).timestamp())
    market = build_market(es_bars.rows(es_bars.time <= end), RunConfig())
    sessions = market.data.sessions
    assert np.asarray(sessions.complete).tolist() == [True] * 4 + [complete]
    if not complete:
        assert int(sessions.last[-1]) + 2 == len(market.bars)  # the last bar of the data
        assert any(not missing(note, "2013-10-11", "flat bar") for note in market.notes)


def test_a_missing_flat_bar_moves_it_one_bar_forward(es_bars, es_market):
    flat = int(es_market.data.sessions.last[1]) + 1
    keep = np.arange(len(es_bars)) != flat
    market = build_market(es_bars.rows(keep), RunConfig())
    assert clock(market, market.data.sessions.last[1] + 1) == "10-08 16:57"
    assert (
        int(market.data.bars_to_flat[market.data.sessions.last[1]]) == 2
    )  # the calendar, not the bars
    assert bool(market.data.sessions.complete[1])


@pytest.mark.parametrize(("missing", "restarts"), [((8,), False), ((8, 9), True)])
def test_windows_cross_one_missing_session_and_no_more(es_bars, missing, restarts):
    days = trade_dates(es_bars.time, es_bars.contract)
    keep = ~np.isin(days, [np.datetime64(f"2013-10-{d:02d}") for d in missing])
    market = build_market(es_bars.rows(keep), RunConfig())
    next_ = np.datetime64(f"2013-10-{missing[-1] + 1:02d}")
    start = int(np.argmax(days[keep] == next_))
    assert (np.asarray(market.data.tr_sum)[start] == -1) == restarts
    assert any("feature windows restart on 2013-10-10" in n for n in market.notes) == restarts


def test_windows_that_restart_with_the_session_start_decisions_after_its_warm_up(
    es_bars, es_market
):
    """Overnight, the first decision of every trade date has window + warm-up bars of that date
    alone, and its rows are those of a market of that date alone.
    """
    by_session = set_to("data.window_reset=session session.overnight=true")
    market = build_market(es_bars, by_session)
    first, start, end = (
        np.asarray(getattr(market.data.sessions, n)) for n in ("first", "start", "end")
    )
    assert (first - start).tolist() == [123] * 5  # 20 + 104, its own included
    alone = build_market(es_bars.between("2013-10-09", "2013-10-09"), by_session)
    rows = slice(start[2], end[2])
    np.testing.assert_array_equal(market.table[rows], alone.table)
    np.testing.assert_array_equal(market.data.tr_sum[rows], alone.data.tr_sum)
    assert any("data.window_reset=session" in note for note in market.notes)
    day = build_market(es_bars, set_to("data.window_reset=session"))
    # warm since the evening before
    assert np.array_equal(day.data.sessions.first, es_market.data.sessions.first)
    assert day.fingerprint != es_market.fingerprint


@pytest.mark.slow
def test_hourly_sessions_are_too_short_to_warm_up_in(crisis_bars):
    with pytest.raises(DataError, match=r"124 bars .*data\.window_reset"):
        build_market(crisis_bars, set_to("data.window_reset=session"))


def test_too_few_bars_say_how_many_are_needed(es_bars):
    with pytest.raises(DataError, match=r"124 bars .* 100 bars .* 1 "):
        build_market(es_bars.rows(slice(0, 100)), RunConfig())


@pytest.fixture(scope="module")
def crisis_bars():
    return load_bundled(
        get_contract("EURUSD"), start="2008-10-01", end="2008-12-23"
    )  # hourly ranges of hundreds of ticks


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"brackets": {"stop_atr": 1000.0}}, r"brackets\.stop_atr = 1000 .*int32"),
        ({"brackets": {"target_multiple": 10_000}}, r"brackets\.target_multiple = 10000"),
        ({"costs": {"commission": 2.0805}}, r"costs\.commission = 2\.0805: .*mills"),
    ],
)
def test_figures_that_int32_cannot_hold_are_config_errors(crisis_bars, values, key):
    with pytest.raises(ConfigError, match=key):
        build_market(crisis_bars, make_config(values))


# --- fingerprint ------------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_on_device(es_market):
    words = "".join(f"{int(w):08x}" for w in es_market.data.fingerprint)
    assert words == es_market.fingerprint


@pytest.mark.parametrize("name", ["open", "high", "low", "close"])
def test_one_tick_changes_the_fingerprint(es_bars, es_market, name):
    prices = getattr(es_bars, name).copy()
    prices[3000] += 1
    assert (
        build_market(replace(es_bars, **{name: prices}), RunConfig()).fingerprint
        != es_market.fingerprint
    )


@pytest.mark.parametrize("values", ["env.features=[close,volume]", "session.overnight=true"])
def test_layout_is_in_the_fingerprint(es_bars, es_market, values):
    assert build_market(es_bars, set_to(values)).fingerprint != es_market.fingerprint


def test_a_task_adds_its_context_and_nothing_else_changes(es_bars, es_market):
    """`entry` and `manage` have one and the same market; `advised` has more columns, and waits for
    the slowest.
    """
    entry = build_market(es_bars, set_to("env.task=entry"))
    assert entry.fingerprint == es_market.fingerprint
    assert es_market.data.view.context is None
    advised = build_market(es_bars, set_to("env.task=advised"))
    width = len(es_market.columns)
    more = tuple(f"context.{name}" for name in CONTEXT_FEATURES)
    assert advised.columns == es_market.columns + more
    assert advised.table[:, :width].tobytes() == es_market.table.tobytes()
    assert advised.fingerprint != es_market.fingerprint
    for name in ("value", "level", "now"):
        assert np.array_equal(getattr(advised.data.view, name), getattr(es_market.data.view, name))
    context = np.asarray(advised.data.view.context)
    assert (context.shape, context.dtype) == ((len(es_bars), 28), np.float32)
    assert np.isfinite(context).all()


HISTORY = [
    ("", 20 + 104),
    ("env.task=advised", 220),
    ("env.task=advised env.features=[sma_210]", 20 + 210),
]


@pytest.mark.parametrize(
    ("keys", "bars"),
    HISTORY,
)
def test_bars_of_history(keys, bars):
    assert history_needed(set_to(keys)) == bars


def test_too_few_bars_for_the_context(es_bars):
    """The message names what needs them: the slope of a 200-bar mean over 20 bars."""
    config = set_to("env.task=advised")
    with pytest.raises(DataError, match=r"220 bars .*env\.task=advised"):
        build_market(es_bars.rows(slice(0, 200)), config)


@pytest.mark.parametrize("values", ["costs.commission=2.09", "costs.slippage=2", "seed=7"])
def test_what_does_not_reach_the_device_is_not_in_the_fingerprint(es_bars, es_market, values):
    """The same bars under other costs are the same data; the costs are in the configuration's
    digest.
    """
    renamed = replace(es_bars, source="elsewhere", notes=("a note",))
    assert build_market(renamed, set_to(values)).fingerprint == es_market.fingerprint


# --- loading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("data.market=NQ", r"market = NQ: .*source=synthetic"),
        ("data.market=XX", r"'XX': unknown market"),
        ("data.source=file", r"needs data\.file"),
        ("data.file=a.csv", r"source = bundled; .*source=file"),
        ("data.calendar=nothing.csv", r"data\.calendar = 'nothing\.csv'"),
    ],
)
def test_contradictions_in_the_configuration(data, message):
    with pytest.raises(ConfigError, match=message):
        load_market(set_to(data))


def test_a_file_loads_like_the_bundle(es_market):
    with resources.as_file(resources.files("jaxtrade.data.bundled") / "es_1m_trade.csv.gz") as path:
        config = set_to(
            f"data.source=file data.file={path} data.stamp=open data.expiry=201312 "
            "data.start=2013-10-07 data.end=2013-10-11"
        )
        assert load_market(config).fingerprint == es_market.fingerprint


def test_bundled_files_are_small_and_attributed():
    folder = resources.files("jaxtrade.data.bundled")
    texts = {f.name: f.read_bytes() for f in folder.iterdir() if not f.name.startswith("__")}
    assert sum(map(len, texts.values())) < 4_500_000
    for name, facts in {
        "es_1m_trade.SOURCE.md": (b"Apache-2.0", b"UTC"),
        "eurusd_hour_bidask.SOURCE.md": (b"Apache-2.0", b"UTC"),
        "gbpusd_hour.SOURCE.md": (b"`broker_hours.LICENSE.upstream`", b"plus seven hours"),
        "usdjpy_hour.SOURCE.md": (b"`broker_hours.LICENSE.upstream`", b"plus seven hours"),
        "usdchf_hour.SOURCE.md": (b"`broker_hours.LICENSE.upstream`", b"plus seven hours"),
        "LICENSE.upstream": (b"Apache License",),
        "broker_hours.LICENSE.upstream": (b"Apache License",),
    }.items():
        assert [fact for fact in facts if fact not in texts[name]] == [], name
