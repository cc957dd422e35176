"""Openings and trials of the same days, by hand."""

import json

import numpy as np
import pytest

from jaxtrade.evaluation.statistics import dsr, pbo, psr, trial_variance
from jaxtrade.evaluation.test_set_history import (
    HeldOutDays,
    SplitHistory,
    drop_policy,
    history_lines,
    latest,
    list_looks,
    trial_matrix,
    trials_of,
    with_policy,
    with_trials,
)
from jaxtrade.storage.trials import SplitLook
from tests.messages import missing

WEEK = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05")


def opening(config, dates, net, data="d", bars=None):
    values = {policy: tuple(map(float, row)) for policy, row in net.items()}
    return SplitLook(
        "train",
        "r",
        config,
        data,
        "test",
        dates[0],
        dates[-1],
        len(dates),
        "greedy",
        tuple(dates),
        values,
    )._replace(bars=bars or {})


def days(dates, data="d", bars=None):
    return HeldOutDays(data, tuple(dates), bars or {})


OPENINGS = [
    opening("a", WEEK, {"0": [1, 2, 3, 4, 5]}),
    opening("a", WEEK, {"0": [1, 2, 3, 4, 9]}),  # the same trial again
    opening("b", WEEK[1:], {"0": [6, 7, 8, 9], "1": [0, 0, 0, 1]}),
    opening("c", WEEK[:2], {"0": [5, 5]}),
    opening("a", WEEK, {"0": [9, 9, 9, 9, 9]}, data="other"),
    opening("a", WEEK, {}),  # a grid
]


def test_openings_are_of_the_same_data_and_of_any_of_the_days():
    assert list_looks(OPENINGS, days(WEEK)) == [*OPENINGS[:4], OPENINGS[5]]
    assert list_looks(OPENINGS, days(WEEK[3:])) == [*OPENINGS[:3], OPENINGS[5]]
    assert list_looks(OPENINGS, days(WEEK, "other")) == [OPENINGS[4]]
    assert list_looks(OPENINGS, days(["2025-01-01"])) == []
    without_days = OPENINGS[0]._replace(dates=(), net={})
    assert list_looks([without_days], days(["2024-01-03"])) == [without_days]


def test_days_are_the_same_if_their_bars_are_whatever_features_were_made_of_them():
    es = {"ES": tuple("vwxyz")}
    first = opening("a", WEEK, {"0": [1, 2, 3, 4, 5]}, bars=es)
    features = opening("b", WEEK, {"0": [5, 4, 3, 2, 1]}, "other features", es)
    later = opening("a", WEEK[3:], {"0": [7, 7]}, "another file", {"ES": ("y", "z")})
    elsewhere = opening("a", WEEK, {"0": [0] * 5}, bars={"ES": tuple("VWXYZ")})
    both = opening("c", WEEK, {"0": [9] * 5}, "two", es | {"NQ": tuple("vwxyz")})
    nothing = opening("c", WEEK, {}, "no bars", {"ES": ("",) * 5})
    every, asked = [first, features, later, elsewhere, both, nothing], days(WEEK, bars=es)
    assert list_looks(every, asked) == [first, features, later, both]
    names = [("a", "d"), ("b", "other features"), ("a", "another file"), ("c", "two")]
    known = [(*name, "0") for name in names]
    assert trials_of([first, features, later, both]) == known
    trials, matrix = trial_matrix(every, asked)
    assert trials == known[:2], "the others lack a day, or hold another symbol"
    assert matrix.T.tolist() == [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]
    assert trial_matrix(every, days(WEEK[3:], bars={"ES": ("y", "z")}))[0] == known[:3]
    assert list_looks([OPENINGS[0]], asked) == [OPENINGS[0]], (
        "a line of an earlier version, by its data"
    )
    assert list_looks([OPENINGS[4]], asked) == []


