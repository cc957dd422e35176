"""What a walk-forward says of its tested days: against the baselines, and of its Sharpe ratio."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.evaluation.run_days import WalkDays, evidence_lines, evidence_of
from jaxtrade.evaluation.statistics import min_trl, probability_of_improvement, psr, spa
from tests.messages import missing

DAYS, SEEDS = 60, 6


def made_days(gain, days=DAYS, seeds=SEEDS):
    """A market whose days deviate by 100 dollars about 0, which `buy_hold` earns and on top of
    which each seed makes
    `gain` a day, give or take 20."""
    generator = np.random.default_rng(5)
    market = generator.normal(0, 100, days)
    market -= market.mean()
    net = market + gain + generator.normal(0, 20, (seeds, days))
    return WalkDays(
        date=np.arange(days),
        day_bars=np.full(days, ""),
        fold=np.repeat([0, 1], [days - days // 2, days // 2]).astype(np.int32),
        net=net,
        account_net=net,
        baselines=np.array(["buy_hold"]),
        baseline_net=market[None],
        in_sample_net=np.zeros((seeds, 2)),
        seeds=np.arange(seeds),
    )


def test_the_figures_are_those_of_the_statistics():
    days = made_days(gain=5)
    found, market = evidence_of(days), days.baseline_net[0]
    assert found["spa"]["p"] == spa(days.net.T, market).consistent
    wanted = probability_of_improvement(days.net, market[None], rule=True)
    assert found["improvement"]["buy_hold"] == wanted._asdict() | {"level": 0.95}
    for name, figure in (("psr", psr), ("min_trl", min_trl)):
        assert found[name]["of_mean"] == figure(days.net.mean(axis=0))._asdict() | {"level": 0.95}
        assert [each["value"] for each in found[name]["by_seed"]] == [
            figure(own).value for own in days.net
        ]


def test_a_day_that_several_folds_test_counts_once():
    """The same record in each of two folds is no longer record."""
    once = made_days(gain=5)
    twice = replace(
        once,
        **{
            name: np.tile(getattr(once, name), 2)
            for name in ("date", "net", "account_net", "baseline_net")
        },
        fold=np.repeat([0, 1], DAYS).astype(np.int32),
    )
    assert evidence_of(twice) == evidence_of(once)


def test_too_few_days_and_one_seed_are_said():
    few, one = evidence_of(made_days(5, days=4)), evidence_of(made_days(5, seeds=1))
    why = "it needs 5 days, there are 4"
    assert few["spa"] == {"p": None, "lower": None, "upper": None, "why": why}
    assert (few["psr"]["of_mean"]["why"], few["min_trl"]["by_seed"][0]["why"]) == (why, why)
    assert one["improvement"]["buy_hold"]["value"] is None
    assert one["improvement"]["buy_hold"]["why"].endswith("it needs several seeds")
    lines = list(evidence_lines(few | {"independent_days": 4}))
    assert not missing(lines[0], "SPA", f"n/a ({why})")
    assert not missing(lines[1], "interval n/a", "5 days", "are 4")
    assert not missing(lines[2], "(PSR), of the mean", f"n/a ({why})")
    single = list(evidence_lines(one | {"independent_days": DAYS}))
    assert not missing(single[1], "buy_hold", "n/a", "single policy")
    assert "one seed" not in single[2]


def test_the_printed_lines_have_the_figures():
    found = evidence_of(made_days(gain=60))
    lines = list(evidence_lines(found | {"independent_days": DAYS}))
    each, least = found["psr"]["of_mean"], [seed["value"] for seed in found["psr"]["by_seed"]]
    assert f"p = {found['spa']['p']:.3f};" in lines[0]
    assert lines[2].endswith(
        f": {each['value']:.2f}, 95% interval {each['low']:.2f} to {each['high']:.2f}; one seed "
        f"{min(least):.2f} to {max(least):.2f}"
    )
    assert not missing(
        lines[3],
        "MinTRL",
        f"there are {DAYS}",
        f"{found['min_trl']['of_mean']['value']:,.0f}",
    )


@pytest.mark.parametrize("gain", [5, -20])
def test_a_record_without_an_end_says_so(gain):
    """A small gain may be 0 in truth, so no number of days is the upper end; below 0 no number is
    enough.
    """
    found = evidence_of(made_days(gain))["min_trl"]["of_mean"]
    [line] = [
        line
        for line in evidence_lines(evidence_of(made_days(gain)) | {"independent_days": DAYS})
        if "MinTRL" in line
    ]
    assert found["why"] is not None
    assert found["why"] in line
    assert (found["value"] is None) == (gain < 0)
