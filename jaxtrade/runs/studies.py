"""What stands behind the figures of a finished run: grids of assumptions, the probability to pass
its account, a breakdown of its trades, and null markets.

All but the last are worked out for one policy of the run and the baselines. They are returned, and
kept beside the evaluation for a report (`leave`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.errors import ConfigError, RunLockedError
from jaxtrade.evaluation import breakdown, challenge, grids
from jaxtrade.evaluation.account_draws import AccountDraws
from jaxtrade.evaluation.attribution import attribute
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.evaluate import EvaluationResult, evaluate_symbol
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.nulls import (
    NullResult,
    null_document,
    null_table,
    rule_agents,
    rule_nulls,
)
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import (
    extent,
    folder_of,
    held_out,
    keeping,
    open_run,
    opened,
    refuse_joint,
)
from jaxtrade.runs.openings import days_label, grid_notes
from jaxtrade.runs.setup import Setup, params_shown
from jaxtrade.runs.stored import chosen_number, chosen_numbers, read_policy
from jaxtrade.storage.staged import staged
from jaxtrade.text import Tell, json_text

if TYPE_CHECKING:
    from jaxtrade.data.market import Market


FLAGS = "--pass-probability, --breakdown"
GRIDS = "--intrabar-grid, --latency-grid, --attribution"


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


def _each_symbol(
    setup: Setup, path: Path, split: str, number: int, policy: Any, advisor: str | None
) -> Iterator[tuple[str, Setup, RunConfig, Any, list[Any]]]:
    """Each symbol of a run, its setup, the configuration and parameters of agent `number` there,
    and the agents to evaluate: its policy and the baselines. advisor: as in `evaluate_run`.
    """
    for symbol, own in setup.symbols.items():
        with keeping(setup, path):
            params, _ = params_shown(own, split, None if advisor else path)
        config, params = setup.of_agent(number, symbol, params)
        acting = setup.acting(policy, symbol)
        agents = evaluator_of(own.env).agents(
            own.env, own.single, params, config, own.algorithm, acting
        )
        yield symbol, own, config, params, agents


def grid_run(
    path: Path,
    split: str = "test",
    intrabar: bool = True,
    costs: bool = False,
    as_json: bool = False,
    seed: int | None = None,
    advisor: str | None = None,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    screen: Screen | None = None,
    agent: int | None = None,
    latency: bool = False,
    attribution: bool = False,
) -> str:
    """Grids of a finished run: net profit of its policy and of the baselines, by intrabar order,
    costs and latency; and which parts of its observation the policy uses.

    Of a set, each symbol has grids of its own, and JSON has them by symbol. They are returned, and
    kept beside the evaluation for a report (`leave`). Answers of the run's own advisor are
    saved, as in `evaluate_run`.

    Args:
        intrabar, costs, latency, attribution: which of them, in this order.
        seed, agent: whose policy is used, by seed or by index; needed if the run has several.
        advisor, overrides, data, screen: as in `evaluate_run`.
    Raises:
        ConfigError, DataError, CheckpointError.
    """
    progress = Screen() if screen is None else screen
    makers = [
        make
        for wanted, make in (
            (intrabar, partial(grids.make_grid, "intrabar order")),
            (costs, partial(grids.make_grid, "costs")),
            (latency, partial(grids.make_grid, "latency")),
            (attribution, attribute),
        )
        if wanted
    ]
    setup = opened(path, data, advisor, overrides, progress)
    if intrabar or latency or attribution:
        refuse_joint(GRIDS, setup.config)
    held_out(setup, split)
    number = chosen_number(setup.config, seed, agent)
    policy = read_policy(path, setup.config, number)
    found = {}
    for symbol, own, config, params, agents in _each_symbol(
        setup, path, split, number, policy, advisor
    ):
        progress.phase("evaluating", f"grids of {extent(setup, split, len(agents))}")
        sessions, steps = own.splits[split], setup.steps(split)
        found[symbol] = [
            make(own.env, params, agents, own.single, sessions, config, steps) for make in makers
        ]
    notes = grid_notes(setup, path, split, advisor is not None, progress.message)
    noted = {
        symbol: [replace(grid, notes=(*grid.notes, *notes)) for grid in each]
        for symbol, each in found.items()
    }
    if advisor is None:
        folder, sha = folder_of(path, split), policy_digest(policy)
        leave(setup, path, folder, number, grids.documents_of(noted), sha, progress.message)
    return grids.shown(noted, as_json)


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

    setup = opened(path, data, advisor, overrides, progress)
    refuse_joint(FLAGS, setup.config)
    held_out(setup, split)
    number = chosen_number(setup.config, seed, agent)
    policy = read_policy(path, setup.config, number)
    found, label = dict[str, list[Study]](), days_label(setup, split)
    for symbol, own, config, params, agents in _each_symbol(
        setup, path, split, number, policy, advisor
    ):
        if draws is not None:
            challenge.check(own.env, params, draws)  # before the evaluation, which takes longer
        progress.phase("evaluating", extent(setup, split, len(agents)))
        sessions, steps = own.splits[split], setup.steps(split)
        result = evaluate_symbol(
            own.env, params, own.single, sessions, config, agents, notes=[label], steps=steps
        )
        found[symbol] = _studies(result, own, params, draws, broken_down, progress)
    notes = [label, *grid_notes(setup, path, split, advisor is not None, progress.message)]
    documents: dict[str, Any] = {
        symbol: {each.key: each.document for each in studies} for symbol, studies in found.items()
    }
    if advisor is None:
        folder, sha = folder_of(path, split), policy_digest(policy)
        leave(setup, path, folder, number, documents, sha, progress.message)
    if as_json:
        whole = documents if len(found) > 1 else next(iter(documents.values()))
        return json_text({**whole, "notes": notes})
    texts = [
        (f"{symbol}\n" if len(found) > 1 else "") + "\n\n".join(each.text for each in studies)
        for symbol, studies in found.items()
    ]
    return "\n\n".join([*texts, "\n".join(f"NOTE: {note}" for note in notes)])


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
    if setup.agents.are_listed or seed is not None or agent is not None:
        folder = setup.stack.folder(folder, chosen_number(setup.config, seed, agent))
    files = {"json": json_text(document), "txt": text}
    with rundir.locked(path), staged(folder) as new:
        for kind, content in files.items():
            (new / f"nulls_{spec.kind}.{kind}").write_text(content + "\n", encoding="utf-8")
    return files["json" if as_json else "txt"]


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
    if setup.agents.are_listed:
        numbers = [chosen_number(setup.config, seed, agent)]
    config, params = setup.of_agent(numbers[0], market.contract.symbol, setup.params)
    first = int(np.asarray(sessions.ids)[0])
    after = int(np.asarray(market.data.sessions.start)[first])
    rules, notes = rule_agents(setup.env, config), list(_notes(setup, market, split, after))
    policies = (
        {number: read_policy(path, setup.config, number) for number in numbers}
        if split == "test"
        else {}
    )
    acting = [
        greedy(setup.algorithm, policy, setup.env)._replace(name=f"{POLICY} {number}")
        for number, policy in policies.items()
    ]
    shown.phase("evaluating", f"null markets {spec} ({split})", spec.draws)
    results = rule_nulls(
        setup.env,
        params,
        market,
        sessions,
        config,
        spec,
        setup.config.seed,
        agents=lambda market: [*acting, *rules(market)],
        pool=lambda name: POLICY if name.startswith(POLICY) else name,
        after=after,
        step=shown.step,
    )
    return (
        results,
        notes,
        {str(number): policy_digest(policy) for number, policy in policies.items()},
    )


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
