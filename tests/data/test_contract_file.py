"""A user's contract: shipped examples, every fault by file and key, and where such a contract
goes.
"""

from dataclasses import replace
from decimal import Decimal

import pytest

from jaxtrade.config import make_config
from jaxtrade.data.contracts import contract_of, get_contract, load_contract
from jaxtrade.data.market import fingerprint
from jaxtrade.data.read.bars import load_bars
from jaxtrade.errors import ConfigError, DataError
from tests.messages import missing, refused

GOOD = {
    "symbol": "FOO",
    "kind": "future",
    "currency": "USD",
    "tick_size": "0.25",
    "tick_value": "12.5",
    "commission": "2.08",
    "slippage": "1",
    "min_stop_ticks": "8",
    "calendar": "cme_equity",
}


@pytest.fixture
def contract_file(tmp_path):
    """contract_file(key=value, ...) -> path of a good file with those keys changed (None: left
    out).
    """

    def _write(**changes):
        path = tmp_path / "foo.yaml"
        values = {key: value for key, value in (GOOD | changes).items() if value is not None}
        path.write_text(
            "".join(f"{key}: {value}\n" for key, value in values.items()), encoding="utf-8"
        )
        return str(path)

    return _write


SHIPPED = [
    ("SPY", "equity", "0.0001", 10, 0),
    ("GOOG", "equity", "0.0001", 10, 0),
    ("6B", "future", "0.0001", 6_250, 18),
    ("EURGBP", "fx", "0.00001", 1_000, 17),
]


@pytest.mark.parametrize(("name", "kind", "tick", "mills", "turn"), SHIPPED)
def test_shipped_examples(name, kind, tick, mills, turn):
    contract = load_contract(name)
    assert (contract.symbol, contract.kind, contract.tick_size) == (name, kind, Decimal(tick))
    assert (contract.tick_mills, contract.turn_hour) == (mills, turn)
    assert contract == contract_of(make_config({"data": {"contract": name, "market": "ES"}}).data)


def test_a_file_gives_every_figure(contract_file):
    path = contract_file(micro="true", price_ranges="{2013: [1500, 1900.5]}")
    assert load_contract(path) == replace(
        get_contract("ES"), symbol="FOO", micro=True, price_ranges=((2013, 1500.0, 1900.5),)
    )


FAULTS = [
    ({"tick_valu": "1"}, ["unknown key 'tick_valu'", "did you mean 'tick_value'"]),
    ({"tick_value": None}, ["'tick_value': missing"]),
    ({"tick_size": "0"}, ["'tick_size' = 0", "greater than 0"]),
    ({"tick_value": "0.0005"}, ["tick_value = 0.0005: not a whole number of mills"]),
    ({"commission": "-1"}, ["'commission' = -1"]),
    ({"slippage": "1.5"}, ["'slippage' = 1.5"]),
    ({"symbol": "foo"}, ["'symbol' = 'foo'"]),
    ({"currency": "dollar"}, ["'currency' = 'dollar'"]),
    ({"kind": "stock"}, ["'kind' = 'stock'", "'equity'"]),
    (
        {"calendar": "fx"},
        ["calendar = fx is not one of a market of kind future", "cme_metal_energy"],
    ),
    ({"price_ranges": "{2013: [1900, 1500]}"}, ["price_ranges.2013", "low must be below"]),
]


@pytest.mark.parametrize(("changes", "fragments"), FAULTS)
def test_every_fault_names_file_and_key(contract_file, changes, fragments):
    path = contract_file(**changes)
    with refused(path, *fragments):
        load_contract(path)


def test_all_faults_at_once(contract_file):
    with pytest.raises(ConfigError) as caught:
        load_contract(contract_file(slippage="-1", currency="usd", kind=None))
    assert len(str(caught.value).splitlines()) == 3


def test_a_name_that_is_neither_file_nor_shipped():
    with pytest.raises(ConfigError, match=r"'SPI': .*6B, EURGBP, .*'SPY'"):
        load_contract("SPI")


def test_bars_are_read_with_it_and_other_markets_are_refused(contract_file, write, rows):
    contract = load_contract(contract_file(symbol="ESX"))
    lines = [f"{row},ESXZ3" for row in rows]
    bars = load_bars(
        write(lines, header="time,open,high,low,close,volume,symbol"), contract, stamp="open"
    )
    assert bars.open[0] == 6681
    with pytest.raises(DataError, match=r"NQ bars .*is ESX"):
        load_bars(
            write([f"{row},NQZ3" for row in rows], header="time,open,high,low,close,volume,symbol"),
            contract,
            stamp="open",
        )


def test_costs_of_a_file_are_part_of_the_fingerprint_and_those_of_a_known_market_are_not():
    """A run keeps no copy of the contract file: a changed one must not pass for it."""
    es, spy = get_contract("ES"), load_contract("SPY")
    assert fingerprint({}, spy) != fingerprint({}, replace(spy, commission_mills=501))
    assert fingerprint({}, es) != fingerprint({}, replace(es, tick_mills=5_000))


def test_years_without_a_price_range_are_one_note(write):
    """Two minutes in each of seventeen years."""
    rows = [
        f"{year}-03-04T15:{minute}:00Z,100.0,100.0,100.0,100.0,5"
        for year in range(2008, 2025)
        for minute in (30, 31)
    ]
    notes = load_bars(write(rows), load_contract("SPY"), stamp="open").notes
    (note,) = [note for note in notes if "price range" in note]
    assert not missing(note, "2008..2024", "SPY")
