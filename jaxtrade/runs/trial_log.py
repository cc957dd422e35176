"""Enter the looks at a run's test split in the trial log.

Each result records how often its days were looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.errors import DataError, StorageError
from jaxtrade.evaluation.metrics import days_note
from jaxtrade.evaluation.result import SetResult
from jaxtrade.evaluation.seeds import POLICY
from jaxtrade.evaluation.test_set_history import (
    HeldOutDays,
    SplitHistory,
    Trial,
    day_bars,
    days_of,
    list_looks,
    trial_matrix,
    trials_of,
    with_policy,
    with_trials,
)
from jaxtrade.runs import rundir
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.trials import TRIALS, SplitLook, append_look, read_trials, trials_folder
from jaxtrade.text import WARNING, Log, several

# The days on which an evaluation of a run rests, for the reader of its report.


def day_count(setup: Setup, split: str) -> int:
    """Count the trade dates of a split. A date that several symbols have counts once."""
    return len(np.unique(setup.dates(split)))


def days_label(setup: Setup, split: str) -> str:
    """Return the label that says how many independent days an evaluation on this split rests on.

    It is made by `days_note`.
    """
    keeps_best, unseen = setup.config.control.keep == "best", setup.unseen
    count, symbols = day_count(setup, split), len(setup.market.members)
    if unseen is not None:
        note = unseen.note(setup.market)
        same = day_count(setup, "validation") > 0
        trained, chosen = (unseen.count(name) for name in ("train", "validation"))
        text = days_note(count, trained or 0, chosen, symbols, same)
        return f"{text}; {note}" if note else text
    chosen = day_count(setup, "validation") if keeps_best else None
    trained, same = day_count(setup, "train"), keeps_best and split == "validation"
    return days_note(count, trained, chosen, symbols, same)


UNCOUNTED = "not counted: this look at the test set could not be written to the trial log"


def count_look(
    setup: Setup,
    results: Mapping[int, Any],
    split: str,
    path: Path,
    kind: str,
    other: bool,
    sha: Mapping[int, str],
    log: Log,
) -> dict[int, Any]:
    """Enter the evaluation of some policies in the trial log, before anybody sees it.

    Return the results, each with its `SplitHistory`; without one where the split has no test day.

    A look that cannot be written does not fail the run: a warning is logged, and each result gets
    a label.

    Args:
        results: by the policy's number.
        split: that they are of.
        path: the run's folder.
        kind: the command, of `storage.trials.KINDS`.
        other: whether another advisor than the run's own was used.
        sha: digest of each policy, by its number.
    """
    days = held_out_days(setup, split)
    if not days:
        return dict(results)
    nets = {
        str(number): _on(days, result.dates, result.daily_pnl(result.agents[0]) / 1000)
        for number, result in results.items()
    }
    look = make_look(setup, path, split, kind, days, other)._replace(
        net=nets, policies={str(number): sha[number] for number in results}
    )
    counted = count_days(path, look, log)
    history = with_trials(counted.history, counted.matrix)
    return {
        number: _add_labels(
            replace(
                result, history=with_policy(history, np.array(nets[str(number)]), counted.matrix)
            ),
            counted.labels,
        )
        for number, result in results.items()
    }


class CountedLooks(NamedTuple):
    """A look that was entered in the log.

    It has what the log says of its days, the profits of all trials on these days (float64[D, N],
    `evaluation.test_set_history.trial_matrix`), and a label where it could not be counted.
    """

    history: SplitHistory
    matrix: np.ndarray
    labels: tuple[str, ...]


def count_days(path: Path, look: SplitLook, log: Log, once: bool = False) -> CountedLooks:
    """Enter a look in the log of the run at `path`, and read what the log says of its days.

    Args:
        log: receives a warning if it could not be written. The look is then counted here all the
            same: it has happened.
        once: leave it out if the log already holds the same look with the same profits: a finished
            run that is resumed shows nothing new.
    """
    folder, days = trials_folder(path), days_of(look)
    labels = () if once and _holds(folder, look) else enter_look(path, look, log)
    try:
        trial_log = read_trials(folder)
    except (DataError, StorageError) as error:
        return _unknown(folder, str(error), days, labels)
    missing = [look] if labels else []
    return _count(folder, list_looks([*trial_log.looks, *missing], days), days, labels)


def counted_until_now(path: Path, days: HeldOutDays, trial: Trial) -> CountedLooks:
    """Read what the log of the run at `path` says of some days now.

    Nothing is entered: to read the log is no look.

    trial: the policy whose evaluation has to be in the log. A log that lacks it cannot say how
        often the days were looked at.
    """
    folder = trials_folder(path)
    try:
        trial_log = read_trials(folder)
    except (DataError, StorageError) as error:
        return _unknown(folder, str(error), days)
    looks = list_looks(trial_log.looks, days)
    if not trial_log.looks:
        return _unknown(folder, f"there is no trial log ({TRIALS}) beside the run", days)
    if trial not in trials_of(looks):
        return _unknown(
            folder,
            f"{TRIALS} beside the run has {several(len(looks), 'look')} at these sessions, "
            "but not the one of this evaluation: the run or the log was moved, or the log could not be "
            "written",
            days,
        )
    return _count(folder, looks, days)


def _unknown(
    folder: Path, fault: str, days: HeldOutDays, labels: tuple[str, ...] = ()
) -> CountedLooks:
    history = SplitHistory(None, None, fault, not labels, str(folder / TRIALS))
    return CountedLooks(history, np.zeros((len(days.dates), 0)), labels)


def _count(
    folder: Path,
    looks: Sequence[SplitLook],
    days: HeldOutDays,
    labels: tuple[str, ...] = (),
) -> CountedLooks:
    times = [each.utc for each in looks if each.utc] or [None]
    history = SplitHistory(
        len(looks),
        len(trials_of(looks)),
        None,
        not labels,
        str(folder / TRIALS),
        times[0],
        times[-1],
    )
    return CountedLooks(history, trial_matrix(looks, days)[1], labels)


def grid_notes(setup: Setup, path: Path, split: str, log: Log, other: bool = False) -> list[str]:
    """Enter the grids of a policy in the trial log, and return what their reader should know.

    A grid is no trial of its own, because its policy is one already, but it is a look at the
    test days. Arguments as in `count_look`.
    """
    days = held_out_days(setup, split)
    if not days:
        return []
    counted = count_days(path, make_look(setup, path, split, "grid", days, other), log)
    return [*counted.labels, *counted.history.lines()]


def count_replay(setup: Setup, path: Path, session: str, log: Log) -> None:
    """Enter the replay of a test session in the trial log.

    It is no trial, and the same session is entered once.

    session: its trade date, ISO.

    The other arguments are as in `count_look`.
    """
    count_days(path, make_look(setup, path, "test", "replay", [session]), log, once=True)


def held_out_days(setup: Setup, split: str) -> list[str]:
    """List the trade dates (ISO) of the test split that an evaluation of `split` shows.

    There are none of a split that has none. Of other bars they are the days that the policy has not
    seen.
    """
    if split in ("train", "validation"):
        return []
    return np.unique(setup.dates("test")).astype(str).tolist()


def make_look(
    setup: Setup, path: Path, split: str, kind: str, days: Sequence[str], other: bool = False
) -> SplitLook:
    """Make the look of a run's test days, without any result. Arguments as in `count_look`."""
    folder, whole, manifest = trials_folder(path), path.resolve(), rundir.read_run(path)[1]
    config = setup.config.digest() if other else manifest["config_sha256"]
    return SplitLook(
        kind,
        whole.relative_to(folder).as_posix(),
        config,
        manifest["data_sha256"],  # what the policy was trained on, whatever bars it is shown
        split,
        days[0],
        days[-1],
        len(days),
        POLICY,
        tuple(days),
        bars=day_bars(setup.market, days),
    )


