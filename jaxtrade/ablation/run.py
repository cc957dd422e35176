"""Run a whole ablation, from a configuration to its results.

It connects the other modules of this package, and enters each fusion in the trial log before
anybody sees its metrics.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from jaxtrade.ablation.folder import TRAINING, begin, settings_of
from jaxtrade.ablation.matrix import FusionTraining, digests, make_learner, score, train_matrix
from jaxtrade.ablation.results import Ablation, FusionResult
from jaxtrade.ablation.tables import Answers, KindTable, make_tables
from jaxtrade.advisor.questions import mask_to_sessions
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.errors import DataError
from jaxtrade.evaluation.seeds import POLICY
from jaxtrade.evaluation.test_set_history import day_bars, with_trials
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import rundir
from jaxtrade.runs.trial_log import count_days
from jaxtrade.storage.trials import SplitLook, trials_folder
from jaxtrade.text import Log
from jaxtrade.types import SessionSet


def ablate(
    config: RunConfig,
    kinds: Sequence[str],
    fusions: Sequence[str],
    folder: Path,
    keep: Callable[[Ablation], None],
    screen: Screen,
) -> Ablation:
    """Train and compare `kinds` x `fusions` x `train.num_seeds` seeds.

    Args:
        fusions: at least one.
        folder: for checkpoints and metrics, from which a killed ablation resumes. The held-out days
            are entered in the trial log beside it.
        keep: receives the results after each fusion, so that a failure in the last fusion does not
            lose hours of work.
        screen: shows the phases and lines of progress.
    Raises ConfigError for a kind that lacks an option, DataError where the market has no session to
    train on.
    """
    screen.phase("loading", "the market and the advisors' answers")
    market = load_market(config)
    splits = split_sessions(market, config.split)
    if not int(splits["train"].count):
        raise DataError(
            "ablate advisor: no session is left to train on; hold out fewer (split.*_sessions)"
        )
    answers = make_tables(kinds, config, market, screen.message)
    for table in answers.tables:
        screen.message(
            f"{table.kind}: {len(table.bars):,} answers about {int(answers.askable.sum()):,} bars"
            f"{'; CHEATS: it knows what each bar brings' if table.uses_future else ''}"
        )
    begin(folder, settings_of(config, kinds, fusions), market.fingerprint)
    split = "test" if int(splits["test"].count) else "train"
    compared = {name: splits[name] for name in (split, "train")}
    seeds = tuple(range(config.seed, config.seed + config.train.num_seeds))
    settings = {
        "kinds": list(kinds),
        "fusions": list(fusions),
        "seeds": list(seeds),
        "command": sys.argv[1:],
        "market": market.contract.symbol,
        "bars": market.bars.source,
        "synthetic": market.synthetic,
        "config": config.model_dump(mode="json"),
    }
    uses_future = tuple(table.uses_future for table in answers.tables)
    provenance = rundir.provenance(config, market.fingerprint)
    whole = Ablation(tuple(kinds), uses_future, seeds, (), split, settings, provenance, ())
    for fusion in fusions:
        screen.chapter(f"fusion {fusion}")
        learner = make_learner(config, fusion, market, splits["train"])
        result = _result(learner, market, answers, compared, folder / TRAINING / fusion, screen)
        found = (*whole.fusions, result)
        labels = tuple(_labels(answers.tables, market, split, found))
        whole = enter_in_trial_log(
            whole._replace(fusions=found, labels=labels), folder, market, screen.message
        )
        keep(whole)
    return whole


def _result(
    learner: FusionTraining,
    market: Market,
    answers: Answers,
    compared: Mapping[str, SessionSet],
    folder: Path,
    screen: Screen,
) -> FusionResult:
    """Train the agents of one fusion, and score them on the splits that are compared."""
    fusion, seeds = learner.config.advisor.fusion, learner.config.train.num_seeds
    # trust may only be measured on training sessions
    known = mask_to_sessions(answers.followed, market, learner.params.sessions)
    trained = train_matrix(learner, answers._replace(followed=known), seeds, folder, screen)
    kinds = len(answers.tables)
    screen.phase("evaluating", f"{kinds} kinds x {seeds} seeds", kinds * len(compared))
    begun = time.perf_counter()
    scores = {
        name: score(learner, trained, answers, sessions, name, screen.step)
        for name, sessions in compared.items()
    }
    seconds = time.perf_counter() - begun
    screen.message(
        f"fusion {fusion}: trained in {trained.seconds:.0f} s, evaluated in {seconds:.0f} s"
    )
    trust = np.asarray(jax.vmap(learner.fusion.trust)(trained.advice.outcomes).log_odds, np.float64)
    return FusionResult(
        fusion,
        scores,
        trained.history,
        trust,
        digests(trained.state),
        trained.turned,
        trained.seconds,
        trained.compile_seconds,
        seconds,
        trained.health,
    )


def _labels(
    tables: Sequence[KindTable], market: Market, split: str, found: Sequence[FusionResult]
) -> list[str]:
    labels = []
    if market.synthetic:
        labels.append("synthetic: these bars were generated, no market ever traded them")
    if split == "train":
        labels.append(
            "in sample: nothing is held out, so the agents were trained on the days they are compared on"
        )
    if cheating := [table.kind for table in tables if table.uses_future]:
        labels.append(
            f"cheating: {', '.join(cheating)} know what each bar brings; no real advisor does"
        )
    for result in found:
        if not result.history["finite"].all():
            labels.append(
                f"diverged: fusion {result.fusion} met a loss or gradient that is not finite; those steps "
                "were not taken"
            )
        if failed := [name for name, (passed, _) in result.health.items() if not passed]:
            labels.append(
                f"learning health: fusion {result.fusion} failed {', '.join(failed)} for at least one agent"
            )
    return labels


def enter_in_trial_log(ablation: Ablation, folder: Path, market: Market, log: Log) -> Ablation:
    """Enter the newest fusion of an ablation in the trial log beside `folder`, if it has test days.

    Return the ablation with what the log says of these days, and with a label if the log cannot
    be written.

    A trial is a fusion, an advisor and a seed. Advisors that read the future are part of the look
    but no trials: nobody can choose them, and their profits would raise the bar of the deflated
    Sharpe ratio for all others. The same look is entered once, however often the ablation
    is resumed.
    """
    if ablation.split != "test":
        return ablation
    opening = _make_look(ablation, folder, market)
    found = count_days(folder, opening, log, once=True)
    labels = (*ablation.labels, *found.labels)
    return ablation._replace(labels=labels, history=with_trials(found.history, found.matrix))


def _make_look(ablation: Ablation, folder: Path, market: Market) -> SplitLook:
    fusion = ablation.fusions[-1]
    scores, home = fusion.scores[ablation.split], trials_folder(folder)
    net = {
        f"{fusion.fusion}/{kind}/{seed}": tuple(
            round(value, 3) for value in scores.net[k, s].tolist()
        )
        for k, kind in enumerate(ablation.kinds)
        if not ablation.uses_future[k]
        for s, seed in enumerate(ablation.seeds)
    }
    return SplitLook(
        "ablate",
        folder.resolve().relative_to(home).as_posix(),
        ablation.provenance["config_sha256"],
        ablation.provenance["data_sha256"],
        ablation.split,
        scores.dates[0],
        scores.dates[-1],
        len(scores.dates),
        POLICY,
        scores.dates,
        net,
        day_bars(market, scores.dates),
    )
