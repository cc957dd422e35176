"""Enter the openings of a run's test split in the trial log, and tell each result how often its
days were opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.errors import DataError, StorageError
from jaxtrade.evaluation.metrics import days_note
from jaxtrade.evaluation.openings import (
    HeldOutDays,
    SplitHistory,
    Trial,
    day_bars,
    days_of,
    openings_of,
    trial_matrix,
    trials_of,
    with_policy,
    with_trials,
)
from jaxtrade.evaluation.result import SetResult
from jaxtrade.evaluation.seeds import POLICY
from jaxtrade.runs import rundir
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.trials import TRIALS, SplitOpening, append_opening, read_trials, trials_folder
from jaxtrade.text import WARNING, Tell, several

# The days on which an evaluation of a run rests, for the reader of its report.


def day_count(setup: Setup, split: str) -> int:
    """Trade dates of a split; a date that several symbols have counts once."""
    return len(np.unique(setup.dates(split)))


def days_label(setup: Setup, split: str) -> str:
    """The label that says how many independent days an evaluation on this split rests on
    (`days_note`).
    """
    keeps_best = setup.config.control.keep == "best"
    chosen = day_count(setup, "validation") if keeps_best else None
    return days_note(
        day_count(setup, split),
        day_count(setup, "train"),
        chosen,
        len(setup.market.members),
        same=keeps_best and split == "validation",
    )


UNCOUNTED = "not counted: this opening of the test set could not be written to the trial log"


def count_opening(
    setup: Setup,
    results: Mapping[int, Any],
    split: str,
    path: Path,
    kind: str,
    other: bool,
    sha: Mapping[int, str],
    tell: Tell,
) -> dict[int, Any]:
    """Enter the evaluation of some policies in the trial log, before anybody sees it. Returns the
    results, each with its `SplitHistory`; without one where the split has no test day.

    An opening that cannot be written does not fail the run: a warning is told, and each result gets
    a label.

    Args:
        results: by the policy's number. split: that they are of. path: the run's folder.
        kind: the command, of `storage.trials.KINDS`. other: whether another advisor than the run's
            own was used.
        sha: digest of each policy, by its number.
    """
    days = held_out_days(setup, split)
    if not days:
        return dict(results)
    nets = {
        str(number): _on(days, result.dates, result.daily_pnl(result.agents[0]) / 1000)
        for number, result in results.items()
    }
    opening = opening_of(setup, path, split, kind, days, other)._replace(
        net=nets, policies={str(number): sha[number] for number in results}
    )
    counted = count_days(path, opening, tell)
    history = with_trials(counted.history, counted.matrix)
    return {
        number: _labelled(
            replace(
                result, history=with_policy(history, np.array(nets[str(number)]), counted.matrix)
            ),
            counted.labels,
        )
        for number, result in results.items()
    }


class Counted(NamedTuple):
    """An opening that was entered in the log: what the log says of its days, the profits of all
    trials on these days (float64[D, N], `evaluation.openings.trial_matrix`), and a label where it
    could not be counted."""

    history: SplitHistory
    matrix: np.ndarray
    labels: tuple[str, ...]


def count_days(path: Path, opening: SplitOpening, tell: Tell, once: bool = False) -> Counted:
    """Enter an opening in the log of the run at `path`, and read what the log says of its days.

    Args:
        tell: receives a warning if it could not be written. The opening is then counted here all
            the same: it has happened.
        once: leave it out if the log already holds the same opening with the same profits: a
            finished run that is resumed shows nothing new.
    """
    folder, days = trials_folder(path), days_of(opening)
    labels = () if once and _holds(folder, opening) else entered(path, opening, tell)
    try:
        log = read_trials(folder)
    except (DataError, StorageError) as error:
        return _unknown(folder, str(error), days, labels)
    missing = [opening] if labels else []
    return _counted(folder, openings_of([*log.openings, *missing], days), days, labels)


def counted_until_now(path: Path, days: HeldOutDays, trial: Trial) -> Counted:
    """What the log of the run at `path` says of some days now. Nothing is entered: to read the log
    is no opening.

    trial: the policy whose evaluation has to be in the log. A log that lacks it cannot tell how
        often the days were
    opened.
    """
    folder = trials_folder(path)
    try:
        log = read_trials(folder)
    except (DataError, StorageError) as error:
        return _unknown(folder, str(error), days)
    openings = openings_of(log.openings, days)
    if not log.openings:
        return _unknown(folder, f"there is no trial log ({TRIALS}) beside the run", days)
    if trial not in trials_of(openings):
        return _unknown(
            folder,
            f"{TRIALS} beside the run has {several(len(openings), 'opening')} of these sessions, "
            "but not the one of this evaluation: the run or the log was moved, or the log could not be "
            "written",
            days,
        )
    return _counted(folder, openings, days)


def _unknown(folder: Path, fault: str, days: HeldOutDays, labels: tuple[str, ...] = ()) -> Counted:
    history = SplitHistory(None, None, fault, not labels, str(folder / TRIALS))
    return Counted(history, np.zeros((len(days.dates), 0)), labels)


def _counted(
    folder: Path,
    openings: Sequence[SplitOpening],
    days: HeldOutDays,
    labels: tuple[str, ...] = (),
) -> Counted:
    times = [each.utc for each in openings if each.utc] or [None]
    history = SplitHistory(
        len(openings),
        len(trials_of(openings)),
        None,
        not labels,
        str(folder / TRIALS),
        times[0],
        times[-1],
    )
    return Counted(history, trial_matrix(openings, days)[1], labels)


def grid_notes(setup: Setup, path: Path, split: str, tell: Tell, other: bool = False) -> list[str]:
    """Enter the grids of a policy in the trial log, and return what a reader of them should know
    about that. A grid is no trial of its own, because its policy is one already, but it opens the
    test days. Arguments as in `count_opening`.
    """
    days = held_out_days(setup, split)
    if not days:
        return []
    counted = count_days(path, opening_of(setup, path, split, "grid", days, other), tell)
    return [*counted.labels, *counted.history.lines()]


def count_replay(setup: Setup, path: Path, session: str, tell: Tell) -> None:
    """Enter the replay of a test session in the trial log. It is no trial, and the same session is
    entered once.

    session: its trade date, ISO. The other arguments are as in `count_opening`.
    """
    count_days(path, opening_of(setup, path, "test", "replay", [session]), tell, once=True)


def held_out_days(setup: Setup, split: str) -> list[str]:
    """The trade dates (ISO) of the test split that an evaluation of `split` shows: none of a split
    that has none.
    """
    if split not in ("test", "all"):
        return []
    return np.unique(setup.dates("test")).astype(str).tolist()


def opening_of(
    setup: Setup, path: Path, split: str, kind: str, days: Sequence[str], other: bool = False
) -> SplitOpening:
    """The opening of a run's test days, without any result. Arguments as in `count_opening`."""
    folder, whole = trials_folder(path), path.resolve()
    config = setup.config.digest() if other else rundir.read_run(path)[1]["config_sha256"]
    return SplitOpening(
        kind,
        whole.relative_to(folder).as_posix(),
        config,
        setup.market.fingerprint,
        split,
        days[0],
        days[-1],
        len(days),
        POLICY,
        tuple(days),
        bars=day_bars(setup.market, days),
    )


