"""The daily profit of runs and walk-forwards, and what may be compared day by day."""

import json

import numpy as np
import pytest

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.records import EvaluationRecords, write_records
from jaxtrade.evaluation.run_days import WALK_SPLIT, on_shared_days, read_run_days


def dates(first, count):
    return np.arange(count) + np.datetime64(first, "D")


def records(days, net, data="d" * 64, bars=None):
    """Records with the agents flat and greedy, of which greedy is shown."""
    greedy = np.asarray(net, np.float64)
    both = np.stack([np.zeros_like(greedy), greedy])
    return EvaluationRecords(
        ("flat", "greedy"),
        "greedy",
        days,
        both,
        both,
        {"settings": {"data_sha256": data}, **({} if bars is None else {"day_bars": bars})},
    )


def run(folder, nets, days, data="d" * 64, split="test", bars=None):
    """A run's folder. nets: name of the policy's folder, "" for the only one -> its daily net.
    bars: their digests.
    """
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    for name, net in nets.items():
        where = folder / "evaluation" / split / name
        where.mkdir(parents=True)
        write_records(where / "records.npz", records(days, net, data, bars))
    return folder


def walk(folder, days, net, data="d" * 64, changes=None):
    folder.mkdir()
    (folder / "walkforward.json").write_text(json.dumps({"data_sha256": data, "market": "ES"}))
    arrays = {
        "date": days.astype(np.int64),
        "fold": np.zeros(len(days), np.int32),
        "net": np.asarray(net, np.float64),
        "baselines": np.array(["flat"]),
        "baseline_net": np.zeros((1, len(days))),
        "seeds": np.arange(len(net), dtype=np.int64),
    }
    np.savez(folder / "daily.npz", **(arrays | (changes or {})))
    return folder


ONE_DAY = np.timedelta64(1, "D")
DAYS = dates("2024-01-01", 4)


def test_a_run_with_one_policy_and_one_with_several(tmp_path):
    one = read_run_days(run(tmp_path / "one", {"": [1, 2, 3, 4]}, DAYS))
    assert (one.policies, one.split, one.data) == (("",), "test", "d" * 64)
    assert one.net.tolist() == [[1, 2, 3, 4]]
    assert one.dates.tolist() == DAYS.tolist()
    nets = {f"seed_{n}": [n, n, n, n] for n in (10, 9, 2)}
    several = read_run_days(run(tmp_path / "several", nets, DAYS))
    assert several.policies == ("seed 2", "seed 9", "seed 10")
    assert several.net[:, 0].tolist() == [2, 9, 10]


def test_a_set_is_read_as_a_whole(tmp_path):
    folder = run(tmp_path / "set", {"": [5, 6, 7, 8], "EURUSD": [1, 1, 1, 1]}, DAYS)
    assert read_run_days(folder).net.tolist() == [[5, 6, 7, 8]]


def test_a_walk_forward(tmp_path):
    found = read_run_days(walk(tmp_path / "walk", DAYS, [[1, 2, 3, 4], [5, 6, 7, 8]]))
    assert (found.split, found.policies) == (WALK_SPLIT, ("seed 0", "seed 1"))
    assert found.net.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert found.dates.tolist() == DAYS.tolist()


def test_a_date_that_several_folds_test_counts_once(tmp_path):
    """As in combinatorial purged cross-validation."""
    days = DAYS[[0, 1, 2, 1, 3, 0]]
    found = read_run_days(walk(tmp_path / "walk", days, [[1, 2, 3, 8, 4, 7], [0, 0, 0, 2, 0, 0]]))
    assert found.dates.tolist() == DAYS.tolist()
    assert found.net.tolist() == [[4, 5, 3, 4], [0, 1, 0, 0]]


def test_what_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        read_run_days(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty: .*manifest\.json"):
        read_run_days(tmp_path / "empty")
    folder = run(tmp_path / "run", {"": [1, 2, 3, 4]}, DAYS)
    with pytest.raises(DataError, match=r"records\.npz: .*evaluate .*validation"):
        read_run_days(folder, "validation")
    for number, changes in enumerate(({"net": np.zeros((3, 4))}, {"seeds": np.array([1, 2])})):
        with pytest.raises(DataError, match=r"daily\.npz: cannot"):
            read_run_days(walk(tmp_path / f"walk{number}", DAYS, [[1, 2, 3, 4]], changes=changes))
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "walkforward.json").write_text('{"data_sha256": "d"}')
    with pytest.raises(DataError, match="has not ended"):
        read_run_days(unfinished)
    without_data = walk(tmp_path / "other", DAYS, [[1, 2, 3, 4]])
    (without_data / "walkforward.json").write_text('{"market": "ES"}')
    with pytest.raises(DataError, match=r"walkforward\.json: lacks 'data_sha256'"):
        read_run_days(without_data)