def test_a_configuration_and_a_seed_are_one_trial_however_often_it_is_evaluated():
    assert trials_of(list_looks(OPENINGS, days(WEEK))) == [
        ("a", "d", "0"),
        ("b", "d", "0"),
        ("b", "d", "1"),
        ("c", "d", "0"),
    ]


def test_the_matrix_has_the_trials_with_every_day_and_their_latest_result():
    trials, matrix = trial_matrix(list_looks(OPENINGS, days(WEEK)), days(WEEK[1:]))
    assert trials == [("a", "d", "0"), ("b", "d", "0"), ("b", "d", "1")]
    assert matrix.tolist() == [[2, 6, 0], [3, 7, 0], [4, 8, 0], [9, 9, 1]]
    trials, matrix = trial_matrix(OPENINGS, days(["2025-01-01"]))
    assert trials == []
    assert matrix.shape == (1, 0)
    assert np.issubdtype(matrix.dtype, np.float64)


def history(opened=3, trials=1, fault=None):
    return SplitHistory(opened, trials, fault, True, "runs/trials.jsonl")


def test_what_the_report_says():
    (line,) = history().lines()
    assert not missing(line, "looked at 3 times", "1 distinct trial")
    broken = history(None, None, "line 4 was removed")
    (line,) = broken.lines()
    assert line.endswith("n/a: line 4 was removed")
    assert broken.to_json()["opened"] is None
    json.dumps(broken.to_json(), allow_nan=False)


def test_one_trial_is_deflated_by_nothing():
    net = np.random.default_rng(3).normal(2.0, 10.0, 60)
    found = with_policy(with_trials(history(), net[:, None]), net, net[:, None])
    assert found.psr == psr(net)
    assert found.dsr == found.psr
    assert found.whole == 1
    assert found.pbo is not None
    assert found.pbo.value is None
    assert len(found.lines()) == 2
    assert (
        f"(PSR): {found.psr.value:.2f} ({found.psr.low:.2f} .. {found.psr.high:.2f})"
        in found.lines()[1]
    )
    assert list(found.lacking) == ["PBO"]
    assert drop_policy(found).lines() == found.lines()[:1]
    assert history_lines(found)[:2] == found.lines()
    assert len(history_lines(found, {"x": "why"})) == 3


@pytest.mark.slow
def test_trials_deflate_the_best_of_them():
    matrix = np.random.default_rng(4).normal(0.0, 10.0, (64, 12))
    best = matrix[:, matrix.mean(axis=0).argmax()]
    found = with_policy(with_trials(history(15, 12), matrix), best, matrix)
    assert found.dsr == dsr(best, 12, trial_variance(matrix))
    assert found.dsr.value < 0.75 < 0.95 < found.psr.value, "the best of twelve tries without skill"
    assert found.pbo == pbo(matrix)
    assert " 5 to 95 % of cases" in found.lines()[2]
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["dsr"]["value"] == found.dsr.value
    assert document["pbo"]["null_low"] == found.pbo.null_low
    # a trial that lacks a day of this matrix still counts as one that was tried
    more = with_policy(with_trials(history(15, 20), matrix), best, matrix)
    assert more.dsr.value < found.dsr.value


def test_without_a_log_the_number_of_trials_is_unknown():
    net = np.random.default_rng(5).normal(2.0, 10.0, 60)
    none = np.zeros((60, 0))
    found = with_policy(with_trials(history(None, None, "line 4 was removed"), none), net, none)
    assert found.psr == psr(net), "it needs no log"
    assert found.dsr.value is None
    assert "trial log" in found.dsr.why
    assert found.pbo.value is None
    assert "trial log" in found.pbo.why
    nobody = with_policy(with_trials(history(2, 2), none), net, none)
    assert "no trial" in nobody.pbo.why
    assert "of 2 trials" in nobody.dsr.why


def test_the_latest_history_is_the_one_with_most_openings():
    assert latest([history(2), None, history(5), history(3)]) == history(5)
    assert latest([None]) is None
    assert drop_policy(None) is None
