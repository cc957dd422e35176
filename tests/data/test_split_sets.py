"""Splits of several symbols: by date, on the dates that all share, so that no symbol trains on
another one's test.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jaxtrade.config import SplitConfig
from jaxtrade.data.market import Market
from jaxtrade.data.markets import load_markets
from jaxtrade.data.splits import shared_dates, split_ids, split_ids_by_date, split_sessions
from jaxtrade.errors import ConfigError
from tests.data.conftest import set_to, split_of

DAY = np.datetime64("2020-01-06")
ONE_DAY = np.timedelta64(1, "D")


def table(histories):
    """(dates, symbols) of a session table. histories: symbol -> day numbers of its sessions."""
    dates = np.concatenate([DAY + np.array(days, "timedelta64[D]") for days in histories.values()])
    return dates, np.repeat(np.arange(len(histories)), [len(days) for days in histories.values()])


def leaks(dates, symbols, ids, embargo=0):
    """Each training session on or after the first date that any symbol holds out (`embargo` shared
    dates before it count), and each held-out date that is in two splits. An independent rule: it
    compares dates one by one."""
    held = sorted({dates[i] for name in ("validation", "test") for i in ids[name]})
    found = [
        f"{dates[i]} is in validation and test"
        for i in ids["validation"]
        if any(dates[i] == dates[j] for j in ids["test"])
    ]
    if not held:
        return found
    shared = [
        day for day in sorted(set(dates)) if len({*symbols[dates == day]}) == len(set(symbols))
    ]
    limit = shared[max(shared.index(held[0]) - embargo, 0)]
    return found + [
        f"symbol {symbols[i]} trains on {dates[i]}, and {limit} is held out"
        for i in ids["train"]
        if dates[i] >= limit
    ]


UNEQUAL = {
    "A": [0, 1, 2, 3, 4, 7, 8, 9, 10, 11],
    "B": [2, 3, 4, 7, 9, 10, 11, 14, 15],
    "C": [-5, 2, 3, 4, 8, 9, 10, 11],
}


def test_held_out_sessions_are_the_last_dates_that_all_share():
    """Shared: 2, 3, 4, 9, 10, 11. Test 10 and 11, validation 9. A, B and C lack 7 or 8 somewhere; B
    goes on to 15.
    """
    dates, symbols = table(UNEQUAL)
    ids = split_ids_by_date(dates, symbols, split_of(1, 2))
    days = {
        name: [
            [int((day - DAY).astype(int)) for day in dates[rows][symbols[rows] == m]]
            for m in range(3)
        ]
        for name, rows in ids.items()
    }
    assert days["test"] == [[10, 11]] * 3
    assert days["validation"] == [[9]] * 3
    assert days["train"] == [[0, 1, 2, 3, 4, 7, 8], [2, 3, 4, 7], [-5, 2, 3, 4, 8]]
    assert days["all"] == [
        UNEQUAL["A"],
        [2, 3, 4, 7, 9, 10, 11],
        UNEQUAL["C"],
    ]  # 14 and 15 are in no split
    assert leaks(dates, symbols, ids) == []


def test_an_embargo_counts_shared_dates_and_takes_the_others_between_them_too():
    dates, symbols = table(UNEQUAL)
    split = split_of(1, 2, 1)
    ids = split_ids_by_date(dates, symbols, split)
    train = [int((day - DAY).astype(int)) for day in dates[ids["train"]]]
    assert (
        max(train) == 2
    )  # 9 is embargoed before the test, 4 is validation, 3 is embargoed before it
    assert leaks(dates, symbols, ids, embargo=1) == []


def test_a_planted_leak_is_found():
    """A session of one symbol on the first date of another one's validation is put back into the
    training split.
    """
    dates, symbols = table(UNEQUAL)
    ids = split_ids_by_date(dates, symbols, split_of(1, 2))
    planted = int(np.flatnonzero((dates == DAY + 10 * ONE_DAY) & (symbols == 1))[0])
    bad = ids | {
        "train": np.append(ids["train"], planted),
        "test": ids["test"][ids["test"] != planted],
    }
    assert leaks(dates, symbols, bad) == [
        f"symbol 1 trains on {dates[planted]}, and {DAY + 9 * ONE_DAY} is held out"
    ]


# Days of each symbol: a range with holes.
histories = st.lists(
    st.builds(
        lambda first, last, holes: set(range(first, last)) - holes,
        st.integers(0, 6),
        st.integers(28, 34),
        st.sets(st.integers(0, 34), max_size=4),
    ),
    min_size=2,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(histories, st.integers(0, 4), st.integers(0, 3), st.integers(0, 2))
def test_no_symbol_trains_on_a_date_that_another_holds_out(days, test, validation, embargo):
    dates, symbols = table({str(i): sorted(each) for i, each in enumerate(days)})
    config = split_of(validation, test, embargo)
    shared = shared_dates(dates, symbols)
    blocks = (test > 0) + (validation > 0)
    assume(len(shared) > test + validation + blocks * embargo)
    ids = split_ids_by_date(dates, symbols, config)
    assert leaks(dates, symbols, ids, embargo if blocks else 0) == []
    for name, count in (("test", test), ("validation", validation)):
        assert [int((symbols[ids[name]] == m).sum()) for m in range(len(days))] == [count] * len(
            days
        )
    assert all((np.diff(rows) > 0).all() for rows in ids.values())
    assert not any((dates[rows] > shared[-1]).any() for rows in ids.values())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(4, 40), st.integers(2, 4), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)
)
def test_symbols_with_equal_dates_are_split_as_each_alone(length, count, test, validation, embargo):
    assume(length > test + validation + 2 * embargo)
    config = split_of(validation, test, embargo)
    ids = split_ids_by_date(*table(dict.fromkeys("ABCD"[:count], range(length))), config)
    for name, rows in split_ids(length, config).items():
        each = [rows + m * length for m in range(count)]
        np.testing.assert_array_equal(ids[name], np.concatenate(each))


def test_symbols_without_a_common_date_are_refused():
    dates, symbols = table({"A": [0, 1, 2], "B": [5, 6, 7]})
    with pytest.raises(ConfigError, match=r"data\.markets: .*trade date"):
        split_ids_by_date(dates, symbols, SplitConfig())
    dates, symbols = table({"A": [0, 1, 2], "B": [2, 3]})
    with pytest.raises(ConfigError, match="data have 1;"):
        split_ids_by_date(dates, symbols, SplitConfig())


@pytest.mark.slow
def test_the_real_pairs_share_dates_and_leak_nothing():
    """EURUSD ends with 2018, GBPUSD later: nothing after 2018 is in any split, and the test is the
    end of 2018.
    """
    config = set_to(
        "data.markets=[EURUSD,GBPUSD] data.start=2018-06-01 data.per_market.GBPUSD.end=2019-06-30 "
        "split.test_sessions=20 split.validation_sessions=10 split.embargo_sessions=2"
    )
    market = load_markets(config)
    splits = split_sessions(market, config.split)
    rows = {name: np.asarray(split.ids)[: int(split.count)] for name, split in splits.items()}
    dates, symbols = market.trade_dates, market.session_parts
    assert leaks(dates, symbols, rows, embargo=2) == []
    assert str(dates[rows["all"]].max()) == str(dates[rows["test"]].max()) == "2018-12-31"
    assert dates.max() > np.datetime64("2019-06-01")
    for name, split in splits.items():
        per_symbol = np.bincount(symbols[rows[name]], minlength=2)
        assert np.asarray(split.offsets).tolist() == [0, *np.cumsum(per_symbol)], name
        assert (np.diff(symbols[rows[name]]) >= 0).all(), name


def test_a_set_of_one_is_a_market_and_split_as_before():
    config = set_to("data.markets=[NQ] data.source=synthetic data.synthetic_sessions=4")
    market = load_markets(config)
    assert isinstance(market, Market)
    splits = split_sessions(market, config.split)
    assert all(split.offsets is None for split in splits.values())
    assert np.asarray(splits["train"].ids)[: int(splits["train"].count)].tolist() == [0, 1, 2]
