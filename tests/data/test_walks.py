"""Folds of a walk-forward: hand-worked ones, an independent reading of purge and embargo, and
planted leaks.
"""

from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.config import WalkConfig, load_config
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.members import check_walk_length
from jaxtrade.data.splits import (
    Reach,
    find_touching_sessions,
    fold_of,
    paths_of,
    reach_of,
    walk_folds,
)
from jaxtrade.errors import ConfigError

DAY = 10  # bars from one session's first decision bar to the next one's in the hand-worked tests


def sessions(count, decisions=6):
    """Sessions of `decisions` decision bars, each followed by its flat bar and bars without
    decisions.
    """
    first = 3 + DAY * np.arange(count)
    return first, first + decisions - 1


def walk(**keys):
    return WalkConfig.model_validate({"on": True, "embargo": 1} | keys)


def drawn(fold, count):
    """A letter for each session: t training, p purged, e embargoed, T test; a dot for the rest."""
    letters = np.full(count, ".")
    for letter, rows in zip(
        "tpeT", (fold.train, fold.purged, fold.embargoed, fold.test), strict=True
    ):
        letters[rows] = letter
    return "".join(letters)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (
            "rolling",
            ["..ttttteTTTT........", "......ttttteTTTT....", "..........ttttteTTTT"],
        ),
        (
            "anchored",
            ["ttttttteTTTT........", "ttttttttttteTTTT....", "ttttttttttttttteTTTT"],
        ),
    ],
)
def test_forward_folds_by_hand(mode, expected):
    """20 sessions, the newest three blocks of 4 tested; 5 are trained on at least, one is left out
    before each block.
    """
    folds = walk_folds(*sessions(20), walk(mode=mode, train=5, test=4), Reach(0))
    assert [drawn(fold, 20) for fold in folds] == expected


def test_cpcv_by_hand():
    """12 sessions in 4 blocks of 3, two of them tested. A look-back of 8 bars reaches the flat bar
    of the day before (5 bars), so the session after each tested block is purged, and the one beyond
    it is the embargo."""
    folds = walk_folds(*sessions(12), walk(mode="cpcv", groups=4, test_groups=2), Reach(8))
    assert [fold.groups for fold in folds] == list(combinations(range(4), 2))
    assert (drawn(folds[0], 12), drawn(folds[4], 12)) == ("TTTTTTpetttt", "tteTTTpeeTTT")


@pytest.mark.parametrize(
    ("reach", "touched"),
    [
        (Reach(3), [2]),  # the flat bar of a session lies 4 bars before the next first decision
        (Reach(4), [2, 3]),
        (Reach(14), [2, 3, 4]),
        (Reach(0, episode=3), [0, 1, 2]),
        (Reach(0, look_ahead=4), [2]),
        (Reach(0, look_ahead=5), [1, 2]),
    ],
)
def test_what_a_reach_purges_behind_a_test_and_before_it(reach, touched):
    found = find_touching_sessions(*sessions(5), np.array([2]), reach)
    assert np.flatnonzero(found).tolist() == touched


def test_paths_test_every_block_once():
    """C(5, 1) = 5 paths of 6 blocks of which 2 are tested (Lopez de Prado 2018, section 12.4)."""
    folds = walk_folds(*sessions(60), walk(mode="cpcv", groups=6, test_groups=2), Reach(3))
    paths = paths_of(folds, 6)
    assert paths.shape == (comb(5, 1), 6)
    assert all(group in folds[fold].groups for path in paths for group, fold in enumerate(path))
    used = [(fold, group) for path in paths for group, fold in enumerate(path)]
    assert sorted(used) == sorted(
        (i, group) for i, fold in enumerate(folds) for group in fold.groups
    )


@st.composite
def cases(draw):
    count = draw(st.integers(6, 26))
    lengths = np.array(draw(st.lists(st.integers(1, 5), min_size=count, max_size=count)))
    gaps = np.array(draw(st.lists(st.integers(2, 4), min_size=count, max_size=count)))
    first = np.cumsum(gaps) + np.cumsum(lengths) - lengths
    reach = Reach(draw(st.integers(0, 12)), draw(st.integers(1, 8)), draw(st.integers(1, 3)))
    mode = draw(st.sampled_from(["rolling", "anchored", "cpcv"]))
    chosen = walk(
        mode=mode,
        train=draw(st.integers(1, 6)),
        test=draw(st.integers(1, 4)),
        groups=5,
        test_groups=draw(st.integers(1, 2)),
        embargo=draw(st.integers(0, 2)),
    )
    return first, first + lengths - 1, chosen, reach


def leaks(first, last, train, test, reach):
    """The training sessions of which some decision reaches into a test session, bar by bar: an
    independent reading.
    """
    tested = {row for i in test for row in range(first[i], last[i] + 2)}
    found = []
    for i in train:
        until = last[min(i + reach.episode - 1, len(first) - 1)] + 1
        if any(
            tested.intersection(
                range(row - reach.look_back, max(until, row + reach.look_ahead) + 1)
            )
            for row in range(first[i], last[i] + 1)
        ):
            found.append(int(i))
    return found


