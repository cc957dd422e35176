"""Runs a whole ablation, from a configuration to its results: it connects the other modules of this
package, and enters each fusion in the trial log before anybody sees its figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from jaxtrade.ablation.folder import TRAINING, begin, settings_of
from jaxtrade.ablation.matrix import digests, make_learner, score, train_matrix
from jaxtrade.ablation.results import Ablation, FusionResult
from jaxtrade.ablation.tables import KindTable, make_tables
from jaxtrade.advisor.questions import only
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.errors import DataError
from jaxtrade.evaluation.openings import day_bars, with_trials
from jaxtrade.evaluation.seeds import POLICY
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import rundir
from jaxtrade.runs.openings import count_days
from jaxtrade.storage.trials import SplitOpening, trials_folder
from jaxtrade.text import Tell
from jaxtrade.types import SessionSet


def ablate(
    config: RunConfig,
    kinds: Sequence[str],
    fusions: Sequence[str],
    tell: Tell | None = None,
    keep: Callable[[Ablation], None] | None = None,
    folder: Path | None = None,
    screen: Screen | None = None,
) -> Ablation:
    """Train and compare `kinds` x `fusions` x `train.num_seeds` seeds.

    Args:
        tell: receives progress lines.
        keep: receives the results after each fusion, so that a failure in the last fusion does not
            lose hours of work.
        folder: for checkpoints and metrics, from which a killed ablation resumes; None writes
            nothing. The held-out days are entered in the trial log beside it.
        screen: shows the phases. Default: nothing does.
    Raises ConfigError for a kind that lacks an option, DataError where the market has no session to
    train on.
    """
    shown = Screen() if screen is None else screen
    shown.phase("loading", "the market and the advisors' answers")
    market = load_market(config)
    splits = split_sessions(market, config.split)
    if not int(splits["train"].count):
        raise DataError(
            "ablate advisor: no session is left to train on; hold out fewer (split.*_sessions)"
        )
    say = tell or (lambda line: None)
    tables, followed, askable = make_tables(kinds, config, market, say)
    for table in tables:
        say(
            f"{table.kind}: {len(table.bars):,} answers about {int(askable.sum()):,} bars"
            f"{'; CHEATS: it knows what each bar brings' if table.uses_future else ''}"
        )
    if folder is not None:
        begin(folder, settings_of(config, kinds, fusions), market.fingerprint)
    split = "test" if int(splits["test"].count) else "train"
    compared = tuple(dict.fromkeys((split, "train")))
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
    provenance, found = rundir.provenance(config, market.fingerprint), list[FusionResult]()
    uses_future = tuple(table.uses_future for table in tables)
    whole: Ablation | None = None
    for fusion in fusions:
        shown.chapter(f"fusion {fusion}")
        found.append(
            _fusion(
                config,
                fusion,
                market,
                splits,
                tables,
                followed,
                askable,
                compared,
                tell,
                None if folder is None else folder / TRAINING / fusion,
                shown,
            )
        )
        whole = Ablation(
            tuple(kinds),
            uses_future,
            seeds,
            tuple(found),
            split,
            settings,
            provenance,
            tuple(_labels(tables, market, split, found)),
        )
        if folder is not None:
            whole = counted(whole, folder, market, say)
        if keep is not None:
            keep(whole)
    if whole is None:
        raise ValueError("an ablation needs at least one fusion")
    return whole


def _fusion(
    config: RunConfig,
    fusion: str,
    market: Market,
    splits: dict[str, SessionSet],
    tables: list[KindTable],
    followed: np.ndarray,
    askable: np.ndarray,
    compared: Sequence[str],
    tell: Tell | None,
    folder: Path | None,
    screen: Screen,
) -> FusionResult:
    learner = make_learner(config, fusion, market, splits["train"])
    known = only(
        followed, market, splits["train"]
    )  # trust may only be measured on training sessions
    trained = train_matrix(
        learner, tables, known, askable, config.train.num_seeds, tell, folder, screen
    )
    screen.phase(
        "evaluating",
        f"{len(tables)} kinds x {config.train.num_seeds} seeds",
        len(tables) * len(compared),
    )
    begun = time.perf_counter()
    scores = {
        name: score(learner, trained, tables, followed, splits[name], name, screen.step)
        for name in compared
    }
    seconds = time.perf_counter() - begun
    if tell is not None:
        tell(f"fusion {fusion}: trained in {trained.seconds:.0f} s, evaluated in {seconds:.0f} s")
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


def counted(ablation: Ablation, folder: Path, market: Market, tell: Tell) -> Ablation:
    """Enter the newest fusion of an ablation in the trial log beside `folder`, if it shows test
    days. Returns the ablation with what the log says of these days, and with a label if the log
    cannot be written.

    A trial is a fusion, an advisor and a seed. Advisors that read the future open the days but are
    no trials: nobody can choose them, and their profits would raise the bar of the deflated Sharpe
    ratio for all others. The same opening is entered once, however often the ablation is resumed.
    """
    if ablation.split != "test":
        return ablation
    opening = _opening(ablation, folder, market)
    found = count_days(folder, opening, tell, once=True)
    labels = ablation.labels if found.label is None else (*ablation.labels, found.label)
    return ablation._replace(labels=labels, history=with_trials(found.history, found.matrix))


def _opening(ablation: Ablation, folder: Path, market: Market) -> SplitOpening:
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
    return SplitOpening(
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
