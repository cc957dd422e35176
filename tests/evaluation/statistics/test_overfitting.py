"""PBO: another package's figures, a plain loop, known answers, its null band, and what is
undefined.
"""

import itertools
import json

import numpy as np
import pytest
from scipy.stats import rankdata

from jaxtrade.evaluation.statistics import pbo
from jaxtrade.evaluation.statistics.selection import below_median, halves
from tests.evaluation.statistics import oracles

NOISE = np.random.default_rng(0).standard_normal((240, 20))


@pytest.mark.parametrize("number", range(len(oracles.PBO)))
def test_the_figures_of_purgedcv(number):
    """Of version 0.1.11, kept in oracles.json."""
    shape = oracles.PBO[number]
    expected = json.loads(oracles.FILE.read_text(encoding="utf-8"))["pbo"][number]
    assert below_median(
        oracles.matrix(shape, number), shape.splits, halves(shape.splits)
    ) == pytest.approx(expected)


def test_a_plain_loop_over_halves():
    net = oracles.matrix(oracles.Shape(53, 11), 5)
    blocks, below = np.array_split(np.arange(53), 6), 0
    ways = list(itertools.combinations(range(6), 3))
    for way in ways:
        inside = np.concatenate([blocks[i] for i in way])
        scores = []
        for rows in (net[inside], np.delete(net, inside, axis=0)):
            flat = np.ptp(rows, axis=0) == 0
            scores.append(
                np.where(
                    flat, 0.0, rows.mean(axis=0) / np.where(flat, 1.0, rows.std(axis=0, ddof=1))
                )
            )
        below += rankdata(scores[1])[scores[0].argmax()] < 6
    assert below_median(net, 6, halves(6)) == pytest.approx(below / len(ways))


def test_a_dominant_trial_is_not_overfitted():
    net = NOISE.copy()
    net[:, 7] += 3
    found = pbo(net, draws=20)
    assert found.value == 0.0
    assert found.null_low > 0  # the trial's mean is no part of its noise


def test_noise_has_one_half():
    """Over 300 matrices the mean is 0.50 +- 0.03; single ones are nearly anything."""
    generator = np.random.default_rng(0)
    found = [below_median(generator.standard_normal((240, 20)), 10, halves(10)) for _ in range(300)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.03)
    assert np.quantile(found, [0.05, 0.95]) == pytest.approx([0.17, 0.84], abs=0.05)


def test_the_null_band_is_that_of_noise():
    """240 days, 20 trials, 8 blocks: 0.19 to 0.87 was measured over fresh matrices."""
    found = pbo(NOISE, splits=8, draws=1000)
    assert (found.null_low, found.null_high) == pytest.approx((0.19, 0.87), abs=0.06)
    assert found == pbo(NOISE, splits=8, draws=1000)
    assert found != pbo(NOISE, splits=8, draws=1000, seed=1)


@pytest.mark.parametrize("factor", [1e-3, 1000.0])
def test_the_unit_does_not_matter(factor):
    assert below_median(factor * NOISE, 8, halves(8)) == below_median(NOISE, 8, halves(8))


def test_trials_that_never_trade_are_no_skill():
    """All but one lose and one never trades: it is the best in both halves."""
    net = NOISE - 2
    net[:, 3] = 0
    assert pbo(net, splits=8, draws=2).value == 0.0


@pytest.mark.parametrize(
    ("net", "splits", "says"),
    [
        (NOISE[:, :9], 16, "10 trials, there are 9"),
        (NOISE[:31], 16, "32 days, there are 31"),
        (np.zeros((64, 12)), 16, "no trial varies"),
        (np.ones((64, 12)) * np.arange(12), 16, "no trial varies"),
    ],
)
def test_what_is_undefined_says_why(net, splits, says):
    found = pbo(net, splits)
    assert found[:3] == (None, None, None)
    assert says in found.why


@pytest.mark.parametrize("splits", [0, 1, 7])
def test_blocks_come_in_pairs(splits):
    with pytest.raises(ValueError, match="even number of blocks"):
        pbo(NOISE, splits)


@pytest.mark.slow
def test_the_null_band_holds_nine_in_ten():
    """Also where trials resemble each other, and half of them are nearly the same one."""
    generator, held = np.random.default_rng(5), 0
    for i in range(200):
        net = 0.9**0.5 * generator.standard_normal((240, 1)) + 0.1**0.5 * generator.standard_normal(
            (240, 20)
        )
        net[:, :10] = 0.95 * net[:, :1] + 0.05 * net[:, :10]
        found = pbo(net, 8, seed=i)
        held += found.null_low <= found.value <= found.null_high
    assert held / 200 == pytest.approx(0.9, abs=0.05)
