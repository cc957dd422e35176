from decimal import Decimal

import pytest

from jaxtrade.data.contracts import CONTRACTS, get_contract, whole_mills
from jaxtrade.errors import ConfigError

# symbol, tick size, money per tick, money per point, all in the quote currency (CME contract
# specifications; lots)
SPECS = """
NQ     0.25    5    20
ES     0.25    12.5 50
YM     1       5    5
RTY    0.10    5    50
MNQ    0.25    0.5  2
MES    0.25    1.25 5
MYM    1       0.5  0.5
M2K    0.10    0.5  5
GC     0.10    10   100
MGC    0.10    1    10
CL     0.01    10   1000
MCL    0.01    1    100
6E     0.00005 6.25 125000
EURUSD 0.00001 1    100000
GBPUSD 0.00001 1    100000
USDJPY 0.001   100  100000
USDCHF 0.00001 1    100000
"""
CURRENCY = {"USDJPY": "JPY", "USDCHF": "CHF"}


@pytest.mark.parametrize("line", SPECS.strip().splitlines())
def test_tick_values_follow_the_exchange(line):
    symbol, tick, money, point = line.split()
    contract = get_contract(symbol)
    assert str(contract.tick_size) == tick
    assert contract.tick_mills == float(money) * 1000
    assert contract.tick_size * Decimal(point) == Decimal(money)
    assert contract.currency == CURRENCY.get(symbol, "USD")
    assert contract.commission_mills > 0
    assert contract.micro == (symbol[0] == "M")


def test_all_contracts_are_specified_here():
    assert {*SPECS.split()[::4]} == set(CONTRACTS)


def test_figures_agree_with_the_table_of_lean(shared):
    """Tick, multiplier and quote currency (an FX lot is 100,000 units there)."""
    path = shared / "data/lean_calendar/symbol_properties_extract.csv"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    rows = {line.split(",")[1]: line.split(",") for line in lines}
    known = set(rows) & set(CONTRACTS)
    assert len(known) == 13
    for symbol in known:
        contract, (_, _, kind, _, currency, multiplier, tick, *_) = CONTRACTS[symbol], rows[symbol]
        size = Decimal(multiplier) * (100_000 if kind == "forex" else 1)
        assert (contract.tick_size, contract.currency) == (Decimal(tick), currency), symbol
        assert contract.tick_mills == Decimal(tick) * size * 1000, symbol


def test_every_market_has_a_plausible_range_for_each_year():
    for contract in CONTRACTS.values():
        assert [year for year, _, _ in contract.price_ranges] == list(range(2007, 2027)), (
            contract.symbol
        )
        assert all(0 < low < high < 3 * low for _, low, high in contract.price_ranges[6:13]), (
            contract.symbol
        )


def test_an_unknown_market_lists_and_suggests():
    with pytest.raises(ConfigError, match=r"'MESS': .*NQ, ES, .*'MES'"):
        get_contract("MESS")


def test_a_shipped_contract_given_as_a_market_names_its_key():
    with pytest.raises(ConfigError, match=r"'spy': .*--contract SPY; .*='SPY'"):
        get_contract("spy")
    with pytest.raises(ConfigError, match=r"'QQQ': .*6B, EURGBP, .*=FILE"):
        get_contract("QQQ")


@pytest.mark.parametrize("money", [2.0805, -1.0, 3e6])
def test_other_money_is_an_error_that_names_the_key(money):
    with pytest.raises(ConfigError, match=r"costs\.commission"):
        whole_mills(money, "costs.commission")


def test_price_ranges_tell_the_markets_apart_since_2013():
    for year in range(2013, 2027):
        es, nq, ym, rty = (CONTRACTS[s].price_limits(year) for s in ("ES", "NQ", "YM", "RTY"))
        assert es[1] < min(nq[0], ym[0]), year
        assert rty[0] < es[0], year
