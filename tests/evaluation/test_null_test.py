"""p-values against nulls: the formula, the floor, the early stop, the statistic, and the
journal.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.nulls import (
    NullJournal,
    is_decided,
    null_table,
    null_test,
    p_text,
    pooled_statistic,
)

SIGN_19 = NullSpec("sign", 19)


def test_p_by_hand():
    """Two of 19 nulls reach 5.0, one of them exactly: p = 3 / 20."""
    nulls = [4.0] * 10 + [5.0, 6.0] + [1.0] * 7
    result = null_test("rule", 5.0, nulls, SIGN_19, seed=3)
    assert (result.p, result.floor, result.exceedances, result.draws_made, result.draws_asked) == (
        3 / 20,
        1 / 20,
        2,
        19,
        19,
    )
    assert result.draws_made == result.draws_asked
    best = null_test("rule", 7.0, nulls, SIGN_19, seed=3)
    assert best.p == best.floor == 0.05
    assert p_text(best) == "0.0500 (its floor)"
    assert p_text(result) == "0.1500"


def test_the_early_stop_by_hand():
    """The tenth null that reaches 0 is draw 12: p = 10 / 12, and later draws do not matter."""
    nulls = [1.0] * 5 + [-1.0, -1.0] + [0.0] * 5
    result = null_test("rule", 0.0, [*nulls, -1.0, -1.0], SIGN_19, seed=0)
    assert (result.p, result.draws_made, result.exceedances) == (10 / 12, 12, 10)
    assert result.draws_made < result.draws_asked
    assert result.nulls == tuple(nulls)
    assert p_text(result) == "0.8333 (10 of 12, stopped)"
    assert is_decided(0.0, nulls)
    assert not is_decided(0.0, nulls[:-1])
    assert not is_decided(0.0, nulls, None)
    whole = null_test("rule", 0.0, [*nulls, *[-1.0] * 7], SIGN_19, seed=0, stop=None)
    assert (whole.p, whole.draws_made) == (11 / 20, 19)


def test_missing_draws_and_numbers_are_refused():
    with pytest.raises(DataError, match="3 of 19 null"):
        null_test("rule", 5.0, [1.0] * 3, SIGN_19, seed=0)
    with pytest.raises(DataError, match="null market 1 is nan"):
        null_test("rule", 5.0, [1.0, float("nan")], SIGN_19, seed=0)
    with pytest.raises(DataError, match="real market is inf"):
        null_test("rule", float("inf"), [1.0] * 19, SIGN_19, seed=0)


@given(st.lists(st.integers(-3, 3), min_size=19, max_size=19), st.integers(-3, 3))
def test_p_is_between_its_floor_and_one_and_falls_with_the_result(nulls, real):
    values = [float(null) for null in nulls]
    result, better = (
        null_test("rule", float(each), values, SIGN_19, seed=0) for each in (real, real + 1)
    )
    assert 1 / 20 <= better.p <= result.p <= 1
    assert result.exceedances == sum(null >= real for null in result.nulls)


@pytest.mark.parametrize("stop", [None, 10])
def test_under_the_null_p_keeps_its_level(stop):
    """Real and null statistics from one distribution: P(p <= a) = a where p can take the value
    a.
    """
    rng, spec, count = np.random.default_rng(0), NullSpec("sign", 39), 10_000
    p = np.array(
        [
            null_test("rule", row[0], row[1:].tolist(), spec, 0, stop).p
            for row in rng.normal(size=(count, 40))
        ]
    )
    for level in (0.025, 0.05, 0.1, 0.2, *([0.5] if stop is None else [10 / 20, 10 / 14])):
        assert abs((p <= level + 1e-12).mean() - level) < 4 * np.sqrt(level * (1 - level) / count)


def test_the_statistic_is_the_iqm_over_seeds_of_the_mean_day():
    net = np.array([[10.0, 20.0], [0.0, 2.0], [3.0, 5.0], [-50.0, -70.0]])  # means 15, 1, 4, -60
    assert pooled_statistic(net) == pytest.approx(2.5)
    assert pooled_statistic(net[:1]) == 15.0
    wide = np.random.default_rng(1).normal(size=(11, 30))
    assert pooled_statistic(wide) == pytest.approx(trim_mean(wide.mean(axis=1), 0.25))
    for bad in (np.zeros((0, 3)), np.zeros(3), np.array([[1.0, np.nan]])):
        with pytest.raises(DataError, match="null test"):
            pooled_statistic(bad)


def test_the_table_prints_floor_draws_and_what_is_too_few():
    result = null_test("rule", 7.0, [1.0] * 9, NullSpec("phase", 9), seed=4)
    text = null_table([result], ["a note"])
    assert "p = (1 + nulls >= real) / (9 + 1), at least 0.1000" in text
    assert "below 0.05 is possible with 9" in text
    assert text.endswith("NOTE: a note")
    assert json.loads(json.dumps(result._asdict()))["nulls"] == [1.0] * 9


# --- the journal ------------------------------------------------------------------------------------------------------

FACTS = {"kind": "sign", "seed": 0, "data": "ab"}


def test_the_journal_goes_on_where_it_was_killed(tmp_path):
    path = tmp_path / "walk" / "nulls.jsonl"
    journal = NullJournal(path, FACTS)
    journal.append({"policy": 0.1, "rule": 1 / 3})
    journal.append({"policy": -7.0, "rule": 0.0})
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines[-1])):  # killed in the middle of writing the last draw
        path.write_bytes(whole[:-cut])
        again = NullJournal(path, FACTS)
        assert again.known == [{"policy": 0.1, "rule": 1 / 3}]
        again.append({"policy": -7.0, "rule": 0.0})
        assert path.read_bytes() == whole
    path.write_bytes(lines[0][:5])  # killed while it was begun
    assert NullJournal(path, FACTS).known == []
    assert path.read_bytes() == lines[0]


def test_a_journal_of_another_test_is_refused(tmp_path):
    path = tmp_path / "nulls.jsonl"
    NullJournal(path, FACTS).append({"policy": 1.0})
    with pytest.raises(
        ConfigError,
        match=r"\.jsonl: .*seed: found 0, expected 1",
    ):
        NullJournal(path, {**FACTS, "seed": 1})


@pytest.mark.parametrize("line", ["{", "[]", '{"draw": 5, "statistics": {}}', '{"draw": 0}'])
def test_a_damaged_journal_names_its_line(tmp_path, line):
    path = tmp_path / "nulls.jsonl"
    NullJournal(path, FACTS)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"nulls\.jsonl: line 2"):
        NullJournal(path, FACTS)
