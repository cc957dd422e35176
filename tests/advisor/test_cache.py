"""The cache: what is kept, what is not, and files that cannot be used."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jaxtrade.advisor.host.ledger import AdviceCache, CachedAdvice, cache_key, cacheable
from jaxtrade.advisor.host.types import Failure
from tests.advisor.service_parts import ADVICE, bad, good, question

WHO = {"kind": "openai", "model": "tiny", "base_url": "http://127.0.0.1:1/v1", "temperature": "0"}


class Opened:
    """A cache that is open, and the lines that it reported."""

    def __init__(self, path):
        self.messages = []
        self.cache = AdviceCache(path, self.messages.append)
        self.cache.open()


def advised(path):
    """The number of questions with advice on disk."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT count(*) FROM answers WHERE advice IS NOT NULL")
        return rows.fetchone()[0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "cache.sqlite"


def test_the_key_is_of_all_that_an_answer_depends_on():
    asked = question(1)
    key = cache_key(WHO, asked)
    others = [
        cache_key(WHO | {"model": "big"}, asked),
        cache_key(WHO | {"base_url": "http://other"}, asked),
        cache_key(WHO, asked._replace(prompt="another")),
        cache_key(WHO, asked._replace(prompt_version="v2")),
    ]
    assert len({key, *others}) == 5
    assert cache_key(dict(reversed(WHO.items())), asked) == key  # order says nothing
    assert cache_key(WHO, asked._replace(bar=2, slots={})) == key  # nor does what no prompt holds


def test_without_a_prompt_nothing_tells_a_files_answers_apart(path):
    """Mocks answer by bar, whatever the prompt: their answers must not become each other's."""
    cache = Opened(path).cache
    assert cache.key(WHO, question(1)) == cache_key(WHO, question(1))
    assert cache.key(WHO, question(1)._replace(prompt="")) == ""
    cache.put("", question(1), good())
    assert cache.get("") is None
    keys = {Opened(None).cache.key(WHO, question(bar)._replace(prompt="same")) for bar in (1, 2)}
    assert len(keys) == 2


def test_advice_survives_the_process_and_its_prompt_does_not(path):
    opened = Opened(path)
    assert opened.cache.get("k") is None
    opened.cache.put("k", question(1)._replace(prompt="PROMPT-TEXT"), good())
    assert opened.cache.get("k") == CachedAdvice(ADVICE)  # before it is written
    opened.cache.close()
    again = Opened(path)
    assert [again.cache.get("k") for _ in range(3)] == [CachedAdvice(ADVICE)] * 3
    assert (advised(path), again.messages) == (1, [])
    assert b"PROMPT-TEXT" not in path.read_bytes()


@pytest.mark.parametrize("flush", [True, False])
def test_the_first_advice_stays(path, flush):
    """Fault 18: the same prompt gives different answers. I11: nothing is paid for and thrown away
    twice. What could not be read gives way to it.
    """
    cache = Opened(path).cache
    other = good()._replace(advice=ADVICE._replace(buy=-9.0))
    for answer in (bad(Failure.SCHEMA), good(), other, bad(Failure.SCHEMA)):
        cache.put("k", question(1), answer)
        if flush:
            cache.flush()
    assert cache.get("k") == CachedAdvice(ADVICE)
    cache.flush()
    assert cache.get("k") == CachedAdvice(ADVICE)


def test_an_answer_that_no_table_takes_breaks_nothing(path):
    """The question is settled all the same, so nothing waits for it."""
    opened = Opened(path)
    opened.cache.put("k", question(1), good(latency=float("nan")))
    assert opened.cache.get("k") is None
    assert opened.cache.degraded
    assert len(opened.messages) == 1


@pytest.mark.parametrize("failure", list(Failure))
def test_only_unreadable_answers_are_kept_as_negatives(path, failure):
    """Lost connections, statuses, empty, cut and filtered answers say nothing of the question."""
    opened = Opened(path)
    opened.cache.put("k", question(1), bad(failure))
    opened.cache.flush()
    kept = failure in (Failure.PARSE, Failure.SCHEMA)
    assert cacheable(bad(failure)) is kept
    assert opened.cache.get("k") == (CachedAdvice(None, failure, 1) if kept else None)
    assert not cacheable(
        bad(failure, raw="")
    )  # without the model's text nothing is known of the question


@pytest.mark.parametrize("flush", [True, False])
def test_negatives_count_repetitions_of_the_same_failure_and_keep_the_text(path, flush):
    cache, found = Opened(path).cache, []
    schema, parse, long = Failure.SCHEMA, Failure.PARSE, "a\ud800b" + "x" * 70_000
    for failure, raw in ((schema, "first"), (schema, "BUY"), (parse, "<html>"), (parse, long)):
        cache.put("k", question(1), bad(failure, raw=raw))
        if flush:
            cache.flush()
        found.append(cache.get("k"))
    times = [(schema, 1), (schema, 2), (parse, 1), (parse, 2)]
    assert found == [CachedAdvice(None, *each) for each in times]
    cache.close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT failure, attempts, substr(raw, 1, 4), length(raw) FROM answers"
        )
    assert rows.fetchall() == [("parse", 2, "a?bx", 65536)]


