"""The held-out days of an ablation in the trial log: each fusion is entered before anybody sees its
figures.
"""

from __future__ import annotations

from pathlib import Path

from jaxtrade.ablation.results import Ablation
from jaxtrade.data.market import Market
from jaxtrade.evaluation.openings import day_bars, with_trials
from jaxtrade.evaluation.seeds import POLICY
from jaxtrade.runs.openings import count_days
from jaxtrade.storage.trials import SplitOpening, trials_folder
from jaxtrade.text import Tell


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
