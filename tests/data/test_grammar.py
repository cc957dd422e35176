"""The grammar of stamps: each form worked by hand, and every layout, in several zones, equal to the
truth.
"""

import itertools
import re
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.data.contracts import get_contract
from jaxtrade.data.examine import price_step
from jaxtrade.data.read import grammar
from jaxtrade.data.read.grammar import BROKEN, UNREAD, has_offset, read_stamps
from jaxtrade.errors import DataError
from tests.data.conftest import read_es

ES = get_contract("ES")


class Said(NamedTuple):
    seconds: np.ndarray
    aware: np.ndarray


def said(texts, order=None):
    return Said(*read_stamps(pa.chunked_array([texts], pa.large_string()), order))


# Seconds after midnight, and the stamp. 2013-10-07 is a Monday; 1381104000 is its midnight in UTC.
NAIVE = """
32700 |2013-10-07 09:05|
32700 |2013/10/7 9:05|
32700 |2013-10-7 9:05|
32700 |2013.10.7 9:05|
32700 |2013 10 07 09:05|
32700 |20131007 090500|
32700 |20131007 905|
32700 |20131007 90500|
32700 |2013-10-07,0905|
32700 |2013-10-07  09:05|
32700 |2013-10-07, 9:05|
32700 | 2013-10-07T09:05:00 |
32700 |2013-10-07 9:05 AM|
75900 |2013-10-07 9:05 pm|
  300 |2013-10-07 12:05 a.m.|
43500 |2013-10-07 12:05PM|
32700 |2013-10-07 09:05:00.000|
32700 |2013-10-07 09:05:00,000|
32400 |2013-10-07T09|
    0 |2013-10-7|
    0 |20131007|
"""
AWARE = """
32700 |2013-10-07T09:05:00Z|
47100 |2013-10-07 09:05:00-04:00|
47100 |2013-10-07 09:05 -0400|
12900 |2013-10-7 9:05+05:30|
32700 |20131007T090500+00:00|
32400 |2013-10-07T09+00:00|
47100 |2013-10-07 09:05:00.000 GMT-0400|
32700 |2013-10-07 09:05 UTC|
25500 |2013-10-07 09:05 UTC+2|
"""
NEITHER = """
x
NaT
2013-10-07 5
2013-10-07 45
2013-10-07 9:5
2013-13-07 09:05
2013-02-29 09:05
2013-10-07 24:00
2013-10-07 09:60
2013-10-07 13:05 PM
2013-10-07 0:05 AM
2013-10/07 09:05
2013-10-07 09:05 EST
2013-10-07 09:05+15:00
2013-10-07 09:05+04:61
13-10-07 09:05
7/10/13 09:05
07-Oct-2013 09:05
2013-10-07Z
2013-W41
2013-280
2013-10
2013-10-07 09:05:00-
1381104000
٢٠١٣-10-07 09:05"""


@pytest.mark.parametrize(
    ("line", "aware"),
    [
        *((line, False) for line in NAIVE.strip().splitlines()),
        *((line, True) for line in AWARE.strip().splitlines()),
    ],
)
def test_a_stamp_says_one_thing(line, aware):
    seconds, text, _ = line.split("|")
    found = said(["x", text, text])
    assert found.seconds.tolist() == [UNREAD, *[1381104000 + int(seconds)] * 2]
    assert found.aware.tolist() == [False, aware, aware]
    assert has_offset(text) == aware


@pytest.mark.parametrize("text", NEITHER.splitlines())
def test_what_is_no_stamp_is_not_read(text):
    found = said([text, "2013-10-07 09:05"])
    assert found.seconds.tolist() == [UNREAD, 1381104000 + 32700]


def test_the_order_of_day_and_month_is_logged():
    cells = ["07.10.2013 09:05", "7/10/2013 9:05 PM"]
    assert said(cells).seconds.tolist() == [UNREAD] * 2
    assert said(cells, "dmy").seconds.tolist() == [1381104000 + 32700, 1381104000 + 75900]
    july = int(pd.Timestamp("2013-07-10").timestamp())
    assert said(cells, "mdy").seconds.tolist() == [july + 32700, july + 75900]


def test_no_part_of_a_second_is_dropped():
    found = said(["2013-10-07 09:05:00.5", "2013-10-07 09:05:00.0"])
    assert found.seconds.tolist() == [BROKEN, 1381104000 + 32700]


STAMPS = st.sampled_from(
    [*re.findall(r"\|(.*)\|", NAIVE + AWARE), *NEITHER.splitlines(), "2013-10-07 10:00:00.5"]
)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    STAMPS, st.integers(2, 8), st.lists(STAMPS, max_size=3), st.integers(1, 4), st.integers(1, 4)
)
def test_stamps_are_read_alike_in_pieces_of_any_length(text, count, others, piece, block):
    """A column of one form, and perhaps a few of others."""
    texts = [*others[:1], *[text] * count, *others[1:]]
    pieces = [texts[i : i + piece] for i in range(0, len(texts), piece)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammar, "BLOCK", block)
        found = Said(*read_stamps(pa.chunked_array(pieces, pa.large_string())[1:], None))
    alone = [said([each]) for each in texts[1:]]
    assert found.seconds.tolist() == [int(each.seconds[0]) for each in alone]
    assert found.aware.tolist() == [bool(each.aware[0]) for each in alone]


# --- layouts of stamps, in zones -------------------------------------------------------------------------------------

