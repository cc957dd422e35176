"""The small parts of a report: figures as text, elements, packed columns, axes, curves, trades on
their bars.
"""

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from jaxtrade.evaluation.records import ABSENT
from jaxtrade.formatting import MINUS, local
from jaxtrade.reporting import bars, svg, words
from jaxtrade.reporting.bars import PageClock, extremes, place_trades
from jaxtrade.reporting.page import environment
from jaxtrade.reporting.svg import MarkedEquity
from tests.reporting.made import ACTIONS, made_records, trade_lines
from tests.reporting.parsed import parsed, unpacked

PARTS = environment().get_template("parts.html").module
SHOWN = environment().filters["format_number"]
CHARTS = environment().get_template("charts.html").module

# --- text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "$1,234.50"), (-3, f"{MINUS}$3.00"), (0, "$0.00"), (-0.004, "$0.00"), (None, "n/a")],
)
def test_money_as_text(value, text):
    assert SHOWN(value, "money") == text


@pytest.mark.parametrize(
    ("value", "html"),
    [
        (2.5, '<span class="gain">+$2.50</span>'),
        (-2.5, f'<span class="loss">{MINUS}$2.50</span>'),
        (0.0, "<span>$0.00</span>"),
        (None, '<span class="na">n/a</span>'),
    ],
)
def test_losses_are_as_visible_as_gains(value, html):
    assert PARTS.figure(value, "signed") == html


def test_shares_and_numbers_as_text():
    assert SHOWN(0.3158, "share") == "31.6 %"
    assert SHOWN(None, "share") == "n/a"
    assert SHOWN(-1234.567, "number") == f"{MINUS}1,234.57"


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ({"value": 1.5, "low": -2.0, "high": 4.0}, f"1.50 [{MINUS}2.00, 4.00]"),
        (
            {"value": 1.5, "low": None, "high": None, "why": "fewer than 5 days"},
            "1.50 (fewer than 5 days)",
        ),
        ({"value": None, "why": "below 10 trials"}, "n/a (below 10 trials)"),
        ({"value": 1.5, "low": None}, "1.50"),
    ],
)
def test_an_estimate_has_its_interval_or_its_reason(estimate, text):
    assert parsed(f"<p>{PARTS.interval(estimate, 'number')}</p>").text == text


@given(st.text())
def test_text_stays_text(text):
    """Whatever it is, it comes back from the page as it went in."""
    [found] = parsed(PARTS.table(text, ("a", text), [(text, text)])).tables
    assert (found.caption, found.head, found.rows) == (text, ["a", text], [[text, text]])


def test_markup_is_not_escaped_twice():
    assert PARTS.notes([Markup("<i>x</i>"), "<"]) == (
        '<ul class="notes"><li><i>x</i></li><li>&lt;</li></ul>'
    )


def test_a_table_names_its_rows_and_columns():
    [found] = parsed(
        PARTS.table("What it is", ("Name", "Value"), [("a", "1"), ("b", "2")], marked=1)
    ).tables
    assert (found.caption, found.head, found.rows) == (
        "What it is",
        ["Name", "Value"],
        [["a", "1"], ["b", "2"]],
    )
    html = PARTS.table("What it is", ("Name", "Value"), [("a", "1"), ("b", "2")], marked=1)
    assert html.count('scope="row"') == 2
    assert html.count('scope="col"') == 2
    assert html.count('class="own"') == 1


# --- packed columns -----------------------------------------------------------------------------------------------

WHOLE = st.lists(st.tuples(*[st.integers(-(10**8), 10**8)] * 2), max_size=50)


@given(WHOLE)
def test_columns_come_back_as_they_were(rows):
    columns = {
        "a": np.array([a for a, _ in rows], np.int64),
        "b": np.array([b for _, b in rows], np.int64),
    }
    found = unpacked(bars.pack_columns(columns, {"b": "a"}))
    assert {name: values.tolist() for name, values in found.items()} == {
        name: values.tolist() for name, values in columns.items()
    }


def test_differences_take_the_smallest_type():
    close = np.array([1000, 1003, 990])
    found = bars.pack_columns(
        {"n": np.array([5, 6, 9]), "close": close, "high": close + 300, "far": close * 10**5},
        {"high": "close"},
    )
    assert [each["type"] for each in found["columns"]] == ["u1", "i2", "i2", "i4"]
    assert [each["first"] for each in found["columns"]] == [5, 1000, 1300, 100_000_000]
    with pytest.raises(ValueError, match="far: neighbours differ by"):
        bars.pack_columns({"far": np.array([0, 2**40])})


