"""What stands behind the metrics of a finished run.

It is grids of assumptions, the probability to pass its account, a breakdown of its trades, and null
markets.

All but the last are worked out for one policy of the run and the baselines (`_Subject`). They are
returned, and kept beside the evaluation for a report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.errors import ConfigError, RunLockedError
from jaxtrade.evaluation import breakdown, challenge, grids
from jaxtrade.evaluation.account_draws import AccountDraws
from jaxtrade.evaluation.attribution import attribute
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.evaluate import evaluate_symbol
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.nulls import (
    NullResult,
    null_document,
    null_table,
    rule_agents,
    rule_nulls,
)
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.runs import rundir
from jaxtrade.runs.evaluate import (
    Request,
    account_note,
    extent,
    held_out,
    lock_if_advised,
    refuse_joint,
)
from jaxtrade.runs.setup import Setup, params_shown
from jaxtrade.runs.stored_run import chosen_number, chosen_numbers, read_policy
from jaxtrade.runs.trial_log import days_label, grid_notes
from jaxtrade.storage.staging import stage_files
from jaxtrade.text import json_text
from jaxtrade.types import SessionSet

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


class _Subject:
    """One policy of a finished run beside the baselines, on a split: what grids and studies are of.

    refused: the flags that ask for what is built for one symbol alone; "": none of them is given.
    """

    def __init__(self, request: Request, refused: str) -> None:
        self.request, self.setup = request, request.open()
        if refused:
            refuse_joint(refused, self.setup.config)
        held_out(self.setup, request.split)
        self.number = chosen_number(self.setup.config, request.seed, request.agent)
        self.policy = read_policy(request.path, self.setup.config, self.number)

    def symbols(self) -> Iterator[tuple[str, Setup, RunConfig, Any, list[Any]]]:
        """Yield each symbol of the run, its setup, the agent's configuration and parameters there.

        Yield the agents to evaluate with them: its policy and the baselines.
        """
        setup, request = self.setup, self.request
        for symbol, own in setup.symbols.items():
            with lock_if_advised(setup, request.path):
                saved_in = None if request.advisor or request.account else request.path
                params, _ = params_shown(own, request.split, saved_in)
            config, params = setup.of_agent(self.number, symbol, params)
            acting = setup.acting(self.policy, symbol)
            agents = evaluator_of(own.env).agents(
                own.env, own.single, params, config, own.algorithm, acting
            )
            yield symbol, own, config, params, agents

    def notes(self) -> list[str]:
        """Enter the look at the sessions in the trial log. Return what a reader should know."""
        asked = self.request
        other = asked.advisor is not None
        return [
            *([account_note(asked.account)] if asked.account else []),
            *grid_notes(self.setup, asked.path, asked.split, asked.screen.message, other),
        ]

    def keep(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Write documents beside the evaluation that they are about, for a report.

        Does nothing for another advisor or account than the run's own, where there is no such
        evaluation, or where another process writes to the run.

        found: symbol -> title of `FILES` -> document. Each holds the digest of the policy: a later
            evaluation may be of another one.
        """
        setup, request = self.setup, self.request
        if request.advisor is not None or request.account is not None:
            return
        own = setup.stack.folder(request.folder, self.number)
        about = {"policy_sha256": policy_digest(self.policy)}
        try:
            with rundir.lock_run(request.path):
                for symbol, documents in found.items():
                    where = own / symbol if len(setup.symbols) > 1 else own
                    if not (where / "evaluation.json").is_file():
                        request.screen.message(
                            f"note: {where}: there is no evaluation yet, so this is not kept for a report; evaluate "
                            "the split first (jaxtrade evaluate RUN), then ask again"
                        )
                        continue
                    with stage_files(where) as new:
                        for title, document in documents.items():
                            text = json_text({**document, **about}) + "\n"
                            (new / f"{FILES[title]}.json").write_text(text, encoding="utf-8")
        except RunLockedError as error:
            request.screen.message(f"note: not kept for a report: {error}")


MAKERS: Mapping[str, Any] = {
    **{title: partial(grids.make_grid, title) for title in ("intrabar order", "costs", "latency")},
    "attribution": attribute,
}


def grid_run(request: Request, titles: Collection[str]) -> str:
    """Compute grids of a finished run.

    They show net profit of its policy and of the baselines, by intrabar order, costs and latency;
    and which parts of its observation the policy uses.

    Of a set, each symbol has grids of its own, and JSON has them by symbol. They are returned,
    and kept beside the evaluation for a report. Answers of the run's own advisor are saved, as
    in `evaluate_run`.

    request: of one policy, if the run has several.
    titles: of `MAKERS`; they are shown in its order.

    Raises ConfigError, DataError, CheckpointError.
    """
    subject = _Subject(request, GRIDS if set(titles) - {"costs"} else "")
    setup, split, found = subject.setup, request.split, {}
    for symbol, own, config, params, agents in subject.symbols():
        request.screen.phase("evaluating", f"grids of {extent(setup, split, len(agents))}")
        found[symbol] = [
            make(own.env, params, agents, own.single, own.splits[split], config, setup.steps(split))
            for title, make in MAKERS.items()
            if title in titles
        ]
    notes = subject.notes()
    noted = {
        symbol: [replace(grid, notes=(*grid.notes, *notes)) for grid in each]
        for symbol, each in found.items()
    }
    subject.keep(grids.documents_of(noted))
    return grids.format_results(noted, request.as_json)


