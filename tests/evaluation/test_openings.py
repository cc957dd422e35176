"""Openings and trials of the same days, by hand."""

from __future__ import annotations

import numpy as np

from jaxtrade.evaluation.openings import SplitHistory, openings_of, trial_matrix, trials_of
from jaxtrade.storage.trials import SplitOpening

WEEK = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05")


def opening(config, days, net, data="d"):
    values = {policy: tuple(map(float, row)) for policy, row in net.items()}
    return SplitOpening("train", "r", config, data, "test", days[0], days[-1], len(days), "greedy", tuple(days), values)


OPENINGS = [
    opening("a", WEEK, {"0": [1, 2, 3, 4, 5]}),
    opening("a", WEEK, {"0": [1, 2, 3, 4, 9]}),  # the same trial again
    opening("b", WEEK[1:], {"0": [6, 7, 8, 9], "1": [0, 0, 0, 1]}),
    opening("c", WEEK[:2], {"0": [5, 5]}),
    opening("a", WEEK, {"0": [9, 9, 9, 9, 9]}, data="other"),
    opening("a", WEEK, {}),  # a grid
]


def test_openings_are_of_the_same_data_and_of_any_of_the_days():
    assert openings_of(OPENINGS, "d", WEEK) == [*OPENINGS[:4], OPENINGS[5]]
    assert openings_of(OPENINGS, "d", WEEK[3:]) == [*OPENINGS[:3], OPENINGS[5]]
    assert openings_of(OPENINGS, "other", WEEK) == [OPENINGS[4]]
    assert openings_of(OPENINGS, "d", ["2025-01-01"]) == []
    without_days = OPENINGS[0]._replace(dates=(), net={})
    assert openings_of([without_days], "d", ["2024-01-03"]) == [without_days]


def test_a_configuration_and_a_seed_are_one_trial_however_often_it_is_evaluated():
    assert trials_of(openings_of(OPENINGS, "d", WEEK)) == [("a", "0"), ("b", "0"), ("b", "1"), ("c", "0")]


def test_the_matrix_has_the_trials_with_every_day_and_their_latest_result():
    trials, matrix = trial_matrix(openings_of(OPENINGS, "d", WEEK), WEEK[1:])
    assert trials == [("a", "0"), ("b", "0"), ("b", "1")]
    assert matrix.tolist() == [[2, 6, 0], [3, 7, 0], [4, 8, 0], [9, 9, 1]]
    trials, matrix = trial_matrix(OPENINGS, ["2025-01-01"])
    assert trials == []
    assert matrix.shape == (1, 0)
    assert np.issubdtype(matrix.dtype, np.float64)


def test_what_the_report_says():
    whole = SplitHistory(3, 1, None, True, "runs/trials.jsonl")
    assert whole.lines() == ["trials: this test set was opened 3 times (1 distinct trial), this time included"]
    broken = SplitHistory(None, None, "line 4 was removed", True, "runs/trials.jsonl")
    assert broken.lines() == ["trials: how often this test set was opened is n/a: line 4 was removed"]
    assert broken.to_json()["opened"] is None
