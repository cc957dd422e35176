"""The lines with which a run opens, on the console and in its log."""

import io
from types import SimpleNamespace

import pytest

from jaxtrade.config import load_config
from jaxtrade.progress.screen import Plain
from jaxtrade.runs.job import Job, split_lines
from jaxtrade.runs.setup import prepare
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
        Job.log_intro(SimpleNamespace(path=tmp_path, screen=screen, files=[log]), lines)
    log.close()
    first, note = stream.getvalue().splitlines()
    assert first == "run a"
    assert note.startswith(lines[1])
    assert not missing(note, "30 notes", f"{tmp_path}/run.log")
    assert [
        line.partition(" ")[2] for line in (tmp_path / "run.log").read_text().splitlines()
    ] == lines


@pytest.mark.parametrize(("count", "few"), [(4, True), (5, False)])
def test_a_test_of_few_dates_names_the_key_to_raise(count, few):
    data = ["data.source=synthetic", "data.synthetic_sessions=10"]
    lines = list(split_lines(prepare(load_config(None, [*data, f"split.test_sessions={count}"]))))
    assert f"  test: {count} trade dates " in lines[-1]
    assert (not missing(lines[-1], "too few", "split.test_sessions")) == few
