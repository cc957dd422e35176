"""The guides of the prompt (`prompts`) as code. A language model must beat these rules to be worth
its calls.

ADX above 30 is a strong trend, 20 to 30 a moderate one, below 20 none. Momentum and the side of
VWAP must agree. RSI above 70 forbids buying, below 30 selling. No rule concerns the account
(losses, win rate, open profit): market advice does not see it, and action masks enforce its limits.
The prompt states no confidences; those here are our own choice.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxtrade.advisor.host.schema import advice_of
from jaxtrade.advisor.host.slots import RAW_SLOTS
from jaxtrade.advisor.host.types import Advice, Answer, Failure, Question

STRONG, WEAK = 30.0, 20.0  # ADX
OVERBOUGHT, OVERSOLD = 70.0, 30.0  # RSI
CONFIDENCE = {"strong": 0.8, "moderate": 0.6, "none": 0.5}
RULE_SLOTS = ("adx", "roc", "price_to_vwap", "rsi")


def rule_advice(slots: Mapping[str, float], horizon: int) -> Advice:
    """The rules' advice from raw values (units in `slots.RAW_SLOTS`). Raises KeyError for a missing
    value.
    """
    adx, momentum, distance, rsi = (slots[name] for name in RULE_SLOTS)
    strength = "strong" if adx > STRONG else "moderate" if adx >= WEAK else "none"
    direction = "flat"
    if strength != "none" and momentum > 0 and distance > 0 and rsi <= OVERBOUGHT:
        direction = "long"
    if strength != "none" and momentum < 0 and distance < 0 and rsi >= OVERSOLD:
        direction = "short"
    confidence = CONFIDENCE["none" if direction == "flat" else strength]
    return advice_of(direction, confidence, 1.0 - confidence, horizon)


class RuleBackend:
    """Answers from the raw slots of a question. A slot that is missing or outside its raw range is
    a failure.
    """

    name = "rules"

    def __init__(self, horizon: int = 30) -> None:
        self._horizon = horizon

    def identity(self) -> Mapping[str, str]:
        return {
            "kind": "rules",
            "horizon": str(self._horizon),
            "rules": f"adx {WEAK:g} {STRONG:g} rsi {OVERSOLD:g} {OVERBOUGHT:g}",
        }

    def answer(self, question: Question, deadline: float) -> Answer:
        del deadline  # takes microseconds
        for name in RULE_SLOTS:
            if name not in question.slots:
                return Answer(None, Failure.SCHEMA, f"bar {question.bar}: no raw slot {name!r}")
            low, high = RAW_SLOTS[name][:2]
            if not low <= question.slots[name] <= high:  # also true for NaN
                return Answer(
                    None,
                    Failure.SCHEMA,
                    f"bar {question.bar}: raw slot {name!r} is "
                    f"{question.slots[name]:g}, expected {low:g} to {high:g}",
                )
        return Answer(rule_advice(question.slots, self._horizon), model=self.name)

    def close(self) -> None:
        """Nothing to close."""
