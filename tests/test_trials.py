"""The trial log: several real processes append, a torn, edited, removed or moved line is named,
nothing is hidden.
"""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.errors import DataError, StorageError
from jaxtrade.storage import trials
from jaxtrade.storage.trials import (
    HEAD,
    TRIALS,
    SplitLook,
    append_look,
    read_trials,
    trials_folder,
)
from tests.children import run_python
from tests.messages import missing, refused
from tests.reading import read_json
from tests.structure import ROOT

DATES = ("2024-01-02", "2024-01-03")


def opening(run="a", kind="train", net=(1.5, -2.0), data="d" * 8):
    return SplitLook(
        kind, run, "c" * 8, data, "test", DATES[0], DATES[1], 2, "greedy", DATES, {"0": net}
    )


@pytest.fixture
def log(tmp_path):
    """A folder with a log of five lines."""
    for number in range(1, 6):
        assert append_look(tmp_path, opening(f"run{number}")) == number
    return tmp_path


def lines_of(folder):
    return (folder / TRIALS).read_bytes().splitlines(keepends=True)


def write_lines(folder, lines):
    (folder / TRIALS).write_bytes(b"".join(lines))


def test_what_is_appended_is_read_back(log):
    found = read_trials(log)
    assert [each.run for each in found.looks] == [f"run{n}" for n in range(1, 6)]
    assert found.looks[2] == opening("run3")._replace(utc=found.looks[2].utc)
    assert re.fullmatch(r"[\dT:-]{19}Z", found.looks[2].utc)
    assert found.notes == ()
    documents = [json.loads(line) for line in lines_of(log)]
    assert [each["number"] for each in documents] == [1, 2, 3, 4, 5]
    assert documents[0]["before"] == trials.GENESIS
    assert [each["before"] for each in documents[1:]] == [
        trials.sha_of(line[:-1]) for line in lines_of(log)[:-1]
    ]
    assert read_json(log / HEAD) == {
        "lines": 5,
        "sha256": trials.sha_of(lines_of(log)[-1][:-1]),
    }


def test_a_folder_without_a_log_has_no_openings(tmp_path):
    assert read_trials(tmp_path).looks == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("said", ["was changed", "was removed"])
def test_an_edited_or_removed_line_is_named(log, number, said):
    lines = lines_of(log)
    edited = lines[number - 1].replace(b"-2.0", b"92.0") if said == "was changed" else b""
    write_lines(log, [*lines[: number - 1], edited, *lines[number:]])
    for _ in range(3):
        with pytest.raises(DataError, match=rf"{TRIALS}: line {number}: {said}.*Restore"):
            read_trials(log)
        append_look(log, opening("later"))  # goes on, but hides nothing


def test_moved_and_inserted_lines_are_named(log):
    lines = lines_of(log)
    write_lines(log, [lines[0], lines[2], lines[1], *lines[3:]])
    with refused("line 2: was removed", kind=DataError):
        read_trials(log)
    write_lines(log, [*lines[:3], lines[2], *lines[3:]])
    with refused("line 4: was inserted", kind=DataError):
        read_trials(log)
    write_lines(log, [*lines[:2], b"hello\n", *lines[2:]])
    with refused("line 3: is not a line", kind=DataError):
        read_trials(log)


def test_a_log_that_was_deleted_is_missed(log):
    (log / TRIALS).unlink()
    with refused("line 1: was removed", " 5 lines", kind=DataError):
        read_trials(log)
    append_look(log, opening("new"))
    with refused("line 1: was removed", kind=DataError):
        read_trials(log)


@pytest.mark.parametrize("content", [None, b"{}", b"\xff"])
def test_a_head_that_is_missing_or_damaged_is_said_and_not_mended(log, content):
    (log / HEAD).unlink()
    if content is not None:
        (log / HEAD).write_bytes(content)
    for _ in range(2):
        with pytest.raises(DataError, match=HEAD):
            read_trials(log)
        append_look(log, opening("later"))
    assert len(lines_of(log)) == 7


