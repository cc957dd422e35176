"""The policies of a run in its folder: where that of each agent is, and which agent was asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.walk import require_no_walk
from jaxtrade.data.market_set import MarketSet
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.members import for_member
from jaxtrade.evaluation.policy import FOLDER, load_policy
from jaxtrade.evaluation.record import Record, Steps, decision_bars, longest
from jaxtrade.evaluation.validation import total_rewards
from jaxtrade.runs.setup import Setup, params_shown
from jaxtrade.storage.compiling import Programs
from jaxtrade.text import Tell
from jaxtrade.training.population import Stack
from jaxtrade.types import PyTree

# The symbols of a run, each as a setup of its own: what is evaluated, replayed and scored is
# always one symbol.
#
# The markets of a set have one shape (`evaluation.members`), and their programs step the same
# number of bars, so every program is compiled once for all symbols.


def steps_of(setup: Setup, split: str) -> Steps | None:
    """What the programs of a set step on a split: as much as the symbol with most bars has. None
    for one symbol.
    """
    if not isinstance(setup.market, MarketSet):
        return None
    return longest(
        [decision_bars(own.single.data, own.splits[split]) for own in setup.symbols.values()]
    )


def policy_for(setup: Setup, policy: PyTree, symbol: str) -> PyTree:
    """The policy as it acts on one symbol: with the observation statistics of that symbol. It may
    be abstract.
    """
    return (
        for_member(policy, setup.market.symbols.index(symbol))
        if isinstance(setup.market, MarketSet)
        else policy
    )


def chosen_symbol(setup: Setup, symbol: str | None) -> str:
    """The symbol that was asked for, or the only one.

    Raises ConfigError if the run has no such symbol, or has several and none was named.
    """
    known = list(setup.symbols)
    if symbol is None and len(known) == 1:
        return known[0]
    if symbol is None or symbol.upper() not in known:
        asked = (
            "this run has several symbols"
            if symbol is None
            else f"symbol {symbol}: this run has no such symbol"
        )
        raise ConfigError(f"{asked}; give symbol (--symbol) {' or '.join(known)}")
    return symbol.upper()


def policy_path(path: Path, config: RunConfig, number: int, folder: str = FOLDER) -> Path:
    """The folder of one agent's policy: `policy`, `policy/seed_<n>` of several seeds,
    `policy/agent_<nnn>` of a sweep.

    number: of the agent (`Stack.numbers`).
    """
    return Stack.of_run(config).folder(path / folder, number)


def _numbers(config: RunConfig) -> range:
    return Stack.of_run(config).numbers(config.seed)


def read_policy(path: Path, config: RunConfig, number: int) -> PyTree:
    """The policy of one agent. Raises CheckpointError if it is absent or damaged."""
    return load_policy(policy_path(path, config, number)).policy


def chosen_number(config: RunConfig, seed: int | None, agent: int | None = None) -> int:
    """The number of the agent that was asked for by its seed or its index, or of the only one.

    Raises ConfigError if the run has no such agent, or has several and none was named, or is a
    walk-forward.
    """
    require_no_walk(config)
    known, swept = _numbers(config), config.sweep.on
    if seed is not None and agent is not None:
        raise ConfigError(f"seed (--seed) {seed} and agent (--agent) {agent}: give one of them")
    if agent is not None:
        if not 0 <= agent < len(known):
            raise ConfigError(
                f"agent {agent}: this run has no such agent; give agent (--agent) 0 .. {len(known) - 1}"
            )
        return known[agent]
    if swept and (seed is not None or len(known) > 1):
        asked = (
            "this run has several policies"
            if seed is None
            else (
                f"seed {seed}: the agents of this run differ in their settings, and several have the same seed"
            )
        )
        raise ConfigError(f"{asked}; give agent (--agent) 0 .. {len(known) - 1}, as in agents.json")
    if seed is None and len(known) == 1:
        return known[0]
    if seed is None or seed not in known:
        asked = (
            "this run has several policies"
            if seed is None
            else f"seed {seed}: this run has no such seed"
        )
        raise ConfigError(
            f"{asked}; give seed (--seed) {known[0]}"
            + (f" .. {known[-1]}" if len(known) > 1 else "")
        )
    return seed


def chosen_numbers(config: RunConfig, seed: int | None, agent: int | None) -> list[int]:
    """As `chosen_number`, but all agents if none was named."""
    require_no_walk(config)
    return (
        list(_numbers(config))
        if seed is None and agent is None
        else [chosen_number(config, seed, agent)]
    )


# Scores of the policies in training, on the validation sessions.

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
