"""The comparison of runs as text: what was changed, the metrics, and the days. Loads no JAX."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.config import read_values
from jaxtrade.config.sweep import flat
from jaxtrade.evaluation.results_table import join_names
from jaxtrade.evaluation.run_days import RunComparison
from jaxtrade.evaluation.test_set_history import format_probability
from jaxtrade.formatting import NOT_AVAILABLE
from jaxtrade.text import align, several

MOST_KEYS, MOST_DAYS = 10, 20
ABSENT = "-"  # of a key that a configuration does not have
HEAD = ("policies", "net/day ($)", "difference ($)", "95 % interval", "days above", "P(better)")


def changed_keys(found: RunComparison) -> dict[str, list[Any]] | None:
    """Return the keys in which the configurations differ -> the value of each run.

    None where a folder has no configuration.
    """
    files = [Path(each.name) / "config.yaml" for each in found.runs]
    if not all(file.is_file() for file in files):
        return None
    configs = [dict(flat(read_values(file, exact=True))) for file in files]
    keys = dict.fromkeys(itertools.chain.from_iterable(configs))
    values = {key: [each.get(key, ABSENT) for each in configs] for key in keys}
    return {key: each for key, each in values.items() if any(own != each[0] for own in each)}


def same_trades(found: RunComparison) -> list[list[str]]:
    """Return the names of runs that made the same trades, in groups of two or more."""
    groups: dict[str, list[str]] = {}
    for each in found.runs:
        if each.trades:
            groups.setdefault(each.trades, []).append(each.name)
    return [names for names in groups.values() if len(names) > 1]


def table(found: RunComparison) -> list[str]:
    """Format the comparison as lines of text."""
    first, days = found.runs[0], len(found.runs[0].dates)
    rows = [
        ["run", *HEAD],
        [first.name, str(len(first.policies)), f"{found.mean[0]:,.2f}", *["" for _ in HEAD[2:]]],
    ]
    for run, mean, each in zip(found.runs[1:], found.mean[1:], found.against, strict=True):
        held = (
            f"{each.interval.low:,.2f} .. {each.interval.high:,.2f}"
            if each.interval
            else NOT_AVAILABLE
        )
        rows.append(
            [
                run.name,
                str(len(run.policies)),
                f"{mean:,.2f}",
                f"{each.paired.mean:+,.2f}",
                held,
                f"{each.paired.days_above} of {each.paired.days}",
                # Without an interval n/a, because one policy against one gives 0 or 1.
                NOT_AVAILABLE
                if None in each.improvement[:3]
                else format_probability(*each.improvement),
            ]
        )
    splits = " and ".join(dict.fromkeys(each.split for each in found.runs))
    return [
        *_changes(changed_keys(found)),
        f"{several(days, 'day')} ({splits}, {first.dates[0]} .. {first.dates[-1]}) on the same bars; dollars per "
        "day, account rules off",
        "",
        *align(rows),
        "",
        *_by_day(found),
        f"differences are from {first.name}, paired by day",
        *dict.fromkeys(_notes(found)),
        *(f"the trades of {join_names(names)} are the same" for names in same_trades(found)),
        _best(found),
    ]


def _changes(changed: Mapping[str, list[Any]] | None) -> Iterator[str]:
    """Say what differs between the configurations, then leave a line blank."""
    if changed is None:
        return
    for key, values in list(changed.items())[:MOST_KEYS]:
        yield f"changed: {key}: {' / '.join(map(_format, values))}"
    if len(changed) > MOST_KEYS:
        yield f"and {several(len(changed) - MOST_KEYS, 'key')} more (config.yaml)"
    if not changed:
        yield "changed: nothing, the configurations are the same"
    yield ""


def _format(value: Any) -> str:
    return "null" if value is None else str(value).lower() if value in (True, False) else str(value)


def _by_day(found: RunComparison) -> list[str]:
    """List the net profit of each run on each day, of several policies the mean."""
    dates = found.runs[0].dates.astype(str).tolist()
    if len(dates) > MOST_DAYS:
        return []
    nets = np.stack([each.net.mean(axis=0) for each in found.runs], axis=1).tolist()
    rows = [["net ($)", *(each.name for each in found.runs)]]
    rows += [[day, *(f"{net:,.2f}" for net in own)] for day, own in zip(dates, nets, strict=True)]
    return [*align(rows), ""]


def _notes(found: RunComparison) -> Iterator[str]:
    """Say what was resampled, and why a metric has no interval."""
    for each in found.against:
        yield (
            f"interval n/a: {each.why}"
            if each.why
            else f"intervals: {each.resampled} resampled, days in blocks of neighbours"
        )
        if each.improvement.why:
            yield f"P(better) n/a: {each.improvement.why}"


def _best(found: RunComparison) -> str:
    """Name the best run, and how likely its lead is luck."""
    if len(found.leaders) > 1:
        return f"none is best: {join_names(found.leaders)} made the same"
    [best], p = found.leaders, found.spa.consistent
    chance = f"n/a, {found.spa.why}" if p is None else f"{p:.2f}" if p >= 0.01 else f"{p:.3f}"
    return f"best: {best}; chance of so large a lead by luck alone (SPA test): {chance}"
