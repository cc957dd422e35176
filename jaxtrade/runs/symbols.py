"""The symbols of a run, each as a setup of its own: what is evaluated, replayed and scored is
always one symbol.

The markets of a set have one shape (`evaluation.members`), and their programs step the same
number of bars, so every program is compiled once for all symbols.
"""

from __future__ import annotations

from jaxtrade.data.market_set import MarketSet
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.members import for_member
from jaxtrade.evaluation.record import Steps, decision_bars, longest
from jaxtrade.runs.setup import Setup
from jaxtrade.types import PyTree


def steps_of(setup: Setup, split: str) -> Steps | None:
    """What the programs of a set step on a split: as much as the symbol with most bars has. None
    for one symbol.
    """
    if not isinstance(setup.market, MarketSet):
        return None
    return longest(
        [decision_bars(own.single.data, own.splits[split]) for own in setup.symbols.values()]
    )


def policy_for(setup: Setup, policy: PyTree, symbol: str) -> PyTree:
    """The policy as it acts on one symbol: with the observation statistics of that symbol. It may
    be abstract.
    """
    return (
        for_member(policy, setup.market.symbols.index(symbol))
        if isinstance(setup.market, MarketSet)
        else policy
    )


def chosen_symbol(setup: Setup, symbol: str | None) -> str:
    """The symbol that was asked for, or the only one.

    Raises ConfigError if the run has no such symbol, or has several and none was named.
    """
    known = list(setup.symbols)
    if symbol is None and len(known) == 1:
        return known[0]
    if symbol is None or symbol.upper() not in known:
        asked = (
            "this run has several symbols"
            if symbol is None
            else f"symbol {symbol}: this run has no such symbol"
        )
        raise ConfigError(f"{asked}; give symbol (--symbol) {' or '.join(known)}")
    return symbol.upper()
