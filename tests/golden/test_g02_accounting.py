"""G2. The earlier project's short sale paid the proceeds and the open profit, both.

Here equity is cash plus holdings at every step, whatever is bought, sold short, turned round or
covered.
"""

import itertools

import numpy as np
import pytest

from tests.golden.engines import ENGINES, TICK, play, walk


@pytest.mark.parametrize("engine", ENGINES)
def test_a_short_on_a_flat_price_earns_nothing(engine):
    rows = [(20_000, 20_000, 20_000, 20_000)] * 12
    third = -1 if engine == "single" else -3  # one symbol opens from flat only: the size stays
    wants = (-1, -1, third, 0, 2, -2, 1, 1, 0, -1, -1)
    steps = play(engine, [rows], [[want] for want in wants])
    assert sum(len(step.fills) for step in steps) >= 9
    assert [step.equity for step in steps] == [0] * 11


def ledger(steps, closes):
    """Equity by a ledger of its own: cash paid and received for contracts, and what they are worth
    at the close.
    """
    cash, held, found = 0, [0] * len(closes), []
    for t, step in enumerate(steps):
        for s, change, price in step.fills:
            cash -= change * price * TICK
            held[s] += change
        cash -= step.cost
        found.append(cash + sum(q * closes[s][t + 1] * TICK for s, q in enumerate(held)))
    return found


@pytest.mark.parametrize(("engine", "seed"), [("single", 1), ("joint", 2), ("joint", 3)])
def test_equity_is_cash_plus_holdings_at_each_step(engine, seed):
    """Random positions, flips and parts of positions, with commission and slippage; the flat bar
    closes them all.
    """
    count, symbols = 80, 1 if engine == "single" else 2
    bars = [walk(10 * seed + s, count, 20_000 - 7_000 * s) for s in range(symbols)]
    rng = np.random.default_rng(seed)
    sizes = (-1, 0, 1) if engine == "single" else (-3, -2, -1, 0, 1, 2, 3)
    wants = [[int(rng.choice(sizes)) for _ in range(symbols)] for _ in range(count - 1)]
    steps = play(engine, bars, wants, commission=2_080, slippage=1)
    assert [step.equity for step in steps] == ledger(
        steps, [[row[3] for row in rows] for rows in bars]
    )
    assert steps[-1].quantity == [0] * symbols
    turned = sum({np.sign(a[0]), np.sign(b[0])} == {-1, 1} for a, b in itertools.pairwise(wants))
    assert turned > 5
