"""Histogram and the law of counts."""

from __future__ import annotations

import json

import pytest

from jaxtrade.advisor.host.statistics import EDGES, Histogram, Statistics
from tests.advisor.balance import PLACES, imbalance


def test_buckets_are_logarithmic_and_closed_above():
    histogram = Histogram()
    for seconds in (0.0, 0.001, 0.00101, 0.01, 1.0, 100.0, 100.1, 5000.0):
        histogram.add(seconds)
    assert sum(histogram.counts) == 8
    assert histogram.counts[0] == 2
    assert histogram.counts[1] == 1
    assert histogram.counts[EDGES.index(0.01)] == 1
    assert histogram.counts[EDGES.index(100.0)] == 1
    assert histogram.counts[-1] == 2
    assert (histogram.longest, len(EDGES)) == (5000.0, 26)


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
    counts = Statistics(
        submitted=9, deduped=1, cache_hit=1, done=1, failed=1, expired=1, dropped=1, poisoned=1
    )
    assert imbalance(counts.snapshot(1, 1)) == 0
    assert imbalance(counts.snapshot(0, 1)) == 1
    counts.done += 1
    assert imbalance(counts.snapshot(1, 1)) == -1


@pytest.mark.parametrize("place", PLACES)
def test_the_law_counts_every_place(place):
    snapshot = Statistics(submitted=1).snapshot(0, 0)
    assert imbalance(snapshot | {place: 1}) == 0


def test_counts_do_not_grow_with_what_they_count():
    """The old one kept every confidence and every latency in a list."""
    counts = Statistics()
    for number in range(2000):
        counts.latency.add(0.001 * number)
    assert len(counts.latency.counts) == len(EDGES) + 1
    assert not [name for name, value in vars(counts).items() if isinstance(value, list)]


def test_a_snapshot_is_json_and_shares_nothing():
    counts = Statistics()
    counts.failures["schema"] += 1
    counts.http[503] += 2
    found = counts.snapshot(0, 0, mode="asking")
    counts.failures["schema"] += 1
    counts.latency.add(1.0)
    assert json.loads(json.dumps(found)) == found
    assert (found["failures"], found["http"], found["mode"]) == (
        {"schema": 1},
        {"503": 2},
        "asking",
    )
    assert sum(found["latency"]["counts"]) == 0


def test_buckets_of_ones_own():
    histogram = Histogram((1e-6, 1e-5))
    for seconds in (5e-7, 5e-6, 4e-5):
        histogram.add(seconds)
    assert histogram.counts == [1, 1, 1]
    assert (histogram.quantile(0.5), histogram.quantile(1.0)) == (1e-5, 4e-5)
