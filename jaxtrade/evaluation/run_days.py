"""The daily profit of a run's policies, of an evaluation or a walk-forward, read from its folder.

Runs are compared paired by day: on the same day the market did the same to all of them.

Of a run with several policies the mean over its policies counts. Where two runs have the same
policies (seeds), their differences are paired by policy too. Loads no JAX.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.records import RECORDS, EvaluationRecords, read_records
from jaxtrade.evaluation.statistics import (
    LEVEL,
    MIN_DAYS,
    ONE_POLICY,
    Comparison,
    Interval,
    IntervalEstimate,
    SuperiorAbility,
    compare,
    min_trl,
    probability_of_improvement,
    psr,
    spa,
)
from jaxtrade.evaluation.test_set_history import NO_BARS, DayBars, HeldOutDays
from jaxtrade.storage import digests
from jaxtrade.storage.archives import FAULTS, read_arrays
from jaxtrade.text import several, state_shortfall

WALK, DAILY = "walkforward.json", "daily.npz"
WALK_SPLIT = "walk-forward"
_POLICY = re.compile(r"(?:seed|agent)_(\d+)")  # the folder of one of several policies


@dataclass(frozen=True)
class RunDays:
    """The out-of-sample days of a run.

    name: its folder, as it was given.
    data: sha256 of its data.
    bars: of each symbol the digest of each day's bars (`evaluation.test_set_history`); empty for a
        run of a version without it.
    split: `WALK_SPLIT` of a walk-forward.
    dates: datetime64[D][D], ascending.
    net: float64[S, D] dollars of each policy and day, account rules off.
    policies: S names ("seed 3"; "" for the only one).
    trades: sha256 of the files of their trades; "" where it is not known, or some days are left out.
    """

    name: str
    data: str
    split: str
    dates: np.ndarray
    net: np.ndarray
    policies: tuple[str, ...]
    bars: DayBars = field(default_factory=dict)
    trades: str = ""

    @property
    def days(self) -> HeldOutDays:
        """Its dates and bars."""
        return HeldOutDays(self.data, tuple(self.dates.astype(str).tolist()), self.bars)

    def on(self, days: np.ndarray) -> RunDays:
        """Select some of its days. days: datetime64[D][N]."""
        keep = np.isin(self.dates, days)
        bars = {
            symbol: tuple(each for each, kept in zip(own, keep, strict=True) if kept)
            for symbol, own in self.bars.items()
        }
        trades = self.trades if keep.all() else ""
        return replace(
            self, dates=self.dates[keep], net=self.net[:, keep], bars=bars, trades=trades
        )


def read_run_days(path: Path, split: str = "test") -> RunDays:
    """Read the days of a run or of a walk-forward.

    Raises ConfigError if there is no such folder, DataError if a file is missing or damaged, or the
    policies of a run were evaluated on different days.

    split: of a run.
    """
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run's folder (jaxtrade runs lists them)")
    if (path / WALK).is_file():
        return _walk_days(path)
    records = evaluated_records(path, split)
    first = next(iter(records.values()))
    net = np.stack([each.daily_net[each.agents.index(each.shown)] for each in records.values()])
    return RunDays(
        str(path),
        _data(first),
        split,
        first.dates,
        net,
        tuple(records),
        bars_of(first),
        _hash_trades(path / "evaluation" / split),
    )


def _hash_trades(folder: Path) -> str:
    """Hash all files of trades in a folder with their places; "" where there is none."""
    files = sorted(folder.rglob("trades.csv"))
    each = [(str(file.relative_to(folder)), digests.read_checked(file).hex()) for file in files]
    return hashlib.sha256(repr(each).encode()).hexdigest() if each else ""


def evaluated_records(
    path: Path, split: str = "test", symbol: str | None = None
) -> dict[str, EvaluationRecords]:
    """Read the records of every policy of a run, all on the same days.

    The keys are "" for the only one, else "seed 3" or "agent 002". Raises as `read_run_days`.

    symbol: one of a run with several; None for its only one, or for the sum over all.
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
    files = {name: (each / symbol if symbol else each) / RECORDS for name, each in found.items()}
    records = {}
    for name, file in files.items():
        if not file.is_file():
            raise DataError(
                f"{file}: there is no such file: the run was not evaluated on this split, or by an "
                f"earlier version. Make it: jaxtrade evaluate {path} (--split {split})"
            )
        records[name] = read_records(file)
    first = next(iter(records.values()))
    for name, each in records.items():
        if not np.array_equal(each.dates, first.dates) or _data(each) != _data(first):
            raise DataError(
                f"{files[name]}: other days or data than {next(iter(files.values()))}; evaluate the run "
                f"again: jaxtrade evaluate {path} (--split {split})"
            )
    return records


