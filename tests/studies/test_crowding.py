"""The study of crowding: its means and ranges by hand, and a quick result."""

import numpy as np

from bench.studies import crowding


def test_means_are_of_the_last_quarter_and_skip_what_is_undefined():
    """Eight updates of two agents: the last two count."""
    values = np.arange(16.0).reshape(8, 2)
    values[7, 1] = np.nan
    assert crowding.ends({"x": values}) == {"x": (12 + 13 + 14) / 3}


def test_groups_are_summed_up():
    groups = [dict.fromkeys(crowding.FIGURES, value) for value in (1.0, 4.0, 1.0)]
    assert crowding.summed_up(groups)["impact_paid"] == {"mean": 2.0, "low": 1.0, "high": 4.0}
