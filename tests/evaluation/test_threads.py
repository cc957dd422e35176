"""The parts of an evaluation in threads."""

import threading

import pytest

from jaxtrade.evaluation import backtest


def test_results_keep_the_order_of_the_items(monkeypatch):
    """Each of two items waits until both have begun, so they do run at once."""
    monkeypatch.setenv("NPROC", "2")
    both = threading.Barrier(2, timeout=60)

    def doubled(item):
        both.wait()
        return 2 * item

    assert backtest.in_threads(doubled, iter([1, 2])) == [2, 4]


def test_one_core_needs_no_thread(monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    assert set(backtest.in_threads(lambda _: threading.current_thread(), range(3))) == {
        threading.main_thread()
    }
    assert backtest.in_threads(str, []) == []


def test_an_error_is_raised(monkeypatch):
    monkeypatch.setenv("NPROC", "2")
    with pytest.raises(ZeroDivisionError):
        backtest.in_threads(lambda item: 1 // item, [1, 0, 2])


@pytest.mark.parametrize("given", ["", "0", "many"])
def test_without_a_number_the_cores_of_the_process_count(given, monkeypatch):
    monkeypatch.setenv("NPROC", given)
    assert backtest.cores() >= 1
