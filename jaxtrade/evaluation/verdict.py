"""The verdict of an evaluation in one sentence. It never claims that an agent is profitable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxtrade.evaluation.backtest import DecisionBars
from jaxtrade.evaluation.metrics import session_pnl
from jaxtrade.evaluation.result import AgentResult
from jaxtrade.text import several

LEAST = 5  # sessions; fewer give no useful interval
CONFIDENCE = 0.95


class Standing(NamedTuple):
    """What the verdict reads of an agent: profit in dollars, number of trades, and P&L int64[n]
    mills by session.
    """

    name: str
    net: float
    trades: int
    pnl: np.ndarray


def signed_dollars(value: float) -> str:
    """`$1,234.50`, or `-$1,234.50`."""
    return f"{'-' if value < 0 else ''}${abs(value):,.2f}"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def mean_interval(pnl: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """(mean, half width) of Student's t interval of the mean of P&L by session, float[n] with n >
    1.

    It takes the sessions as independent and their P&L as roughly normal, so it is a guide and no
    proof.
    """
    from scipy.special import stdtrit  # takes a moment to load

    spread = float(np.std(pnl, ddof=1)) / math.sqrt(len(pnl))
    return float(np.mean(pnl)), float(stdtrit(len(pnl) - 1, 0.5 + confidence / 2)) * spread


def key_of(split: str | None) -> str:
    """The key that says how many sessions a held-out split has; "" for another split."""
    return f"split.{split}_sessions" if split in ("test", "validation") else ""


def noise(agent: Standing, unit: str = "session", key: str = "") -> str:
    """Whether the distance from staying flat can be luck, in words. unit: noun for one entry of the
    P&L. key: as in
    `compared`."""
    count = len(agent.pnl)
    if not agent.trades:
        return ""
    if count < LEAST:
        return (
            f"{f'one {unit}' if count == 1 else f'{count} {unit}s'} cannot tell skill from luck"
            + (f" (train with a larger {key})" if key else "")
        )
    mean, half = mean_interval(agent.pnl / 1000)
    within = (
        "within noise"
        if abs(mean) <= half
        else f"outside noise, though past {unit}s prove nothing about others"
    )
    return (
        f"per {unit} {signed_dollars(mean)} +- {signed_dollars(half)} ({100 * CONFIDENCE:.0f} % interval): the "
        f"distance from flat is {within}"
    )


def sentence(agents: Sequence[AgentResult], decisions: DecisionBars, kind: str = "") -> str:
    """Compare the first agent with the baselines, by their net profit in the strategy pass.

    kind: of the sessions, such as "held-out". Sampled versions of the same policy are no baselines.
    """
    standings = [
        Standing(
            agent.name,
            agent.strategy_figures["net_profit"],
            len(agent.trades),
            session_pnl(agent.strategy.equity, decisions.last),
        )
        for agent in agents
    ]
    return compared(standings, several(len(decisions.ids), f"{kind} session".strip()))


def compared(agents: Sequence[Standing], span: str, unit: str = "session", key: str = "") -> str:
    """`sentence` from standings. span: what was evaluated, as "5 held-out sessions". unit: as in
    `noise`. key: the key to raise where they are too few (`key_of`)."""
    first, *others = agents
    net = first.net
    made = f"made {signed_dollars(net)} after costs" if first.trades else "never traded"
    groups: dict[str, list[str]] = {"more than": [], "as much as": [], "less than": []}
    for other in others:
        if other.name.startswith("sampled"):
            continue
        word = "more than" if net > other.net else "less than" if net < other.net else "as much as"
        groups[word].append(f"{other.name} ({signed_dollars(other.net)})")
    ranks = ", ".join(f"{word} {listed(names)}" for word, names in groups.items() if names)
    parts = [
        ranks,
        noise(first, unit, key),
        "staying flat can be the right answer" if net <= 0 else "",
    ]
    text = f"On {span}, '{first.name}' {made}"
    return (
        "; ".join(
            [f"{text}: {parts[0]}" if parts[0] else text, *(part for part in parts[1:] if part)]
        )
        + "."
    )
