"""Histogram and the law of counts."""

import pytest

from jaxtrade.advisor.host.types import Histogram, ServiceCounts
from tests.advisor.balance import imbalance


def test_quantiles_are_upper_edges_and_never_above_the_longest():
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for _ in range(98):
        histogram.add(0.012)
    histogram.add(3.0)
    histogram.add(700.0)
    assert histogram.quantile(0.5) == pytest.approx(10**-1.8)
    assert histogram.quantile(0.99) == pytest.approx(10**0.6)
    assert histogram.quantile(1.0) == 700.0


def test_the_law_finds_what_is_lost_and_what_is_counted_twice():
    counts = ServiceCounts(
        submitted=9, deduped=1, cache_hit=1, done=1, failed=1, expired=1, dropped=1, poisoned=1
    )
    assert imbalance(counts.snapshot(1, 1)) == 0
    assert imbalance(counts.snapshot(0, 1)) == 1
    counts.done += 1
    assert imbalance(counts.snapshot(1, 1)) == -1
