"""The verdict of an evaluation in one sentence. It never claims that an agent is profitable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jaxtrade.evaluation.backtest import DecisionBars
from jaxtrade.evaluation.metrics import session_pnl
from jaxtrade.evaluation.result import AgentResult
from jaxtrade.text import several

LEAST = 5  # sessions; fewer give no useful interval
CONFIDENCE = 0.95


def signed_dollars(value: float) -> str:
    """`$1,234.50`, or `-$1,234.50`."""
    return f"{'-' if value < 0 else ''}${abs(value):,.2f}"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def mean_interval(pnl: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """(mean, half width) of Student's t interval of the mean of P&L by session, float[n] with n > 1.

    It takes the sessions as independent and their P&L as roughly normal, so it is a guide and no proof.
    """
    from scipy.special import stdtrit  # takes a moment to load

    spread = float(np.std(pnl, ddof=1)) / math.sqrt(len(pnl))
    return float(np.mean(pnl)), float(stdtrit(len(pnl) - 1, 0.5 + confidence / 2)) * spread


def noise(agent: AgentResult, decisions: DecisionBars) -> str:
    """Whether the distance from staying flat can be luck, in words."""
    count = len(decisions.ids)
    if not len(agent.trades):
        return ""
    if count < LEAST:
        return f"{'one session' if count == 1 else f'{count} sessions'} cannot tell skill from luck"
    mean, half = mean_interval(session_pnl(agent.strategy.equity, decisions.last) / 1000)
    within = "within noise" if abs(mean) <= half else "outside noise, though past sessions prove nothing about others"
    return (f"per session {signed_dollars(mean)} +- {signed_dollars(half)} ({100 * CONFIDENCE:.0f} % interval): the "
            f"distance from flat is {within}")


def sentence(agents: Sequence[AgentResult], decisions: DecisionBars, kind: str = "") -> str:
    """Compare the first agent with the baselines, by their net profit in the strategy pass.

    kind: of the sessions, such as "held-out". Sampled versions of the same policy are no baselines.
    """
    first, *others = agents
    net = first.strategy_figures["net_profit"]
    made = (f"made {signed_dollars(net)} after costs" if len(first.trades) else "never traded")
    groups: dict[str, list[str]] = {"more than": [], "as much as": [], "less than": []}
    for other in others:
        if other.name.startswith("sampled"):
            continue
        theirs = other.strategy_figures["net_profit"]
        word = "more than" if net > theirs else "less than" if net < theirs else "as much as"
        groups[word].append(f"{other.name} ({signed_dollars(theirs)})")
    compared = ", ".join(f"{word} {listed(names)}" for word, names in groups.items() if names)
    parts = [f"{compared}" if compared else "", noise(first, decisions),
             "staying flat can be the right answer" if net <= 0 else ""]
    span = several(len(decisions.ids), f"{kind} session".strip())
    text = f"On {span}, '{first.name}' {made}"
    return "; ".join([f"{text}: {parts[0]}" if parts[0] else text, *(part for part in parts[1:] if part)]) + "."
