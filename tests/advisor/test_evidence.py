"""Evidence of skill: by hand, against a reference that loops over rows, and on markets where no
advice has skill.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jaxtrade.advisor.outcomes import WINDOW, SkillByConfidence, block_bars, is_evidence, skill_of


def skill_by(bars, advised, followed, weight, blocks, size):
    """The skill of one range of confidence, of block sums of rows."""
    sums = np.zeros((blocks, 1, 5))
    parts = np.stack([np.ones(len(bars)), weight, advised, followed, advised * followed], axis=1)
    np.add.at(sums[:, 0], bars // size, weight[:, None] * parts)
    return skill_of(jnp.asarray(sums, jnp.float32))


def reference(
    bars,
    advised,
    followed,
    weight,
    blocks,
    size,
):
    """The formulas of the module, row by row, without block sums: rate, effective, errors,
    windows.
    """
    n = weight.sum()
    bias, drift = (weight * advised).sum() / n, (weight * followed).sum() / n
    u = (advised - bias) * (followed - drift)
    mean = (weight * u).sum() / n
    variance = square = 0.0
    for first in range(1 - WINDOW, blocks):
        inside = (bars // size >= first) & (bars // size < first + WINDOW)
        variance += ((weight * (u - mean))[inside].sum()) ** 2 / WINDOW
        square += weight[inside].sum() ** 2
    windows = WINDOW * n**2 / square
    variance *= windows / (windows - 1) / (1 - 1 / (3 * WINDOW))
    spread = (1 - bias**2) * (1 - drift**2)
    variance = max(variance, (weight**2).sum() * spread)
    return (
        0.5 + mean / (2 * (1 - drift**2)),
        n**2 * spread / variance,
        n * mean / variance**0.5,
        windows,
    )


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(6, 40), st.integers(1, 50))
@settings(max_examples=25)
def test_block_sums_give_what_rows_give(seed, blocks, size):
    random = np.random.default_rng(seed)
    rows = random.integers(5, blocks * size + 1)
    bars = np.sort(random.choice(blocks * size, rows))
    advised, followed = random.choice([-1, 1], (2, rows))
    advised[:2], followed[:3] = (1, -1), (1, -1, 1)  # both signs occur
    given_rows = (bars, advised, followed, random.uniform(0.1, 1.0, rows), blocks, size)
    found, expected = skill_by(*given_rows), reference(*given_rows)
    shown = [float(part[0]) for part in (found.rate, found.effective, found.errors, found.windows)]
    assert shown == pytest.approx(expected, rel=2e-3, abs=2e-3)


def test_the_rate_is_the_mean_of_the_two_hit_rates_by_hand():
    """Of 6 rises 4 were called, of 2 falls 1: (4/6 + 1/2) / 2, though 5 of 8 calls were right."""
    followed = np.array([1, 1, 1, 1, 1, 1, -1, -1])
    advised = np.array([1, 1, 1, 1, -1, -1, -1, 1])
    found = skill_by(np.arange(8) * 10, advised, followed, np.ones(8), 8, 10)
    assert float(found.rate[0]) == pytest.approx((4 / 6 + 1 / 2) / 2, abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_one_direction_is_no_skill_however_the_market_drifts(sign):
    followed = np.where(np.arange(600) % 10 < 9, 1, -1)  # nine of ten moves are up
    sides = followed, np.full(600, sign)
    for advised, came in (sides[::-1], sides):  # and no market of one direction shows skill
        found = skill_by(np.arange(600), advised, came, np.ones(600), 20, 30)
        assert (float(found.rate[0]), float(found.effective[0])) == (0.5, 0.0)
        assert not is_evidence(found, 0.01).any()


def test_repeated_outcomes_are_no_more_evidence():
    """60 blocks of 30 rows, all rows of a block alike, are worth at most the 60 blocks."""
    random = np.random.default_rng(3)
    alike = random.choice([-1, 1], (2, 60)).repeat(30, axis=1)
    apart = random.choice([-1, 1], (2, 1800))
    worth = [
        float(skill_by(np.arange(1800), *rows, np.ones(1800), 60, 30).effective[0])
        for rows in (alike, apart)
    ]
    assert worth[0] < 75
    assert 900 < worth[1] <= 1800


def test_the_bound_is_students_and_shared_by_the_ranges_with_data():
    def skill(errors, ranges, windows=21.0):
        used = jnp.where(jnp.arange(5) < ranges, windows, 0.0)
        return SkillByConfidence(jnp.full(5, 0.6), used, jnp.where(used > 0, errors, 0.0), used)

    for ranges in (1, 2, 5):
        chance = 2 * stats.norm.sf(2.5) / ranges
        bound = float(stats.t.isf(chance / 2, 20))
        assert not is_evidence(skill(bound * 0.99, ranges), 2.5).any()
        assert is_evidence(skill(bound * 1.01, ranges), 2.5).tolist() == [
            i < ranges for i in range(5)
        ]
    assert not is_evidence(
        skill(1e6, 1, windows=3.9), 2.5
    ).any()  # fewer than four windows say nothing


def test_blocks_are_a_horizon_long():
    assert [block_bars(horizon) for horizon in (1, 30, 31, 390)] == [30, 30, 31, 390]
