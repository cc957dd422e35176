"""The test for superior ability: another package's p-values, known answers, its size, and what is
undefined.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from jaxtrade.evaluation.statistics import spa
from tests.evaluation.statistics import oracles
from tests.messages import missing

NOISE = np.random.default_rng(3).standard_normal((120, 6))
FLAT = np.zeros(120)


def close(answers):
    """The p-values of an oracle that are further than 0.05 from ours."""
    found = []
    for number, (shape, answer) in enumerate(zip(oracles.SPA, answers, strict=True)):
        ours = spa(*oracles.races(shape, number))
        found += [
            f"{shape} {name}: {getattr(ours, name)} is not {p}"
            for name, p in answer.items()
            if abs(getattr(ours, name) - p) > 0.05
        ]
    return found


def test_the_p_values_of_arch():
    """Of version 8.0.0, kept in oracles.json: from 0.003 to 0.94."""
    answers = json.loads(oracles.FILE.read_text(encoding="utf-8"))["spa"]
    assert len({name for answer in answers for name in answer}) == 3
    assert close(answers) == []


def hansen(difference, studentised, draws=3000):
    """Hansen (2005), section 2, in loops: his three p-values of float[D, K] differences. The terms
    of T are taken from Student's t to the normal distribution, as `spa` says."""
    days, count = difference.shape
    block, generator = round(days ** (1 / 3)), np.random.default_rng(17)
    drawn = np.empty((draws, count))
    for draw in range(draws):
        rows = []
        while len(rows) < days:
            begin = int(generator.integers(days))
            rows += [(begin + step) % days for step in range(block)]
        drawn[draw] = difference[rows[:days]].mean(axis=0)
    mean, units = difference.mean(axis=0), days / block
    root, degrees = np.sqrt(days), units - 1
    spread = [root * drawn[:, k].std() for k in range(count)]
    divisor = spread if studentised else [1.0] * count
    terms = [root * mean[k] / divisor[k] for k in range(count)]
    if studentised:
        terms = [norm.isf(student.sf(term * np.sqrt(degrees / units), degrees)) for term in terms]
    found = {}
    for name in ("lower", "consistent", "upper"):
        reached = 0
        for draw in range(draws):
            best = 0.0
            for k in range(count):
                bad = root * mean[k] < -spread[k] * np.sqrt(2 * np.log(np.log(days)))
                centre = {
                    "lower": max(mean[k], 0.0),
                    "consistent": 0.0 if bad else mean[k],
                    "upper": mean[k],
                }[name]
                best = max(best, root * (drawn[draw, k] - centre) / divisor[k])
            reached += best >= max(0.0, *terms)
        found[name] = (1 + reached) / (draws + 1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("skill", [0.12, 0.3])
def test_the_formula_where_policies_swing_unequally(skill):
    """A calm policy with skill beside wild ones without, and one that loses: arch's figures, which
    are not divided by their spread, would be those of the wild ones."""
    generator = np.random.default_rng(21)
    spread = np.array([0.1, 1.0, 30.0, 30.0, 3.0])
    noise = generator.standard_normal((125, 5))
    difference = (noise - noise.mean(axis=0) + np.array([skill, 0.0, 0.05, -0.02, -1.0])) * spread
    ours, theirs = spa(difference, np.zeros(125), draws=3000), hansen(difference, studentised=True)
    for name, p in theirs.items():
        assert getattr(ours, name) == pytest.approx(p, abs=0.03), name
    assert abs(hansen(difference, studentised=False)["consistent"] - ours.consistent) > 0.1


def test_a_policy_that_earns_every_day_beats_the_baseline():
    policies = NOISE.copy()
    policies[:, 4] += 1
    found = spa(policies, FLAT)
    assert found.consistent == pytest.approx(1 / 2001)  # no draw reaches it; p is never 0
    assert found.lower <= found.consistent <= found.upper
    assert found.why is None


def test_losers_beat_nothing():
    assert spa(NOISE - 2, FLAT) == (1.0, 1.0, 1.0, None)


def test_every_baseline_must_be_beaten():
    """The largest p over baselines: to beat the worst of them is not enough."""
    policy = NOISE[:, 0] + 0.5
    baselines = np.column_stack([FLAT, NOISE[:, 1] - 1, NOISE[:, 2] + 0.6])
    alone = [spa(policy, baseline) for baseline in baselines.T]
    together = spa(policy, baselines)
    assert min(one.consistent for one in alone) < 0.001
    assert together.consistent == max(one.consistent for one in alone) > 0.5


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100))
def test_unit_and_order(seed, scale):
    policies = np.random.default_rng(seed).standard_normal((40, 4)) + 0.1
    plain = spa(policies, np.zeros(40), draws=200)
    assert spa(scale * policies, np.zeros(40), draws=200)[:3] == pytest.approx(plain[:3])
    assert spa(policies[:, ::-1], np.zeros(40), draws=200)[:3] == pytest.approx(plain[:3])
    assert plain.lower <= plain.consistent <= plain.upper


def test_a_policy_that_is_the_baseline_is_left_out():
    assert spa(np.column_stack([NOISE, FLAT]), FLAT) == spa(NOISE, FLAT)


def test_what_is_undefined_says_why():
    few = spa(NOISE[:4], FLAT[:4])
    assert few[:3] == (None, None, None)
    assert not missing(few[3], "5 days", "are 4")
    for policy in (
        FLAT,
        FLAT + 0.1,
        np.tile([1.0, 2, 3, 4, 5], 24),
    ):  # the last one: every block of 5 days is the same
        found = spa(policy, np.column_stack([NOISE[:, 0], FLAT]))
        assert found[:3] == (None, None, None)
        assert "against baseline 2" in found.why


def test_what_is_no_race_is_refused():
    with pytest.raises(ValueError, match="days must"):
        spa(NOISE, FLAT[1:])
    with pytest.raises(ValueError, match="blocks of 121 days"):
        spa(NOISE, FLAT, block=121)
    with pytest.raises(ValueError, match="not finite"):
        spa(NOISE, FLAT * np.nan)
