"""Against backtesting.py on generated bars: gaps, reversals, exact touches, missing bars."""

import pytest

from jaxtrade.config import EnvConfig
from tests.differential import generated
from tests.differential.compare import compare_random
from tests.differential.passes import HEADLINE, SLIPPED, TIGHT, WIDE, run_passes

pytestmark = pytest.mark.slow

CONFIG = EnvConfig(task="manage", actions="full", quantity=3, random_start=False)
REASONS = ("ORDER", "STOP", "BREAKEVEN", "TRAIL", "TARGET", "FLAT", "END_OF_DATA")


def test_trades_and_equity_are_identical():
    """Headline, tight, slipped and wide brackets; every kind of exit, gaps, and the one allowed
    difference.
    """
    params = generated.rules_off(generated.market(1, sessions=40))
    total = run_passes(CONFIG, params, (HEADLINE, TIGHT, SLIPPED, WIDE), first_seed=0)
    assert total.trades >= 1_500
    assert all(total.reasons[reason] for reason in REASONS), total
    assert total.gaps >= 100
    assert total.same_bar >= 100
    assert total.allowed >= 10


@pytest.mark.parametrize(
    ("task", "actions"),
    [
        ("entry", "full"),
        ("manage", "seed6"),
        ("advised", "full"),
    ],
)
def test_the_other_tasks_are_identical(task, actions):
    """Fewer actions, and `mark=close`: without account rules it changes neither trades nor equity
    at the closes.
    """
    config = EnvConfig(task=task, actions=actions, mark="close", quantity=1, random_start=False)
    params = generated.rules_off(generated.market(2, sessions=40))
    total = compare_random(config, SLIPPED.apply(params), seed=5)
    assert total.trades >= 100
