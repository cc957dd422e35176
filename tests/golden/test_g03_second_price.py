"""G3. The earlier project's second price was three times the first. Here each symbol's profit comes
from its own bars.
"""

import numpy as np
import pytest

from tests.golden.engines import play, walk


@pytest.mark.slow
def test_shuffling_the_bars_of_b_changes_the_profit_of_b_alone():
    a, b = walk(1, 60), walk(2, 60, 9_000)
    rng = np.random.default_rng(5)
    other = [b[i] for i in rng.permutation(60)]
    wants = rng.integers(-1, 2, (59, 2)).tolist()
    plain, shuffled = (
        play("joint", [a, each], wants, commission=500, slippage=1) for each in (b, other)
    )
    profits = [np.array([step.profit for step in steps]) for steps in (plain, shuffled)]
    assert (profits[0][:, 0] == profits[1][:, 0]).all()
    assert (profits[0][:, 1] != profits[1][:, 1]).any()
    assert profits[0][:, 0].any()
    for steps, profit in zip((plain, shuffled), profits, strict=True):
        assert np.cumsum(profit.sum(axis=1)).tolist() == [step.equity for step in steps]