def entered(path: Path, opening: SplitOpening, tell: Tell) -> tuple[str, ...]:
    """Append an opening to the log of the run at `path`. Returns no label, or one that says that it
    was not counted and why, which is also told as a warning."""
    try:
        append_opening(trials_folder(path), opening)
    except StorageError as error:
        fault = f"{UNCOUNTED} ({error})"
    except OSError as error:
        fault = f"{UNCOUNTED} ({trials_folder(path) / TRIALS}: {error.strerror})"
    else:
        return ()
    tell(f"{WARNING}{fault}")
    return (fault,)


def _holds(folder: Path, opening: SplitOpening) -> bool:
    """Whether the log has this very opening, at another time. A log that cannot be read is not
    known to have it.
    """
    try:
        log = read_trials(folder)
    except (DataError, StorageError):  # `count_days` reads it again, and says what is wrong
        return False
    return any(each._replace(utc="") == opening._replace(utc="") for each in log.openings)


def _on(days: Sequence[str], dates: np.ndarray, net: np.ndarray) -> tuple[float, ...]:
    """The dollars of some days. Raises KeyError for a day that was not evaluated."""
    found = dict(zip(dates.astype(str).tolist(), net.tolist(), strict=True))
    return tuple(round(found[day], 3) for day in days)


def _labelled(result: Any, labels: tuple[str, ...]) -> Any:
    """The result with further labels, a `SetResult` with them on every symbol."""
    if isinstance(result, SetResult):
        return replace(
            result,
            symbols={symbol: _labelled(own, labels) for symbol, own in result.symbols.items()},
        )
    return replace(result, labels=(*result.labels, *labels))
