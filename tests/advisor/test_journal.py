"""The journal: whole, or refused with the line; killed, or resumed; replayed, or recognised as
another run's.
"""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from jaxtrade.advisor.host.journal import (
    Journal,
    JournalDelta,
    check_position,
    read_journal,
)
from jaxtrade.errors import JournalError
from tests.advisor.bridge_parts import HEADER, FullDisk, append

DELTAS = [
    JournalDelta(1, 1, (5, 9), ((0.1, -0.2, 0.3), (1.0, 2.0, -3.5))),
    JournalDelta(1, 2, (6,), ((0.25, 0.5, 1e-7),)),
    JournalDelta(4, 3, (5,), ((1 / 3, 2 / 3, 5e-324),)),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def write(path, deltas=DELTAS, close=True):
    journal = Journal.create(path, HEADER)
    for delta in deltas:
        append(journal, *delta)
    if close:
        journal.close()
    return journal


def test_what_is_read_is_what_was_written_to_the_bit(path):
    journal = write(path)
    found = read_journal(path, expected={"config": "c"})
    check_position(path, found.digests, journal.position, "the run")
    assert found.deltas == tuple(DELTAS)
    assert found.header["identity"] == HEADER["identity"]
    assert (found.notes, found.position) == ((), journal.position)


def edit(path, number, old, new):
    lines = path.read_text().split("\n")
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("number", "old", "new", "where"),
    [
        (1, '"run":"r"', '"run":"q"', r"header \(line 1\): damaged"),
        (2, "-0.2", "-0.3", r"line 2 \(delta 1\): damaged"),
        (3, "0.25", "0.250", r"line 3 \(delta 2\): damaged"),
        (4, '"update":4', '"update":3', r"line 4 \(delta 3\): damaged"),
        (4, '"sha256":"', '"sha256":"0', r"line 4 \(delta 3\): damaged"),
        (3, "{", "", r"line 3 \(delta 2\): not a line"),
        (
            3,
            '"kind":"delta"',
            '"kind":"delta","kind":"delta"',
            r"line 3 \(delta 2\): damaged",
        ),
        (3, "0.25", "NaN", r"line 3 \(delta 2\): not a line"),
    ],
)
def test_an_edited_journal_is_refused_at_its_first_bad_line(path, number, old, new, where):
    write(path)
    edit(path, number, old, new)
    with pytest.raises(JournalError, match=where):
        read_journal(path)


@pytest.mark.parametrize(
    ("order", "where"),
    [
        ("0234", "line 2 "),  # a line taken out
        ("02134", "line 2 "),  # two changed places
        ("011234", "line 3 "),  # one twice
        ("1234", "line 1"),  # no header
        ("0124", "line 4 "),  # the last delta taken out, the end left
    ],
)
def test_lines_out_of_place_are_refused(path, order, where):
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[int(index)] for index in order))
    with pytest.raises(JournalError, match=where):
        read_journal(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"time,open\n1,2\n",
        b'{"kind": "header"}\n',
        b"[1]\n",
        b"\x00\xff\n",
        b"[" * 100_000 + b"\n",
        b'"sha256"\n',
        b"3\n",
    ],
)
def test_what_is_no_journal_is_refused_at_line_1(path, content):
    path.write_bytes(content)
    with pytest.raises(JournalError, match="line 1"):
        read_journal(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("config", "d" * 64),
        ("prompt_version", "p2"),
        ("schema", "s2"),
        ("identity", {"kind": "mock", "model": "big"}),
    ],
)
def test_a_journal_of_another_run_is_refused_by_name(path, name, value):
    write(path)
    with pytest.raises(JournalError, match=f"'{name}' is .* another run"):
        read_journal(path, expected={name: value})


def test_missing_lines_at_the_end_are_seen_by_a_position(path):
    journal = write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    found = read_journal(path)  # looks like a killed run, and says so
    assert (len(found.deltas), len(found.notes)) == (2, 1)
    with pytest.raises(JournalError, match=r"line 4 \(delta 3\) "):
        check_position(path, found.digests, journal.position, "the run")


@pytest.mark.parametrize("cut", [1, 8, 36])
def test_a_torn_last_line_is_cut_and_said(path, cut):
    write(path, close=False)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    [note] = read_journal(path).notes
    assert "line 4 " in note
    journal, kept = Journal.resume(path)
    assert kept.deltas == tuple(DELTAS[:2])
    append(journal, *DELTAS[2])
    journal.close()
    assert path.read_bytes()[: len(data)] == data  # as if nothing had happened
    assert read_journal(path).notes == ()


def test_resume_of_an_edited_journal_changes_nothing(path):
    write(path)
    edit(path, 3, "0.25", "0.75")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="line 3 "):
        Journal.resume(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("update", "version", "bars", "rows"),
    [
        (4, 3, [7], [[1.0]]),
        (3, 4, [7], [[1.0]]),
        (5, 4, [7, 7], [[1.0], [2.0]]),
        (5, 4, [7, 8], [[1.0]]),
        (5, 4, [], []),
        (5, 4, [7], [[math.nan]]),
    ],
)
def test_what_cannot_follow_is_not_written(path, update, version, bars, rows):
    """I12: versions rise, and a row never changes within one."""
    journal = write(path, close=False)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"update|of \d|JSON"):
        append(journal, update, version, bars, rows)
    assert path.read_bytes() == before
    append(journal, 5, 4, [7], [[1.0]])
    journal.close()
    assert len(read_journal(path).deltas) == 4


def test_a_header_says_who_was_asked_and_how(path):
    with pytest.raises(ValueError, match="'identity'"):
        Journal.create(path, {name: value for name, value in HEADER.items() if name != "identity"})
    with pytest.raises(ValueError, match="sha256"):
        Journal.create(path, {**HEADER, "sha256": "x"})
    assert not path.exists()


def test_a_journal_is_never_overwritten(path):
    write(path)
    with pytest.raises(FileExistsError):
        Journal.create(path, HEADER)


def test_a_full_disk_takes_the_torn_line_back(path, monkeypatch):
    journal = write(path, close=False)
    before = path.read_bytes()
    monkeypatch.setattr(journal, "_file", FullDisk(journal._file))
    with pytest.raises(OSError, match="No space left"):
        append(journal, 5, 4, [7], [[1.0, 2.0, 3.0]])
    assert path.read_bytes() == before
    monkeypatch.undo()
    append(journal, 5, 4, [7], [[1.0, 2.0, 3.0]])
    journal.close()
    assert len(read_journal(path).deltas) == 4


def test_a_killed_writer_leaves_a_journal_that_resumes(path):
    code = (
        "import sys\nfrom jaxtrade.advisor.host.journal import HEADER, Journal\n"
        "from tests.advisor.bridge_parts import append\n"
        "journal = Journal.create(sys.argv[1], dict.fromkeys(HEADER, 'x'))\nnumber = 0\n"
        "while True:\n    number += 1\n    append(journal, number, number, [number], [[0.5] * 8])\n"
        "    print(number, flush=True)"
    )
    command = [sys.executable, "-c", code, str(path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    seen = 0
    while seen < 300:
        seen = int(writer.stdout.readline())
    writer.kill()
    writer.communicate(timeout=30)
    journal, kept = Journal.resume(path)
    assert kept.position.deltas >= seen
    assert len(kept.notes) == 1
    append(journal, 10**9, 10**9, [1], [[0.5] * 8])
    journal.close()
