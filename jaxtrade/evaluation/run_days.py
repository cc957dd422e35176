"""The daily profit of a run's policies, read from its folder: of an evaluation, or of a
walk-forward. Loads no JAX.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.day_bars import NO_BARS, DayBars, HeldOutDays
from jaxtrade.evaluation.records import RECORDS, EvaluationRecords, read_records
from jaxtrade.storage import digests
from jaxtrade.storage.archives import FAULTS, read_arrays
from jaxtrade.text import several

WALK, DAILY = "walkforward.json", "daily.npz"
WALK_SPLIT = "walk-forward"
_POLICY = re.compile(r"(?:seed|agent)_(\d+)")  # the folder of one of several policies


@dataclass(frozen=True)
class RunDays:
    """The out-of-sample days of a run.

    name: its folder, as it was given. data: sha256 of its data. bars: of each symbol the digest of
        each day's bars
    (`evaluation.day_bars`); empty for a run of a version without it. split: `WALK_SPLIT` of a
    walk-forward. dates: datetime64[D][D], ascending. net: float64[S, D] dollars of each policy and
    day, account rules off. policies: S names ("seed 3"; "" for the only one).
    """

    name: str
    data: str
    split: str
    dates: np.ndarray
    net: np.ndarray
    policies: tuple[str, ...]
    bars: DayBars = field(default_factory=dict)

    @property
    def days(self) -> HeldOutDays:
        """Its dates and bars."""
        return HeldOutDays(self.data, tuple(self.dates.astype(str).tolist()), self.bars)

    def on(self, days: np.ndarray) -> RunDays:
        """On some of its days alone. days: datetime64[D][N]."""
        keep = np.isin(self.dates, days)
        bars = {
            symbol: tuple(each for each, kept in zip(own, keep, strict=True) if kept)
            for symbol, own in self.bars.items()
        }
        return replace(self, dates=self.dates[keep], net=self.net[:, keep], bars=bars)


def read_run_days(path: Path, split: str = "test") -> RunDays:
    """The days of a run or of a walk-forward. split: of a run.

    Raises ConfigError if there is no such folder, DataError if a file is missing or damaged, or the
    policies of a run were evaluated on different days.
    """
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run's folder (jaxtrade runs lists them)")
    return _walk_days(path) if (path / WALK).is_file() else _evaluated_days(path, split)


def evaluated_records(
    path: Path, split: str = "test", symbol: str | None = None
) -> dict[str, EvaluationRecords]:
    """The records of every policy of a run, all on the same days: "" for the only one, else "seed
    3" or "agent 002".

    symbol: one of a run with several; None for its only one, or for the sum over all. Raises as
        `read_run_days`.
    """
    folder = path / "evaluation" / split
    found = {"": folder}
    parts = [
        (int(match[1]), each)
        for each in folder.glob("*")
        if (match := _POLICY.fullmatch(each.name))
    ]
    if not (folder / RECORDS).is_file() and parts:
        found = {each.name.replace("_", " "): each for _, each in sorted(parts)}
    if not (path / "manifest.json").is_file():
        raise ConfigError(
            f"{path}: not a run's folder (no manifest.json); jaxtrade runs lists the runs in a folder"
        )
    files = {
        name: (each if symbol is None else each / symbol) / RECORDS for name, each in found.items()
    }
    records = {name: _read(file, path, split) for name, file in files.items()}
    first = next(iter(records.values()))
    for name, each in records.items():
        if not np.array_equal(each.dates, first.dates) or _data(each) != _data(first):
            raise DataError(
                f"{files[name]}: other days or data than {next(iter(files.values()))}; evaluate the run "
                f"again: jaxtrade evaluate {path} ({_flag(split)})"
            )
    return records


def _evaluated_days(path: Path, split: str) -> RunDays:
    records = evaluated_records(path, split)
    first = next(iter(records.values()))
    net = np.stack([each.daily_net[each.agents.index(each.shown)] for each in records.values()])
    return RunDays(str(path), _data(first), split, first.dates, net, tuple(records), bars_of(first))


def bars_of(records: EvaluationRecords) -> DayBars:
    """The digests of the days' bars; empty in records of a version without them."""
    return {symbol: tuple(each) for symbol, each in records.meta.get("day_bars", {}).items()}


def _read(file: Path, path: Path, split: str) -> EvaluationRecords:
    """`read_records`, whose message names the command for this run."""
    if not file.is_file():
        raise DataError(
            f"{file}: there is no such file: the run was not evaluated on this split, or by an earlier "
            f"version. Make it: jaxtrade evaluate {path} ({_flag(split)})"
        )
    return read_records(file)


def _flag(split: str) -> str:
    return f"--split {split}"


def _data(records: EvaluationRecords) -> str:
    return str(records.meta["settings"]["data_sha256"])


