"""`jaxtrade compare`: differences by hand, intervals, refusals, text and JSON."""

import json

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.evaluation.run_days import best_of
from jaxtrade.evaluation.statistics import spa
from tests.evaluation.test_run_days import DAYS, dates, run, walk
from tests.messages import refuses

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
    why = against["why"]
    assert "5 days" in why
    assert (against["low"], against["high"]) == (None, None)
    assert against["improvement"]["low"] is None
    assert (found["best"], found["spa"]["consistent"]) == (str(other), None)
    assert main(["compare", str(base), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 days (test, 2024-01-01 .. 2024-01-04) ")
    assert lines[4].split() == [str(other), "1", "3.50", "+1.50", "n/a", "2", "of", "4", "n/a"]
    assert lines[6].split() == ["net", "($)", str(base), str(other)]
    assert [line.split() for line in lines[7:11]] == [
        ["2024-01-01", "10.00", "12.00"],
        ["2024-01-02", "0.00", "-1.00"],
        ["2024-01-03", "-5.00", "-5.00"],
        ["2024-01-04", "3.00", "8.00"],
    ]
    assert str(base) in lines[12]
    assert lines[13].endswith(why)
    assert lines[15].startswith(f"best: {other}; ")
    assert lines[15].endswith(why)


def test_what_was_changed_and_whether_it_changed_a_trade(tmp_path, capsys):
    """Of many days none is printed; of two equal runs none is the best."""
    weights = ("{a: -0.1, b: 1}", "{b: 1}", "{b: 1}")
    trades = ("one", "two", "one")
    nets = ([1.0] * 40, [0.5] * 40, [1.0] * 40)
    made = []
    for name, weight, text, net in zip("xyz", weights, trades, nets, strict=True):
        made.append(run(tmp_path / name, {"": net}, FORTY))
        (made[-1] / "config.yaml").write_text(f"seed: 0\nreward: {{weights: {weight}}}\n")
        (made[-1] / "evaluation" / "test" / "trades.csv").write_text(text)
    x, y, z = map(str, made)
    found = compared(capsys, x, y, z)
    assert found["changed"] == {"reward.weights.a": [-0.1, "-", "-"]}
    assert (found["same_trades"], found["best"]) == ([[x, z]], None)
    assert main(["compare", x, y]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "changed: reward.weights.a: -0.1 / -"
    assert not any(line.startswith("2024-01-01") for line in lines)
    assert lines[-1].startswith(f"best: {x}; ")
    assert main(["compare", x, z]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert x in lines[-2]
    assert z in lines[-2]
    assert not any(line.startswith("best: ") for line in lines)
    assert compared(capsys, y, z)["best"] == z


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


def test_p_is_the_largest_over_the_other_runs():
    daily = np.random.default_rng(9).normal(0, 100, (50, 3)) + np.array([0, 40, 60])
    assert daily.mean(axis=0).argmax() == 2
    expected = max(
        spa(daily[:, [1, 2]], daily[:, 0]).consistent, spa(daily[:, [0, 2]], daily[:, 1]).consistent
    )
    assert best_of(daily).consistent == expected


def test_runs_that_cannot_be_compared(tmp_path, capsys):
    base = run(tmp_path / "base", {"": [1, 2, 3, 4]}, DAYS)
    refuses(capsys, ["compare", str(base)], f"{base}")
    other = run(tmp_path / "other", {"": [1, 2, 3, 4]}, DAYS, data="e" * 64)
    refuses(capsys, ["compare", str(base), str(other)], "other bars")
    walked = walk(tmp_path / "walk", DAYS + np.timedelta64(1, "D"), [[1, 1, 1, 1]])
    refuses(capsys, ["compare", str(base), str(walked)], "--shared-days")
    assert main(["compare", str(base), str(walked), "--shared-days"]) == 0
    assert capsys.readouterr().out.startswith("3 days (")
    refuses(capsys, ["compare", str(base), str(tmp_path / "nowhere")], "nowhere: no such folder")
