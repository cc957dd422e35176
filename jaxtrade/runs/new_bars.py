"""Evaluate a run on bars that it never saw: another file, of which its days are left out.

Rules, costs and features are those of the run, and the warm-up comes from the file itself. Days are
left out by trade date, whatever the symbol: markets move together, so a date that was trained on is
known from any of them. The manifest of a run has its days (`DAYS`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig, apply_overrides, make_config
from jaxtrade.config.market import check_date
from jaxtrade.config.sweep import require_no_walk
from jaxtrade.data.contracts import contract_of
from jaxtrade.data.market import Markets
from jaxtrade.data.members import bars_in, symbols_of
from jaxtrade.data.splits import sessions_of, shared_dates
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.policy import check_market
from jaxtrade.runs import files, rundir
from jaxtrade.runs.setup import Setup, prepare
from jaxtrade.runs.stored_run import policy_path
from jaxtrade.runs.xla_settings import restore
from jaxtrade.storage.checkpoint import read_schema
from jaxtrade.text import several
from jaxtrade.types import SessionSet

DAYS = "days"  # in a manifest: split -> spans of trade dates [first, last], and their count
NONE: dict[str, Any] = {"spans": [], "count": None}  # of a split that decided nothing
LEFT = {"train": "trained on", "validation": "chosen on"}  # what the policy was, by split
# Keys of `data` that say how the new file is read, and whose bars it has. The others decide what a
# policy sees (`window_reset`), or belong to the run's own bars.
READING = (
    "market|contract|columns|time_zone|stamp|date_order|price_scale|expiry|roll|splits|allow_jumps|seconds|"
    "seconds_tolerance|quotes|quotes_tolerance|conversion|calendar|per_market"
)
OF_OWN_BARS = re.compile("source|file|folder|seconds|quotes|start|end|synthetic.*")


def days_of(setup: Setup, source: Path | None = None) -> dict[str, Any]:
    """Make the entry `DAYS` of a run's manifest.

    It has the days of `train`, and those of `validation` if scores there decide which policy is
    kept. Between first and last every date counts, also one without a session.

    source: the run whose policy this one begins with; its days count too, as far as its manifest
        has them.
    """
    control, found = setup.config.control, dict[str, Any]()
    chooses = control.keep == "best" or control.evaluate_every or setup.agents.are_listed
    earlier = {} if source is None else rundir.read_run(source)[1].get(DAYS, {})
    for split in LEFT if chooses else ("train",):
        dates = np.unique(setup.dates(split)).astype(str).tolist()
        own = [[dates[0], dates[-1]]] if dates else []
        if spans := earlier.get(split, NONE)["spans"] + own:
            found[split] = {"spans": spans, "count": len(dates)}
    return found


@dataclass(frozen=True)
class NewBars:
    """Bars to evaluate a run on instead of its own.

    place: a file; of a run with `data.markets` a folder with a file for each of its symbols.
    first, last: trade dates (YYYY-MM-DD) between which sessions are evaluated, both included; None:
        from the first one on, to the last one.
    overlap: keep the days that the policy was trained or chosen on, and label the result.
    overrides: `data.KEY=VALUE` of `READING`: how the file is read.
    days: the entry `DAYS` of the run.

    Raises ConfigError (dates, keys), DataError (there is no such file or folder).
    """

    place: Path
    first: str | None = None
    last: str | None = None
    overlap: bool = False
    overrides: Sequence[str] = ()
    days: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for flag, day in (("--from", self.first), ("--to", self.last)):
            try:
                check_date(day or "2000-01-01")
            except ValueError as error:
                raise ConfigError(f"{flag} {error}") from None
        if self.first and self.last and self.first > self.last:
            raise ConfigError(
                f"--from {self.first} is after --to {self.last}; no session can lie between them"
            )
        for key in self.overrides:
            if not re.match(rf"\s*data\.({READING})\b", key):
                raise ConfigError(
                    f"--set {key}: no key that says how the file of --on is read; with --on you may set "
                    f"data.KEY of {READING.replace('|', ', ')}"
                )
        if not self.place.exists():
            raise DataError(f"--on {self.place}: there is no such file or folder")

    @cached_property
    def split(self) -> str:
        """A name for its sessions, as a split: on-es_2024-2024-01-02-1a2b3c.

        The end is a digest of the files and of how they are read, so that other bars of the same
        name get a folder of their own.
        """
        digest = hashlib.sha256(repr((self.overlap, sorted(self.overrides))).encode())
        for path in [self.place] if self.place.is_file() else bars_in(self.place):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        stem = re.sub(r"[^A-Za-z0-9_]+", "-", self.place.name.partition(".")[0])[:40]
        days = [day for day in (self.first, self.last) if day]
        return "-".join(["on", stem, *days, digest.hexdigest()[:6]])

    @property
    def words(self) -> list[str]:
        """The flags that name these bars in a command."""
        given = [("--on", self.place), ("--from", self.first), ("--to", self.last)]
        given += [("--set", key) for key in self.overrides]
        found = [str(word) for each in given if each[1] for word in each]
        return [*found, "--allow-overlap"] if self.overlap else found

    def config(self, own: RunConfig) -> RunConfig:
        """Return a run's configuration with these bars in place of its own.

        Raises ConfigError (another kind of contract), DataError (a file for several symbols).
        """
        place = "folder" if own.data.markets else "file"
        if (place == "folder") != self.place.is_dir():
            raise DataError(
                f"--on {self.place}: the run was trained on {', '.join(symbols_of(own))}; name one file, or "
                "of several symbols the folder that holds a file of each"
            )

        def drop_own(keys: Mapping[str, Any]) -> dict[str, Any]:
            return {key: keys[key] for key in keys if not OF_OWN_BARS.fullmatch(key)}

        values = own.model_dump(mode="json")
        data: dict[str, Any] = drop_own(values["data"]) | {"source": "file", place: str(self.place)}
        data["per_market"] = {each: drop_own(keys) for each, keys in data["per_market"].items()}
        values = apply_overrides(values | {"data": data}, self.overrides)
        config = make_config(values, f"--on {self.place}", stored=True)
        if place == "file":  # the symbols of a set stay
            found, expected = contract_of(config.data), contract_of(own.data)
            if found.kind != expected.kind:
                raise ConfigError(
                    f"--on {self.place}: data.market = {found.symbol} is of kind {found.kind}, and the run was "
                    f"trained on {expected.symbol}, of kind {expected.kind}; give bars of a market of that kind"
                )
        return config

    def count(self, split: str) -> int | None:
        """Count the days of the run's own split; None if its policy has nothing of them."""
        return self.days.get(split, NONE)["count"]

    def splits(self, market: Markets) -> dict[str, SessionSet]:
        """Choose the sessions: under the name of these bars those that are shown.

        `test` has those of them that the policy has not seen, `train` and `validation` the others.
        Raises DataError if none is left.
        """
        asked, seen = self._masks(market)
        new = asked & ~np.any(list(seen.values()), axis=0)
        shown = asked if self.overlap else new
        if not shown.any():
            known = market.trade_dates
            why = (
                f"{self.note(market)}; give later bars, or keep them with --allow-overlap, which labels "
                "the result in sample"
                if asked.any()
                else f"none lies between --from and --to; the bars have {known.min()} .. {known.max()}"
            )
            raise DataError(f"--on {self.place}: no session is left to evaluate: {why}")
        found = {split: rows & shown for split, rows in seen.items()}
        found |= {"test": new, self.split: shown}
        return {name: sessions_of(market, np.flatnonzero(rows)) for name, rows in found.items()}

    def note(self, market: Markets) -> str:
        """Say how many days are left out, or what is kept of them; "" for none."""
        told = [
            f"{several(len(np.unique(market.trade_dates[rows])), 'day')} that the policy was {LEFT[split]}"
            for split, rows in self._masks(market)[1].items()
            if rows.any()
        ]
        kept = "kept (--allow-overlap)" if self.overlap else "left out"
        return f"{kept}: {' and '.join(told)}" if told else ""

    def _masks(self, market: Markets) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return which sessions lie between the two dates (bool[N]); of a set, on shared dates.

        Also which of them the policy was trained on and chosen on, by split.
        """
        dates = market.trade_dates.astype(str)

        def within(first: str | None, last: str | None) -> np.ndarray:
            return (dates >= (first or "")) & (dates <= (last or "9"))

        shared = shared_dates(market.trade_dates, market.session_parts)
        asked = np.isin(market.trade_dates, shared) & within(self.first, self.last)
        spans = {split: self.days.get(split, NONE)["spans"] for split in LEFT}
        return asked, {
            split: asked & np.any([within(*span) for span in each], axis=0)
            for split, each in spans.items()
        }


def open_on(
    path: Path, bars: NewBars, data: Path | None, advisor: str | None, own: Callable[[], Setup]
) -> Setup:
    """Load the setup of an existing run on new bars, with the sessions of `NewBars.splits`.

    Args:
        data: a file of the run's own bars, if its days are read from them.
        advisor: the one that is asked about the new bars.
        own: loads the setup on the run's own bars, whose days a run of an earlier version has from
            nowhere else.

    Raises ConfigError, DataError.
    """
    config, manifest = rundir.read_run(path)
    require_no_walk(config)
    if config.advisor.on and advisor is None:
        raise ConfigError(
            f"--on {bars.place}: the policy of {path} listens to advice, and what its own advisor has said "
            f"is about other bars; name one to ask about these: --advisor {config.advisor.kind}"
        )
    config = bars.config(config)
    if not any("contract" in key for key in bars.overrides):
        files.require_contracts(config, manifest, path)
    days = manifest.get(DAYS)
    if days is None:
        try:
            days = days_of(own())
        except DataError as error:
            raise DataError(
                f"{path}: an earlier version made it, which did not record its training days ('{DAYS}' in "
                f"manifest.json), so --on needs its own bars: {error}"
            ) from None
    elif data is not None:
        raise ConfigError(
            f"--data {data} with --on: the run's own bars are not read, its days are in manifest.json; drop "
            "--data"
        )
    restore(config, manifest)
    bars = replace(bars, days=days)
    setup = replace(prepare(config, bars.splits), unseen=bars)
    numbers = setup.stack.numbers(config.seed)
    schema = read_schema(policy_path(path, config, numbers[0]))
    check_market(setup.env, setup.market, schema, f"--on {bars.place}")
    return setup
