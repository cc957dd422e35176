"""`jaxtrade init FILE`: write a configuration that reads a file of bars.

It looks at the file and asks what the file does not say.

Imports no heavy library at load time.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.cli.shared import check_names, refuse_both
from jaxtrade.config import (
    RunConfig,
    SplitConfig,
    apply_overrides,
    config_path,
    make_config,
    read_values,
)
from jaxtrade.config.load import PATHS
from jaxtrade.config.run import ENOUGH, split_of
from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import show

if TYPE_CHECKING:
    from jaxtrade.cli.init_questions import InitQuestion
    from jaxtrade.data.bars import Bars
    from jaxtrade.data.calendar.sessions import CutShort
    from jaxtrade.data.contracts import Contract
    from jaxtrade.data.examine import FileFacts

# One session in so many is held out for the test, where the default protocol (`config.run`) would
# hold out one day alone. The pass probability needs five.
HELD_OUT = 5
FIRST_LOOK = "that of quickstart, for a first look; raise it"
EVERY = 5  # chunks between two evaluations on validation sessions
SUFFIXES = (".gz", ".csv", ".txt", ".zip", ".parquet")


INIT = (
    "look at your file of bars and write a configuration that reads it",
    """
    FILE : Path  CSV, CSV.gz, zip or Parquet, or a folder of LEAN's daily zips
    --market MARKET  contract symbol, e.g. ES
    --contract FILE  your own contract instead of --market, or a shipped one such as SPY
    --set KEY=VALUE ... -> overrides  what you know, e.g. --set data.time_zone=UTC --set
        data.stamp=open; any other key is written too (repeatable)
    --out YAML : Path  the configuration (default: the file's name with .yaml, in this folder); an
        existing file is never overwritten
    --non-interactive  never ask; say which flags are missing instead
    """,
)


def run(args: argparse.Namespace) -> int:
    """Handle `init`. Return the exit code. Raises ConfigError and DataError."""
    refuse_both(args)
    out = args.out or Path(f"{_stem(args.file)}.yaml")
    _require_new(out)
    base = read_values(config_path("quickstart"))
    values = apply_overrides(base | {"data": {}}, args.overrides)
    data = values["data"]
    data["source"] = "file"
    if args.file.is_dir():
        _refuse_set(args.file)
    file = _one_file(args.file, out) if args.file.is_dir() else args.file
    data["file"] = str(file)
    stated = make_config(
        values, "quickstart and --set"
    ).data  # before anything slow: wrong keys and values
    from jaxtrade.cli.init_questions import (
        answer_questions,
        ask,
        clock_warning,
        contract_for,
        describe,
        may_ask,
    )
    from jaxtrade.data.examine import examine
    from jaxtrade.data.formats.recognise import StatedKeys

    seen = examine(
        file,
        StatedKeys(
            stated.columns, stated.time_zone, stated.stamp, stated.price_scale, stated.date_order
        ),
        stated.expiry,
    )
    show("\n".join(describe(seen)))
    interactive = may_ask(args.non_interactive)
    contract, named = contract_for(
        seen,
        args.market or data.get("market"),
        args.contract or data.get("contract"),
        interactive,
        out.parent,
    )
    questions = answer_questions(seen, contract, stated)
    if not interactive:
        _require_answers(seen, contract, questions)
    for question in questions:
        given = ask(question)
        data[question.key] = float(given) if question.key == "price_scale" else given
    if seen.spreads and "expiry" not in data:
        data.setdefault("spreads", "drop")
    values["data"] = named | data | named
    # A wrong clock is told first: other faults may follow from it, or hide it.
    if contract is not None and (warning := clock_warning(seen, contract, data)):
        show(f"  {warning}")
    try:
        return _finish(values, seen, out)
    except (ConfigError, DataError):
        if interactive:
            flag = "contract" if "contract" in named else "market"
            answers = [f"data.{question.key}={data[question.key]}" for question in questions]
            words = ["jaxtrade", "init", str(args.file), f"--{flag}", named[flag]]
            words += [word for each in (*args.overrides, *answers) for word in ("--set", each)]
            words += [] if args.out is None else ["--out", str(args.out)]
            show(f"\nyour answers, to be given again:\n  {shlex.join(words)}")
        raise


def _stem(file: Path) -> str:
    name = file.resolve().name
    while name.endswith(SUFFIXES):
        name = name.rpartition(".")[0]
    return name or "bars"


def _require_new(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            f"{path}: exists already, and is not overwritten; give another name with --out, or remove it"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}; make it, or give another --out"
        )


def _refuse_set(folder: Path) -> None:
    """Raise ConfigError, with the keys for a set, if a folder has files named after symbols."""
    from jaxtrade.data.contracts import CONTRACTS
    from jaxtrade.data.members import bars_in, is_of

    named = {
        symbol: path for symbol in CONTRACTS for path in bars_in(folder) if is_of(symbol, path)
    }
    if not named:
        return
    sets = ("data.source=file", f"data.folder={folder}", f"data.markets=[{','.join(named)}]")
    words = shlex.join([word for each in sets for word in ("--set", each)])
    raise ConfigError(
        f"{folder}: a folder with files of {', '.join(named)}, and init looks at one file: jaxtrade init "
        f"{shlex.quote(str(next(iter(named.values()))))}. It writes how such a file is read (data.stamp, "
        f"data.time_zone, ...); with those keys all of them are one set: jaxtrade train {words} "
        "(docs/symbols.md)"
    )


def _one_file(folder: Path, out: Path) -> Path:
    """Pack a folder of LEAN's daily zips into one zip beside the configuration."""
    from jaxtrade.data.read.tabular import joined_days

    path = out.with_name(f"{_stem(folder)}_days.zip")
    content, count = joined_days(folder)
    if path.exists() and path.read_bytes() != content:
        raise ConfigError(
            f"{path}: exists already with other days, and is not overwritten; remove it, or give another "
            "--out"
        )
    path.write_bytes(content)
    show(f"{folder}: {count} daily files of LEAN, joined in {path}")
    return path


def _require_answers(
    seen: FileFacts, contract: Contract | None, questions: list[InitQuestion]
) -> None:
    """Raise ConfigError naming every flag that is missing, if any is."""
    from jaxtrade.cli.init_questions import market_question

    missing = [] if contract is not None else [market_question(seen)]
    missing += questions
    if not missing:
        return
    lines = [
        f"{seen.file}: {len(missing)} thing{'s' if len(missing) > 1 else ''} that the file does not say; give:"
    ]
    for question in missing:
        lines.append(f"  {question.flag}")
        lines += [f"      {line}" for line in question.list_choices()]
    raise ConfigError("\n".join(lines))


def _finish(values: dict[str, Any], seen: FileFacts, out: Path) -> int:
    """Check that the configuration reads the file, and write it."""
    config = make_config(values, "the new configuration")
    check_names(config, own_files=True)
    from jaxtrade.data.describe import check_text, warn_of_sizes
    from jaxtrade.data.market import build_market
    from jaxtrade.data.sources import bars_of, load_rates, tick_values

    bars, sessions, left_out = _whole_sessions(config, bars_of(config))
    if left_out is not None:
        values["data"]["end"] = str(left_out.before)
    hold_out(values, sessions)
    config = make_config(values, "the new configuration")
    checked, rates = check_text(bars, config), load_rates(config.data, bars.contract)
    tick_values(bars, rates)  # rates of other years would fail only when training
    if left_out is not None:
        show(
            f"left out: {left_out.date}, the last session, is cut short: {left_out.bars} "
            f"(data.end={left_out.before})"
        )
    show(checked)
    if sessions:
        market = build_market(bars, config, rates=rates, on_device=False)
        for warning in warn_of_sizes(market, config):
            show(f"  {warning}")
    values["data"] |= {
        key: _seen_from(out.parent, path)
        for key, path in values["data"].items()
        if key in PATHS and isinstance(path, str) and Path(path).exists()
    }
    text = (
        f"# Written by jaxtrade init from {seen.file}, read as {seen.layout.title}: {sessions} sessions.\n"
        + re.sub(r"( total_timesteps: .*)", rf"\1  # {FIRST_LOOK}", dump_yaml(values))
    )
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    named = shlex.quote(str(out))
    show(f"\nwritten: {out}\nnext:\n  jaxtrade data describe {named}\n  jaxtrade train {named}")
    return 0


def hold_out(values: dict[str, Any], sessions: int) -> None:
    """Complete `split` and `control` of a new configuration, to use all held-out sessions.

    sessions: with decisions.
    """
    given = values.get("split", {})
    if sessions < ENOUGH:
        values["split"] = {"test_sessions": max(1, sessions // HELD_OUT), **given}
    elif given:
        values["split"] = dict(split_of(SplitConfig(), sessions)) | given
    control = values.get("control", {})
    if control.get("evaluate_every") == 0 and "validation_sessions" not in given:
        split = values.get("split") or dict(split_of(SplitConfig(), sessions))
        values["split"] = {**split, "validation_sessions": 0}
    if values.get("split", {}).get("validation_sessions") and control.get("evaluate_every") != 0:
        values["control"] = {"evaluate_every": EVERY, "keep": "best"} | control


def _seen_from(folder: Path, path: str) -> str:
    """Return a path as seen from a folder; the whole path where no relative one leads there."""
    place = Path(path).parent.resolve() / Path(path).name
    try:
        return Path(os.path.relpath(place, folder.resolve())).as_posix()
    except ValueError:  # another drive of Windows
        return str(place)


def _whole_sessions(config: RunConfig, bars: Bars) -> tuple[Bars, int, CutShort | None]:
    """Leave out the last session if it is cut short.

    Return the bars, their sessions with decisions, and the session that was left out.

    It stays if the user states data.end, if no other session could be the test, or if it has no
    decisions: a longer export of the same name then needs no change.
    """
    from jaxtrade.data.calendar.sessions import cut_short, schedule_of
    from jaxtrade.data.market import decision_sessions

    schedule = schedule_of(bars, config.data.calendar)

    def sessions(of: Bars) -> int:
        return len(decision_sessions(of, schedule, config).date)

    for cut in cut_short(bars, schedule, config):
        if cut.last and config.data.end is None:
            whole = bars.between(None, str(cut.before))
            if 1 < (left := sessions(whole)) < sessions(bars):
                return whole, left, cut
    return bars, sessions(bars), None
