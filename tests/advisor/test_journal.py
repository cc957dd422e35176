"""The journal: whole, or refused with the line; killed, or resumed; replayed, or recognised as
another run's.
"""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from jaxtrade.advisor.host.journal import (
    Journal,
    JournalDelta,
    JournalPosition,
    read_journal,
    row_text,
)
from jaxtrade.errors import JournalError

HEADER = {
    "run": "nq-train-1",
    "config": "c" * 64,
    "prompt_version": "p1",
    "schema": "s1",
    "identity": {"kind": "mock", "model": "tiny"},
    "versions": {"jax": "0.10.2"},
}
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
        journal.append(*delta)
    if close:
        journal.close()
    return journal


def test_what_is_read_is_what_was_written_to_the_bit(path):
    journal = write(path)
    found = read_journal(path, expected={"config": "c" * 64}, position=journal.position)
    assert found.deltas == tuple(DELTAS)
    assert found.header["identity"] == HEADER["identity"]
    assert (found.notes, found.position) == ((), journal.position)


def test_float32_rows_come_back_as_the_same_float32(path):
    values = [
        struct.unpack("f", struct.pack("I", bits))[0]
        for bits in (1, 0x3DCCCCCD, 0x7F7FFFFF, 0x80000000)
    ]
    write(path, [JournalDelta(1, 1, (0,), (tuple(values),))])
    (row,) = read_journal(path).deltas[0].rows
    assert [struct.pack("f", value) for value in row] == [
        struct.pack("f", value) for value in values
    ]


def test_each_line_holds_the_digest_of_all_before_it(path):
    write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["header", "delta", "delta", "delta", "end"]
    assert len({line["sha256"] for line in lines}) == 5


def test_text_made_before_gives_the_same_journal(path, tmp_path):
    write(path)
    journal = Journal.create(tmp_path / "other", HEADER)
    for delta in DELTAS:
        journal.append_texts(
            delta.update, delta.version, delta.bars, [row_text(row) for row in delta.rows]
        )
    for bars, texts in [((5, 9), ["[1.0]"]), ((5, 5), ["[1.0]", "[2.0]"]), ((), [])]:
        with pytest.raises(ValueError, match="distinct bars"):
            journal.append_texts(9, 9, bars, texts)
    journal.close()
    assert (tmp_path / "other").read_bytes() == path.read_bytes()


def test_digests_are_those_of_every_place(path):
    journal = Journal.create(path, HEADER)
    places = [journal.position, *(journal.append(*delta) for delta in DELTAS)]
    found = read_journal(path)
    assert [JournalPosition(i, digest) for i, digest in enumerate(found.digests)] == places
    kept = Journal.resume(path, places[1])[1]
    assert kept.digests == found.digests[:2]


def test_an_abandoned_journal_has_no_end(path):
    journal = write(path, close=False)
    journal.abandon()
    journal.abandon()
    (note,) = read_journal(path).notes
    assert "no end line" in note


def edit(path, number, old, new):
    lines = path.read_text().split("\n")
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("number", "old", "new", "where"),
    [
        (1, "nq-train-1", "nq-train-2", r"header \(line 1\): damaged"),
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
        ([0, 2, 3, 4], "line 2 "),  # a line taken out
        ([0, 2, 1, 3, 4], "line 2 "),  # two changed places
        ([0, 1, 1, 2, 3, 4], "line 3 "),  # one twice
        ([1, 2, 3, 4], "line 1"),  # no header
        ([0, 1, 2, 3, 4, 4], "line 6 "),  # an end twice
        ([0, 1, 2, 4], "line 4 "),  # the last delta taken out, the end left
    ],
)
def test_lines_out_of_place_are_refused(path, order, where):
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[index] for index in order))
    with pytest.raises(JournalError, match=where):
        read_journal(path)


def test_a_line_of_another_journal_is_refused(path, tmp_path):
    write(path)
    other = Journal.create(tmp_path / "other", {**HEADER, "run": "other"})
    for delta in DELTAS:
        other.append(*delta)
    other.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = (tmp_path / "other").read_bytes().splitlines(keepends=True)[2]
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match="line 3 "):
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


def test_a_journal_that_is_not_there_is_refused(path):
    with pytest.raises(JournalError, match="cannot be read"):
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
    assert len(found.deltas) == 2
    assert "no end line" in found.notes[0]
    with pytest.raises(JournalError, match=r"line 4 \(delta 3\) is missing"):
        read_journal(path, position=journal.position)


def test_another_history_is_seen_by_a_position(path):
    write(path)
    with pytest.raises(JournalError, match=r"line 3 \(delta 2\) is not"):
        read_journal(path, position=JournalPosition(2, "0" * 64))


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_torn_last_line_is_cut_and_said(path, cut):
    write(path, close=False)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    found = read_journal(path)
    assert found.deltas == tuple(DELTAS[:2])
    assert len(found.notes) == 1
    assert "line 4 is torn" in found.notes[0]
    journal, kept = Journal.resume(path)
    assert kept.deltas == tuple(DELTAS[:2])
    journal.append(*DELTAS[2])
    journal.close()
    assert path.read_bytes()[: len(data)] == data  # as if nothing had happened
    assert read_journal(path).notes == ()


