"""The daily profit of a walk-forward, in memory and as `daily.npz`, and what it proves.

What it proves: whether baselines are beaten, and what a Sharpe
ratio of so few days is worth. The same functions as in the report of a run (docs/statistics.md).
Loads no JAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.errors import DataError
from jaxtrade.evaluation.statistics import (
    LEVEL,
    ONE_POLICY,
    IntervalEstimate,
    min_trl,
    probability_of_improvement,
    psr,
    spa,
)
from jaxtrade.storage.archives import FAULTS, read_arrays
from jaxtrade.text import several

DAILY = "daily.npz"  # in the folder of a walk-forward


@dataclass(frozen=True)
class OutOfSampleDays:
    """The days on which the folds were tested, account rules off: S seeds, D days, B baselines.
    Profits are dollars per day.

    date: int64[D] days since 1970-01-01, increasing within a fold. fold: int32[D], increasing; a
        day that several folds
    test (cpcv) appears once for each. day_bars: str[D] digests of the dates' bars
    (`evaluation.openings`), "" in a file of a version without them. net: float64[S, D] of the
    greedy policies. baselines: str[B] names. baseline_net: float64[B, D] of the baselines. seeds:
    int64[S].
    """

    date: np.ndarray
    fold: np.ndarray
    day_bars: np.ndarray
    net: np.ndarray
    baselines: np.ndarray
    baseline_net: np.ndarray
    seeds: np.ndarray

    @property
    def independent(self) -> int:
        """The number of different trade dates. Seeds and folds of one date share its market, so
        they add none.
        """
        return len(np.unique(self.date))

    def by_date(self, net: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """(net of each trade date, float64[..., N], its fold, int32[N]). net: float64[..., D].

        A date that several folds test counts once, with its mean over them (cpcv), so that no date
        has more weight. It has no fold of its own then, and the folds are None.
        """
        dates, place = np.unique(self.date, return_inverse=True)
        if len(dates) == len(self.date):
            order = np.argsort(self.date)
            return net[..., order], self.fold[order]
        return np.stack(
            [net[..., place == i].mean(axis=-1) for i in range(len(dates))], axis=-1
        ), None

    def pooled(self, net: np.ndarray) -> np.ndarray:
        """float64[...]: mean per trade date of net float64[..., D]."""
        return self.by_date(net)[0].mean(axis=-1)


@dataclass(frozen=True)
class WalkDays(OutOfSampleDays):
    """The days on which F folds were tested, with the two figures that stand beside them.

    account_net: float64[S, D] as `net`, under the account's rules. in_sample_net: float64[S, F]
        mean per day on
    training sessions of the fold, account rules off.
    """

    account_net: np.ndarray
    in_sample_net: np.ndarray

    @property
    def folds(self) -> int:
        """The number of folds."""
        return self.in_sample_net.shape[1]

    def per_fold(self, net: np.ndarray) -> np.ndarray:
        """float64[..., F]: mean per day of each fold. net: float64[..., D]."""
        return np.stack(
            [net[..., self.fold == fold].mean(axis=-1) for fold in range(self.folds)], axis=-1
        )


def write_walk_days(days: WalkDays, path: Path) -> None:
    """Write `daily.npz` (at once, or not at all). path: the file."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(
            file, **{field.name: getattr(days, field.name) for field in fields(days)}
        )
    temporary.replace(path)


def read_walk_days(path: Path) -> WalkDays:
    """Read `daily.npz`. path: the file. Raises DataError if it is missing, damaged, or its arrays
    do not fit.
    """
    try:
        found = read_arrays(path)
        arrays = {"day_bars": np.full(found["date"].shape, "")} | found
        days = WalkDays(**{field.name: arrays[field.name] for field in fields(WalkDays)})
    except FileNotFoundError:
        raise DataError(
            f"{path}: there is no such file: the walk-forward has not ended; continue it with `jaxtrade "
            "walkforward --resume`"
        ) from None
    except FAULTS as error:
        raise DataError(
            f"{path}: cannot be read ({str(error)[:120]}); write it again with `jaxtrade walkforward "
            "--resume`"
        ) from None
    count, seeds = len(days.date), len(days.seeds)
    shapes = {
        "fold": (count,),
        "day_bars": (count,),
        "net": (seeds, count),
        "account_net": (seeds, count),
        "baseline_net": (len(days.baselines), count),
    }
    for name, shape in shapes.items():
        if getattr(days, name).shape != shape:
            raise DataError(
                f"{path}: {name} has shape {getattr(days, name).shape}, expected {shape}; write it again "
                "with `jaxtrade walkforward --resume`"
            )
    return days


