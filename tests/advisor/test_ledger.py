"""Hard caps on what is spent, which a restart does not forget."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading

import pytest

from jaxtrade.advisor.host.paid import Caps, Ledger, Prices, Spend, at_most
from jaxtrade.errors import StorageError
from tests.messages import missing


def test_caps_refuse_before_they_are_exceeded_and_say_which():
    ledger = Ledger(None, Caps(calls=3, tokens=1000, cost=500))
    assert ledger.reserve(Spend(1, 600, 100)) == ""
    assert not missing(ledger.reserve(Spend(1, 401, 100)), "600 of", "max_tokens = 1000")
    refused = ledger.reserve(Spend(1, 400, 401))
    assert not missing(refused, "0.0001 of", "max_cost", "= 0.0005")
    assert ledger.reserve(Spend(1, 400, 400)) == ""
    assert ledger.reserve(Spend(1)) == ""
    assert not missing(ledger.reserve(Spend(1)), "3 of", "max_calls", "= 3")
    assert ledger.spent() == (3, 1000, 500)


def test_what_was_booked_too_high_is_given_back():
    ledger = Ledger(None, Caps(tokens=1000))
    assert ledger.reserve(Spend(1, 1000, 7)) == ""
    assert ledger.reserve(Spend(1, 1)) != ""
    ledger.settle(Spend(1, 1000, 7), Spend(1, 60, 2))
    assert ledger.spent() == (1, 60, 2)
    assert ledger.reserve(Spend(1, 940)) == ""


def test_a_cap_of_nothing_allows_nothing():
    refused = Ledger(None, Caps(calls=0)).reserve(Spend(1))
    assert not missing(refused, "0 of", "max_calls", "= 0")


def test_a_restart_does_not_forget(tmp_path):
    path = tmp_path / "deep" / "ledger.sqlite"
    first = Ledger(path, Caps(calls=2))
    assert first.reserve(Spend(1, 10, 3)) == ""
    first.close()
    second = Ledger(path, Caps(calls=2))
    assert second.spent() == (1, 10, 3)
    assert second.reserve(Spend(1)) == ""
    assert second.reserve(Spend(1)) != ""


def test_a_killed_process_has_spent_what_it_booked(tmp_path):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom jaxtrade.advisor.host.paid import *\n"
        "ledger = Ledger(Path(sys.argv[1]), Caps())\nledger.reserve(Spend(1, 500, 9))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "ledger.sqlite"
    assert (
        subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False).returncode
        == -9
    )
    assert Ledger(path, Caps()).spent() == (1, 500, 9)


def test_two_that_share_a_file_share_the_caps(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ledgers = [Ledger(path, Caps(calls=50)) for _ in range(2)]
    booked: list[str] = []

    def book(ledger):
        for _ in range(40):
            booked.append(ledger.reserve(Spend(1, 2, 3)))

    threads = [threading.Thread(target=book, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert booked.count("") == 50
    assert ledgers[0].spent() == ledgers[1].spent() == (50, 100, 150)


def test_a_damaged_ledger_is_refused_not_reset(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"ledger\.sqlite: .*cannot be read"):
        Ledger(path, Caps())
    assert path.read_bytes() == b"not a database" * 100


def test_a_database_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (value)")
    with pytest.raises(StorageError, match="a database of something else"):
        Ledger(path, Caps())


def test_a_full_disk_refuses_and_books_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", Caps())
    ledger._connection.execute("PRAGMA query_only=ON")
    with pytest.raises(StorageError, match="nothing is asked"):
        ledger.reserve(Spend(1))
    ledger._connection.execute("PRAGMA query_only=OFF")
    assert ledger.spent() == Spend()
    assert ledger.reserve(Spend(1)) == ""  # no transaction was left open


def test_prices_are_per_million_and_rounded_up():
    assert Prices(0.15, 0.6).cost(1000, 100) == 210  # 0.00015 + 0.00006
    assert Prices(0.15, 0.6).cost(1, 0) == 1
    assert Prices().cost(10**6, 10**6) == 0


def test_the_most_that_a_call_can_cost_is_counted_in_bytes():
    assert at_most("abc", 64, 10, Prices()) == (1, 77, 0)
    assert at_most("é€", 64, 10, Prices(1.0, 100.0)) == (1, 79, 1069)
    assert at_most("\ud800", 0, 0, Prices()) == (1, 1, 0)  # no text, no exception