def test_a_torn_last_line_is_a_note_and_is_cut(log):
    """Its process was killed while it wrote: the head does not count the line."""
    with (log / TRIALS).open("ab") as file:
        file.write(lines_of(log)[-1][:40])
    found = read_trials(log)
    assert len(found.looks) == 5
    [note] = found.notes
    assert not missing(note, log / TRIALS, "line 6 is torn", "40 bytes")
    assert append_look(log, opening("next")) == 6
    assert [each.run for each in read_trials(log).looks][-2:] == ["run5", "next"]
    assert read_trials(log).notes == ()


def test_a_whole_line_that_was_torn_later_stays_as_evidence(log):
    lines = lines_of(log)
    write_lines(log, [*lines[:4], lines[4][:40]])
    for _ in range(2):
        with refused("line 5: ", kind=DataError):
            read_trials(log)
        append_look(log, opening("next"))
    assert lines[4][:40] in (log / TRIALS).read_bytes()


def test_a_process_killed_between_line_and_head_breaks_nothing(log):
    before = (log / HEAD).read_bytes()
    append_look(log, opening("six"))
    (log / HEAD).write_bytes(before)
    assert len(read_trials(log).looks) == 6
    assert append_look(log, opening("seven")) == 7
    assert len(read_trials(log).looks) == 7


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(tmp_path_factory, data):
    """A line's end, a digest, a figure: whatever it is."""
    folder = tmp_path_factory.mktemp("log")
    for number in range(3):
        append_look(folder, opening(f"run{number}"))
    whole = (folder / TRIALS).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    (folder / TRIALS).write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    with pytest.raises(DataError, match=rf"({TRIALS}|{HEAD}): line \d"):
        read_trials(folder)


def test_processes_append_at_once(tmp_path):
    """Real processes: every line is there once and the chain is whole."""
    code = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from jaxtrade.storage.trials import SplitLook, append_look
        for i in range(25):
            append_look(Path({str(tmp_path)!r}), SplitLook("evaluate", f"{{sys.argv[1]}}-{{i}}", "c", "d", "test",
                           "2024-01-02", "2024-01-03", 2, "greedy", {DATES!r}, {{"0": (1.0, 2.0)}}))
    """)
    started = [subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=ROOT) for n in range(4)]
    assert [process.wait(timeout=60) for process in started] == [0] * 4
    found = read_trials(tmp_path)
    assert sorted(each.run for each in found.looks) == sorted(
        f"{n}-{i}" for n in range(4) for i in range(25)
    )
    for process in range(4):
        own = [each.run for each in found.looks if each.run.startswith(f"{process}-")]
        assert own == [f"{process}-{i}" for i in range(25)]


def test_processes_killed_while_they_append_leave_a_whole_log(tmp_path):
    code = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from jaxtrade.storage.trials import SplitLook, append_look
        days = tuple(f"2024-01-{{d:02d}}" for d in range(1, 31))
        print("go", flush=True)
        for i in range(100000):
            append_look(Path({str(tmp_path)!r}), SplitLook("train", f"r{{i}}", "c", "d", "test", days[0],
                           days[-1], 30, "greedy", days, {{str(seed): (1.0,) * 30 for seed in range(50)}}))
    """)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        seen = len(lines_of(tmp_path)) if (tmp_path / TRIALS).exists() else 0
        while not (tmp_path / TRIALS).exists() or len(lines_of(tmp_path)) < seen + 5:
            pass
        process.kill()
        process.wait()
        process.stdout.close()
        read_trials(tmp_path)
    number = append_look(tmp_path, opening("after"))
    found = read_trials(tmp_path)
    assert len(found.looks) == number >= 16
    assert found.notes == ()


def test_a_lock_that_is_held_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "PATIENCE", 0.1)
    append_look(tmp_path, opening())
    with (
        trials._open_locked(tmp_path / TRIALS),
        refused("held its lock for 0.1 s", kind=StorageError),
    ):
        append_look(tmp_path, opening())
    assert append_look(tmp_path, opening()) == 2