def folds_or_none(case):
    try:
        return walk_folds(*case)
    except ConfigError:
        return []


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases())
def test_no_training_session_reaches_into_a_test_and_every_purged_one_does(case):
    first, last, chosen, reach = case
    for fold in folds_or_none(case):
        assert leaks(first, last, fold.train, fold.test, reach) == []
        planted = np.append(fold.train, fold.purged)
        assert leaks(first, last, planted, fold.test, reach) == fold.purged.tolist()
        blocked = np.union1d(fold.test, fold.purged)
        distance = np.abs(fold.train[:, None] - blocked).min(axis=1)
        assert distance.min() > chosen.embargo
        parts = [fold.train, fold.test, fold.purged, fold.embargoed]
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))


@settings(max_examples=100, deadline=None)
@given(cases())
def test_sessions_are_tested_once_and_the_newest_always(case):
    """cpcv: each in C(N - 1, k - 1) folds. Forward folds train only before their test, rolling ones
    equally long.
    """
    first, _, chosen, _ = case
    folds = folds_or_none(case)
    if not folds:
        return
    tested, times = np.unique(np.concatenate([fold.test for fold in folds]), return_counts=True)
    if chosen.mode == "cpcv":
        assert tested.tolist() == list(range(len(first)))
        assert set(times) == {comb(chosen.groups - 1, chosen.test_groups - 1)}
        return
    assert set(times) == {1}
    assert tested.tolist() == list(range(len(first) - len(folds) * chosen.test, len(first)))
    lengths = {len(fold.train) for fold in folds}
    assert lengths == {chosen.train} if chosen.mode == "rolling" else min(lengths) >= chosen.train
    assert all(fold.train.max() < fold.test.min() for fold in folds)


def test_a_fold_keeps_only_its_candidates():
    first, last = sessions(10)
    fold = fold_of(first, last, np.arange(5), np.array([7, 8]), Reach(0), 3)
    assert (fold.train.tolist(), fold.embargoed.tolist()) == ([0, 1, 2, 3], [4])


def test_too_few_sessions_are_refused_with_the_number_that_is_needed():
    chosen = walk(train=60, test=10)
    with pytest.raises(ConfigError, match=r"walk\.train=60 .* 73 .*purge 2.* embargo 1.* 40"):
        walk_folds(*sessions(40), chosen, Reach(0, episode=3))
    with pytest.raises(ConfigError, match=r" 73 sessions, embargo.* 72"):
        check_walk_length(72, chosen, 3)
    check_walk_length(73, chosen, 3)
    with pytest.raises(ConfigError, match=r"walk\.groups=6 .*--groups.*5"):
        walk_folds(*sessions(5), walk(mode="cpcv"), Reach(0))
    with pytest.raises(ConfigError, match="no training session"):
        walk_folds(*sessions(6), walk(mode="cpcv", groups=3, test_groups=1, embargo=5), Reach(0))


@pytest.mark.parametrize(
    ("mode", "count", "embargo"),
    [("rolling", 2500, 1), ("anchored", 50, 1), ("cpcv", 50, 1), ("cpcv", 101, 2)],
)
def test_the_automatic_embargo(mode, count, embargo):
    """One session; of cpcv one in a hundred, rounded up (Lopez de Prado 2018, section 7.4.2)."""
    assert walk(mode=mode, embargo="auto").embargo_of(count) == embargo
    assert walk(mode=mode, embargo=3).embargo_of(count) == 3


def test_the_reach_of_a_configuration():
    config = load_config(
        "quickstart", ["env.features=[close, sma_50]", "env.window=8", "episode.sessions=3"]
    )
    assert reach_of(config) == Reach(look_back=8 + 50 - 1, look_ahead=1, episode=3)
    ranked = load_config("quickstart", ["env.features=[vol_percentile]", "env.window=8"])
    assert reach_of(ranked).look_back == 8 + 14 + 252 * 390 - 1


def test_no_observation_looks_further_back_than_the_reach():
    """Real bars, shifted up to a bar: observations further than the look-back behind it keep their
    bits, and the one just before does not, so the figure is not too large either."""
    config = load_config(
        "quickstart",
        ["env.features=[close, sma_50, rsi, volatility]", "env.window=8", "data.allow_jumps=true"],
    )
    market = load_market(config)
    bars, cut, back = market.bars, 3_000, reach_of(config).look_back
    shift = np.where(np.arange(len(bars)) <= cut, 40, 0).astype(bars.open.dtype)
    prices = {name: getattr(bars, name) + shift for name in ("open", "high", "low", "close")}
    moved = build_market(replace(bars, **prices), config)
    columns = [market.columns.index(f"feature.{name}") for name in config.env.features]
    differs = np.flatnonzero(
        (market.table[:, columns] != moved.table[:, columns]).any(axis=1)
    ).max()
    # The window of an observation ends before its decision bar and begins `env.window` bars before
    # it.
    assert differs + config.env.window == cut + back
