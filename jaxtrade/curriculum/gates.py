"""Gates between phases: compare the evaluation on the validation sessions with the required
values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.curriculum.config import GateConfig
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.report import EvaluationResult

MOVED = (
    "approx_kl",
    "q_change",
)  # how much an update changes the policy; each learner has one of them
LAST = 0.1  # the KL is averaged over this last share of the run


class Check(NamedTuple):
    """One condition: its name, the value found, the requirement as text, and whether it is met."""

    name: str
    value: float
    asked: str
    passed: bool


def check_gate(
    gate: GateConfig, result: EvaluationResult, reward: float, history: Sequence[Mapping[str, Any]]
) -> list[Check]:
    """Check every condition of a gate.

    Args:
        result: the evaluation on the validation sessions, with an agent `greedy`.
        reward: that agent's mean reward per session (`evaluation.validation.mean_reward`).
        history: the rows of the run's metrics, for the KL.
    Raises:
        ConfigError: the gate cannot be evaluated (no metrics).
    """
    if not history:
        raise ConfigError(
            "the gate cannot be evaluated: the run has no metrics (metrics.jsonl); train the phase again"
        )
    figures = result.agent("greedy").account_figures
    moved = next(name for name in MOVED if name in history[-1])
    last = [float(row[moved]) for row in history[-math.ceil(LAST * len(history)) :]]
    kl = float(np.mean(last))
    breached = (figures["bust"] + figures["failed_daily_loss"]) / figures["accounts"]
    checks = [
        Check("kl" if moved == "approx_kl" else moved, kl, f"> {gate.min_kl:g}", kl > gate.min_kl),
        Check(
            "trades",
            figures["trades"],
            f">= {gate.min_trades}",
            figures["trades"] >= gate.min_trades,
        ),
    ]
    if gate.min_reward is not None:
        checks.append(Check("reward", reward, f">= {gate.min_reward:g}", reward >= gate.min_reward))
    if gate.max_breach_share is not None:
        checks.append(
            Check(
                "breach_share",
                breached,
                f"<= {gate.max_breach_share:g}",
                breached <= gate.max_breach_share,
            )
        )
    return checks


def lines(checks: Sequence[Check]) -> list[str]:
    """One line per condition."""
    return [
        f"gate {check.name}: {check.value:.4g} ({check.asked} asked) {'ok' if check.passed else 'FAILED'}"
        for check in checks
    ]
