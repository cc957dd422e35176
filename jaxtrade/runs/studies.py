"""What stands behind the figures of a finished run: the probability to pass its account, and a
breakdown of its trades.

Both are worked out from one evaluation of the run's policy and the baselines. They are returned,
and kept beside the evaluation for a report (`runs.choosing`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import breakdown, challenge
from jaxtrade.evaluation.account_draws import AccountDraws
from jaxtrade.evaluation.baselines import Agent, greedy
from jaxtrade.evaluation.evaluate import EvaluationResult, evaluate, standard_agents
from jaxtrade.evaluation.nulls import (
    AgentsOf,
    NullResult,
    null_document,
    null_table,
    rule_agents,
    rule_nulls,
)
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import folder_of, open_run, refuse_joint
from jaxtrade.runs.openings import days_label, grid_notes
from jaxtrade.runs.policies import (
    advised,
    chosen_number,
    chosen_numbers,
    extent,
    held_out,
    keeping,
    leave,
    policy_for,
    read_policy,
    steps_of,
)
from jaxtrade.runs.setup import Setup, params_shown
from jaxtrade.storage.staged import staged

if TYPE_CHECKING:
    from jaxtrade.data.market import Market


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
    refuse_joint(FLAGS, setup.config)
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


# `jaxtrade evaluate RUN --nulls KIND:DRAWS`: the rules and the policy of a run against null
# markets.

POLICY = "greedy"
FLAG = "--nulls"


def nulls_run(
    path: Path,
    spec: NullSpec,
    split: str = "test",
    as_json: bool = False,
    seed: int | None = None,
    data: Path | None = None,
    screen: Screen | None = None,
    agent: int | None = None,
) -> str:
    """Test a finished run's rule-based agents, and on the test split its policy, against null
    markets.

    The policy is the one that was trained on the real bars: nothing is trained again. Null are the
    bars from the first evaluated session on; the bars before them, on which the policy was trained
    and chosen, stay real. Several seeds are pooled (`evaluation.nulls.pooled_statistic`). The
    draws begin with the run's own seed. A test of test sessions is entered in the trial log, as a
    grid of them is, before anybody sees it. Writes `nulls_KIND.json` and
    `nulls_KIND.txt` beside the evaluation of the split; of one agent of several beside that agent's.

    Args:
        seed, agent, data, screen: as in `runs.evaluate.evaluate_run`. One agent of a sweep must be
            named.
    Raises:
        ConfigError (also for several symbols, and for a run with an advisor), DataError,
        CheckpointError.
    """
    shown = Screen() if screen is None else screen
    shown.phase("loading", "the market and the policy")
    setup, _ = open_run(path, data)
    results, about, sha = _tested(setup, path, spec, split, seed, agent, shown)
    notes = [*about, *grid_notes(setup, path, split, False, shown.message)]
    text = null_table(list(results.values()), notes)
    document = null_document(
        results,
        notes,
        split=split,
        config_sha256=setup.config.digest(),
        data_sha256=setup.market.fingerprint,
        policy_sha256=sha,
        retrained=False,
    )
    folder = folder_of(path, split)
    if setup.swept is not None or seed is not None or agent is not None:
        folder = setup.stack.folder(folder, chosen_number(setup.config, seed, agent))
    with rundir.locked(path), staged(folder) as new:
        (new / f"nulls_{spec.kind}.json").write_text(
            json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8"
        )
        (new / f"nulls_{spec.kind}.txt").write_text(text + "\n", encoding="utf-8")
    return json.dumps(document, indent=2, allow_nan=False) if as_json else text


def _tested(
    setup: Setup,
    path: Path,
    spec: NullSpec,
    split: str,
    seed: int | None,
    agent: int | None,
    shown: Screen,
) -> tuple[dict[str, NullResult], list[str], dict[str, str]]:
    """The results by agent, the notes, and the digest of each policy that was tested, by its
    number.
    """
    refuse_joint(FLAG, setup.config)
    numbers = chosen_numbers(setup.config, seed, agent)
    market, sessions = setup.single, held_out(setup, split)
    if setup.fusion is not None:
        raise ConfigError(
            f"{FLAG} {spec}: this run has an advisor, whose answers are about the real bars; test a run "
            "without one"
        )
    if setup.swept is not None:
        numbers = [chosen_number(setup.config, seed, agent)]
    config, params = setup.of_agent(numbers[0], market.contract.symbol, setup.params)
    first = int(np.asarray(sessions.ids)[0])
    after = int(np.asarray(market.data.sessions.start)[first])
    agents, notes = rule_agents(setup.env, config), list(_notes(setup, market, split, after))
    policies = (
        {number: read_policy(path, setup.config, number) for number in numbers}
        if split == "test"
        else {}
    )
    if policies:
        acting = [
            greedy(setup.algorithm, policy, setup.env)._replace(name=f"{POLICY} {number}")
            for number, policy in policies.items()
        ]
        agents = _with_policies(acting, agents)
    shown.phase("evaluating", f"null markets {spec} ({split})", spec.draws)
    results = rule_nulls(
        setup.env,
        params,
        market,
        sessions,
        config,
        spec,
        setup.config.seed,
        agents=agents,
        pool=lambda name: POLICY if name.startswith(POLICY) else name,
        after=after,
        step=shown.step,
    )
    return (
        results,
        notes,
        {str(number): policy_digest(policy) for number, policy in policies.items()},
    )


def _with_policies(policies: Sequence[Agent], rules: AgentsOf) -> AgentsOf:
    return lambda market: [*policies, *rules(market)]


def _notes(setup: Setup, market: Market, split: str, after: int) -> Iterator[str]:
    """What the reader of the p-values must know."""
    yield days_label(setup, split)
    first = market.trade_dates[int(np.asarray(setup.splits[split].ids)[0])]
    yield f"null from trade date {first} on; the {after:,} bars before it stay real"
    if split == "test":
        yield (
            f"{POLICY} is the policy as it was trained on the real bars, and is not trained again: its p-value is "
            "about these sessions alone, not about the way it was trained"
        )
    else:
        yield f"the policy has seen the split {split}, so rules alone are tested here (--split test tests it)"
