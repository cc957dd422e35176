"""Hard caps on what is spent, which a restart does not forget."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxtrade.advisor.host.ledger import Caps, Ledger, Spend, at_most, cost_of
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import StorageError


def test_caps_refuse_before_they_are_exceeded_and_say_which():
    ledger = Ledger(None, Caps(calls=3, tokens=1000, cost=500))
    for spend, cap in (
        (Spend(1, 600, 100), ""),
        (Spend(1, 401, 100), "max_tokens = 1000"),
        (Spend(1, 400, 401), "max_cost = 0.0005"),
        (Spend(1, 400, 400), ""),
        (Spend(1), ""),
        (Spend(1), "max_calls = 3"),
    ):
        said = ledger.reserve(spend)
        assert bool(said) == bool(cap)
        assert cap in said
    assert ledger.sum_spend() == (3, 1000, 500)


def test_what_was_booked_too_high_is_given_back():
    ledger = Ledger(None, Caps(tokens=1000))
    assert ledger.reserve(Spend(1, 1000, 7)) == ""
    ledger.book_cost(Spend(1, 1000, 7), Spend(1, 60, 2))
    assert ledger.sum_spend() == (1, 60, 2)
    assert ledger.reserve(Spend(1, 940)) == ""


def test_two_that_share_a_file_share_the_caps(tmp_path):
    ledgers = [Ledger(tmp_path / "ledger.sqlite", Caps(calls=50)) for _ in range(2)]

    def book(ledger):
        return [ledger.reserve(Spend(1, 2, 3)) for _ in range(40)]

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(book, ledgers)
    assert (one + two).count("") == 50
    assert ledgers[0].sum_spend() == ledgers[1].sum_spend() == (50, 100, 150)


def test_a_damaged_ledger_is_refused_not_reset(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"ledger\.sqlite"):
        Ledger(path, Caps())
    assert path.read_bytes() == b"not a database" * 100


def test_a_full_disk_refuses_and_books_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", Caps())
    ledger._connection.execute("PRAGMA query_only=ON")
    with pytest.raises(StorageError, match="nothing is asked"):
        ledger.reserve(Spend(1))
    ledger._connection.execute("PRAGMA query_only=OFF")
    assert ledger.sum_spend() == Spend()
    assert ledger.reserve(Spend(1)) == ""  # no transaction was left open


def test_prices_are_per_million_and_rounded_up():
    priced = ServiceOptions(price_prompt=0.15, price_completion=0.6)
    assert cost_of(priced, 1000, 100) == 210  # 0.00015 + 0.00006
    assert cost_of(priced, 1, 0) == 1
    assert cost_of(ServiceOptions(), 10**6, 10**6) == 0


def test_the_most_that_a_call_can_cost_is_counted_in_bytes():
    free = ServiceOptions(overhead_tokens=64, completion_tokens=10)
    priced = free.model_copy(update={"price_prompt": 1.0, "price_completion": 100.0})
    assert at_most("abc", free) == (1, 77, 0)
    assert at_most("é€", priced) == (1, 79, 1069)
    assert at_most("\ud800", free) == (1, 75, 0)  # no text, no exception
