"""The study of crowding: its means and ranges by hand, and a quick result."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.studies import crowding


def test_means_are_of_the_last_quarter_and_skip_what_is_undefined() -> None:
    """Eight updates of two agents: the last two count."""
    values = np.arange(16.0).reshape(8, 2)
    values[7, 1] = np.nan
    assert crowding.ends({"x": values}) == {"x": (12 + 13 + 14) / 3}


def test_groups_are_summed_up() -> None:
    groups = [dict.fromkeys(crowding.FIGURES, value) for value in (1.0, 4.0, 1.0)]
    assert crowding.summed_up(groups)["impact_paid"] == {"mean": 2.0, "low": 1.0, "high": 4.0}


@pytest.mark.slow
@pytest.mark.long
def test_in_a_quick_result_money_adds_up() -> None:
    found = crowding.run(True)
    json.dumps(found, allow_nan=False)
    alone, crowd = (found["by_kappa"][kappa] for kappa in ("0", "4000"))
    assert alone["offset_high"]["mean"] == alone["impact_paid"]["mean"] == 0
    assert crowd["offset_high"]["mean"] > 4
    for figures in (
        alone,
        crowd,
    ):  # fees are what is missing from zero: at most two sides in each step
        fees = -(8 * figures["crowding_profit"]["mean"] + figures["maker_profit"]["mean"])
        assert 0 < fees < 8 * 1000 * 2 * 2.1
