import numpy as np
import pytest

from jaxtrade.config import SplitConfig
from jaxtrade.data.splits import split_ids, split_sessions
from jaxtrade.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "train", "validation", "test"),
    [
        (SplitConfig(), range(9), range(0), range(9, 10)),
        (
            SplitConfig(validation_sessions=2, test_sessions=2),
            range(6),
            range(6, 8),
            range(8, 10),
        ),
        (
            SplitConfig(validation_sessions=2, test_sessions=2, embargo_sessions=1),
            range(4),
            range(5, 7),
            range(8, 10),
        ),
        (SplitConfig(test_sessions=0), range(10), range(0), range(0)),
        (
            SplitConfig(validation_sessions=3, test_sessions=0, embargo_sessions=2),
            range(5),
            range(7, 10),
            range(0),
        ),
    ],
)
def test_blocks_are_chronological_with_the_embargo_before_each(config, train, validation, test):
    wanted = {"train": train, "validation": validation, "test": test, "all": range(10)}
    found = split_ids(10, config)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        name: list(rows) for name, rows in wanted.items()
    }


def test_sets_are_padded_to_the_session_count(es_market):
    splits = split_sessions(es_market, SplitConfig(test_sessions=2))
    assert splits["train"].ids.tolist() == [0, 1, 2, 0, 0]
    assert int(splits["train"].count) == 3
    assert splits["test"].ids.tolist() == [3, 4, 3, 3, 3]
    assert int(splits["validation"].count) == 0
    assert splits["validation"].ids.tolist() == [0] * 5
    assert {s.ids.shape for s in splits.values()} == {(5,)}
    assert splits["all"].ids.dtype == np.int32


@pytest.mark.parametrize(
    "config",
    [
        SplitConfig(test_sessions=5),
        SplitConfig(test_sessions=4, embargo_sessions=1),
        SplitConfig(validation_sessions=3, test_sessions=2),
    ],
)
def test_too_few_sessions_are_an_error_that_counts(es_market, config):
    with pytest.raises(ConfigError, match=r"6 sessions, .*have 5;"):
        split_sessions(es_market, config)
