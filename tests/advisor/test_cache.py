"""The cache: what is kept, what is not, and files that cannot be used."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from jaxtrade.advisor.host.paid import AdviceCache, Cached, cache_key, cacheable
from jaxtrade.advisor.host.types import Answer, Failure, Question
from tests.advisor.service_parts import ADVICE, bad, good, question

WHO = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:1/v1", "temperature": "0"}


class Opened:
    """A cache that is open, and the lines that it reported."""

    def __init__(self, path):
        self.messages: list[str] = []
        self.cache = AdviceCache(path, self.messages.append)
        self.cache.open()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "cache.sqlite"


def test_the_key_is_of_all_that_an_answer_depends_on():
    asked = question(1)
    key = cache_key(WHO, asked)
    assert len(key) == 64
    others = [
        cache_key(WHO | {"model": "big"}, asked),
        cache_key(WHO | {"base_url": "http://other"}, asked),
        cache_key(WHO, asked._replace(prompt="another")),
        cache_key(WHO, asked._replace(prompt_version="v2")),
        cache_key(WHO, asked, sample=1),
    ]
    assert len({key, *others}) == 6
    assert cache_key(dict(reversed(WHO.items())), asked) == key  # order says nothing
    assert (
        cache_key(WHO, asked._replace(bar=2, slots={})) == key
    )  # nor does anything the prompt does not hold


def test_without_a_prompt_nothing_tells_a_files_answers_apart(path):
    """Mocks answer by bar, whatever the prompt: their answers must not become each other's."""
    cache = Opened(path).cache
    assert cache.key(WHO, question(1)) == cache_key(WHO, question(1))
    assert cache.key(WHO, question(1)._replace(prompt="")) == ""
    cache.put("", question(1), good())
    assert cache.get("") is None
    memory = Opened(None).cache
    same = [question(bar)._replace(prompt="the same") for bar in (1, 2)]
    assert memory.key(WHO, same[0]) != memory.key(WHO, same[1])


def test_advice_survives_the_process(path):
    opened = Opened(path)
    assert opened.cache.get("k") is None
    opened.cache.put("k", question(1), good())
    assert opened.cache.get("k") == Cached(ADVICE)  # before it is written
    opened.cache.close()
    again = Opened(path)
    assert again.cache.get("k") == Cached(ADVICE)
    assert (again.cache.count(), again.messages) == (1, [])


def test_the_first_advice_stays(path):
    """Fault 18: the same prompt gives different answers. I11: nothing is paid for and thrown away
    twice.
    """
    other = ADVICE._replace(buy=-9.0)
    for flush in (True, False):
        opened = Opened(path.with_name(f"{flush}.sqlite"))
        opened.cache.put("k", question(1), good())
        if flush:
            opened.cache.flush()
        opened.cache.put("k", question(1), good()._replace(advice=other))
        opened.cache.put("k", question(1), bad(Failure.SCHEMA))
        assert opened.cache.get("k") == Cached(ADVICE)
        opened.cache.flush()
        assert opened.cache.get("k") == Cached(ADVICE)


@pytest.mark.parametrize("failure", list(Failure))
def test_only_unreadable_answers_are_kept_as_negatives(path, failure):
    """Lost connections, statuses, empty, cut and filtered answers say nothing of the question."""
    opened = Opened(path)
    opened.cache.put("k", question(1), bad(failure))
    opened.cache.flush()
    kept = failure in (Failure.PARSE, Failure.SCHEMA)
    assert cacheable(bad(failure)) is kept
    assert opened.cache.get("k") == (Cached(None, failure, 1) if kept else None)
    assert not cacheable(
        bad(failure, raw="")
    )  # without the model's text nothing is known of the question