def _walk_days(path: Path) -> RunDays:
    """The days of a walk-forward: `daily.npz` beside `walkforward.json`, whose `data_sha256` names
    the data.
    """
    file = path / DAILY
    try:
        document = digests.read_json(path / WALK, "run the walk-forward again")
        data = str(document["data_sha256"])
        found = read_arrays(file)
        dates, net, seeds = found["date"], np.asarray(found["net"], np.float64), found["seeds"]
        bars = found.get("day_bars", np.full(dates.shape, NO_BARS))  # an earlier version has none
        if net.shape != (len(seeds), len(dates)) or not net.size:
            raise ValueError(
                f"net of shape {net.shape} for {len(seeds)} seeds and {len(dates)} days"
            )
        if bars.shape != dates.shape:
            raise ValueError(f"day_bars of shape {bars.shape} for {len(dates)} days")
        known = {str(document["market"]): bars} if (bars != NO_BARS).any() else {}
    except FileNotFoundError:
        raise DataError(
            f"{file}: there is no such file: the walk-forward has not ended; let it finish"
        ) from None
    except FAULTS as error:
        raise DataError(
            f"{path}: its {WALK} and {DAILY} cannot be read ({str(error)[:120]}); run the walk-forward "
            "again"
        ) from None
    days, at, place = np.unique(dates.astype(np.int64), return_index=True, return_inverse=True)
    # A date that several folds test counts once, with the mean over them, as in the walk-forward's
    # own figures.
    sums = np.stack([np.bincount(place, each) for each in net]) / np.bincount(place)
    return RunDays(
        str(path),
        data,
        WALK_SPLIT,
        days.astype("datetime64[D]"),
        sums,
        tuple(f"seed {seed}" for seed in seeds.tolist()),
        {symbol: tuple(own[at].tolist()) for symbol, own in known.items()},
    )


def on_shared_days(runs: Sequence[RunDays], shared_days: bool) -> list[RunDays]:
    """The runs on the days that all of them have.

    shared_days: take these days although some run has others too, and although their splits differ.
        Raises ConfigError,
    which names what differs: split and days without `shared_days`, and the bars of a shared day
    always; and where no day is shared.
    """
    first = runs[0]
    for each in runs[1:]:
        if not shared_days and each.split != first.split:
            raise ConfigError(
                f"{each.name}: its days are of '{each.split}', those of {first.name} of '{first.split}'; "
                "set shared_days (--shared-days) to compare the days that both have"
            )
        if not shared_days and not np.array_equal(each.dates, first.dates):
            raise ConfigError(
                f"{each.name}: other days than {first.name} ({_differing(each, first)}); set "
                "shared_days (--shared-days) to compare the days that both have"
            )
    days = first.dates
    for each in runs[1:]:
        days = np.intersect1d(days, each.dates)
    if not len(days):
        raise ConfigError(f"{', '.join(each.name for each in runs)}: they share no day")
    shared = [each.on(days) for each in runs]
    for each in shared[1:]:
        _same_bars(each, shared[0])
    return shared


def _same_bars(one: RunDays, other: RunDays) -> None:
    """Raise ConfigError unless two runs had the same bars on their days, which are the same dates.
    Features, windows, and the width of the bars may differ."""
    if one.data == other.data:
        return
    both = f"{one.name}: other bars than {other.name}"
    if not one.bars or not other.bars:
        raise ConfigError(
            f"{both}, or other features: the sha256 of their data differ ({one.data[:16]}... and "
            f"{other.data[:16]}...), and a run of an earlier version does not say of which days. "
            "Evaluate both again with this version (jaxtrade evaluate RUN)"
        )
    if one.bars.keys() != other.bars.keys():
        raise ConfigError(
            f"{both}: of {', '.join(one.bars)}, and of {', '.join(other.bars)}; only runs on the same "
            "symbols can be compared day by day"
        )
    for symbol, own in one.bars.items():
        differs = [
            str(day) for day, a, b in zip(one.dates, own, other.bars[symbol], strict=True) if a != b
        ]
        if differs:
            raise ConfigError(
                f"{both}: {symbol} differs on {len(differs)} of {several(len(own), 'shared day')}, "
                f"first on {differs[0]}; only runs on the same bars can be compared day by day"
            )


def _differing(one: RunDays, other: RunDays) -> str:
    """Which days only one of two runs has, in words."""
    parts = []
    for own, theirs in ((one, other), (other, one)):
        only = np.setdiff1d(own.dates, theirs.dates)
        if len(only):
            span = str(only[0]) if len(only) == 1 else f"{only[0]} .. {only[-1]}"
            parts.append(f"{len(only)} of {len(own.dates)} only in {own.name}: {span}")
    return "; ".join(parts)