def bars_of(records: EvaluationRecords) -> DayBars:
    """Return the digests of the days' bars; empty in records of a version without them."""
    return {symbol: tuple(each) for symbol, each in records.meta.get("day_bars", {}).items()}


def _data(records: EvaluationRecords) -> str:
    return str(records.meta["settings"]["data_sha256"])


def _walk_days(path: Path) -> RunDays:
    """Read the days of a walk-forward: `daily.npz` beside `walkforward.json`.

    The `data_sha256` of the latter names the data.
    """
    document = digests.read_json(path / WALK, "run the walk-forward again")
    days = _read_daily(path / DAILY, OutOfSampleDays)
    dates, at = np.unique(days.date, return_index=True)
    known = days.day_bars[at]  # an earlier version has none
    try:
        data = str(document["data_sha256"])
        bars = {str(document["market"]): tuple(known.tolist())} if (known != NO_BARS).any() else {}
    except KeyError as error:
        raise DataError(f"{path / WALK}: lacks {error}; run the walk-forward again") from None
    return RunDays(
        str(path),
        data,
        WALK_SPLIT,
        dates.astype("datetime64[D]"),
        days.by_date(days.net)[0],
        tuple(f"seed {seed}" for seed in days.seeds.tolist()),
        bars,
    )


def on_shared_days(runs: Sequence[RunDays], shared_days: bool) -> list[RunDays]:
    """Restrict the runs to the days that all of them have.

    Raises ConfigError, which names what differs: split and days without `shared_days`, and the bars
    of a shared day always; and where no day is shared.

    shared_days: take these days although some run has others too, and although their splits differ.
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

    Features, windows, and the width of the bars may differ.
    """
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
    """Say which days only one of two runs has."""
    parts = []
    for own, theirs in ((one, other), (other, one)):
        only = np.setdiff1d(own.dates, theirs.dates)
        if len(only):
            span = str(only[0]) if len(only) == 1 else f"{only[0]} .. {only[-1]}"
            parts.append(f"{len(only)} of {len(own.dates)} only in {own.name}: {span}")
    return "; ".join(parts)


@dataclass(frozen=True)
class RunDifference:
    """A run against the first one.

    paired: the differences by day.
    interval: 95 % of their mean, with days and policies resampled where both runs have the same
        policies and enough of them, else with days resampled; None with `why`.
    resampled: which, in words.
    improvement: probability that a policy of the run makes more than one of the first run.
    """

    paired: Comparison
    interval: Interval | None
    resampled: str | None
    why: str | None
    improvement: IntervalEstimate


@dataclass(frozen=True)
class RunComparison:
    """Runs on the same days.

    mean: dollars per day of each, over policies and days.
    against: of each but the first.

    best: index of the run with the largest mean.
    spa: p of the hypothesis that some other run is beaten by none (`best_of`).
    """

    runs: tuple[RunDays, ...]
    mean: tuple[float, ...]
    against: tuple[RunDifference, ...]
    best: int
    spa: SuperiorAbility

    @property
    def leaders(self) -> list[str]:
        """The names of the runs with the largest mean; several where it is the same."""
        most = self.mean[self.best]
        return [run.name for run, mean in zip(self.runs, self.mean, strict=True) if mean == most]


def compare_runs(runs: Sequence[RunDays]) -> RunComparison:
    """Compare runs on the same days (`run_days.on_shared_days`), two or more."""
    mean = tuple(float(each.net.mean()) for each in runs)
    daily = np.stack([each.net.mean(axis=0) for each in runs], axis=1)
    return RunComparison(
        tuple(runs),
        mean,
        tuple(_against(each, runs[0]) for each in runs[1:]),
        int(np.argmax(mean)),
        best_of(daily),
    )


def best_of(daily: np.ndarray) -> SuperiorAbility:
    """Test whether the best of several runs beats each of the others, or was only picked from many.

    For each run but the best: Hansen's test with this run as the baseline and all others as the
    policies, so that having picked the best of them is accounted for. The largest p counts: the
    best has to beat every one. Small p: it is better than all others.

    daily: float64[D, R] dollars by day and run.
    """
    best = int(daily.mean(axis=0).argmax())
    found = [
        spa(np.delete(daily, rival, axis=1), daily[:, rival])
        for rival in range(daily.shape[1])
        if rival != best
    ]
    return next((each for each in found if each.consistent is None), None) or max(
        found, key=lambda each: each.consistent or 0.0
    )


