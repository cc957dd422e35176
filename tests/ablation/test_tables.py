"""What every kind says about a small market, and how right it is."""

import numpy as np
import pytest

from jaxtrade.ablation.tables import make_tables, skill
from jaxtrade.advisor.table import market_entries, save_table
from jaxtrade.data.market import load_market
from jaxtrade.errors import ConfigError, DataError
from tests.ablation.made import tiny


@pytest.fixture(scope="module")
def market():
    return load_market(tiny())


def hold(direction):
    return [0.0, max(direction, 0.0), max(-direction, 0.0), 0.8, 0.5, 30.0]


def test_skill_by_hand():
    rows = np.array([hold(1), hold(-1), hold(0), hold(1), hold(1)], np.float32)
    followed = np.array([0, 1, 1, -1, 1, 0, 1], np.int8)
    bars = np.array([1, 2, 3, 4, 5], np.int32)  # right, wrong, hold, right, nothing came
    found = skill(bars, rows, followed, np.arange(1, 7))
    assert found.advised == pytest.approx(5 / 6)
    assert found.scored == 3
    assert found.hit_rate == pytest.approx(2 / 3)
    assert found.brier == pytest.approx((2 * 0.2**2 + 0.8**2) / 3, abs=1e-6)
    assert skill(bars, rows, followed, np.array([3, 5, 6])) == (2 / 3, None, None, 0)
    assert skill(bars[:0], rows[:0], followed, np.array([3])) == (0.0, None, None, 0)


@pytest.mark.slow
def test_kinds_say_what_they_are(market):
    kinds = (
        "none",
        "mock:skilled:0.7",
        "mock:permuted/mock:skilled:0.7",
        "turn:0.7",
        "mock:available:0/mock:oracle",
        "mock:oracle",
        "rules",
    )
    tables, followed, askable = make_tables(kinds, tiny(), market)
    by_kind = {table.kind: table for table in tables}
    asked = np.flatnonzero(askable)
    rates = {
        kind: skill(*table.latest, followed, asked).hit_rate for kind, table in by_kind.items()
    }
    assert rates["mock:oracle"] == 1.0
    assert rates["mock:skilled:0.7"] == pytest.approx(0.7, abs=0.05)
    assert rates["mock:permuted/mock:skilled:0.7"] == pytest.approx(0.5, abs=0.05)
    assert rates["turn:0.7"] == pytest.approx(0.3, abs=0.05)  # as it ends
    assert np.array_equal(
        by_kind["turn:0.7"].rows, by_kind["mock:skilled:0.7"].rows
    )  # as it begins
    assert np.array_equal(by_kind["rules"].bars, asked)
    assert len(by_kind["none"].bars) == len(by_kind["mock:available:0/mock:oracle"].bars) == 0
    assert [table.kind for table in tables if table.uses_future] == [
        "mock:skilled:0.7",
        "turn:0.7",
        "mock:available:0/mock:oracle",
        "mock:oracle",
    ]
    shuffled = by_kind["mock:permuted/mock:skilled:0.7"].rows
    assert np.array_equal(
        np.sort(shuffled, axis=0), np.sort(by_kind["mock:skilled:0.7"].rows, axis=0)
    )


@pytest.mark.slow
@pytest.mark.parametrize("head", ["mock:shifted/", "mock:permuted/"])
def test_the_placebo_of_a_snapshot_is_that_of_its_advisor(market, tmp_path, head):
    """The answers of `rules`, kept and moved, are those of the moved `rules`; bars without an
    answer stay without.
    """
    (rules, moved), _, _ = make_tables(["rules", f"{head}rules"], tiny(), market)
    path = tmp_path / "kept.npz"
    save_table(path, rules.bars, rules.rows, market_entries(market) | {"advisor": "rules"})
    (placebo,), _, _ = make_tables([f"{head}table:{path}"], tiny(), market)
    assert np.array_equal(placebo.bars, moved.bars)
    assert np.array_equal(placebo.rows, moved.rows)
    assert not np.array_equal(placebo.rows, rules.rows)
    save_table(
        path,
        rules.bars[::2],
        rules.rows[::2],
        market_entries(market) | {"identity": {"of.future": "ab"}},
    )
    (some,), _, _ = make_tables([f"{head}table:{path}"], tiny(), market)
    assert 0 < len(some.bars) < len(moved.bars)
    assert np.array_equal(some.rows, moved.rows[np.isin(moved.bars, some.bars)])
    assert not some.uses_future  # what it knew of other bars tells nothing of these


@pytest.mark.parametrize(
    ("identity", "reported"), [({"kind": "rules"}, False), ({"of.future": "ab"}, True)]
)
def test_a_kept_table_is_read_and_flagged(market, tmp_path, identity, reported):
    path = tmp_path / "kept.npz"
    save_table(
        path,
        np.array([7, 3]),
        np.array([hold(1), hold(-1)]),
        market_entries(market) | {"identity": identity},
    )
    (table,), _, _ = make_tables([f"table:{path}"], tiny(), market)
    assert table.bars.tolist() == [3, 7]
    assert table.rows[0].tolist() == pytest.approx(hold(-1))
    assert table.uses_future is reported


def test_a_table_of_other_bars_is_refused(market, tmp_path):
    path = tmp_path / "other.npz"
    save_table(
        path, np.array([3]), np.array([hold(1)]), market_entries(market) | {"bars_sha256": "0"}
    )
    with pytest.raises(DataError, match="content of the bars"):
        make_tables([f"table:{path}"], tiny(), market)


def test_options_go_to_those_that_know_them(market):
    config = tiny("advisor.options={seed: 5, model: x}")
    (one,), _, _ = make_tables(["mock:random"], config, market)
    (other,), _, _ = make_tables(["mock:random"], tiny(), market)
    assert not np.array_equal(one.rows, other.rows)
    with pytest.raises(ConfigError, match="expected a number"):
        make_tables(["mock:skilled:abc"], tiny(), market)