@pytest.mark.parametrize("flush", [True, False])
def test_negatives_count_repetitions_of_the_same_failure_and_keep_the_text(path, flush):
    cache = Opened(path).cache

    def put(failure, raw):
        cache.put("k", question(1), bad(failure, raw=raw))
        if flush:
            cache.flush()

    put(Failure.SCHEMA, "first")
    put(Failure.SCHEMA, "BUY | 0.85 | because")
    assert cache.get("k") == Cached(None, Failure.SCHEMA, 2)
    put(Failure.PARSE, "<html>")
    assert cache.get("k") == Cached(None, Failure.PARSE, 1)
    put(Failure.PARSE, "x" * 70_000)
    assert cache.get("k") == Cached(None, Failure.PARSE, 2)
    cache.close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT failure, attempts, length(raw), bar, symbol FROM answers"
        ).fetchall()
    assert rows == [("parse", 2, 65536, 1, "NQ")]


def test_a_negative_gives_way_to_advice(path):
    cache = Opened(path).cache
    cache.put("k", question(1), bad(Failure.SCHEMA))
    cache.flush()
    cache.put("k", question(1), good())
    assert cache.get("k") == Cached(ADVICE)
    cache.flush()
    assert cache.get("k") == Cached(ADVICE)


def test_reading_does_not_change_what_is_read(path):
    """The old cache multiplied the stored confidence by 0.8 at every hit."""
    cache = Opened(path).cache
    cache.put("k", question(1), good())
    cache.flush()
    assert {cache.get("k") for _ in range(100)} == {Cached(ADVICE)}


def test_without_a_file_answers_are_kept_in_memory():
    opened = Opened(None)
    opened.cache.put("k", question(1), good())
    assert opened.cache.flush() is True
    assert opened.cache.get("k") == Cached(ADVICE)
    opened.cache.close()
    assert opened.messages == []


# --- files that cannot be used ---------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_set_aside_and_said(path):
    path.parent.mkdir()
    path.write_bytes(b"SQLite format 3\0" + b"rubbish" * 1000)
    opened = Opened(path)
    opened.cache.put("k", question(1), good())
    opened.cache.close()
    assert len(opened.messages) == 1
    assert "is damaged" in opened.messages[0]
    assert "cache.sqlite.corrupt-1" in opened.messages[0]
    assert (path.parent / "cache.sqlite.corrupt-1").read_bytes().endswith(b"rubbish")
    assert Opened(path).cache.get("k") == Cached(ADVICE)


def test_a_damaged_page_is_found_on_opening(path):
    cache = Opened(path).cache
    for number in range(500):
        cache.put(f"{number:064}", question(number), good(raw="x" * 300))
    cache.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = os.urandom(4096)
    path.write_bytes(data)
    opened = Opened(path)
    assert opened.cache.quarantined == path.with_name("cache.sqlite.corrupt-1")
    assert len(opened.messages) == 1
    assert opened.cache.count() == 0
    path.write_bytes(data)  # and a second one does not overwrite the first
    opened.cache.close()
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    path.write_bytes(data)
    assert Opened(path).cache.quarantined == path.with_name("cache.sqlite.corrupt-2")


