"""The parts of a run that differ for `env.task=allocate`: its opening lines and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.joint_result import JointResult, evaluate_joint, joint_agents, write
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import rundir
from jaxtrade.runs.openings import days_label
from jaxtrade.runs.setup import Setup
from jaxtrade.text import note_line, several
from jaxtrade.types import PyTree


def opening_lines(setup: Setup) -> Iterator[str]:
    """What a run says about its bars, splits and task."""
    market: Any = setup.market
    for member in market.members:
        yield (
            f"bars of {member.contract.symbol} are SYNTHETIC: generated, never traded"
            if member.synthetic
            else f"bars: {member.bars.source} ({member.contract.symbol}, real)"
        )
    counts = {name: int(split.count) for name, split in setup.splits.items()}
    yield (
        f"{several(market.num_sessions, 'shared session')}, {market.num_bars:,} shared bars; train "
        f"{counts['train']}, validation {counts['validation']}, test {counts['test']}; task allocate "
        f"({setup.config.allocate.actions}), {setup.env.observation_size} observations, {setup.env.num_actions} "
        f"actions, account {setup.config.account.preset}"
    )
    yield from map(note_line, market.notes)


def evaluate(
    setup: Setup, policies: Mapping[int, PyTree], split: str, path: Path, screen: Screen
) -> dict[int, JointResult]:
    """Evaluate policies by number on a split. path: the run's folder."""
    env: Any = setup.env
    market: Any = setup.market
    own: Any = setup.params
    symbol = next(iter(setup.symbols))
    sessions, results = setup.splits[split], {}
    manifest = rundir.read_run(path)[1]
    for number, policy in policies.items():
        config, rules = setup.of_agent(number, symbol, own)
        params: Any = rules
        agents = joint_agents(env, market, params, config, setup.algorithm, policy)
        screen.phase(
            "evaluating",
            f"{len(agents)} agents, {several(int(sessions.count), 'session')} ({split})",
            len(policies) * (2 * len(agents) + 1),
        )
        provenance = manifest | rundir.facts() | {"split": split} | setup.stack.provenance(number)
        results[number] = evaluate_joint(
            env,
            params,
            market,
            sessions,
            config,
            agents,
            provenance,
            setup.splits["train"],
            screen.step,
            [days_label(setup, split)],
        )
        screen.step("tables")
    return results


def write_results(
    setup: Setup, results: Mapping[int, JointResult], folder: Path, also: Mapping[int, Any]
) -> None:
    """Write the result of each agent below `folder`. also: of each agent, further entries of its
    records' `meta`.
    """
    for number, result in results.items():
        write(result, setup.stack.folder(folder, number), also[number])


def refuse(what: str, config: Any) -> None:
    """Raises ConfigError for what is built for one symbol alone. what: the command as it was
    typed.
    """
    if config.env.task == "allocate":
        raise ConfigError(
            f"{what}: not built for env.task=allocate, which holds several symbols; its fills and equity "
            "are in the run's folder, evaluation/SPLIT/trades.csv and equity.csv"
        )
