"""Rolls: which contract each row comes from, what restarts at a splice, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import RunConfig, dump_config, load_config, make_config
from jaxtrade.data.calendar.schedule import schedule_for, trade_dates
from jaxtrade.data.calendar.sessions import feature_windows, window_ages
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.data.read.roll import expiry_month, splice_dates
from jaxtrade.data.read.validate import PRICES
from jaxtrade.data.sources import bars_of, seconds_of
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import read_es, set_to
from tests.data.lifted import lifted_bars
from tests.messages import missing

ES = get_contract("ES")
EXPLICIT = {"201312": "start", "201403": "2013-12-18"}
NEEDED = (
    20 + 104
)  # bars of one contract before a decision: the window and the default features' warm-up


def market_of(roll, **data):
    return load_market(make_config({"data": {"roll": roll, **data}}))


@pytest.fixture(scope="module")
def rolled():
    return market_of(EXPLICIT)


@pytest.fixture(scope="module")
def raw():
    """The bundled file as pandas reads it, with its trade dates."""
    path = Path(__file__).parents[2] / "jaxtrade/data/bundled/es_1m_trade.csv.gz"
    frame = pd.read_csv(path, dtype={"expiry": str})
    stamps = pd.to_datetime(frame.ts_utc, utc=True)
    frame["time"] = stamps.dt.tz_localize(None).to_numpy("datetime64[s]").astype(np.int64)
    evening = stamps.dt.tz_convert("America/New_York").dt.tz_localize(None) + pd.Timedelta(hours=6)
    frame["day"] = evening.dt.strftime("%Y-%m-%d")
    return frame


@pytest.fixture(scope="module")
def december(raw):
    """Its rows of December 2013."""
    return raw[raw.day.between("2013-12-01", "2013-12-31")].reset_index(drop=True)


def expected_rows(raw, front):
    """Rows of the contract that is front on each trade date, straight from the file."""
    return raw[raw.expiry == raw.day.map(front)].sort_values("time")


def assert_same_bars(bars, rows):
    np.testing.assert_array_equal(bars.time, rows.time)
    for name in PRICES:
        np.testing.assert_array_equal(getattr(bars, name) * 0.25, rows[name])
    np.testing.assert_array_equal(bars.volume, rows.volume)


# --- which contract ---------------------------------------------------------------------------------------------------


def test_rows_come_from_the_contract_that_is_front(rolled, raw):
    """December's until 2013-12-17, March's from 2013-12-18 on, though both trade on both sides of
    it.
    """
    rows = expected_rows(raw, lambda day: "201312" if day < "2013-12-18" else "201403")
    assert_same_bars(rolled.bars, rows[rows.day < "2014"])
    assert rolled.trade_dates.astype(str)[-3:].tolist() == [
        "2013-12-03",
        "2013-12-18",
        "2013-12-20",
    ]


def test_the_splice_is_reported_with_its_difference(rolled, raw):
    before = raw[raw.day < "2013-12-18"]
    both = before[before.expiry == "201403"].merge(before[before.expiry == "201312"], on="time")
    step = both.close_x.iloc[-1] - both.close_y.iloc[-1]
    assert (step, both.ts_utc_x.iloc[-1]) == (-6.0, "2013-12-02T23:50:00Z")
    assert any(
        not missing(note, "201403", "2013-12-18", "201312", "-6.00", "2013-12-02T23:50:00Z")
        for note in rolled.notes
    )


def test_volume_of_the_date_before_decides(raw):
    """March traded 8 times December's volume on 2013-12-18: it is front on the next trade date, not
    on that one.
    """
    market = market_of("volume")
    traded = raw.groupby(["day", "expiry"]).volume.sum().unstack().fillna(0)
    dates, front, fronts = list(traded.index), "201312", {}
    for i, day in enumerate(dates):
        if i:
            alive = [c for c in traded.columns if c >= max(front, day[:7].replace("-", ""))]
            front = max(alive, key=lambda c: (traded.loc[dates[i - 1], c], -int(c)))
        fronts[day] = front
    assert [fronts[d] for d in ("2013-12-18", "2013-12-19", "2020-01-06")] == [
        "201312",
        "201403",
        "202003",
    ]
    assert [(leg.expiry, leg.first) for leg in market.bars.legs] == [
        ("201312", "start"),
        ("201403", "2013-12-19"),
        ("202003", "2020-01-06"),
    ]
    assert_same_bars(market.bars, expected_rows(raw, fronts.__getitem__))
    assert any("price difference is unknown" in note for note in market.notes)


@pytest.mark.parametrize("cut", ["2013-12-17", "2013-12-18", "2013-12-19"])
def test_the_roll_by_volume_does_not_depend_on_later_volumes(december, cut):
    """Other volumes after a trade date change no row up to and with the next one."""
    file = december[december.day > "2013-12-03"].reset_index(drop=True)
    later = file.day > cut
    other = file.assign(
        volume=file.volume.where(~later, np.random.default_rng(0).integers(1, 10**6, len(file)))
    )
    ours, changed = (
        read_es(frame.drop(columns=["time", "day"]), roll="volume") for frame in (file, other)
    )
    last = np.datetime64(min(x for x in file.day.unique() if x > cut))
    keep, kept = (trade_dates(b.time, ES) <= last for b in (ours, changed))
    for name in ("time", *PRICES):
        np.testing.assert_array_equal(getattr(ours, name)[keep], getattr(changed, name)[kept])


def test_a_file_sorted_by_contract_reads_the_same(december):
    frame = december.sort_values(["expiry", "time"], ignore_index=True)
    assert_same_bars(
        read_es(frame.drop(columns=["time", "day"]), roll=EXPLICIT),
        expected_rows(december, lambda day: "201312" if day < "2013-12-18" else "201403"),
    )


@pytest.mark.parametrize(
    ("code", "month"),
    [
        ("201312", "2013-12"),
        ("20131220", "2013-12"),
        ("2013-12", "2013-12"),
        ("ESZ3", "2013-12"),
        ("ESZ13", "2013-12"),
        ("ES H2014", "2014-03"),
        ("ESH2", "2012-03"),
        ("ESM1", "2021-06"),
        ("ES", ""),
        ("FRONT", ""),
    ],
)
def test_months_of_contract_codes(code, month):
    assert expiry_month(code, 2013) == month


# --- what restarts ----------------------------------------------------------------------------------------------------


def splice_row(market):
    days = trade_dates(market.bars.time, market.contract)
    return int(np.searchsorted(days, splice_dates(market.bars.legs)[0]))


def windows_of(market):
    schedule = schedule_for("table", market.contract, market.bars.time, 60)
    return feature_windows(market.bars, schedule, RunConfig())


@pytest.fixture(scope="module")
def lifted():
    return build_market(lifted_bars(), RunConfig())


def test_no_window_true_range_or_session_crosses_a_splice(lifted, es_market):
    row, sessions = splice_row(lifted), lifted.data.sessions
    ids = windows_of(lifted)
    assert np.flatnonzero(np.diff(ids)).tolist() == [row - 1]
    tr_sum, alone = np.asarray(lifted.data.tr_sum), np.asarray(es_market.data.tr_sum)
    assert (
        tr_sum[row : row + 14] == -1
    ).all()  # a true range needs a previous close of the same contract
    np.testing.assert_array_equal(tr_sum[:row], alone[:row])
    np.testing.assert_array_equal(
        tr_sum[row + 14 :], alone[row + 14 :]
    )  # a lift of 100 points shows nowhere
    start, end, first, last = (
        np.asarray(getattr(sessions, n)) for n in ("start", "end", "first", "last")
    )
    assert not ((start < row) & (end > row)).any()
    assert not ((first <= row) & (last + 1 >= row)).any()
    ages = window_ages(ids)
    rows = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])
    assert (ages[rows] + 1 >= NEEDED).all()
    assert (
        rows >= row
    ).sum() == 2 * 433  # the evening's bars of the new contract are enough: no decision is lost


def test_features_after_a_splice_are_those_of_the_contract_alone(lifted):
    """The rows of each contract, as a market of its own, give the same bytes."""
    row = splice_row(lifted)
    alone = replace(lifted.bars.rows(slice(row, None)), legs=())
    np.testing.assert_array_equal(build_market(alone, RunConfig()).table, lifted.table[row:])


def test_finer_bars_follow_the_splices_of_the_bars(december, tmp_path):
    """The volume of the seconds is not asked: they are read with the splices that the bars
    found.
    """
    bars = read_es(december.drop(columns=["time", "day"]), roll="volume")
    path, flat = tmp_path / "flat_volume.csv", december.assign(volume=1)
    np.testing.assert_array_equal(read_beside(bars, flat, path).close, bars.close)
    # one contract is left: one contract is read
    kept = read_beside(bars.between("2013-12-02", "2013-12-04"), flat, path)
    assert [leg.expiry for leg in kept.legs] == ["201312"]


@pytest.fixture(scope="module")
def around_the_roll():
    """December's contract until 2013-12-18, March's on the 19th and 20th."""
    return load_bundled(ES, roll="volume", start="2013-12-02", end="2013-12-20")


def read_beside(bars, frame, path):
    """A frame as the file that `data.seconds` names, beside `bars`."""
    frame.drop(columns=["time", "day"]).to_csv(path, index=False)
    return seconds_of(set_to(f"data.roll=volume data.seconds={path} data.stamp=open"), bars)


LACKING = {
    "december": (
        None,
        lambda raw: raw[raw.expiry != "201312"],
        r"part\.csv.* '201312'.*ES bars.* until 2013-12-18\. .*data\.start.*data\.end",
    ),
    "march": (
        None,
        lambda raw: raw[raw.expiry != "201403"],
        r"part\.csv.* '201403'.*ES bars.* from 2013-12-19 on\. .*data\.start.*data\.end",
    ),
    "the one left": (
        "2013-12-19",
        lambda raw: raw[raw.expiry == "201312"],
        r"no row .*'201403'.* every ",
    ),
    "the column": (
        None,
        lambda raw: raw[raw.expiry == "201312"].drop(columns="expiry"),
        r"no expiry .*ES bars",
    ),
    "its dates": (
        None,
        lambda raw: raw[raw.expiry.isin(["201312", "201403"]) & (raw.day == "2013-12-18")],
        r"part\.csv: .* 201403 from 2013-12-19 .*2013-12-18\.\.2013-12-18",
    ),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_finer_bars_that_lack_what_the_bars_have(around_the_roll, raw, tmp_path, lacking):
    """The splices are the bars' own: what is missing is named, with its dates, and data.roll is not
    to be changed.
    """
    first, part, message = LACKING[lacking]
    bars = around_the_roll.between(first, None)
    with pytest.raises(DataError, match=message):
        read_beside(bars, part(raw), tmp_path / "part.csv")


def test_finer_bars_may_begin_after_a_splice(around_the_roll, raw, tmp_path):
    """As without a roll: bars that have no finer ones are counted, and resolved stop_first."""
    day = raw.day
    fine = read_beside(
        around_the_roll,
        raw[(raw.expiry == "201312") | (day == "2013-12-20")],
        tmp_path / "part.csv",
    )
    march = around_the_roll.rows(
        trade_dates(around_the_roll.time, ES) == np.datetime64("2013-12-20")
    )
    np.testing.assert_array_equal(fine.close[-len(march) :], march.close)
    assert fine.legs[-1].first == "2013-12-19"


def test_quotes_follow_the_splices_of_the_bars(shared):
    """The quotes file has no volume: it is spliced where the trades are. March lies 6 points under
    December.
    """
    quotes = shared / "data/lean_es_1m/es_1m_quote.csv.gz"
    dates = {"start": "2013-12-18", "end": "2013-12-20"}
    words = " ".join(f"data.{name}={day}" for name, day in dates.items())
    bars = bars_of(set_to(f"data.roll=volume data.quotes={quotes} data.stamp=open {words}"))
    trades = load_bundled(ES, roll="volume", **dates)
    assert bars.legs == trades.legs
    close = trades.close[np.isin(trades.time, bars.time)]
    assert len(close) == len(bars)
    assert np.abs(bars.close - close).max() <= 8  # ticks from the bid; 24 in the other contract
    assert (trade_dates(bars.time, ES) >= np.datetime64("2013-12-19")).sum() > 1_300


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED_CONFIG = {
    "one contract": ("{201312: start}", r"'data\.roll': one contract is no roll"),
    "no start": (
        "{201312: 2013-01-01, 201403: 2013-12-18}",
        r"first contract \(201312\) must have 'start'",
    ),
    "no date": ("{201312: start, 201403: 18-12-2013}", r"'18-12-2013' is not a date"),
    "same date": (
        "{201312: start, 201403: 2013-12-18, 201406: 2013-12-18}",
        "first trade dates must increase",
    ),
    "dates go back": (
        "{201312: start, 201403: 2013-12-18, 201406: 2013-12-17}",
        "first trade dates must increase",
    ),
    "no roll at all": ("3", r"expected off, volume, or \{201312: start"),
    "a list": ("[201312, 201403]", r"expected off, volume, or \{201312: start"),
}


@pytest.mark.parametrize("fault", REFUSED_CONFIG)
def test_a_roll_that_cannot_be_is_a_configuration_error(fault):
    text, message = REFUSED_CONFIG[fault]
    with pytest.raises(ConfigError, match=message):
        load_config(None, [f"data.roll={text}"])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("data.expiry=201312", r"data\.expiry = 201312 .*data\.roll"),
        ("data.splice=back_adjust", r"data\.splice' = 'back_adjust'"),
        ("data.source=synthetic", r"data\.source = synthetic"),
    ],
)
def test_keys_that_contradict_a_roll(key, message):
    with pytest.raises(ConfigError, match=message):
        load_market(set_to(f"data.roll=volume {key}"))


REFUSED_DATA = {
    "unknown expiry": (
        {"201312": "start", "201999": "2014-01-02"},
        "no row of contract '201999' in column 'expiry'",
    ),
    "expiries go back": (
        {"201403": "start", "201312": "2013-12-18"},
        "goes back from 201403 to 201312",
    ),
    "no bar on the first date": (
        {"201312": "start", "201403": "2013-12-16"},
        r"201403 has no bar on 2013-12-16.*\(its next: 2013-12-18\)",
    ),
    "front only after its bars": (
        {"201312": "start", "201403": "2014-12-19"},
        "201403 has no bar while data.roll",
    ),
    "gone while it is front": (
        {"201312": "start", "202003": "2013-12-24", "202006": "2020-01-06"},
        "202003 has no bar while data.roll makes it front, from 2013-12-24 until 2020-01-06",
    ),
}


@pytest.mark.parametrize("fault", REFUSED_DATA)
def test_a_roll_that_the_file_does_not_carry(fault):
    roll, message = REFUSED_DATA[fault]
    with pytest.raises(DataError, match=rf"(?s)es_1m_trade\.csv\.gz: .*{message}"):
        market_of(roll)


BAR = ("2013-10-07T13:30:00Z", 1676.75, 1677.25, 1676.50, 1677.0)
LATER = ("2013-10-07T13:31:00Z", *BAR[1:])
UNROLLED = {
    "no column": ("volume", [(*BAR, 9)] * 2, "no expiry or symbol"),
    "no volume": (
        "symbol",
        [(*BAR, x) for x in ("ESZ3", "ESH4")],
        r"roll=volume, .*no volume",
    ),
    "no month": ("volume symbol", [(*BAR, 9, x) for x in ("ESZ3", "ES")], "'ES' does not tell"),
    "spread": (
        "volume symbol",
        [(*BAR, 9, x) for x in ("ESZ3", "ESZ3-ESH4")],
        "calendar spread",
    ),
    "twice": ("volume symbol", [(*BAR, 9, "ESZ3")] * 2, "duplicate stamp"),
    "order": ("volume symbol", [(*LATER, 9, "ESZ3"), (*BAR, 9, "ESZ3")], "stamp earlier than"),
    "expired": (
        "volume symbol",
        [(f"201{y}-0{m}-07T13:30:00Z", *BAR[1:], 9, "ESZ3") for y, m in ((3, 7), (4, 2))],
        "expired before 2014-02-07",
    ),
}


@pytest.mark.parametrize("fault", UNROLLED)
def test_files_that_cannot_be_rolled_by_volume(fault):
    columns, rows, message = UNROLLED[fault]
    frame = pd.DataFrame(rows, columns=f"time open high low close {columns}".split())
    with pytest.raises(DataError, match=message):
        read_es(frame, roll="volume")


def test_a_resolved_roll_is_written_out_and_read_again(tmp_path):
    config = load_config(None, ["data.roll={201312: start, 201403: 2013-12-18}"])
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    assert load_config(str(path)) == config
    assert config.data.roll == EXPLICIT


def test_one_contract_and_a_splice_of_several_exclude_each_other(raw):
    with pytest.raises(ConfigError, match=r"expiry=201312 .* roll "):
        read_es(raw, columns={"time": "ts_utc"}, expiry="201312", roll=EXPLICIT)