# --- charts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (-0.13, 0.42, [0, 0.2, 0.4]),
        (49_133, 50_022, [49_200, 49_400, 49_600, 49_800, 50_000]),
        (3, 3, [3]),
    ],
)
def test_marks_of_an_axis_are_round(low, high, expected):
    assert svg.ticks(low, high) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_marks_of_an_axis_are_few_and_inside(low, span):
    found = svg.ticks(low, low + span)
    assert 0 < len(found) <= 6
    assert all(
        low - 1e-6 * span - 1e-9 <= each <= low + span + 1e-6 * span + 1e-9 for each in found
    )


def line(values):
    return {"name": "a", "y": values, "kind": "s0"}


def test_a_gap_in_a_line_is_not_drawn():
    values = line([1.0, 2.0, None, 3.0, None])
    drawn = CHARTS.small_lines("label", [0, 1, 2, 3, 4], [values], [], "number", 100, 300)
    assert drawn.count('class="line s0"') == 1
    assert drawn.count("<circle") == 1, "a single point is a disc"
    assert drawn.count("M") == 1


def test_a_row_without_a_value_has_no_disc_but_its_text():
    """In the picture for wide screens, and in that for narrow ones."""
    known = {"value": 1.0, "low": 0.5, "high": 2.0}
    drawn = CHARTS.dots("label", [("a", known, "s0"), ("b", {"value": None}, "s1")])
    wide, narrow = drawn.split("</svg>")[:2]
    for each in (wide, narrow):
        assert each.count("<circle") == 1
        assert each.count('class="range s0"') == 1
        assert "n/a" in each


def test_a_picture_for_each_width_shows_the_same():
    """Every place is inside its picture; the narrow one has every label and fewer marks of the
    axis.
    """
    rows = [
        ("a_name", {"value": -3.0, "low": -5.0, "high": 2.0}, "s0"),
        ("other", {"value": 2.5, "low": 0.0, "high": 4.0}, "s1"),
    ]
    marks = [(float(i), f"day {i}") for i in range(3)]
    for drawn, labels, fewer in (
        (CHARTS.dots("label", rows), ("a_name", "other", f"{MINUS}$3.00", "+$2.50"), ()),
        (
            CHARTS.lines("label", [0, 1, 2], [line([1.0, 5.0, 2.0])], marks),
            ("day 0", "day 2"),
            ("day 1",),
        ),
    ):
        wide, narrow = re.findall(r'<div class="figure (?:wide|narrow)">.*?</div>', drawn)
        for each, width in ((wide, 760), (narrow, 360)):
            assert f'viewBox="0 0 {width} ' in each
            assert all(f">{word}<" in each for word in labels)
            places = [float(value) for value in re.findall(r' (?:x|x1|x2|cx)="([-\d.]+)"', each)]
            assert places
            assert 0 <= min(places) <= max(places) <= width
        assert all(f">{word}<" in wide and f">{word}<" not in narrow for word in fewer)


def test_reasons_are_said_once_with_the_names_that_they_hold_for():
    found = {
        "a": {"value": 1.0, "why": "few days"},
        "b": {"value": 2.0, "low": 1.0, "high": 3.0, "why": None},
        "c": {"value": None, "why": "few days"},
        "d": {"value": 1.0, "why": "flat"},
    }
    assert words.reasons("net", found) == ["net (a, c): few days", "net (d): flat"]
    assert "few" not in PARTS.bare(found["a"], "number")
    assert "[1.00, 3.00]" in PARTS.bare(found["b"], "number")
    assert PARTS.bare(None, "number") == ""


def test_charts_of_nothing_and_of_one_value_stand():
    for values in ([], [5.0], [None]):
        drawn = CHARTS.lines("label", range(len(values)), [line(values)], [])
        assert "nan" not in drawn
        assert "inf" not in drawn


# --- curves -------------------------------------------------------------------------------------------------------


CLOCK = PageClock(60, "America/New_York", 0.25, 2)


def marked(equity, session, account=None, floor=None, end=None):
    size = len(equity)
    return MarkedEquity(
        np.arange(size) + 1,
        np.full(size, 1381498260),
        np.array(session),
        np.array(equity, float),
        np.array(account or [1] * size),
        np.array(equity, float),
        np.array(floor or [math.nan] * size),
        np.array(end or [""] * size),
        100.0,
        CLOCK,
    )


def test_sessions_by_hand():
    """Equity 100 -> 110, 90 | 95, 120: net -10 and +30, deepest drop 20 (110 - 90) in both."""
    found = svg.sessions(marked([110, 90, 95, 120], ["a", "a", "b", "b"]), ["a", "a", "b"])
    assert found == [
        {"date": "a", "trades": 2, "net": -10.0, "equity": 90.0, "drawdown": 20.0},
        {"date": "b", "trades": 1, "net": 30.0, "equity": 120.0, "drawdown": 15.0},
    ]