def test_a_full_disk_leaves_the_log_whole(log):
    """A limit on the size of files stands for the disk: the part that was written is taken away
    again.
    """
    import resource

    whole = (log / TRIALS).read_bytes()
    code = textwrap.dedent(f"""
        import resource, signal, sys
        from pathlib import Path
        from jaxtrade.storage.trials import SplitLook, append_look
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({len(whole) + 50}, {resource.RLIM_INFINITY}))
        try:
            append_look(Path({str(log)!r}), SplitLook("train", "r", "c", "d", "test", "a", "b", 1, "greedy"))
        except OSError as error:
            print("refused", error.errno)
    """)
    done = run_python("-c", code, cwd=ROOT, check=True)
    assert done.stdout.startswith("refused"), done.stderr
    assert (log / TRIALS).read_bytes() == whole
    assert len(read_trials(log).looks) == 5


def test_a_head_that_cannot_be_written_takes_its_line_back(log):
    """The opening is then not counted, and the caller is told so."""
    whole = (log / TRIALS).read_bytes()
    (log / f"{HEAD}.tmp").mkdir()  # for root too
    with pytest.raises(OSError, match=HEAD):
        append_look(log, opening("six"))
    assert (log / TRIALS).read_bytes() == whole
    (log / f"{HEAD}.tmp").rmdir()
    assert append_look(log, opening("six")) == 6
    assert len(read_trials(log).looks) == 6


def test_a_log_that_cannot_be_opened_raises_and_nothing_is_written(tmp_path):
    """Faults that root meets too, whom no permission stops: a folder in the file's place, a file in
    the folder's.
    """
    (tmp_path / TRIALS).mkdir()
    with pytest.raises(IsADirectoryError, match=TRIALS):
        append_look(tmp_path, opening())
    assert list(tmp_path.iterdir()) == [tmp_path / TRIALS]
    (tmp_path / TRIALS).rmdir()
    (tmp_path / "file").write_bytes(b"as it was")
    with pytest.raises(NotADirectoryError, match=TRIALS):
        append_look(tmp_path / "file", opening())
    assert (tmp_path / "file").read_bytes() == b"as it was"


def test_the_log_of_a_part_lies_beside_the_whole(tmp_path):
    assert trials_folder(tmp_path / "run") == tmp_path
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    assert trials_folder(tmp_path / "sweep" / "group_0") == tmp_path
    (tmp_path / "course" / "phases").mkdir(parents=True)
    (tmp_path / "course" / "curriculum.yaml").write_text("")
    assert trials_folder(tmp_path / "course" / "phases" / "1-entry") == tmp_path
    assert trials_folder(tmp_path / "phases" / "run") == tmp_path / "phases"


@pytest.mark.parametrize("changes", [{"net": {"0": (1.0,)}}, {"bars": {"ES": ("a1",)}}])
def test_profits_and_digests_that_do_not_fit_the_days_are_named(tmp_path, changes):
    append_look(tmp_path, opening()._replace(**changes))
    with refused("line 1: ", " 2 days", kind=DataError):
        read_trials(tmp_path)


def test_another_format_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "FORMAT", 2)
    append_look(tmp_path, opening())
    monkeypatch.undo()
    with refused("line 1: format 2, ", "reads 1", kind=DataError):
        read_trials(Path(tmp_path))


def test_lines_of_a_version_without_digests_are_read(tmp_path):
    append_look(tmp_path, opening()._replace(bars={"ES": ("a1", "b2")}))
    assert read_trials(tmp_path).looks[0].bars == {"ES": ("a1", "b2")}
    line = json.loads(lines_of(tmp_path)[0])
    del line["bars"]
    old = json.dumps(line | {"chosen": False}).encode()
    write_lines(tmp_path, [old + b"\n"])
    (tmp_path / HEAD).write_text(json.dumps({"lines": 1, "sha256": trials.sha_of(old)}))
    [found] = read_trials(tmp_path).looks
    assert found == opening()._replace(utc=found.utc)
