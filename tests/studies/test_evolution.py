"""The comparison of population-based training: its interval by hand, its fairness, and that the
bench runs.
"""

import pytest

from bench.studies import evolution


def test_the_interval_of_paired_differences_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, t of 2 degrees of freedom 4.3027: 2 +- 4.3027 /
    sqrt(3).
    """
    found = evolution.difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (found["mean"], found["each"], found["above_0"]) == (2.0, [1.0, 2.0, 3.0], 3)
    assert found["interval"] == pytest.approx([-0.4842, 4.484], abs=1e-3)


def test_nothing_is_chosen_by_the_held_out_sessions():
    config = evolution.config_of(4, 0)
    assert config.split.validation_sessions == config.split.test_sessions == 20
    assert config.evolve.keys.keys() == evolution.KEYS.keys()