def test_a_loss_at_once_is_a_drawdown_below_the_start():
    assert marked([97, 99], ["a", "a"]).drawdown.tolist() == [3.0, 1.0]


def test_accounts_by_hand():
    found = svg.accounts(
        marked([90, 80, 105], ["a", "b", "c"], [1, 1, 2], [70.0, 75.0, math.nan], ["", "bust", ""])
    )
    assert found == [
        {
            "number": 1,
            "first": "a",
            "last": "b",
            "sessions": 2,
            "net": -20.0,
            "floor": 75.0,
            "end": "bust",
        },
        {
            "number": 2,
            "first": "c",
            "last": "c",
            "sessions": 1,
            "net": 5.0,
            "floor": None,
            "end": None,
        },
    ]


def test_the_floor_has_a_gap_between_accounts():
    found = svg.floor(
        marked([90, 80, 105], ["a", "b", "c"], [1, 1, 2], [70.0, 75.0, math.nan]), "rules"
    )
    assert found["equity"] == [90.0, 80.0, None, 105.0]
    assert found["floor"] == [70.0, 75.0, None, None]


def test_marks_are_dates_of_several_sessions_and_times_of_one():
    many = marked([100] * 20, [f"s{i:02d}" for i in range(20)])
    assert [label for _, label in svg.marks(many)] == ["s00", "s04", "s08", "s12", "s16"]
    one = marked([100] * 180, ["a"] * 180)
    one = dataclasses.replace(one, time=one.time + 60 * np.arange(180))  # from 09:31 on
    places, labels = zip(*svg.marks(one), strict=True)
    assert labels == ("09:30", "10:00", "10:30", "11:00", "11:30", "12:00", "12:30")
    assert places == (1, 30, 60, 90, 120, 150, 180)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(4, 40))
def test_thinning_keeps_the_extremes(values, most):
    series = np.array(values)
    chosen = extremes(series, most)
    assert len(chosen) <= max(most, 4)
    assert chosen[0] == 0
    assert chosen[-1] == len(series) - 1
    assert (np.diff(chosen) > 0).all()
    assert series[chosen].max() == series.max()
    assert series[chosen].min() == series.min()


# --- trades -------------------------------------------------------------------------------------------------------


def test_trades_are_placed_on_their_bars_with_their_levels():
    records, columns = made_records(3, 60, 4)
    lines = [
        dict(zip(("session", "side"), line[:2], strict=True))
        for line in trade_lines(records, columns)
    ]
    found = place_trades(lines, records.bars, "greedy", ACTIONS)
    bars = records.bars
    for k, trade in enumerate(found):
        assert bars.row[[trade.decision, trade.entry, trade.exit]].tolist() == [
            columns[name][k] for name in ("decision_row", "entry_row", "exit_row")
        ]
        assert trade.legal == ("HOLD", "BUY", "SELL")
        paid, held = columns["entry_price"][k], trade.exit - trade.entry
        if not held:
            assert (trade.stop, trade.target) == (None, None), "closed in the bar of its entry"
        else:
            assert trade.stop == paid - 20 * trade.side
            assert trade.target == paid + 40 * trade.side
            assert len(trade.stops) == (2 if held > 3 else 1), (
                "moved to break-even after three bars"
            )
            assert [bar for bar, _ in trade.stops] == [trade.entry, trade.entry + 3][
                : len(trade.stops)
            ]
    assert {len(trade.stops) for trade in found} == {0, 1, 2}


def test_a_position_without_levels_has_none():
    records, columns = made_records(3, 60, 4)
    size = len(records.bars.decision)
    levels = dict.fromkeys(("stop", "target"), np.full(size, ABSENT))
    bare = dataclasses.replace(records.bars, strategy=records.bars.strategy | levels)
    found = place_trades([{} for _ in columns["side"]], bare, "greedy", ACTIONS)
    assert {(trade.stop, trade.target) for trade in found} == {(None, None)}
    with pytest.raises(ValueError, match="1 trades, but 12"):
        place_trades([{}], bare, "greedy", ACTIONS)


def test_times_of_day_are_those_of_the_exchange():
    """2013-10-11T13:31Z is 09:31 in New York, 2013-12-11T14:31Z too."""
    assert [local(seconds, CLOCK.zone, "%H:%M") for seconds in (1381498260, 1386772260)] == [
        "09:31",
        "09:31",
    ]