def test_resume_goes_on_after_a_closed_journal(path):
    write(path, DELTAS[:2])
    journal, _ = Journal.resume(path, expected={"config": "c" * 64})
    journal.append(*DELTAS[2])
    journal.close()
    assert read_journal(path).deltas == tuple(DELTAS)


def test_resume_at_a_checkpoint_sets_the_later_history_aside(path):
    journal = write(path, DELTAS[:1], close=False)
    position = journal.position
    for delta in DELTAS[1:]:
        journal.append(*delta)
    tail = b"".join(path.read_bytes().splitlines(keepends=True)[2:])
    journal.close()
    resumed, kept = Journal.resume(path, position)
    assert (kept.deltas, kept.position, resumed.position) == (tuple(DELTAS[:1]), position, position)
    assert path.with_name("journal.jsonl.stale").read_bytes().startswith(tail)
    resumed.append(2, 2, [7], [[0.0, 0.0, 0.0]])
    resumed.close()
    assert [delta.bars for delta in read_journal(path).deltas] == [(5, 9), (7,)]


def test_resume_of_an_edited_journal_changes_nothing(path):
    write(path)
    edit(path, 3, "0.25", "0.75")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="line 3 "):
        Journal.resume(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (JournalDelta(4, 3, (7,), ((1.0,),)), "version 3 of update 4 "),
        (JournalDelta(3, 4, (7,), ((1.0,),)), "version 4 of update 3 "),
        (JournalDelta(5, 4, (7, 7), ((1.0,), (2.0,))), "1 distinct bars out of 2"),
        (JournalDelta(5, 4, (7, 8), ((1.0,),)), "1 rows of 2"),
        (JournalDelta(5, 4, (), ()), "0 rows of 0"),
        (JournalDelta(5, 4, (7, 8), ((1.0,), (1.0, 2.0))), "several widths"),
        (JournalDelta(5, 4, (7,), ((math.nan,),)), "not JSON compliant"),
        (JournalDelta(5, 4, (7,), ((math.inf,),)), "not JSON compliant"),
    ],
)
def test_what_cannot_follow_is_not_written(path, delta, message):
    """I12: versions rise, and a row never changes within one."""
    journal = write(path, close=False)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        journal.append(*delta)
    assert path.read_bytes() == before
    journal.append(5, 4, [7], [[1.0]])
    journal.close()
    assert len(read_journal(path).deltas) == 4


def test_a_header_may_not_use_the_journals_own_names(path):
    with pytest.raises(ValueError, match="sha256"):
        Journal.create(path, {**HEADER, "sha256": "x"})


def test_a_header_says_who_was_asked_and_how(path):
    with pytest.raises(ValueError, match="without 'identity'"):
        Journal.create(path, {name: value for name, value in HEADER.items() if name != "identity"})
    assert not path.exists()


def test_a_journal_is_never_overwritten(path):
    write(path)
    with pytest.raises(FileExistsError):
        Journal.create(path, HEADER)


def test_a_full_disk_takes_the_torn_line_back(path, monkeypatch):
    journal = write(path, close=False)
    before, file = path.read_bytes(), journal._file

    class Full:
        closed = False

        def fileno(self):
            return file.fileno()

        def write(self, line):
            if len(line) < 100:
                raise OSError(28, "No space left on device")
            return file.write(line[:60])  # takes a part

    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(OSError, match="No space left"):
        journal.append(5, 4, [7], [[1.0, 2.0, 3.0]])
    assert path.read_bytes() == before
    monkeypatch.setattr(journal, "_file", file)
    journal.append(5, 4, [7], [[1.0, 2.0, 3.0]])
    journal.close()
    assert len(read_journal(path).deltas) == 4


def test_a_killed_writer_leaves_a_journal_that_resumes(path):
    code = (
        "import sys\nfrom jaxtrade.advisor.host.journal import HEADER, Journal\n"
        "journal = Journal.create(sys.argv[1], dict.fromkeys(HEADER, 'x'))\nnumber = 0\n"
        "while True:\n    number += 1\n    journal.append(number, number, [number], [[0.5] * 8])\n"
        "    print(number, flush=True)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert writer.stdout is not None
    seen = 0
    for line in writer.stdout:
        seen = int(line)
        if seen == 300:
            os.kill(writer.pid, signal.SIGKILL)
            break
    writer.stdout.close()
    writer.wait(timeout=30)
    journal, kept = Journal.resume(path)
    assert kept.position.deltas >= seen
    assert len(kept.notes) == 1
    journal.append(10**9, 10**9, [1], [[0.5] * 8])
    journal.close()