def enter_look(path: Path, look: SplitLook, log: Log) -> tuple[str, ...]:
    """Append a look to the log of the run at `path`.

    Return no label, or one that says that it was not counted and why, which is also logged as
    a warning.
    """
    try:
        append_look(trials_folder(path), look)
    except StorageError as error:
        fault = f"{UNCOUNTED} ({error})"
    except OSError as error:
        fault = f"{UNCOUNTED} ({trials_folder(path) / TRIALS}: {error.strerror})"
    else:
        return ()
    log(f"{WARNING}{fault}")
    return (fault,)


def _holds(folder: Path, look: SplitLook) -> bool:
    """Return whether the log has this very look, at another time.

    A log that cannot be read is not known to have it.
    """
    try:
        trial_log = read_trials(folder)
    except (DataError, StorageError):  # `count_days` reads it again, and says what is wrong
        return False
    return any(each._replace(utc="") == look._replace(utc="") for each in trial_log.looks)


def _on(days: Sequence[str], dates: np.ndarray, net: np.ndarray) -> tuple[float, ...]:
    """Return the dollars of some days. Raises KeyError for a day that was not evaluated."""
    found = dict(zip(dates.astype(str).tolist(), net.tolist(), strict=True))
    return tuple(round(found[day], 3) for day in days)


def _add_labels(result: Any, labels: tuple[str, ...]) -> Any:
    """Add labels to the result; to a `SetResult`, on every symbol."""
    if isinstance(result, SetResult):
        return replace(
            result,
            symbols={symbol: _add_labels(own, labels) for symbol, own in result.symbols.items()},
        )
    return replace(result, labels=(*result.labels, *labels))
