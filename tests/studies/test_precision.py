"""The figures of the learning curves, from made-up curves; a quick run of the bench is slow."""

import numpy as np

from bench.studies import interval, precision
from bench.table import shortened


def test_figures_of_a_curve_by_hand():
    shares = np.array([[0.0, 0.2], [0.4, 0.6], [0.6, 1.0]])
    reference = shares - [[0.0, 0.1]]
    found = shortened(precision.summary(shares, np.array([1e-7, 3e-7]), reference, last=2))
    assert found["mean"] == [0.1, 0.5, 0.8]
    assert found["least"] == [0.0, 0.4, 0.6]
    assert found["greatest"] == [0.2, 0.6, 1.0]
    assert found["end_of_each_seed"] == [0.5, 0.8]
    assert (found["end"], found["end_minus_float32"]) == (0.65, 0.05)
    assert found["largest_ratio_error"] == 3e-7


def test_the_interval_holds_the_mean_and_shrinks_with_agreement():
    low, high = interval(np.mean, np.array([0.0, 0.1, 0.2, 0.3]))
    assert 0.0 < low < 0.15 < high < 0.3
    assert interval(np.mean, np.full(8, 0.25)) == [0.25, 0.25]
