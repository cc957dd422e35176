"""Vendor files that miss a few seconds or quotes, or hold one bar at the close: the ways through,
with their counts.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from jaxtrade.cli.entry import main
from jaxtrade.config import load_config, make_config
from jaxtrade.data.calendar.schedule import check_stamps, findings, schedule_for, table_schedule
from jaxtrade.data.contracts import get_contract, load_contract
from jaxtrade.data.describe import check
from jaxtrade.data.market import load_market
from jaxtrade.errors import DataError
from tests.data.conftest import table_of
from tests.data.damaged import frame_of, longer
from tests.data.real_seconds import SPY_KEYS
from tests.messages import missing, refuses

SIDES = ("bid", "ask")
FIELDS = ("open", "high", "low", "close")


# --- seconds ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(es_bars, tmp_path):
    """Bars of five minutes, of which six have a high that their minutes never saw; the minutes; how
    many bars.
    """
    coarse = longer(es_bars, 300)
    high = coarse.high.copy()
    high[100:700:100] += 1
    frame_of(replace(coarse, high=high)).to_csv(tmp_path / "five.csv", index=False)
    frame_of(es_bars).to_csv(tmp_path / "minutes.csv", index=False)
    return tmp_path / "five.csv", tmp_path / "minutes.csv", len(coarse)


def config_of(pair, *more):
    words = f"data.source=file data.file={pair[0]} data.seconds={pair[1]} data.stamp=open"
    return load_config("quickstart", [*words.split(), "env.intrabar=path", *more])


def test_the_suggested_limit_admits_the_file_and_marks_its_bars_ambiguous(pair):
    share = f"{100 * 6 / pair[2]:.2f} %, limit 0.1 %"
    with pytest.raises(
        DataError, match=rf"do not rebuild 6 of {pair[2]} bars .* \({share}\)"
    ) as told:
        load_market(config_of(pair))
    limit = str(told.value).split("--seconds-tolerance ")[1].split(" ")[0]
    assert limit == "0.005"
    market = load_market(config_of(pair, f"data.seconds_tolerance={limit}"))
    assert any(
        note.startswith(f"6 of {pair[2]} bars ") and "(resolved stop_first)" in note
        for note in market.notes
    )
    ambiguous = np.asarray(market.data.path.ambiguous)
    assert ambiguous[100:700:100].all()
    assert ambiguous.all(axis=1).sum() == 6


def test_seconds_of_another_file_get_no_limit(pair, es_bars):
    frame_of(replace(es_bars, **{name: getattr(es_bars, name) + 4 for name in FIELDS})).to_csv(
        pair[1], index=False
    )
    with pytest.raises(DataError, match=r"100\.00 %") as told:
        load_market(config_of(pair))
    assert "tolerance" not in str(told.value)


# --- quotes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def quoted(es_bars, tmp_path):
    """Trade bars of a week, and their quotes, of which every fiftieth is missing (2 %)."""
    trades = frame_of(es_bars)
    quotes = pd.DataFrame(
        {
            "time": trades.time,
            **{
                f"{side}_{field}": trades[field] + (0.25 if side == "ask" else 0)
                for side in SIDES
                for field in FIELDS
            },
        }
    )
    trades.to_csv(tmp_path / "trades.csv", index=False)
    quotes[np.arange(len(quotes)) % 50 != 7].to_csv(tmp_path / "quotes.csv", index=False)
    return tmp_path / "trades.csv", tmp_path / "quotes.csv"


def test_quotes_that_miss_some_bars_pass_with_a_stated_limit(quoted):
    words = f"data.source=file data.file={quoted[0]} data.quotes={quoted[1]} data.stamp=open"
    keys = words.split()
    with pytest.raises(DataError, match=r"for 137 of 6826 bars .* \(2\.01 %, limit 1 %\)") as told:
        load_market(load_config("quickstart", keys))
    assert "--quotes-tolerance 0.021 " in str(told.value)
    market = load_market(load_config("quickstart", [*keys, "data.quotes_tolerance=0.021"]))
    assert len(market.bars) == 6826 - 137
    assert any(note.startswith("137 of 6826 bars") and "sides" in note for note in market.notes)


def test_rows_without_a_side_pass_with_a_stated_limit(quoted, capsys):
    frame = pd.read_csv(quoted[1], dtype=str)
    frame.loc[::40, [f"bid_{field}" for field in FIELDS]] = ""
    frame.to_csv(quoted[1], index=False)
    command = ["data", "check", str(quoted[1]), "--market", "ES", "--set", "data.stamp=open"]
    refuses(capsys, command, "--quotes-tolerance 0.026 ")
    assert main([*command, "--quotes-tolerance", "0.026"]) == 0
    assert "168 of 6689 rows" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["2", "some", "1.0"])
@pytest.mark.parametrize("file", ["quotes", "seconds"])
def test_a_tolerance_is_a_fraction(file, value, capsys):
    command = ["data", "describe", f"--{file}-tolerance", value]
    refuses(capsys, command, f"data.{file}_tolerance")


# --- one bar at the close ---------------------------------------------------------------------------------------------


def test_a_closing_bar_is_no_shift(es_bars):
    """One more bar at 17:15, the close of that week, on every date: the real stamps are not
    shifted.
    """
    schedule = table_of(es_bars)
    time_ = np.sort(np.concatenate([es_bars.time, schedule.close]))
    check_stamps(schedule, time_, 60, es_bars.contract)
    lines = findings(schedule, time_, 60, es_bars.contract)
    (closing,) = [line for line in lines if "closing" in line]
    assert not missing(closing, "5 bars", "2013-10-07 17:15", "no decision")
    assert not any("closure" in line for line in lines)


@pytest.mark.parametrize("minutes", [1, 5, 15, 30, 60])
def test_bars_that_fill_the_daily_break_are_no_closing_prints(minutes):
    """A CFD on US30 in New York's summer: its day lacks 20:00 to 22:00 UTC. Its clock is UTC and
    read as America/New_York+7h: 00:00 becomes 17:00 in New York, and the session's first hour is
    there too."""
    days = (
        np.arange(np.datetime64("2025-03-17"), np.datetime64("2025-04-19"))
        .astype("datetime64[s]")
        .astype(np.int64)
    )
    evenings = [day + 22 * 3600 for day in days if (day // 86400 + 3) % 7 in (6, 0, 1, 2, 3)]
    opens = np.concatenate(
        [np.arange(evening, evening + 22 * 3600, 60 * minutes) for evening in evenings]
    )
    contract = replace(get_contract("ES"), symbol="US30")
    schedule = schedule_for("table", contract, opens, 60 * minutes)
    check_stamps(schedule, opens, 60 * minutes, contract)
    with pytest.raises(DataError, match="look shifted"):
        check_stamps(schedule, opens - 3 * 3600, 60 * minutes, contract)


def test_close_stamps_read_as_opens_are_still_refused():
    """A share's minutes of 04:00-20:00, stamped by their close: each date has a bar at 20:00, and
    none at 04:00.
    """
    contract = load_contract("SPY")
    days = np.array(["2013-10-07", "2013-10-11"], "datetime64[D]")
    schedule = table_schedule(contract, *days)
    before, after = schedule.extended
    opens = np.concatenate(
        [
            np.arange(begin - before, end + after, 60)
            for begin, end in zip(schedule.open, schedule.close, strict=True)
        ]
    )
    check_stamps(schedule, opens, 60, contract)
    with pytest.raises(DataError, match=r"5 of 5 .* 2013-10-07 20:00 .*shifted"):
        check_stamps(schedule, opens + 60, 60, contract)


@pytest.mark.parametrize(("name", "dates"), [("spy_minute_quote", 6), ("aapl_minute_quote", 3)])
def test_real_quotes_with_a_bar_at_20_00_are_read(shared, name, dates):
    data = SPY_KEYS | {"contract": "SPY", "allow_jumps": True}
    text = check(
        str(shared / f"data/lean_us_equity/{name}_x10000.csv.gz"), make_config({"data": data})
    )
    assert f"{dates} bars are stamped exactly" in text
