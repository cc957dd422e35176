"""`jaxtrade compare`: differences by hand, intervals, refusals, text and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxtrade.cli import main
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
    assert (against["low"], against["high"], against["why"]) == (None, None, "4 days: too few for an interval")
    assert against["improvement"] is None
    assert main(["compare", str(base), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("4 days (test, 2024-01-01 .. 2024-01-04) of the same data; dollars per day, account rules off")
    assert lines[4].split() == [str(other), "1", "3.50", "+1.50", "n/a", "2", "of", "4", "n/a"]
    assert "interval n/a: 4 days: too few for an interval" in lines
    assert "P(better) n/a: at least 5 policies of each run are needed" in lines


def test_what_the_market_did_to_both_is_no_part_of_the_difference(tmp_path, capsys):
    """Days of +-1,000 dollars, and 2 dollars more on each: alone nothing is certain, paired it is exact."""
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
    assert 0 <= found[1]["improvement"] <= 1
    totals = luck.sum(axis=1)
    wins = [own + 40 * (n + 1) > other for n, own in enumerate(totals) for other in totals]
    assert found[1]["improvement"] == pytest.approx(np.mean(wins))


def test_equal_runs_are_as_good_as_each_other(tmp_path, capsys):
    nets = {f"seed_{n}": np.full(40, 1.0) for n in range(5)}
    one, two = run(tmp_path / "one", nets, FORTY), run(tmp_path / "two", nets, FORTY)
    against = compared(capsys, one, two)["runs"][1]["against_first"]
    assert (against["difference"], against["improvement"], against["days_above"]) == (0.0, 0.5, 0)


def test_runs_that_cannot_be_compared(tmp_path, capsys):
    base = run(tmp_path / "base", {"": [1, 2, 3, 4]}, DAYS)
    assert main(["compare", str(base)]) == 2
    assert "has nothing to be compared with" in capsys.readouterr().err
    other = run(tmp_path / "other", {"": [1, 2, 3, 4]}, DAYS, data="e" * 64)
    assert main(["compare", str(base), str(other)]) == 2
    assert "other data than" in capsys.readouterr().err
    walked = walk(tmp_path / "walk", DAYS + 1, [[1, 1, 1, 1]])
    assert main(["compare", str(base), str(walked)]) == 2
    assert "--shared-days" in capsys.readouterr().err
    assert main(["compare", str(base), str(walked), "--shared-days"]) == 0
    assert capsys.readouterr().out.startswith("3 days (test and walk-forward, 2024-01-02 .. 2024-01-04)")
    assert main(["compare", str(base), str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


def test_it_starts_no_jax(tmp_path):
    base = run(tmp_path / "base", {"": np.arange(40.0)}, FORTY)
    other = run(tmp_path / "other", {"": np.arange(40.0)[::-1]}, FORTY)
    code = ("import sys\nfrom jaxtrade.cli import main\n"
            f"assert main(['compare', {str(base)!r}, {str(other)!r}]) == 0\n"
            "print(sorted({'jax', 'pandas', 'flax', 'matplotlib'} & set(sys.modules)), file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
