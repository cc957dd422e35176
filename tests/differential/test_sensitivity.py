"""The comparison can fail: each planted fault, on either side, is seen."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env import execution
from jaxtrade.env.state import ExitReason
from tests.differential import generated, ours
from tests.differential.compare import compare, compare_random
from tests.differential.passes import Setting

pytestmark = pytest.mark.slow

CONFIG = EnvConfig(task="manage", actions="full", quantity=3, random_start=False)


@pytest.fixture(scope="module")
def params():
    # near enough for one bar to hold stop and target
    near = Setting(stop_atr=800, target_multiple=2, slippage=2, trail_atr=600, commission=52)
    return near.apply(generated.rules_off(generated.market(3, sessions=60)))


@pytest.mark.parametrize(
    "change",
    [
        {"contracts": 2},
        {"tick_cents": 501},
        {"commission_cents": 53},
        {"slippage": 1},
        {"min_stop": 30},
        {"be_ticks": 2},
        {"stop_atr": 850},
        {"target_multiple": 4},
        {"trail_atr": 700},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_figure_is_seen(params, change):
    terms = replace(ours.reference_terms(params, CONFIG.quantity), **change)
    logits = ours.random_logits(CONFIG, params, 3, reversals=False)
    with pytest.raises(AssertionError):
        compare(CONFIG, params, logits, terms)


def target_first(leg, bar):
    """The target counts before the stop."""
    position = leg.position
    side = jnp.sign(position.quantity)
    best = jnp.where(side > 0, bar.high, bar.low)
    hit = side * (best - position.target) >= 0
    leg = execution._exit(leg, hit, position.target, jnp.int32(ExitReason.TARGET))
    return STOP_FIRST(leg, bar)


def loose_trail(position, close, distance):
    """The trail also loosens."""
    side = jnp.sign(position.quantity)
    return position.replace(
        stop=jnp.where(position.trailing == 1, close - side * distance, position.stop)
    )


STOP_FIRST = execution.stop_first
FAULTS = [
    ("stop_first", target_first),
    ("ratchet", loose_trail),
]


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[fault.__name__ for _, fault in FAULTS])
def test_a_fault_of_ours_is_seen(params, monkeypatch, name, fault):
    monkeypatch.setattr(execution, name, fault)
    ours._rollout.clear_cache()
    try:
        with pytest.raises(AssertionError, match=r"trade \d+: ours|equity differs"):
            compare_random(CONFIG, params, seed=3)
    finally:
        ours._rollout.clear_cache()
