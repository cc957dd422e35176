"""Writes an ablation as a console table, a JSON document and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.ablation import plot
from jaxtrade.ablation.results import Ablation, FusionResult, Scores, claims
from jaxtrade.evaluation.statistics import MIN_DAYS, MIN_SEEDS, Comparison, Interval
from jaxtrade.evaluation.test_set_history import history_json, history_lines
from jaxtrade.formatting import format_number
from jaxtrade.storage.sinks import plain
from jaxtrade.storage.staging import stage_files
from jaxtrade.text import align, underline

FORMAT = 2
HEAD = (
    "advisor",
    "net/day",
    "less none",
    "95 %",
    "deflated",
    "less placebo",
    "deflated",
    "hit rate",
    "trust",
    "agreement",
    "trades/day",
)
CLAIMS = {
    True: "it helps on these days, unless the model was trained on them",
    False: "not shown to help",
    None: "not compared",
}
MEAN, SPAN = "{:+,.2f}", "[{0.low:+,.0f}, {0.high:+,.0f}]"
FILES = ("ablation.json", "ablation.txt", "ablation.png")


def table(ablation: Ablation) -> str:
    """Format the report as text.

    It has what was compared, a table of kinds and the claims for each fusion, and how to read them.
    """
    first = ablation.fusions[0].scores[ablation.split]
    lines = [
        f"Ablation on {ablation.settings['market']}: {len(ablation.kinds)} advisors x {len(ablation.fusions)} "
        f"fusions x {len(ablation.seeds)} seeds, compared on {len(first.dates)} days ({ablation.split}: "
        f"{first.dates[0]} .. {first.dates[-1]}), dollars per day after costs, account rules off",
        *(f"NOTE: {label}" for label in ablation.labels),
        *history_lines(ablation.history),
    ]
    for fusion in ablation.fusions:
        lines += [
            "",
            f"fusion {fusion.fusion}: trained in {fusion.seconds:.1f} s after {fusion.compile_seconds:.1f} s "
            f"of compilation, evaluated in {fusion.evaluation_seconds:.1f} s",
            *underline(
                align([HEAD, *(_row(ablation, fusion, k) for k in range(len(ablation.kinds)))])
            ),
        ]
        lines += [
            f"{claim.kind}: {CLAIMS[claim.helps]} ({claim.found})"
            for claim in claims(ablation, fusion)
        ]
    return "\n".join([*lines, "", *_reading(ablation)])


def _row(ablation: Ablation, fusion: FusionResult, k: int) -> tuple[str, ...]:
    kind, scores = ablation.kinds[k], fusion.scores[ablation.split]
    none, placebo = ablation.to_none(fusion, kind), ablation.to_placebo(fusion, kind)
    return (
        kind + (" (CHEATS)" if ablation.uses_future[k] else ""),
        f"{scores.net[k].mean():,.2f}",
        _format(none and none.mean, MEAN),
        _format(none and none.interval, SPAN),
        _format(none and none.deflated, SPAN),
        _format(placebo and placebo.mean, MEAN),
        _format(placebo and placebo.deflated, SPAN),
        format_number(scores.skill[k].hit_rate, "share", none="-"),
        # over seeds at the last update
        _format(_average_defined(fusion.history["trust"][-1, k]), "{:+.2f}"),
        format_number(_average_defined(scores.agreement[k]), "share", none="-"),
        f"{scores.trades[k].mean():.1f}",
    )


def _format(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)


def _average_defined(values: np.ndarray) -> float | None:
    """Average the values that are not NaN; None where all are NaN."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _reading(ablation: Ablation) -> list[str]:
    days = len(ablation.fusions[0].scores[ablation.split].dates)
    kinds = len(ablation.kinds) - 1
    lines = [
        f"less none, less placebo: paired by seed and day, mean over {len(ablation.seeds)} seeds and {days} days; "
        "placebo: the same answers, moved by whole sessions (or shuffled, where the matrix has only that).",
        f"95 %: days (in blocks) and seeds resampled; deflated: the same for {kinds} kinds looked at together "
        "(Bonferroni). Only a deflated interval off 0 says something.",
        "hit rate: of the advice about these days, by the side that paid within the horizon; trust: log-odds that "
        "training left; agreement: bars after which the advised side was held.",
    ]
    if len(ablation.seeds) < MIN_SEEDS or days < MIN_DAYS:
        lines.append(
            f"no intervals: they need {MIN_SEEDS} seeds and {MIN_DAYS} days, there are "
            f"{len(ablation.seeds)} and {days}."
        )
    elif len(ablation.seeds) < 5:
        lines.append(
            f"{len(ablation.seeds)} seeds are few: what another seed would have given is hardly known."
        )
    return lines


