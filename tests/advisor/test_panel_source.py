"""A panel's source: rows of every member in its own part of the table, fair shares, figures put
together.
"""

import numpy as np
import pytest

from jaxtrade.advisor.host.service import PanelSource, merge_counts
from jaxtrade.advisor.host.types import ServiceCounts
from tests.advisor.bridge_parts import HandSource, row

BARS = 100


class Given(HandSource):
    """A member with answers ready."""

    def __init__(self, *bars):
        super().__init__(map(row, bars))

    def wanted(self):
        return [[bar for bar, _ in wants] for wants in self.wants]

    def statistics(self):
        counts = ServiceCounts(asked=len(self.wants))
        counts.latency.add(0.5)
        counts.failures["timeout"] += 1
        return counts.snapshot(0, 0, mode="asking", cost=1.5)


def panel_of(members, recorded=()):
    return PanelSource(members, [f"member {i}" for i in range(len(members))], BARS, recorded)


def test_an_earlier_process_s_rows_are_not_asked_for_again():
    members = [Given(), Given()]
    panel_of(members, (3, BARS + 4)).want([(3, 1.0), (4, 1.0)])
    assert [member.wanted() for member in members] == [[[4]], [[3]]]


@pytest.mark.parametrize("deltas", [0, 1, 2])
def test_a_member_with_many_answers_leaves_room_for_the_others(deltas):
    source = panel_of([Given(*range(50)), Given(*range(50)), Given(7)])
    found = source.take(deltas, 12)
    by_member = np.bincount([row.bar // BARS for row in found], minlength=3)
    assert by_member[2] == 1
    assert by_member[:2].min() >= 4
    assert len(found) <= 12
    assert len(source.take(1, 12)) == 12  # what one leaves, the others use


def test_every_member_is_asked_until_it_has_answered():
    members = [Given(3), Given()]
    source = panel_of(members)
    source.want([(3, 1.0), (4, 2.0)])
    source.take(0, 8)
    source.want([(3, 1.0), (4, 2.0)])
    assert [member.wanted() for member in members] == [[[3, 4], [4]], [[3, 4], [3, 4]]]
    assert sorted(bar for bar, _ in source.in_flight()) == [3, 4]
    source.stop()
    assert [member.stops for member in members] == [1, 1]


def test_figures_are_put_together_and_kept_apart():
    source = panel_of([Given(), Given()])
    source.want([(1, 1.0)])
    found = source.statistics()
    names = ("asked", "failures", "cost", "mode")
    assert [found[name] for name in names] == [2, {"timeout": 2}, 3.0, "asking"]
    assert sum(found["latency"]["counts"]) == 2
    assert [member["asked"] for member in found["members"]] == [1, 1]
    unknown = merge_counts([{"cost": 1.0, "mode": "a"}, {"cost": None, "mode": "b"}])
    assert unknown == {"cost": None, "mode": "a; b"}