DATES = {
    "%Y-%m-%d": None,
    "%Y/%m/%d": None,
    "%Y.%m.%d": None,
    "%Y %m %d": None,
    "%Y%m%d": None,
    "%Y-%-m-%-d": None,
    "%Y/%-m/%-d": None,
    "%Y.%-m.%-d": None,
    "%d.%m.%Y": "dmy",
    "%-d/%-m/%Y": "dmy",
    "%m/%d/%Y": "mdy",
    "%-m-%-d-%Y": "mdy",
}
CLOCKS = (
    "%H:%M",
    "%-H:%M",
    "%H:%M:%S",
    "%H%M",
    "%-H%M",
    "%I:%M %p",
    "%-I:%M:%S %p",
    "%H:%M:%S.000",
)
JOINED = (" ", "T", "  ", ",", ", ")  # a comma: two columns
ZONES = ("UTC", "America/New_York", "Asia/Tokyo")
HOURS = pd.date_range("2013-10-07 13:00", periods=30, freq="1h", tz="UTC").append(
    pd.date_range("2013-11-03 08:00", periods=60, freq="1h", tz="UTC")
)  # after the change of clocks in New York


@pytest.mark.slow
@pytest.mark.parametrize("date", DATES)
def test_every_layout_is_read_in_its_zone_and_never_without(tmp_path, date):
    path, state = tmp_path / "bars.csv", {} if DATES[date] is None else {"date_order": DATES[date]}
    for turn, (clock, joined) in enumerate(itertools.product(CLOCKS, JOINED)):
        zone = ZONES[turn % 3]
        names = "date,time" if "," in joined else "time"
        path.write_text(
            "\n".join(
                [
                    f"{names},open,high,low,close,volume",
                    *(
                        at.tz_convert(zone).strftime(date + joined + clock)
                        + ",1670,1671,1669,1670,1"
                        for at in HOURS
                    ),
                ]
            )
            + "\n"
        )
        bars = read_es(path, time_zone=zone, **state)
        np.testing.assert_array_equal(
            bars.time, HOURS.as_unit("s").asi8, err_msg=f"{date}{joined}{clock} in {zone}"
        )
        with pytest.raises(DataError, match=r"'(date )?time' = '.+': .*time zone"):
            read_es(path, **state)


@pytest.mark.parametrize(
    ("date", "clock", "quoted"),
    [
        *(("2013-10-07", clock, clock) for clock in ("0", "5", "45", "9.30", "noon", "25:00")),
        *(
            (date, "09:30", date)
            for date in ("07-Oct-2013", "7/10/13", "Monday 2013-10-07", "2013-13-07")
        ),
    ],
)
def test_a_date_or_time_of_day_that_cannot_be_read_is_quoted(tmp_path, date, clock, quoted):
    line = f"{date},{clock},1670,1671,1669,1670,1"
    assert quoted in refusal(tmp_path, f"date,{HEADER}\n{line}\n")


# --- numbers, lines before the header, columns that nobody reads ------------------------------------------------------


def refusal(tmp_path, text):
    path = tmp_path / "bars.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_es(path, time_zone="UTC")
    return str(caught.value)


ROWS = [f"{{}},1670,1671,1669,1670,{i}" for i in range(4)]
HEADER = "time,open,high,low,close,volume"


def test_the_first_row_of_another_unit_is_named(tmp_path):
    stamps = [1381152600000, 1381152660000, 1381152720000000, 1381152780000000]
    lines = [row.format(at) for row, at in zip(ROWS, stamps, strict=True)]
    text = refusal(tmp_path, "\n".join([HEADER, *lines]) + "\n")
    assert "bars.csv:4: column 'time' = '1381152720000000'" in text
    assert "milliseconds" in text
    assert "microseconds" in text


def test_the_newest_row_first_is_said_as_such(tmp_path):
    lines = [row.format(f"2013-10-07 13:3{9 - i}") for i, row in enumerate(ROWS)]
    text = refusal(tmp_path, "\n".join([HEADER, *lines]) + "\n")
    assert "newest row comes first" in text


@pytest.mark.parametrize(
    ("before", "separator"),
    [("sep=;", ";"), ("sep=,", ","), ("https://www.example.com/bars", ","), ("Bars of ES", ";")],
)
def test_a_line_before_the_header_is_passed_over(tmp_path, before, separator):
    path, lines = (
        tmp_path / "bars.csv",
        [HEADER, *(row.format(f"2013-10-07 13:3{i}") for i, row in enumerate(ROWS))],
    )
    path.write_text("\n".join([before, *(line.replace(",", separator) for line in lines)]) + "\n")
    bars = read_es(path, time_zone="UTC")
    assert len(bars) == 4
    assert "before the header line" in bars.notes[0]


@pytest.mark.parametrize("unread", ["line,line", ",", "line,"])
def test_only_columns_that_are_read_must_be_unique(tmp_path, unread):
    path = tmp_path / "bars.csv"
    path.write_text(
        "\n".join(
            [
                f"{HEADER},{unread}",
                *(row.format(f"2013-10-07 13:3{i}") + ",7,8" for i, row in enumerate(ROWS)),
            ]
        )
        + "\n"
    )
    assert len(read_es(path, time_zone="UTC")) == 4
    text = path.read_text().replace(f"{HEADER},{unread}", f"{HEADER},close,{unread.split(',')[0]}")
    assert "'close' appears twice" in refusal(tmp_path, text)


def test_prices_below_a_ten_thousandth_keep_their_step():
    assert price_step(np.array([0.00001234, 0.00001235, 0.00001240])) == (1e-8, 8)
    assert price_step(np.array([1.5, 2.25, 0.0])) == (0.75, 2)
