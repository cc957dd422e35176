"""What stands behind the figures of a finished run: the probability to pass its account, and a
breakdown of its trades.

Both are worked out from one evaluation of the run's policy and the baselines. They are returned,
and kept beside the evaluation for a report (`runs.choosing`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.evaluation import breakdown, challenge
from jaxtrade.evaluation.account_draws import AccountDraws
from jaxtrade.evaluation.evaluate import EvaluationResult, evaluate, standard_agents
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import joint
from jaxtrade.runs.evaluate import folder_of, open_run
from jaxtrade.runs.openings import days_label, grid_notes
from jaxtrade.runs.policies import (
    advised,
    chosen_number,
    extent,
    held_out,
    keeping,
    leave,
    policy_for,
    read_policy,
    steps_of,
)
from jaxtrade.runs.setup import Setup, params_shown

FLAGS = "--pass-probability, --breakdown"


class Study(NamedTuple):
    """One answer about one symbol. key: its name in JSON."""

    key: str
    document: dict[str, Any]
    text: str


def study_run(
    path: Path,
    split: str = "test",
    draws: AccountDraws | None = None,
    broken_down: bool = False,
    as_json: bool = False,
    seed: int | None = None,
    advisor: str | None = None,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    screen: Screen | None = None,
    agent: int | None = None,
) -> str:
    """The studies of a run's policy, as text or JSON. Of a set, each symbol has its own, and JSON
    has them by symbol.

    Answers of the run's own advisor are saved, as in `evaluate_run`.

    Args:
        draws: how accounts are drawn for the pass probability; None leaves it out.
        broken_down: whether the trades are broken down.
        seed, agent: whose policy is used, by seed or by index; needed if the run has several.
        advisor, overrides, data, screen: as in `evaluate_run`.
    Raises:
        ConfigError (also where accounts cannot be simulated, see `challenge.refusal`), DataError,
        CheckpointError.
    """
    progress = Screen() if screen is None else screen
    progress.phase("loading", "the market and the policy")
    setup = advised(
        open_run(path, data, advisor is None)[0], path, advisor, overrides, progress.message
    )
    joint.refuse(FLAGS, setup.config)
    held_out(setup, split)
    number = chosen_number(setup.config, seed, agent)
    policy = read_policy(path, setup.config, number)
    shown: dict[str, list[Study]] = {}
    label = days_label(setup, split)
    for symbol, own in setup.symbols.items():
        with keeping(setup, path):
            params, _ = params_shown(own, split, None if advisor else path)
        config, params = setup.of_agent(number, symbol, params)
        if draws is not None:
            challenge.check(own.env, params, draws)  # before the evaluation, which takes longer
        agents = standard_agents(
            own.env, own.single, config, own.algorithm, policy_for(setup, policy, symbol)
        )
        progress.phase("evaluating", extent(setup, split, len(agents)))
        result = evaluate(
            own.env,
            params,
            own.single,
            own.splits[split],
            config,
            agents,
            notes=[label],
            steps=steps_of(setup, split),
        )
        shown[symbol] = _studies(result, own, params, draws, broken_down, progress)
    notes = [label, *grid_notes(setup, path, split, advisor is not None, progress.message)]
    if advisor is None:
        found = {
            symbol: {each.key: each.document for each in studies}
            for symbol, studies in shown.items()
        }
        leave(
            setup,
            path,
            folder_of(path, split),
            number,
            found,
            policy_digest(policy),
            progress.message,
        )
    return _shown(shown, notes, as_json)


def _studies(
    result: EvaluationResult,
    own: Setup,
    params: Any,
    draws: AccountDraws | None,
    broken_down: bool,
    progress: Screen,
) -> list[Study]:
    """The studies of one symbol, in the order in which they are shown."""
    found = []
    if draws is not None:
        progress.phase("simulating", f"accounts of {len(result.agents)} agents")
        odds = challenge.pass_probability(result, own.env, params, draws)
        found.append(Study("pass_probability", challenge.to_json(odds), challenge.table(odds)))
    if broken_down:
        parts = breakdown.breakdown(result, own.single.data)
        found.append(Study("breakdown", breakdown.to_json(parts), breakdown.table(parts)))
    return found


def _shown(found: dict[str, list[Study]], notes: Sequence[str], as_json: bool) -> str:
    """The studies of each symbol. Those of a single symbol stand for themselves. notes: on how many
    days they rest, and how often these were looked at."""
    if as_json:
        documents: dict[str, Any] = {
            symbol: {each.key: each.document for each in studies}
            for symbol, studies in found.items()
        }
        whole = documents if len(found) > 1 else next(iter(documents.values()))
        return json.dumps({**whole, "notes": list(notes)}, indent=2, allow_nan=False)
    texts = {
        symbol: "\n\n".join(each.text for each in studies) for symbol, studies in found.items()
    }
    parts = [f"{symbol}\n{text}" if len(texts) > 1 else text for symbol, text in texts.items()]
    return "\n\n".join([*parts, "\n".join(f"NOTE: {note}" for note in notes)])
