"""Figures over seeds."""

import pytest

from jaxtrade.evaluation.seeds import _spread, interquartile_mean


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        ([9.0, 1.0, 2.0], 4.0),
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, -1000.0], 4.5),
    ],
)
def test_interquartile_mean_drops_a_quarter_on_each_side(values, expected):
    assert interquartile_mean(values) == expected


def test_what_is_undefined_is_left_out_and_shown():
    assert _spread([3, None, 1]) == {
        "median": 2.0,
        "IQM": 2.0,
        "min": 1,
        "max": 3,
        "each": [3, None, 1],
    }
    assert _spread([None]) == {
        "median": None,
        "IQM": None,
        "min": None,
        "max": None,
        "each": [None],
    }
