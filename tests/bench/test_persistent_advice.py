"""The bench of skill-less advice that persists: its figures by hand, and that its ablation finds
nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench import persistent_advice as bench
from bench.catalogue import Options


def test_the_interval_of_a_share_by_hand() -> None:
    """10 of 10, z = 1.96: the middle is 11.92 / 13.84 and half the width 1.92 / 13.84, so from
    0.722 to 1.
    """
    assert bench.share_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-3)
    low, high = bench.share_interval(950, 1000)
    assert (low, high) == pytest.approx((0.9347, 0.9619), abs=1e-3)


def test_runs_without_trust_are_counted() -> None:
    found = bench.trust_figures(np.array([[0.0, 0.5], [0.0, 0.0], [0.1, 0.0], [0.0, 0.0]]))
    first, placebo = (found[kind] for kind in bench.ADVICE)
    assert (first["runs"], first["without_trust"], first["share_without_trust"]) == (4, 3, 0.75)
    assert (first["largest_trust"], placebo["largest_trust"], placebo["mean_trust"]) == (
        0.1,
        0.5,
        0.125,
    )


@pytest.mark.slow
def test_every_run_has_a_market_and_opinions_of_its_own() -> None:
    """Only such runs are independent. Equal numbers give equal runs."""
    first, again, other = (bench.run_of(number) for number in (1, 1, 2))
    assert first == again
    assert (
        (first.seed, other.seed) == (first.data.synthetic_seed, other.data.synthetic_seed) == (1, 2)
    )
    assert len(bench.trust_of(first)) == len(bench.ADVICE)


@pytest.mark.slow
@pytest.mark.long
def test_an_ablation_finds_persistent_advice_worth_nothing() -> None:
    found = bench.run(Options(quick=True))
    assert set(found["trust"]) == set(bench.ADVICE)
    assert len(found["ablation"]) == len(bench.FUSIONS) * (len(bench.KINDS) - 1)
    for figures in found["ablation"].values():
        low, high = figures["deflated"]
        assert low <= 0 <= high
        assert figures["deflated_contains_0"] is True
    without = [
        figures
        for name, figures in found["ablation"].items()
        if name.startswith("trust: ") and figures["largest_trust"] == 0
    ]
    assert all(
        figures["interval"] == [0.0, 0.0] for figures in without
    )  # no trust, no difference at all
    assert without
