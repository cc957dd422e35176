"""Tables as text."""

import pytest

from jaxtrade.text import (
    align,
    in_short,
    join_reasons,
    note_line,
    printable,
    state_shortfall,
    underline,
    year_runs,
)


def test_words_stand_left_and_figures_right():
    assert align([["", "net", "trades"], ["flat", "0.00", "0"], ["random", "-1,250.50", "12"]]) == [
        "              net  trades",
        "flat         0.00       0",
        "random  -1,250.50      12",
    ]


def test_other_columns_may_be_words_and_no_line_ends_in_blanks():
    assert align(
        [["side", "x", "also"], ["ours", "10", "two cores"], ["theirs", "7", ""]], left=(0, 2)
    ) == ["side     x  also", "ours    10  two cores", "theirs   7"]


def test_a_shorter_row_is_text_that_widens_nothing():
    assert align(
        [
            ["", "greedy", "flat"],
            ["a heading of no column"],
            ["net", "1.00", "0.00"],
            ["Sharpe", "n/a (3 sessions)"],
        ]
    ) == [
        "     greedy  flat",
        "a heading of no column",
        "net    1.00  0.00",
        "Sharpe  n/a (3 sessions)",
    ]


def test_a_rule_is_as_long_as_the_longest_line():
    assert underline(["a", "bcd"]) == ["a", "---", "bcd"]


@pytest.mark.parametrize(
    ("years", "text"),
    [
        ([2008], "2008"),
        (list(range(2008, 2025)), "2008..2024"),
        ([], ""),
        ([2008, 2009, 2011, 2013, 2014], "2008..2009, 2011, 2013..2014"),
    ],
)
def test_years_in_short(years, text):
    assert year_runs(years) == text


def test_notes_that_differ_in_numbers_alone_are_one_line():
    lines = [
        "run a",
        "note: EURUSD: 2013-01-02: 2 of 24 scheduled bars missing (8 %)",
        "note: EURUSD: 2013-01-03: 1 bars inside a closure, first 2013-01-03 17:00",
        "note: EURUSD: 2013-01-04: 3 of 24 scheduled bars missing (12 %)",
        "note: USDJPY: 2013-01-04: 3 of 24 scheduled bars missing (12 %)",
        "seed 1",
        "seed 2",
    ]
    more = " (2 notes of this kind; all of them in a/run.log)"
    assert in_short(lines, "a/run.log") == ["run a", lines[1] + more, lines[2], *lines[4:]]


def test_a_note_that_warns_is_a_warning():
    assert note_line("EURUSD: WARNING: a.csv: shifted") == "warning: EURUSD: a.csv: shifted"
    assert note_line("WARNING: a.csv: shifted") == "warning: a.csv: shifted"
    assert note_line("column 'Date'") == "note: column 'Date'"


def test_what_others_wrote_moves_no_cursor():
    assert (
        printable("a\x1b[2Jb\r\x07\u202e\udce9 é\tc\nd")
        == "a\\x1b[2Jb\\r\\x07\\u202e\\udce9 é\tc\nd"
    )
    assert align([["run\x1b]0;title\x07", "1"], ["b", "2"]])[0] == "run\\x1b]0;title\\x07  1"


def test_one_is_and_several_are():
    assert state_shortfall(5, "day", 1) == "needs 5 days, there is 1"
    assert state_shortfall(1, "seed", 0) == "needs 1 seed, there are 0"


def test_names_with_one_reason_share_it():
    assert join_reasons({"a": "x", "b": "y", "c": "x"}) == "a, c (x); b (y)"
