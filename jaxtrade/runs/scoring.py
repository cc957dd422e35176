"""Scores of the policies in training, on the validation sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.record import Record
from jaxtrade.evaluation.validation import total_rewards
from jaxtrade.runs.policies import policy_for, steps_of
from jaxtrade.runs.setup import Setup, params_shown
from jaxtrade.storage.compiling import Programs
from jaxtrade.text import Tell
from jaxtrade.types import PyTree

Seen = Callable[[Setup, Record, Lane], None]


def scores_by_agent(
    setup: Setup,
    shown: Mapping[str, EnvParams],
    policies: Sequence[PyTree],
    programs: Programs,
    seen: Seen | None = None,
) -> np.ndarray:
    """Mean reward per validation session of each greedy policy, float64[agents]; every symbol has
    equal weight.

    Each agent of a sweep is scored under its own costs, account, brackets and weights: by the
    reward that it learns from. shown: by symbol, the parameters with the advice that is known on
    the validation sessions. policies: of all agents, in order. seen: receives, for each symbol, its
    setup and what the first agent did there.
    """
    return np.mean(
        [
            _of_symbol(setup, symbol, own, shown[symbol], policies, programs, seen)
            for symbol, own in setup.symbols.items()
        ],
        axis=0,
    )


def _of_symbol(
    setup: Setup,
    symbol: str,
    own: Setup,
    shown: EnvParams,
    policies: Sequence[PyTree],
    programs: Programs,
    seen: Seen | None,
) -> np.ndarray:
    sessions, steps = own.splits["validation"], steps_of(setup, "validation")
    fitted = [policy_for(setup, policy, symbol) for policy in policies]
    totals = total_rewards(
        own.env,
        rules_of(setup, symbol, shown),
        sessions,
        own.algorithm,
        fitted,
        programs,
        steps,
        None if seen is None else lambda record, lane: seen(own, record, lane),
    )
    return totals / int(sessions.count)


def rules_of(setup: Setup, symbol: str, shown: EnvParams) -> EnvParams | list[EnvParams]:
    """The parameters by which the agents are scored on a symbol: of all, or of each where those of
    a sweep differ.
    """
    if setup.swept is None or setup.swept.axes is None:
        return shown
    return [
        setup.of_agent(number, symbol, shown)[1]
        for number in setup.stack.numbers(setup.config.seed)
    ]


def ranked(
    setup: Setup, policies: Sequence[PyTree], path: Path, tell: Tell, programs: Programs
) -> tuple[float, ...]:
    """The scores by which the agents of a sweep are ranked at its end; none without a sweep or
    validation sessions.
    """
    if setup.swept is None or not int(setup.splits["validation"].count):
        return ()
    shown = {
        symbol: params_shown(own, "validation", path, tell)[0]
        for symbol, own in setup.symbols.items()
    }
    return tuple(float(score) for score in scores_by_agent(setup, shown, policies, programs))