# --- files that cannot be used ---------------------------------------------------------------------------------------


def test_a_damaged_page_is_found_on_opening(path):
    cache = Opened(path).cache
    for number in range(500):
        cache.put(f"{number:064}", question(number), good(raw="x" * 300))
    cache.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = os.urandom(4096)
    for time in (1, 2):  # the second does not overwrite the first
        for beside in ("-wal", "-shm"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
        path.write_bytes(data)
        opened = Opened(path)
        assert path.with_name(f"cache.sqlite.corrupt-{time}").read_bytes() == data
        assert (len(opened.messages), advised(path)) == (1, 0)
        opened.cache.close()


def test_a_database_of_something_else_is_left_alone_and_said(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (value)")
    before = path.read_bytes()
    opened = Opened(path)
    opened.cache.put("k", question(1), good())
    assert opened.cache.get("k") == CachedAdvice(ADVICE)  # in memory
    opened.cache.close()
    assert (path.read_bytes(), len(opened.messages)) == (before, 1)


@pytest.mark.parametrize("pragma", ["max_page_count = 1", "query_only = ON"])
def test_a_full_or_read_only_disk_degrades_to_memory_and_is_said_once(path, pragma):
    first = Opened(path)
    first.cache.put("old", question(0), good())
    first.cache.flush()
    connection = first.cache._connection
    connection.execute(f"PRAGMA {pragma}")
    for number in range(300):
        first.cache.put(f"{number}", question(number), good(raw="x" * 1000))
        assert first.cache.flush() is True
    assert len(first.messages) == 1
    keys = ["old", *map(str, range(300))]  # what is on disk is still read
    assert {first.cache.get(key) for key in keys} == {CachedAdvice(ADVICE)}
    connection.execute("PRAGMA query_only = OFF")
    connection.execute("PRAGMA max_page_count = 1000000")
    first.cache.close()  # there is room again: nothing paid is lost
    assert advised(path) == 301


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("jaxtrade.advisor.host.ledger._MOST_IN_MEMORY", 10)
    cache = Opened(None).cache
    for number in range(25):
        cache.put(f"{number}", question(number), good(raw="x" * 1000))
    assert [bool(cache.get(key)) for key in ("24", "14")] == [True, False]
    assert cache._pending.execute("SELECT raw FROM answers").fetchall() == [("",)] * 10


# --- several processes -----------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from contextlib import closing
from pathlib import Path
from jaxtrade.advisor.host.ledger import AdviceCache
from tests.advisor.service_parts import good, question
cache = AdviceCache(Path(sys.argv[1]), lambda line: sys.exit(line))
cache.open()
first, last = int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    cache.put(f"{number}", question(number), good(prompt_tokens=first))
    while not cache.flush():
        pass
cache.close()
"""


def test_two_processes_share_a_cache(path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), first, last], cwd=ROOT)
        for first, last in (("0", "150"), ("100", "250"))
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    opened = Opened(path)
    assert (advised(path), opened.messages) == (250, [])


def test_a_locked_file_keeps_answers_until_it_is_free(path):
    opened = Opened(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    opened.cache.put("k", question(1), good())
    assert opened.cache.flush() is False
    assert opened.cache.get("k") == CachedAdvice(ADVICE)
    holder.execute("COMMIT")
    assert opened.cache.flush() is True
    assert (advised(path), opened.messages) == (1, [])
