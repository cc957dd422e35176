"""Each gate lets the right ablation through and stops a wrong one."""

import numpy as np
import pytest

from tests.ablation.gates import gates
from tests.ablation.made import made_ablation

PLACEBO = "mock:shifted/mock:skilled:0.6"


def passed(name, worth, **more):
    return gates(*made_ablation({"none": 0.0, **worth}, **more))[name]


@pytest.mark.parametrize(
    ("worth", "expected"),
    [
        ({"mock:random": 0.0, PLACEBO: 0.0}, True),
        ({"mock:random": 0.0, PLACEBO: 30.0}, False),
        ({"mock:random": -30.0}, False),
        ({"mock:oracle": 30.0}, None),
    ],
)
def test_g1_no_skill(worth, expected):
    assert passed("G1", worth) is expected


@pytest.mark.parametrize(
    ("worth", "noise", "expected"),
    [
        ({"mock:skilled:0.9": 20.0, "mock:skilled:0.6": 5.0, "mock:oracle": 30.0}, 10.0, True),
        # a step that falls
        ({"mock:skilled:0.9": 5.0, "mock:skilled:0.6": 40.0, "mock:oracle": 60.0}, 10.0, False),
        ({"mock:skilled:0.6": 0.0, "mock:oracle": 0.0}, 10.0, False),  # nothing rises
        # rises, and is still below no advice
        ({"mock:skilled:0.6": -90.0, "mock:oracle": -30.0}, 10.0, False),
        # five standard errors: a difference of 30 with a noise of 400 over 80 agent days is few
        ({"mock:skilled:0.6": 0.0, "mock:oracle": 30.0}, 400.0, False),
        ({"mock:skilled:0.6": 5.0}, 10.0, None),
        ({"mock:oracle": 5.0}, 10.0, None),
    ],
)
def test_g2_skill_pays(worth, noise, expected):
    assert passed("G2", worth, noise=noise) is expected


LATE, LATER = "mock:delayed:5/mock:skilled:0.6", "mock:delayed:30/mock:skilled:0.6"
RARE, RARER = "mock:available:0.5/mock:skilled:0.6", "mock:available:0.1/mock:skilled:0.6"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worth", "expected"),
    [
        ({"mock:skilled:0.6": 30.0, LATE: 20.0, LATER: 10.0}, True),
        ({"mock:skilled:0.6": 10.0, LATE: 30.0}, False),
        ({LATE: 10.0, LATER: 30.0}, False),
        ({"mock:skilled:0.6": 30.0, RARE: 20.0, RARER: 10.0}, True),
        ({RARE: 10.0, RARER: 30.0}, False),
        ({"mock:skilled:0.6": 10.0, RARE: 30.0}, False),
        ({LATE: 0.0}, None),
    ],
)
def test_g3_late_or_rare(worth, expected):
    assert passed("G3", worth) is expected


@pytest.mark.parametrize(
    ("worth", "expected"),
    [
        ({"mock:adversarial:0.6": 0.0}, True),
        ({"mock:adversarial:0.6": 40.0}, True),
        ({"mock:adversarial:0.6": -40.0}, False),
        ({}, None),
    ],
)
def test_g4_adversary(worth, expected):
    assert passed("G4", worth | {"mock:random": 0.0}) is expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([-5.0] * 4 + [5.0] * 16, True),  # loses for a while, then gains again
        ([-5.0] * 20, False),  # never finds out; what was gained before (100) is lost whole
        ([-30.0] * 4 + [5.0] * 16, False),  # finds out too late: 120 of the 100 are gone
        ([0.0] * 15 + [-2.0] * 5, False),
    ],
)  # never below, but still losing at the end
def test_g5_turn(after, expected):
    profit = np.zeros((40, 2, 4))
    profit[:, 1] = np.array([5.0] * 20 + after)[:, None] + np.random.default_rng(0).normal(
        0, 0.1, (40, 4)
    )
    profit[3] = np.nan  # no episode ended there
    assert passed("G5", {"turn": 0.0}, profit=profit, turned=20) is expected


def test_g5_needs_a_turn():
    assert passed("G5", {"mock:random": 0.0}) is None
    assert passed("G5", {"turn": 0.0}) is None


def test_g6_absence():
    silent = "mock:available:0/mock:skilled:0.6"
    assert passed("G6", {silent: 0.0}, digests={silent: "none"}) is True
    assert passed("G6", {silent: 0.0}) is False
    assert passed("G6", {"mock:available:0.5/mock:skilled:0.6": 0.0}) is None


def test_few_days_say_nothing():
    assert passed("G1", {"mock:random": 500.0}, days=4) is None