def study_run(request: Request, draws: AccountDraws | None, broken_down: bool) -> str:
    """Run the studies of a run's policy, and return them as text or JSON.

    Of a set, each symbol has its own, and JSON has them by symbol.

    Answers of the run's own advisor are saved, as in `evaluate_run`.

    Args:
        request: of one policy, if the run has several.
        draws: how accounts are drawn for the pass probability; None leaves it out.
        broken_down: whether the trades are broken down.

    Raises:
        ConfigError (also where accounts cannot be simulated, see `challenge.why_not_simulated`),
        DataError, CheckpointError.
    """
    subject = _Subject(request, FLAGS)
    setup, split, screen = subject.setup, request.split, request.screen
    label = days_label(setup, split)
    documents, texts = dict[str, dict[str, Any]](), dict[str, list[str]]()
    for symbol, own, config, params, agents in subject.symbols():
        if draws is not None:
            challenge.check(own.env, params, draws)  # before the evaluation, which takes longer
        screen.phase("evaluating", extent(setup, split, len(agents)))
        sessions, steps = own.splits[split], setup.steps(split)
        result = evaluate_symbol(
            own.env, params, own.single, sessions, config, agents, notes=[label], steps=steps
        )
        document, text = documents.setdefault(symbol, {}), texts.setdefault(symbol, [])
        if draws is not None:
            screen.phase("simulating", f"accounts of {len(result.agents)} agents")
            odds = challenge.pass_probability(result, own.env, params, draws)
            document["pass_probability"] = odds
            text.append(challenge.table(odds))
        if broken_down:
            parts = document["breakdown"] = breakdown.breakdown(result, own.single.data)
            text.append(breakdown.table(parts))
    notes = [label, *subject.notes()]
    subject.keep(documents)
    several = len(documents) > 1
    if request.as_json:
        whole = documents if several else next(iter(documents.values()))
        about = {"account": request.account} if request.account else {}
        return json_text({**whole, **about, "notes": notes})
    each = [
        (f"{symbol}\n" if several else "") + "\n\n".join(text) for symbol, text in texts.items()
    ]
    return "\n\n".join([*each, "\n".join(f"NOTE: {note}" for note in notes)])


# `jaxtrade evaluate RUN --nulls KIND:DRAWS`: the rules and the policy of a run against null
# markets.

POLICY = "greedy"
FLAG = "--nulls"


def nulls_run(request: Request, spec: NullSpec) -> str:
    """Test a finished run's rule-based agents, and on the test split its policy, on null markets.

    The policy is the one that was trained on the real bars: nothing is trained again. The bars from
    the first evaluated session on are null; the bars before them, on which the policy was trained
    and chosen, stay real. Several seeds are pooled (`evaluation.nulls.pooled_statistic`). The draws
    begin with the run's own seed. A test of test sessions is entered in the trial log, as a grid of
    them is, before anybody sees it. Writes `nulls_KIND.json` and `nulls_KIND.txt` beside the
    evaluation of the split; of one agent of several beside that agent's.

    request: without another advisor. One agent of a sweep must be named.

    Raises:
        ConfigError (also for several symbols, and for a run with an advisor),
        DataError, CheckpointError.
    """
    setup, split = request.open(), request.split
    refuse_joint(FLAG, setup.config)
    numbers = chosen_numbers(setup.config, request.seed, request.agent)
    market, sessions = setup.single, held_out(setup, split)
    if setup.fusion is not None:
        raise ConfigError(
            f"{FLAG} {spec}: this run has an advisor, whose answers are about the real bars; test a run "
            "without one"
        )
    folder = request.folder
    if setup.agents.are_listed or request.seed is not None or request.agent is not None:
        numbers = [chosen_number(setup.config, request.seed, request.agent)]
        folder = setup.stack.folder(folder, numbers[0])
    policies = {
        number: read_policy(request.path, setup.config, number)
        for number in (numbers if split == "test" else ())
    }
    results, about = _test_market(setup, request, spec, market, sessions, numbers[0], policies)
    notes = [*about, *grid_notes(setup, request.path, split, request.screen.message)]
    document = null_document(
        results,
        notes,
        split=split,
        config_sha256=setup.config.digest(),
        data_sha256=setup.market.fingerprint,
        policy_sha256={str(number): policy_digest(policy) for number, policy in policies.items()},
        retrained=False,
    )
    files = {"json": json_text(document), "txt": null_table(list(results.values()), notes)}
    with rundir.lock_run(request.path), stage_files(folder) as new:
        for kind, content in files.items():
            (new / f"nulls_{spec.kind}.{kind}").write_text(content + "\n", encoding="utf-8")
    return files["json" if request.as_json else "txt"]


def _test_market(
    setup: Setup,
    request: Request,
    spec: NullSpec,
    market: Market,
    sessions: SessionSet,
    number: int,
    policies: Mapping[int, Any],
) -> tuple[dict[str, NullResult], list[str]]:
    """Compute the results by agent, and what a reader must know.

    number: of the agent whose rules hold.
    """
    config, params = setup.of_agent(number, market.contract.symbol, setup.params)
    first = int(np.asarray(sessions.ids)[0])
    after = int(np.asarray(market.data.sessions.start)[first])
    rules = rule_agents(setup.env, config)
    notes = list(_notes(setup, market, request.split, after))
    acting = [
        greedy(setup.algorithm, policy, setup.env)._replace(name=f"{POLICY} {number}")
        for number, policy in policies.items()
    ]
    request.screen.phase("evaluating", f"null markets {spec} ({request.split})", spec.draws)
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
        step=request.screen.step,
    )
    return results, notes


def _notes(setup: Setup, market: Market, split: str, after: int) -> Iterator[str]:
    """Yield what the reader of the p-values must know."""
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
