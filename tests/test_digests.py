"""Files of a run that were changed after they were written are told, each by its name."""

import errno
import json
from types import SimpleNamespace

import pytest

from jaxtrade.errors import DataError
from jaxtrade.rl.info import check_range
from jaxtrade.runs.job import check_health_of_run
from jaxtrade.storage import digests
from jaxtrade.storage.sinks import JsonlSink
from jaxtrade.storage.staging import stage_files
from jaxtrade.storage.status import STATUS, StatusSink, read_status
from jaxtrade.training.population import Stack
from tests.messages import refused


def test_what_was_written_is_read(tmp_path):
    with stage_files(tmp_path / "folder") as new:
        (new / "a.json").write_text('{"x": 1}')
        (new / "b.csv").write_text("x\n1\n")
    assert digests.read_json(tmp_path / "folder" / "a.json") == {"x": 1}
    assert digests.read_checked(tmp_path / "folder" / "b.csv") == b"x\n1\n"


@pytest.mark.parametrize("edit", ['{"x": 2}', '{"x": 1', "", "[]", '{"x": 1} '])
def test_any_change_is_told_by_the_files_name(tmp_path, edit):
    with stage_files(tmp_path) as new:
        (new / "a.json").write_text('{"x": 1}')
    (tmp_path / "a.json").write_text(edit)
    with refused("a.json: has changed", kind=DataError):
        digests.read_json(tmp_path / "a.json")


def test_a_file_without_a_digest_is_taken_as_it_is(tmp_path):
    """Folders of earlier versions have none. It must still be JSON."""
    (tmp_path / "a.json").write_text('{"x": 1}')
    assert digests.read_json(tmp_path / "a.json") == {"x": 1}
    for text in ("{", "[]", "\xff"):
        (tmp_path / "a.json").write_text(text, encoding="latin-1")
        with refused("a.json", kind=DataError):
            digests.read_json(tmp_path / "a.json")


def test_a_process_that_is_killed_between_leaves_no_damage(tmp_path):
    """The digest is noted before the file is moved, and the old one counts until it is there."""
    with stage_files(tmp_path) as new:
        (new / "a.json").write_text('{"x": 1}')
    killed = digests.replace_files(tmp_path, {"a.json": b'{"x": 2}'})
    killed.__enter__()
    assert digests.read_json(tmp_path / "a.json") == {"x": 1}
    (tmp_path / "a.json").write_text('{"x": 2}')
    assert digests.read_json(tmp_path / "a.json") == {"x": 2}


@pytest.mark.parametrize("text", ["{", "[]", '{"a.json": []}', '{"a.json": 1}'])
def test_a_damaged_list_is_named_and_begun_anew(tmp_path, text):
    (tmp_path / "a.json").write_text('{"x": 1}')
    (tmp_path / digests.FILE).write_text(text)
    with refused(digests.FILE, kind=DataError):
        digests.read_json(tmp_path / "a.json")
    digests.seal(tmp_path, ["a.json", "absent"])
    assert digests.read_json(tmp_path / "a.json") == {"x": 1}


def test_rows_are_sealed_at_the_end_and_open_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write([{"update": 1}, {"update": 2}])
    sink.close()
    JsonlSink(path, resume_update=2).close()
    path.write_text(json.dumps({"update": 1}) + "\n" + json.dumps({"update": 2, "kl": 1}) + "\n")
    with refused("metrics.jsonl: has changed", kind=DataError):
        JsonlSink(path, resume_update=2)


def test_the_status_of_a_run_that_has_ended_is_sealed(tmp_path):
    told = []
    about = {"task": "manage", "learner": "ppo", "market": "ES"}
    StatusSink(tmp_path, told.append, about).close()
    StatusSink(tmp_path, told.append, about).close()  # the run goes on, in another process
    found = read_status(tmp_path)
    assert found is not None
    assert (found.phase, told) == ("ended", [])
    path = tmp_path / STATUS
    path.write_text(path.read_text().replace("ended", "training"))
    with refused("status.json: has changed", kind=DataError):
        read_status(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is missing"),
        ("", "end at update 0"),
        ('{"update": 1}\n', "end at update 1"),
        ('{"updates": 1}\n', "without its 'update'"),
    ],
)
def test_a_run_does_not_go_on_without_its_rows(tmp_path, text, said):
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    with refused("metrics.jsonl", said, kind=DataError):
        JsonlSink(tmp_path / "metrics.jsonl", resume_update=2)


def test_a_metric_that_a_row_lacks_is_told_with_the_file(tmp_path):
    """The rows of a run that was killed have no digest."""
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "kl": 0.1}\n{"update": 2, "kx": 0.1}\n')
    algorithm = SimpleNamespace(info=SimpleNamespace(health=[check_range("kl", "KL", 0, 1)]))
    job = SimpleNamespace(path=tmp_path, setup=SimpleNamespace(stack=Stack(), algorithm=algorithm))
    with refused("metrics.jsonl", "'kl'", kind=DataError):
        check_health_of_run(job, SimpleNamespace(health={}))


def test_a_full_disk_names_its_folder(tmp_path):
    """A picture that is drawn on a full disk raises an error without a file's name."""
    with pytest.raises(OSError, match="evaluation") as caught, stage_files(tmp_path / "evaluation"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC
