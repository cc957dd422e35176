"""The daily profit of a walk-forward, in memory and as `daily.npz`: what statistics and reports
read. Loads no JAX.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from jaxtrade.errors import DataError
from jaxtrade.storage.archives import FAULTS, read_arrays

DAILY = "daily.npz"  # in the folder of a walk-forward


@dataclass(frozen=True)
class OutOfSampleDays:
    """The days on which the folds were tested, account rules off: S seeds, D days, B baselines.
    Profits are dollars per day.

    date: int64[D] days since 1970-01-01, increasing within a fold. fold: int32[D], increasing; a
        day that several folds
    test (cpcv) appears once for each. day_bars: str[D] digests of the dates' bars
    (`evaluation.day_bars`), "" in a file of a version without them. net: float64[S, D] of the
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
