"""`jaxtrade compare`: differences by hand, intervals, refusals, text and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.evaluation.run_days import best_of
from jaxtrade.evaluation.statistics import spa
from tests.evaluation.test_run_days import DAYS, dates, run, walk
from tests.structure import ROOT

FORTY = dates("2024-01-01", 40)


def compared(capsys, *words):
    assert main(["compare", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_differences_by_hand(tmp_path, capsys):
    base = run(tmp_path / "base", {"": [10, 0, -5, 3]}, DAYS)
    other = run(tmp_path / "other", {"": [12, -1, -5, 8]}, DAYS)
    found = compared(capsys, base, other)
    assert (found["days"], found["first_day"], found["last_day"]) == (4, "2024-01-01", "2024-01-04")
    assert [each["mean"] for each in found["runs"]] == [2.0, 3.5]
    first, second = found["runs"]
    assert first["against_first"] is None
    against = second["against_first"]
    assert (against["difference"], against["days_above"], against["days"]) == (1.5, 2, 4)
    assert (against["low"], against["high"], against["why"]) == (
        None,
        None,
        "it needs 5 days, there are 4",
    )
    assert against["improvement"]["low"] is None
    assert (found["best"], found["spa"]["consistent"]) == (str(other), None)
    assert main(["compare", str(base), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "4 days (test, 2024-01-01 .. 2024-01-04) on the same bars; dollars per day, account rules off"
    )
    assert lines[4].split() == [str(other), "1", "3.50", "+1.50", "n/a", "2", "of", "4", "n/a"]
    assert lines[6:] == [
        f"differences are from {base}, paired by day",
        "interval n/a: it needs 5 days, there are 4",
        "P(better) n/a: an interval needs 5 days, there are 4",
        f"best: {other}; against the rest n/a (SPA): it needs 5 days, there are 4",
    ]


def test_what_the_market_did_to_both_is_no_part_of_the_difference(tmp_path, capsys):
    """Days of +-1,000 dollars, and 2 dollars more on each: alone nothing is certain, paired it is
    exact.
    """
    noise = np.random.default_rng(1).normal(0, 1_000, 40)
    base = run(tmp_path / "base", {"": noise}, FORTY)
    better = run(tmp_path / "better", {"": noise + 2.0}, FORTY)
    same = run(tmp_path / "same", {"": noise + np.where(np.arange(40) % 2, 30.0, -30.0)}, FORTY)
    found = [each["against_first"] for each in compared(capsys, base, better, same)["runs"]]
    assert found[1]["difference"] == pytest.approx(2.0)
    assert found[1]["low"] == pytest.approx(2.0)
    assert found[1]["high"] == pytest.approx(2.0)
    assert (found[1]["days_above"], found[1]["resampled"]) == (40, "days")
    assert found[2]["low"] < 0 < found[2]["high"]
    assert found[2]["days_above"] == 20


def test_seeds_are_paired_where_both_runs_have_them(tmp_path, capsys):
    luck = np.random.default_rng(2).normal(0, 500, (6, 40))
    base = run(tmp_path / "base", {f"seed_{n}": luck[n] for n in range(6)}, FORTY)
    paired = run(tmp_path / "paired", {f"seed_{n}": luck[n] + n + 1 for n in range(6)}, FORTY)
    others = run(tmp_path / "others", {f"seed_{n + 9}": luck[n] + n + 1 for n in range(5)}, FORTY)
    found = [each["against_first"] for each in compared(capsys, base, paired, others)["runs"]]
    assert found[1]["difference"] == pytest.approx(3.5)
    assert found[1]["resampled"] == "days and policies"
    assert found[1]["low"] > 0
    assert found[2]["resampled"] == "days"
    totals = luck.sum(axis=1)
    wins = [own + 40 * (n + 1) > other for n, own in enumerate(totals) for other in totals]
    improvement = found[1]["improvement"]
    assert improvement["value"] == pytest.approx(np.mean(wins))
    assert 0 <= improvement["low"] <= improvement["value"] <= improvement["high"] <= 1


def test_equal_runs_are_as_good_as_each_other(tmp_path, capsys):
    nets = {f"seed_{n}": np.full(40, 1.0) for n in range(5)}
    one, two = run(tmp_path / "one", nets, FORTY), run(tmp_path / "two", nets, FORTY)
    against = compared(capsys, one, two)["runs"][1]["against_first"]
    assert (against["difference"], against["improvement"]["value"], against["days_above"]) == (
        0.0,
        0.5,
        0,
    )


@pytest.mark.slow
def test_the_best_of_many_runs_without_skill_is_not_taken_for_better(tmp_path, capsys):
    """Ten runs of noise: against the first alone the best looks good, against all of them it does
    not.
    """
    noise = np.random.default_rng(7).normal(0, 100, (10, 60))
    days = dates("2024-01-01", 60)
    runs = [run(tmp_path / f"run{n}", {"": noise[n]}, days) for n in range(10)]
    found = compared(capsys, *runs)
    best = int(noise.mean(axis=1).argmax())
    assert found["best"] == str(runs[best])
    assert found["spa"]["consistent"] > 0.2
    skilled = run(tmp_path / "skilled", {"": noise[0] + 200.0}, days)
    found = compared(capsys, *runs, skilled)
    assert found["best"] == str(skilled)
    assert found["spa"]["consistent"] is None, (
        "it makes a fixed amount more than the first on every day"
    )
    other = run(tmp_path / "other", {"": np.random.default_rng(8).normal(200, 100, 60)}, days)
    found = compared(capsys, *runs, other)
    assert (found["best"], found["spa"]["consistent"] < 0.01) == (str(other), True)


def test_p_is_the_largest_over_the_other_runs():
    daily = np.random.default_rng(9).normal(0, 100, (50, 3)) + np.array([0, 40, 60])
    assert daily.mean(axis=0).argmax() == 2
    expected = max(
        spa(daily[:, [1, 2]], daily[:, 0]).consistent, spa(daily[:, [0, 2]], daily[:, 1]).consistent
    )
    assert best_of(daily).consistent == expected


def test_runs_that_cannot_be_compared(tmp_path, capsys):
    base = run(tmp_path / "base", {"": [1, 2, 3, 4]}, DAYS)
    assert main(["compare", str(base)]) == 2
    assert "has nothing to be compared with" in capsys.readouterr().err
    other = run(tmp_path / "other", {"": [1, 2, 3, 4]}, DAYS, data="e" * 64)
    assert main(["compare", str(base), str(other)]) == 2
    assert "other bars than" in capsys.readouterr().err
    walked = walk(tmp_path / "walk", DAYS + np.timedelta64(1, "D"), [[1, 1, 1, 1]])
    assert main(["compare", str(base), str(walked)]) == 2
    assert "--shared-days" in capsys.readouterr().err
    assert main(["compare", str(base), str(walked), "--shared-days"]) == 0
    assert capsys.readouterr().out.startswith(
        "3 days (test and walk-forward, 2024-01-02 .. 2024-01-04)"
    )
    assert main(["compare", str(base), str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


@pytest.mark.slow
def test_it_starts_no_jax(tmp_path):
    base = run(tmp_path / "base", {"": np.arange(40.0)}, FORTY)
    other = run(tmp_path / "other", {"": np.arange(40.0)[::-1]}, FORTY)
    code = (
        "import sys\nfrom jaxtrade.cli import main\n"
        f"assert main(['compare', {str(base)!r}, {str(other)!r}]) == 0\n"
        "print(sorted({'jax', 'pandas', 'flax', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
