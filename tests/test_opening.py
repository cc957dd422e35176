"""The lines with which a run opens, on the console and in its log."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.progress.plain import Plain
from jaxtrade.runs.job import Job, split_lines
from jaxtrade.storage.sinks import LogSink
from tests.messages import missing


def test_the_console_shows_one_note_of_each_kind_and_the_log_all(tmp_path):
    log, stream = LogSink(tmp_path / "run.log"), io.StringIO()
    lines = [
        "run a",
        *(
            f"note: EURUSD: 2013-01-{day:02d}: {day} of 24 scheduled bars missing"
            for day in range(1, 31)
        ),
    ]
    with Plain(stream) as screen:
        Job.tell_opening(SimpleNamespace(path=tmp_path, screen=screen, files=[log]), lines)
    log.close()
    first, note = stream.getvalue().splitlines()
    assert first == "run a"
    assert note.startswith(lines[1])
    assert not missing(note, "30 notes", f"{tmp_path}/run.log")
    assert [
        line.partition(" ")[2] for line in (tmp_path / "run.log").read_text().splitlines()
    ] == lines


@pytest.mark.parametrize(
    ("count", "dates_of_test", "few"),
    [
        (1, "1 trade date 2014-01-10 .. 2014-01-10", True),
        (5, "5 trade dates 2014-01-06 .. 2014-01-10", False),
    ],
)
def test_a_test_of_few_dates_names_the_key_to_raise(count, dates_of_test, few):
    """Ten dates of one symbol; the last `count` are the test."""
    rows = {"train": range(4), "validation": range(4, 5), "test": range(10 - count, 10)}
    splits = {
        name: SimpleNamespace(ids=np.array(ids), count=len(ids)) for name, ids in rows.items()
    }
    dates = np.arange(np.datetime64("2014-01-01"), np.datetime64("2014-01-11"))
    lines = list(
        split_lines(SimpleNamespace(market=SimpleNamespace(trade_dates=dates), splits=splits))
    )
    assert lines[1] == "  validation: 1 trade date 2014-01-05 .. 2014-01-05"
    [said] = lines[2:]
    assert said.startswith(f"  test: {dates_of_test}")
    for words in ("too few to tell skill from luck", "split.test_sessions"):
        assert (words in said) == few