def _against(run: RunDays, base: RunDays) -> RunDifference:
    alike = run.policies == base.policies
    nets = (
        (run.net, base.net)
        if alike
        else (run.net.mean(axis=0, keepdims=True), base.net.mean(axis=0, keepdims=True))
    )
    paired = compare(*nets)
    held = paired.interval or paired.days_only
    resampled = held and ("days and policies" if paired.interval else "days")
    why = None if held else f"it {state_shortfall(MIN_DAYS, 'day', paired.days)}"
    return RunDifference(
        paired, held, resampled, why, probability_of_improvement(run.net, base.net)
    )


def to_json(found: RunComparison) -> dict[str, Any]:
    """Return plain data for JSON; what is undefined is None, with the reason."""
    first = found.runs[0]
    return {
        "data_sha256": first.data,
        "splits": [each.split for each in found.runs],
        "days": len(first.dates),
        "first_day": str(first.dates[0]),
        "last_day": str(first.dates[-1]),
        "unit": "dollars per day, account rules off",
        "best": None if len(found.leaders) > 1 else found.leaders[0],
        "spa": found.spa._asdict(),
        "runs": [
            {
                "run": each.name,
                "policies": len(each.policies),
                "mean": mean,
                "against_first": None if number == 0 else _row(found.against[number - 1]),
            }
            for number, (each, mean) in enumerate(zip(found.runs, found.mean, strict=True))
        ],
    }


def _row(each: RunDifference) -> dict[str, Any]:
    low, high = each.interval or (None, None)
    return {
        "difference": each.paired.mean,
        "low": low,
        "high": high,
        "why": each.why,
        "resampled": each.resampled,
        "days_above": each.paired.days_above,
        "days": each.paired.days,
        "improvement": each.improvement._asdict(),
    }


# The daily profit of a walk-forward, in memory and as `daily.npz`, and what it proves: whether
# baselines are beaten, and what a Sharpe ratio of so few days is worth. The same functions as in
# the report of a run (docs/believe_numbers.md).


@dataclass(frozen=True)
class OutOfSampleDays:
    """The days on which the folds were tested, account rules off: S seeds, D days, B baselines.

    Profits are dollars per day.

    date: int64[D] days since 1970-01-01, increasing within a fold.
    fold: int32[D], increasing; a day that several folds test (cpcv) appears once for each.
    day_bars: str[D] digests of the dates' bars (`evaluation.test_set_history`), "" in a file of a
        version without them.
    net: float64[S, D] of the greedy policies.
    baselines: str[B] names.
    baseline_net: float64[B, D] of the baselines.
    seeds: int64[S].
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
        """The number of different trade dates.

        Seeds and folds of one date share its market, so they add none.
        """
        return len(np.unique(self.date))

    def by_date(self, net: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Average the net by trade date -> (float64[..., N], fold of each date, int32[N]).

        A date that several folds test counts once, with its mean over them (cpcv), so that no date
        has more weight. It has no fold of its own then, and the folds are None. net:
        float64[..., D].
        """
        dates, place = np.unique(self.date, return_inverse=True)
        if len(dates) == len(self.date):
            order = np.argsort(self.date)
            return net[..., order], self.fold[order]
        return np.stack(
            [net[..., place == i].mean(axis=-1) for i in range(len(dates))], axis=-1
        ), None

    def pool(self, net: np.ndarray) -> np.ndarray:
        """Return the mean per trade date of net float64[..., D] (float64[...])."""
        return self.by_date(net)[0].mean(axis=-1)


@dataclass(frozen=True)
class WalkDays(OutOfSampleDays):
    """The days on which F folds were tested, with the two metrics that stand beside them.

    account_net: float64[S, D] as `net`, under the account's rules.
    in_sample_net: float64[S, F] mean per day on training sessions of the fold, account rules off.
    """

    account_net: np.ndarray
    in_sample_net: np.ndarray

    @property
    def folds(self) -> int:
        """The number of folds."""
        return self.in_sample_net.shape[1]

    def per_fold(self, net: np.ndarray) -> np.ndarray:
        """Return the mean per day of each fold (float64[..., F]). net: float64[..., D]."""
        return np.stack(
            [net[..., self.fold == fold].mean(axis=-1) for fold in range(self.folds)], axis=-1
        )


DaysT = TypeVar("DaysT", bound=OutOfSampleDays)


