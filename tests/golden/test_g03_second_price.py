"""G3. The earlier project's second price was three times the first. Here each symbol's profit comes
from its own bars.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.engines import play, walk


@pytest.mark.slow
def test_shuffling_the_bars_of_b_changes_the_profit_of_b_alone():
    a, b = walk(1, 60), walk(2, 60, 9_000)
    order = np.random.default_rng(5).permutation(60)
    rng = np.random.default_rng(6)
    wants = [[int(rng.integers(-1, 2)), int(rng.integers(-1, 2))] for _ in range(59)]
    plain = play("joint", [a, b], wants, commission=500, slippage=1)
    shuffled = play("joint", [a, [b[i] for i in order]], wants, commission=500, slippage=1)
    assert [step.profit[0] for step in plain] == [step.profit[0] for step in shuffled]
    assert [step.profit[1] for step in plain] != [step.profit[1] for step in shuffled]
    assert any(step.profit[0] for step in plain)
    for steps in (plain, shuffled):
        assert np.cumsum([sum(step.profit) for step in steps]).tolist() == [
            step.equity for step in steps
        ]