def to_json(ablation: Ablation) -> dict[str, Any]:
    """Convert the whole ablation to plain data for `json.dumps`. Undefined values are None."""
    return plain(
        {
            "format": FORMAT,
            "settings": ablation.settings,
            "provenance": ablation.provenance,
            "labels": list(ablation.labels),
            "kinds": list(ablation.kinds),
            "cheats": [
                kind
                for kind, future in zip(ablation.kinds, ablation.uses_future, strict=True)
                if future
            ],
            "seeds": list(ablation.seeds),
            "split": ablation.split,
            "fusions": {
                fusion.fusion: _fusion_json(ablation, fusion) for fusion in ablation.fusions
            },
            **history_json(ablation.history),
        }
    )


def _fusion_json(ablation: Ablation, fusion: FusionResult) -> dict[str, Any]:
    return {
        "seconds": fusion.seconds,
        "compile_seconds": fusion.compile_seconds,
        "health": {
            name: {"passed": passed, "value": value}
            for name, (passed, value) in fusion.health.items()
        },
        "evaluation_seconds": fusion.evaluation_seconds,
        "turned_at_update": fusion.turned,
        "claims": {
            claim.kind: {"helps": claim.helps, "found": claim.found}
            for claim in claims(ablation, fusion)
        },
        "kinds": {
            kind: {
                "cheats": ablation.uses_future[k],
                "trust_by_confidence": fusion.trust[k],
                "parameters_sha256": fusion.digests[k],
                "training": {name: _short(values[:, k]) for name, values in fusion.history.items()},
                **{
                    split: _scores_json(ablation, fusion, scores, k)
                    for split, scores in fusion.scores.items()
                },
            }
            for k, kind in enumerate(ablation.kinds)
        },
    }


def _scores_json(
    ablation: Ablation, fusion: FusionResult, scores: Scores, k: int
) -> dict[str, Any]:
    kind, split = ablation.kinds[k], scores.split
    return {
        "days": list(scores.dates),
        "net_per_day": scores.net[k].mean(),
        "net_by_seed_and_day": scores.net[k],
        "trades_per_day_by_seed": scores.trades[k],
        "max_drawdown_by_seed": scores.drawdown[k],
        "agreement_by_seed": scores.agreement[k],
        "advice": scores.skill[k]._asdict(),
        "less_none": _comparison_json(ablation.to_none(fusion, kind, split)),
        "less_placebo": _comparison_json(ablation.to_placebo(fusion, kind, split)),
    }


def _comparison_json(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    return {
        name: value._asdict() if isinstance(value, Interval) else value
        for name, value in comparison._asdict().items()
    }


def _short(values: np.ndarray) -> list[Any]:
    """Round float64[U, S] to six digits.

    Curves are only looked at, and there are many, so this keeps the file small.
    """
    return [[float(f"{value:.6g}") for value in row] for row in values]


def write(ablation: Ablation, folder: Path) -> list[Path]:
    """Write `ablation.json`, `ablation.txt` and, if matplotlib is installed, `ablation.png`.

    Return the paths.
    """
    with stage_files(folder) as new:
        document, text, image = (new / name for name in FILES)
        document.write_text(json.dumps(to_json(ablation), allow_nan=False) + "\n", encoding="utf-8")
        text.write_text(table(ablation) + "\n", encoding="utf-8")
        written = [document, text, *([image] if plot.draw(ablation, image) else [])]
    return [folder / path.name for path in written]