def write_walk_days(days: WalkDays, path: Path) -> None:
    """Write `daily.npz` atomically. path: the file."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **{each.name: getattr(days, each.name) for each in fields(days)})
    temporary.replace(path)


def read_walk_days(path: Path) -> WalkDays:
    """Read `daily.npz`. Raises DataError if it is missing, damaged, or its arrays do not fit.

    path: the file.
    """
    return _read_daily(path, WalkDays)


def _read_daily(path: Path, kind: type[DaysT]) -> DaysT:
    """Read `daily.npz` as `read_walk_days`, with as many arrays as `kind` has."""
    try:
        found = read_arrays(path)
        arrays = {"day_bars": np.full(found["date"].shape, NO_BARS)} | found
        days = kind(**{each.name: arrays[each.name] for each in fields(kind)})
        count, seeds = len(days.date), len(days.seeds)
        shapes = {
            "fold": (count,),
            "day_bars": (count,),
            "net": (seeds, count),
            "account_net": (seeds, count),
            "baseline_net": (len(days.baselines), count),
        }
        for name, shape in shapes.items():
            if hasattr(days, name) and getattr(days, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(days, name).shape}, expected {shape}")
        if not days.net.size:
            raise ValueError("it holds no day")
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
    return days


def evidence_of(days: WalkDays) -> dict[str, Any]:
    """Return keys of `pooled` in `walkforward.json`, of dollars per trade date, account rules off.

    spa: p-value (`p`) of the hypothesis that some baseline is beaten by no seed, with
    Hansen's bounds.
    improvement: by baseline, the probability that a seed earns more; None where there is one seed.
    psr, min_trl: of the mean over the seeds (`of_mean`), the record of an account that follows all
    of them in equal parts, and of each seed (`by_seed`, in the order of the seeds).
    Where a metric or its interval is None, `why` says the reason.
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
            name: _plain(
                IntervalEstimate(why=ONE_POLICY)
                if len(net) == 1
                else probability_of_improvement(net, rule[None], rule=True)
            )
            for name, rule in zip(names, rules, strict=True)
        },
        **{
            name: {
                "of_mean": _plain(figure(net.mean(axis=0))),
                "by_seed": [_plain(figure(own)) for own in net],
            }
            for name, figure in (("psr", psr), ("min_trl", min_trl))
        },
    }


def _plain(found: IntervalEstimate) -> dict[str, Any]:
    return found._asdict() | {"level": LEVEL}


def evidence_lines(pooled: dict[str, Any]) -> Iterator[str]:
    """Yield the lines below the printed table. pooled: as in `walkforward.json`."""
    tested, days = pooled["spa"], pooled["independent_days"]
    yield (
        "is every baseline beaten by some seed (SPA)? "
        + (
            f"n/a ({tested['why']})"
            if tested["p"] is None
            else f"p = {tested['p']:.3f}; below 0.05 says yes"
        )
    )
    yield f"probability that a seed earns more than {_improvements(pooled['improvement'])}"
    figures = (
        ("psr", "probability that the true Sharpe ratio is above 0 (PSR)", ".2f"),
        (
            "min_trl",
            f"days after which such a record shows that (MinTRL; there {'is' if days == 1 else 'are'} {days})",
            ",.0f",
        ),
    )
    for key, what, form in figures:
        mean = _format_interval(pooled[key]["of_mean"], form)
        yield f"{what}, of the mean over the seeds: {mean}{_seeds(pooled[key], form)}"


def _improvements(found: dict[str, dict[str, Any]]) -> str:
    """Format each baseline with its probability. A reason that all have in common is given once."""
    reasons = {each["why"] for each in found.values()}
    if len(reasons) != 1 or None in reasons:
        return ", ".join(f"{name}: {_format_interval(each, '.2f')}" for name, each in found.items())
    [why] = reasons
    if all(each["value"] is None for each in found.values()):
        return f"{', '.join(found)}: n/a ({why})"
    return (
        ", ".join(f"{name}: {each['value']:.2f}" for name, each in found.items())
        + f"; interval n/a ({why})"
    )


def _format_interval(each: dict[str, Any], form: str) -> str:
    """Format a metric with its interval, or `n/a` and why."""
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
    """Say how single seeds differ.

    Empty where the mean is that of one seed, or where no seed has the metric.
    """
    values = [each["value"] for each in found["by_seed"] if each["value"] is not None]
    if len(found["by_seed"]) == 1 or not values:
        return ""
    without = len(found["by_seed"]) - len(values)
    rest = f", n/a of {several(without, 'seed')}" if without else ""
    return f"; one seed {min(values):{form}} to {max(values):{form}}{rest}"