def evidence_of(days: WalkDays) -> dict[str, Any]:
    """Keys of `pooled` in `walkforward.json`, all of dollars per trade date, account rules off.

    spa: p-value (`p`) of the hypothesis that some baseline is beaten by no seed, with Hansen's
        bounds. improvement: by
    baseline, the probability that a seed earns more; None where there is one seed. psr, min_trl: of
    the mean over the seeds (`of_mean`), the record of an account that follows all of them in equal
    parts, and of each seed (`by_seed`, in the order of the seeds). Where a figure or its interval
    is None, `why` says the reason.
    """
    net, rules = days.by_date(days.net)[0], days.by_date(days.baseline_net)[0]
    names = [str(name) for name in days.baselines]
    tested = spa(net.T, rules.T, names=names)
    return {
        "spa": {
            "p": tested.consistent,
            "lower": tested.lower,
            "upper": tested.upper,
            "why": tested.why,
        },
        "improvement": {
            name: _plain(_improvement(net, rule)) for name, rule in zip(names, rules, strict=True)
        },
        **{
            name: {
                "of_mean": _plain(figure(net.mean(axis=0))),
                "by_seed": [_plain(figure(own)) for own in net],
            }
            for name, figure in (("psr", psr), ("min_trl", min_trl))
        },
    }


def _improvement(net: np.ndarray, rule: np.ndarray) -> IntervalEstimate:
    if len(net) == 1:
        return IntervalEstimate(None, None, None, ONE_POLICY)
    return probability_of_improvement(net, rule[None], rule=True)


def _plain(found: IntervalEstimate) -> dict[str, Any]:
    return found._asdict() | {"level": LEVEL}


def evidence_lines(pooled: dict[str, Any]) -> Iterator[str]:
    """The lines below the printed table. pooled: as in `walkforward.json`."""
    tested, days = pooled["spa"], pooled["independent_days"]
    yield (
        "p-value of the hypothesis that some baseline is beaten by no seed (SPA; small is good): "
        + (f"n/a ({tested['why']})" if tested["p"] is None else f"{tested['p']:.3f}")
    )
    yield f"probability that a seed earns more than {_improvements(pooled['improvement'])}"
    figures = (
        ("psr", "probability that the true Sharpe ratio is above 0 (PSR)", ".2f"),
        (
            "min_trl",
            f"days after which such a record shows that (MinTRL; there are {days})",
            ",.0f",
        ),
    )
    for key, what, form in figures:
        yield f"{what}, of the mean over the seeds: {_shown(pooled[key]['of_mean'], form)}{_seeds(pooled[key], form)}"


def _improvements(found: dict[str, dict[str, Any]]) -> str:
    """Each baseline with its probability. A reason that all have in common is told once."""
    reasons = {each["why"] for each in found.values()}
    if len(reasons) != 1 or None in reasons:
        return ", ".join(f"{name}: {_shown(each, '.2f')}" for name, each in found.items())
    [why] = reasons
    if all(each["value"] is None for each in found.values()):
        return f"{', '.join(found)}: n/a ({why})"
    return (
        ", ".join(f"{name}: {each['value']:.2f}" for name, each in found.items())
        + f"; interval n/a ({why})"
    )


def _shown(each: dict[str, Any], form: str) -> str:
    """A figure with its interval, or `n/a` and why."""
    if each["value"] is None:
        return f"n/a ({each['why']})"
    value, low = (
        f"{each[name]:{form}}" if each[name] is not None else "" for name in ("value", "low")
    )
    if each["low"] is None:
        return f"{value}, interval n/a ({each['why']})"
    if each["high"] is None:
        return f"{value}, {each['level']:.0%} interval from {low} on ({each['why']})"
    return f"{value}, {each['level']:.0%} interval {low} to {each['high']:{form}}"


def _seeds(found: dict[str, Any], form: str) -> str:
    """How single seeds differ; empty where the mean is that of one seed, or where no seed has the
    figure.
    """
    values = [each["value"] for each in found["by_seed"] if each["value"] is not None]
    if len(found["by_seed"]) == 1 or not values:
        return ""
    without = len(found["by_seed"]) - len(values)
    rest = f", n/a of {several(without, 'seed')}" if without else ""
    return f"; one seed {min(values):{form}} to {max(values):{form}}{rest}"
