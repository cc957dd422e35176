"""The rules of RL-Trainer's prompt as code, on raw slots."""

import math

import pytest

from jaxtrade.advisor.host.backends import RULE_SLOTS, RuleBackend, rule_advice
from jaxtrade.advisor.host.types import Failure
from tests.advisor.asking import question


@pytest.mark.parametrize(
    ("adx", "roc", "distance", "rsi", "direction", "confidence"),
    [
        (42.0, 0.002, 0.001, 60.0, "buy", 0.8),
        (42.0, -0.002, -0.001, 40.0, "sell", 0.8),
        (30.0, 0.002, 0.001, 60.0, "buy", 0.6),  # strong is above 30
        (20.0, -0.002, -0.001, 40.0, "sell", 0.6),
        (19.9, 0.002, 0.001, 60.0, "hold", 0.5),  # no trend
        (42.0, 0.002, -0.001, 60.0, "hold", 0.5),  # they disagree
        (42.0, 0.002, 0.001, 70.1, "hold", 0.5),  # overbought
        (42.0, 0.002, 0.001, 70.0, "buy", 0.8),
        (42.0, -0.002, -0.001, 29.9, "hold", 0.5),  # oversold
        (42.0, -0.002, -0.001, 75.0, "sell", 0.8),  # overbought forbids buying, not selling
    ],
)
def test_rules(adx, roc, distance, rsi, direction, confidence):
    advice = rule_advice({"adx": adx, "roc": roc, "price_to_vwap": distance, "rsi": rsi}, 30)
    assert advice.confidence == confidence
    assert advice.risk == pytest.approx(1 - confidence)
    logits = {"hold": advice.hold, "buy": advice.buy, "sell": advice.sell}
    assert logits.pop(direction) == pytest.approx(3 * confidence)
    assert set(logits.values()) == {0.0}


def test_backend_answers_from_raw_slots():
    backend = RuleBackend(horizon=10)
    answer = backend.answer(question(3), deadline=0.0)
    assert answer.advice == rule_advice(question(3).slots, 10)
    assert backend.identity()["horizon"] == "10"


@pytest.mark.parametrize("name", RULE_SLOTS)
@pytest.mark.parametrize("value", [None, math.nan, -1.5, 1e6])
def test_a_missing_or_normalised_slot_is_absence(name, value):
    """The old rules would have been fed 'WEAK trend, RSI OVERSOLD' from z-scores at every bar."""
    slots = {key: given for key, given in question(3).slots.items() if key != name}
    if value is not None:
        slots[name] = value
    answer = RuleBackend().answer(question(3)._replace(slots=slots), 0.0)
    assert (answer.advice, answer.failure, answer.retryable) == (None, Failure.SCHEMA, False)
