"""Two processes that make the same new file at the same moment: neither takes it for a file of
something else.
"""

import sqlite3

from jaxtrade.advisor.host import ledger as books
from jaxtrade.advisor.host.ledger import AdviceCache, Caps, Ledger, Spend, is_busy

CONNECT = sqlite3.connect
MAKE_CACHE = (
    f"BEGIN IMMEDIATE; {books._TABLE}; PRAGMA application_id={books._CACHE}; "
    f"PRAGMA user_version={books.FORMAT}; COMMIT"
)
MAKE_LEDGER = (
    f"BEGIN IMMEDIATE; PRAGMA application_id={books._LEDGER}; CREATE TABLE other (x); COMMIT"
)


def meet(monkeypatch, path, script):
    """From now on, another connection runs `script` just before the first look at a file's tables.
    Returns a list that will say whether it could: it cannot while the reader holds the file."""
    could = []

    class Meeting(sqlite3.Connection):
        def execute(self, sql, *arguments):
            if "sqlite_master" in sql and not could:
                other = CONNECT(path, timeout=0.0, isolation_level=None)
                try:
                    other.executescript(script)
                    could.append(True)
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                    could.append(False)
                finally:
                    other.close()
            return super().execute(sql, *arguments)

    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **named: CONNECT(*given, **named, factory=Meeting)
    )
    return could


def test_a_cache_that_another_process_makes_meanwhile(tmp_path, monkeypatch):
    path, messages = tmp_path / "cache.sqlite", []
    could = meet(monkeypatch, path, MAKE_CACHE)
    opened = AdviceCache(path, messages.append)
    opened.open()
    assert len(could) == 1
    assert (opened.degraded, messages) == ("", [])
    assert opened.get("k") is None


def test_a_ledger_that_another_process_makes_meanwhile(tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite"
    could = meet(monkeypatch, path, MAKE_LEDGER)
    opened = Ledger(path, Caps())
    assert len(could) == 1
    assert opened.sum_spend() == Spend()
