import numpy as np
import pytest

from jaxtrade.data.splits import split_ids, split_sessions
from jaxtrade.errors import ConfigError
from tests.data.conftest import split_of


@pytest.mark.parametrize(
    ("validation", "test", "embargo", "sessions"),
    [
        (0, 1, 0, "tttttttttT"),
        (2, 2, 0, "ttttttvvTT"),
        (2, 2, 1, "tttt.vv.TT"),
        (0, 0, 0, "tttttttttt"),
        (3, 0, 2, "ttttt..vvv"),
    ],
)
def test_blocks_are_chronological_with_the_embargo_before_each(validation, test, embargo, sessions):
    """Of ten sessions: t training, v validation, T test, a dot is in neither."""
    found = split_ids(10, split_of(validation, test, embargo))
    assert found.pop("all").tolist() == list(range(10))
    for letter, (name, rows) in zip("tvT", found.items(), strict=True):
        wanted = [i for i, each in enumerate(sessions) if each == letter]
        assert rows.tolist() == wanted, name


def test_sets_are_padded_to_the_session_count(es_market):
    splits = split_sessions(es_market, split_of(0, 2))
    assert {name: (split.ids.tolist(), int(split.count)) for name, split in splits.items()} == {
        "train": ([0, 1, 2, 0, 0], 3),
        "validation": ([0] * 5, 0),
        "test": ([3, 4, 3, 3, 3], 2),
        "all": ([0, 1, 2, 3, 4], 5),
    }
    assert splits["all"].ids.dtype == np.int32


@pytest.mark.parametrize(
    "config",
    [
        split_of(0, 5),
        split_of(0, 4, 1),
        split_of(3, 2),
    ],
)
def test_too_few_sessions_are_an_error_that_counts(es_market, config):
    with pytest.raises(ConfigError, match=r"6 sessions, .*have 5;"):
        split_sessions(es_market, config)
