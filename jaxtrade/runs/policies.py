"""The policies of a run: where that of each agent is, which one was asked for, how they score in
training, and what an evaluation of them chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.advisor.host.openai import with_model
from jaxtrade.config import RunConfig, make_config, overridden
from jaxtrade.config.sweep import require_no_walk
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError, RunLockedError
from jaxtrade.evaluation.backtest import Lane
from jaxtrade.evaluation.evaluators import total_rewards
from jaxtrade.evaluation.members import for_member
from jaxtrade.evaluation.policy import FOLDER, load_policy
from jaxtrade.evaluation.record import Record, Steps, decision_bars, longest
from jaxtrade.runs import rundir
from jaxtrade.runs.advice import check_advisor
from jaxtrade.runs.setup import Setup, validation_shown
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.staged import staged
from jaxtrade.text import Tell, json_text, several
from jaxtrade.training.population import Stack
from jaxtrade.types import PyTree, SessionSet

# The symbols of a run, each as a setup of its own: what is evaluated, replayed and scored is
# always one symbol.
#
# The markets of a set have one shape (`evaluation.members`), and their programs step the same
# number of bars, so every program is compiled once for all symbols.


def steps_of(setup: Setup, split: str) -> Steps | None:
    """What the programs of a set step on a split: as much as the symbol with most bars has. None
    for one symbol.
    """
    if len(setup.symbols) == 1:
        return None
    return longest(
        [decision_bars(own.single.data, own.splits[split]) for own in setup.symbols.values()]
    )


def policy_for(setup: Setup, policy: PyTree, symbol: str) -> PyTree:
    """The policy as it acts on one symbol: with the observation statistics of that symbol. It may
    be abstract.
    """
    parts = list(setup.symbols)
    return for_member(policy, parts.index(symbol)) if len(parts) > 1 else policy


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
    steps, means = steps_of(setup, "validation"), []
    for symbol, own in setup.symbols.items():
        sessions = own.splits["validation"]
        totals = total_rewards(
            own.env,
            rules_of(setup, symbol, shown[symbol]),
            sessions,
            own.algorithm,
            [policy_for(setup, policy, symbol) for policy in policies],
            programs,
            steps,
            None if seen is None else partial(seen, own),
        )
        means.append(totals / int(sessions.count))
    return np.mean(means, axis=0)


def rules_of(setup: Setup, symbol: str, shown: EnvParams) -> EnvParams | list[EnvParams]:
    """The parameters by which the agents are scored on a symbol: of all, or of each where those of
    a sweep differ.
    """
    if setup.agents.axes is None:
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
    if not setup.agents.are_listed or not int(setup.splits["validation"].count):
        return ()
    shown = validation_shown(setup, path, tell)
    return tuple(scores_by_agent(setup, shown, policies, programs).tolist())


# What an evaluation of a finished run chooses: the split, the advisor, and who may write meanwhile;
# and what it leaves beside it, so that a report shows it without computing it again.

# Title of a grid, an attribution or a study -> its file, as `reporting.schema` names the sections.
FILES = {
    "intrabar order": "intrabar",
    "costs": "costs",
    "latency": "latency",
    "attribution": "attribution",
    "pass_probability": "challenge",
    "breakdown": "breakdown",
}


def leave(
    setup: Setup,
    path: Path,
    folder: Path,
    number: int,
    found: Mapping[str, Mapping[str, Any]],
    sha: str,
    tell: Tell,
) -> None:
    """Write documents into the folder of the evaluation that they are about.

    Args:
        path: of the run. folder: of the evaluation of a split. number: of the agent.
        found: symbol -> title of `FILES` -> document. sha: digest of the policy that they are
            about, which is kept in each: a later evaluation may be of another policy.
        tell: receives a line if there is no such evaluation, or another process writes to the run.
            Nothing is written then.
    """
    own = setup.stack.folder(folder, number)
    try:
        with rundir.locked(path):
            for symbol, documents in found.items():
                where = own / symbol if len(setup.symbols) > 1 else own
                if not (where / "evaluation.json").is_file():
                    tell(
                        f"note: {where}: there is no evaluation yet, so this is not kept for a report; evaluate "
                        "the split first (jaxtrade evaluate RUN), then ask again"
                    )
                    continue
                with staged(where) as new:
                    for title, document in documents.items():
                        text = json_text({**document, "policy_sha256": sha}) + "\n"
                        (new / f"{FILES[title]}.json").write_text(text, encoding="utf-8")
    except RunLockedError as error:
        tell(f"note: not kept for a report: {error}")


# Keys that may be set for another advisor: those that decide what it answers, and when. The others
# decide how the policy listens, which it has learned.
OF_EVALUATION = (
    "advisor.options.",
    "advisor.service.",
    "advisor.context.",
    "advisor.template=",
    "advisor.horizon=",
    "advisor.latency=",
    "advisor.latency_seed=",
    "advisor.max_age=",
    "advisor.evaluation_wait_s=",
)


def advised(
    setup: Setup, path: Path, advisor: str | None, overrides: Sequence[str], tell: Tell
) -> Setup:
    """The setup with another advisor. tell: receives one line where its server's only model is
    taken.

    Raises ConfigError if the run was trained without an advisor.
    """
    if other := [key for key in overrides if not key.strip().startswith(OF_EVALUATION)]:
        known = ", ".join(
            f"{key}*" if key.endswith(".") else key.removesuffix("=") for key in OF_EVALUATION
        )
        raise ConfigError(
            f"--set {other[0]}: the run was trained with its own value, which an evaluation keeps; with "
            f"--advisor you may set {known} (else train a run with the change, or see --cost-grid and "
            "--intrabar-grid)"
        )
    if overrides and advisor is None:
        raise ConfigError(
            f"--set {overrides[0]}: belongs to another advisor; name it with --advisor"
        )
    if advisor is None:
        return setup
    if setup.fusion is None:
        raise ConfigError(
            f"--advisor {advisor}: {path} was trained without an advisor, so its policy has no measured "
            "trust; train with --advisor, or evaluate without"
        )
    if advisor == "off":
        raise ConfigError(
            "--advisor off: this run's policy listens to advice; give none for an advisor that is silent"
        )
    values = setup.config.model_dump(mode="json")
    if advisor != setup.config.advisor.kind:
        values["advisor"] |= {"kind": advisor, "options": {}}
    config, where = make_config(values, f"--advisor {advisor}", stored=True), f"--advisor {advisor}"
    for override in overrides:
        before, config = (
            config,
            make_config(overridden(config.model_dump(mode="json"), [override]), where, stored=True),
        )
        if config == before:
            raise ConfigError(
                f"--set {override}: changes nothing, this is its value already; leave it out"
            )
    config = with_model(config, tell)
    check_advisor(config, setup.single)
    return replace(setup, config=config)


def held_out(setup: Setup, split: str) -> SessionSet:
    """The sessions of a split. Raises ConfigError if the run has none in it."""
    sessions = setup.splits[split]
    if not int(sessions.count):
        raise ConfigError(
            f"split {split} (--split): this run holds no sessions out for it (split.{split}_sessions = "
            "0)"
        )
    return sessions


def keeping(setup: Setup, path: Path) -> AbstractContextManager[None]:
    """The run's lock if the run has an advisor, whose answers may be saved. Without one nothing is
    written, so no lock is taken."""
    return nullcontext() if setup.fusion is None else rundir.locked(path)


def extent(setup: Setup, split: str, agents: int) -> str:
    """What an evaluation runs over, in words."""
    symbols, sessions = len(setup.symbols), several(int(setup.splits[split].count), "session")
    return f"{agents} agents, {sessions} {f'of {symbols} symbols ' if symbols > 1 else ''}({split})"