def test_a_database_of_something_else_is_left_alone_and_said(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (value)")
    before = path.read_bytes()
    opened = Opened(path)
    opened.cache.put("k", question(1), good())
    assert opened.cache.get("k") == Cached(ADVICE)  # in memory
    opened.cache.close()
    assert "a database of something else" in opened.messages[0]
    assert (path.read_bytes(), len(opened.messages)) == (before, 1)


@pytest.mark.parametrize("pragma", ["max_page_count = 1", "query_only = ON"])
def test_a_full_or_read_only_disk_degrades_to_memory_and_is_said_once(path, pragma):
    first = Opened(path)
    first.cache.put("old", question(0), good())
    first.cache.flush()
    connection = first.cache._connection
    assert connection is not None
    connection.execute(f"PRAGMA {pragma}")
    for number in range(300):
        first.cache.put(f"{number}", question(number), good(raw="x" * 1000))
        assert first.cache.flush() is True
    assert len(first.messages) == 1
    assert "are kept in memory" in first.messages[0]
    assert ("full" in first.messages[0]) or ("readonly" in first.messages[0])
    assert all(first.cache.get(f"{number}") == Cached(ADVICE) for number in range(300))
    assert first.cache.get("old") == Cached(ADVICE)  # what is on disk is still read
    connection.execute("PRAGMA query_only = OFF")
    connection.execute("PRAGMA max_page_count = 1000000")
    first.cache.close()  # there is room again: nothing paid is lost
    assert Opened(path).cache.count() == 301


def test_a_folder_that_cannot_be_made_degrades_to_memory(tmp_path):
    (tmp_path / "file").write_text("in the way")
    opened = Opened(tmp_path / "file" / "cache.sqlite")
    opened.cache.put("k", question(1), good())
    assert opened.cache.get("k") == Cached(ADVICE)
    opened.cache.close()
    assert len(opened.messages) == 1


def test_a_file_that_breaks_while_open_is_said_once_and_the_run_goes_on(path):
    opened = Opened(path)
    connection = opened.cache._connection
    assert connection is not None
    connection.execute("DROP TABLE answers")
    assert opened.cache.get("k") is None
    opened.cache.put("k", question(1), good())
    assert opened.cache.flush() is True
    assert opened.cache.get("k") == Cached(ADVICE)
    opened.cache.close()
    assert len(opened.messages) == 1


@pytest.mark.parametrize("stored", ["[1, 2]", "not json", '{"a": 1}', "null"])
def test_stored_rubbish_is_no_advice(path, stored):
    opened = Opened(path)
    opened.cache.put("k", question(1), good())
    opened.cache.flush()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE answers SET advice = ?", (stored,))
    assert opened.cache.get("k") is None
    assert len(opened.messages) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("jaxtrade.advisor.host.paid._MOST_IN_MEMORY", 10)
    cache = Opened(None).cache
    for number in range(25):
        cache.put(f"{number}", question(number), good(raw="x" * 1000))
    assert len(cache._pending) == 10
    assert cache.get("24") == Cached(ADVICE)
    assert cache.get("14") is None
    assert not any(row.answer.raw for row in cache._pending.values())


# --- several processes -----------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from jaxtrade.advisor.host.paid import AdviceCache
from tests.advisor.service_parts import good, question
cache = AdviceCache(Path(sys.argv[1]), lambda line: sys.exit(line))
cache.open()
first, last = int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    cache.put(f"{number}", question(number), good(prompt_tokens=first))
    while not cache.flush():
        pass
    print(number, flush=True)
cache.close()
"""


def start(path, first, last):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(first), str(last)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_two_processes_share_a_cache(path):
    writers = [start(path, 0, 150), start(path, 100, 250)]
    codes = [(writer.communicate(timeout=60), writer.returncode)[1] for writer in writers]
    assert codes == [0, 0]
    opened = Opened(path)
    assert (opened.cache.count(), opened.messages) == (250, [])


def test_a_kill_during_writes_leaves_a_usable_file(path):
    writer = start(path, 0, 10**9)
    assert writer.stdout is not None
    seen = -1
    for line in writer.stdout:
        seen = int(line)
        if seen >= 200:
            writer.send_signal(signal.SIGKILL)
            break
    writer.stdout.close()
    writer.wait(timeout=30)
    opened = Opened(path)
    assert opened.messages == []
    assert all(
        opened.cache.get(f"{number}") is not None for number in range(seen + 1)
    )  # all that was written


def test_a_locked_file_keeps_answers_until_it_is_free(path):
    opened = Opened(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    opened.cache.put("k", question(1), good())
    assert opened.cache.flush() is False
    assert opened.cache.get("k") == Cached(ADVICE)
    holder.execute("COMMIT")
    assert opened.cache.flush() is True
    assert (opened.cache.count(), opened.messages) == (1, [])


def test_text_that_is_no_text_is_stored_all_the_same(path):
    cache = Opened(path).cache
    cache.put("k", question(1), bad(Failure.PARSE, raw="a\ud800b\x00c", model="\udfff"))
    assert cache.flush() is True
    cache.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT raw, model FROM answers").fetchone() == ("a?b\x00c", "?")


def test_the_prompt_is_not_stored(path):
    cache = Opened(path).cache
    secret = Question(1, "NQ", "t", {}, "PROMPT-TEXT", "v1")
    cache.put("k", secret, Answer(ADVICE))
    cache.close()
    assert b"PROMPT-TEXT" not in path.read_bytes()