def test_policies_of_other_days_are_not_mixed(tmp_path):
    folder = run(tmp_path / "run", {"seed_0": [1, 2, 3, 4]}, DAYS)
    where = folder / "evaluation" / "test" / "seed_1"
    where.mkdir()
    write_records(where / "records.npz", records(DAYS + ONE_DAY, [1, 2, 3, 4]))
    with pytest.raises(DataError, match="other days or data"):
        read_run_days(folder)


@pytest.fixture
def of(tmp_path):
    """The days of a run with one policy."""

    def made(name, net, days=DAYS, *given):
        return read_run_days(run(tmp_path / name, {"": net}, days, *given))

    return made


def nets_of(each, shared):
    return [found.net.tolist() for found in on_shared_days(each, shared)]


def test_other_data_splits_and_days_are_refused_by_name(tmp_path, of):
    first = of("a", [1, 2, 3, 4])
    same = nets_of([first, of("b", [4, 3, 2, 1])], False)
    assert same == [[[1, 2, 3, 4]], [[4, 3, 2, 1]]]
    other = of("c", [1, 2, 3, 4], DAYS, "e" * 64)
    why = rf"c: other bars .*a.*\({'e' * 16}\.\.\. and {'d' * 16}"
    for shared in (False, True):
        with pytest.raises(ConfigError, match=why):
            on_shared_days([first, other], shared)
    later = of("d", [5, 6, 7, 8], DAYS + 2 * ONE_DAY)
    with pytest.raises(
        ConfigError,
        match=r"d: .*a \(2 of 4 .*d: 2024-01-05 \.\. 2024-01-06; 2 of 4 .*a: 2024-01-01 \.\. 2024-01-02\)",
    ):
        on_shared_days([first, later], False)
    assert nets_of([first, later], True) == [[[3, 4]], [[5, 6]]]
    for each in on_shared_days([first, later], True):
        assert each.dates.astype(str).tolist() == ["2024-01-03", "2024-01-04"]
    walked = read_run_days(walk(tmp_path / "e", DAYS, [[1, 1, 1, 1]]))
    with pytest.raises(ConfigError, match=r"'walk-forward', .*a of 'test'"):
        on_shared_days([first, walked], False)
    assert nets_of([first, walked], True)[1] == [[1, 1, 1, 1]]
    with pytest.raises(ConfigError, match="they share no day"):
        on_shared_days([first, of("f", [1, 2, 3, 4], DAYS + 50 * ONE_DAY)], True)


def test_runs_with_other_features_are_compared_where_their_bars_are_the_same(tmp_path, of):
    first = of("a", [1, 2, 3, 4], DAYS, "d" * 64, "test", {"ES": list("wxyz")})
    features = of("b", [4, 3, 2, 1], DAYS, "e" * 64, "test", {"ES": list("wxyz")})
    assert nets_of([first, features], False) == [[[1, 2, 3, 4]], [[4, 3, 2, 1]]]
    later = of("c", [5, 6, 7, 8], DAYS + 2 * ONE_DAY, "e" * 64, "test", {"ES": list("yzAB")})
    shared = on_shared_days([first, later], True)
    assert [each.bars for each in shared] == [{"ES": ("y", "z")}] * 2
    days, bars = DAYS[[0, 1, 2, 1, 3, 0]], {"day_bars": np.array(list("wxyxzw"))}
    walked = walk(tmp_path / "d", days, [[1, 2, 3, 8, 4, 7]], "e" * 64, bars)
    assert on_shared_days([first, read_run_days(walked)], True)[1].bars == {"ES": tuple("wxyz")}


@pytest.mark.parametrize(
    ("bars", "why"),
    [
        (
            {"ES": list("wXYz")},
            r"b: .*a: ES .*2 of 4 .* 2024-01-02",
        ),
        (
            {"NQ": list("wxyz")},
            r"b: .*a: of NQ, .*of ES",
        ),
        (
            None,
            r"b: .*a, .*earlier version",
        ),
    ],
)
def test_other_bars_are_refused_by_symbol_and_day(of, bars, why):
    first = of("a", [1, 2, 3, 4], DAYS, "d" * 64, "test", {"ES": list("wxyz")})
    other = of("b", [4, 3, 2, 1], DAYS, "e" * 64, "test", bars)
    with pytest.raises(ConfigError, match=why):
        on_shared_days([first, other], False)
