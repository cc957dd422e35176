"""Read a run's folder into the content of a report. Nothing is trained, traded or compiled."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.sweep import flat
from jaxtrade.data.members import symbols_of
from jaxtrade.env.state import EndReason
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.records import (
    ABSENT,
    BAR_COLUMNS,
    RECORDS,
    BarRecords,
    read_records,
)
from jaxtrade.evaluation.results_table import rules_text
from jaxtrade.formatting import name_agent
from jaxtrade.reporting import schema, studies, svg
from jaxtrade.reporting.bars import PageClock, PlacedTrade, place_trades
from jaxtrade.reporting.studies import ReportChoice, chosen_on, read_json, trained_on
from jaxtrade.reporting.svg import MarkedEquity
from jaxtrade.runs import rundir
from jaxtrade.storage import digests
from jaxtrade.storage.sinks import read_rows

CURVES = {
    "episode_reward": "Return per episode",
    "entropy": "Entropy, nats",
    "approx_kl": "KL of an update, nats",
    "explained_variance": "Explained variance",
    "td_loss": "TD loss",
    "win_rate": "Win rate of episodes",
    "learning_rate": "Learning rate",
}
CURVE_POINTS = 160
MOST_KEYS, LONGEST_VALUE = 6, 40  # of the configuration, in the line that says how it was trained
SAID = ("seed", "algorithm", "train.total_timesteps")  # keys that the line has anyway


@dataclass(frozen=True)
class ReportData:
    """What a report is made of: its content, the bars, the trades on them, the drawn equity.

    Of an account that holds several symbols the page has no bars and no trades.

    fills: the text of its `trades.csv`.
    """

    data: schema.Figures
    bars: BarRecords
    clock: PageClock
    trades: list[PlacedTrade]
    marked: MarkedEquity
    fills: str = ""


def choose(
    run: Path,
    split: str = "test",
    seed: int | None = None,
    agent: int | None = None,
    symbol: str | None = None,
) -> ReportChoice:
    """Choose the evaluation that was asked for.

    Raises:
        ConfigError: no run, no evaluation of this split, or several agents or symbols and none
            was named.
    """
    config, manifest = rundir.read_run(run)
    symbols = symbols_of(config)
    if config.env.joint:  # one account, one report
        symbols = ("-".join(symbols),)
    if symbol and symbol not in symbols:
        raise ConfigError(f"symbol (--symbol) {symbol}: this run trades {', '.join(symbols)}")
    if not symbol and len(symbols) > 1:
        raise ConfigError(
            f"{run}: a report is about one symbol; give symbol (--symbol) {symbols[0]}, or "
            f"{', '.join(symbols[1:])}"
        )
    found = ReportChoice(
        run,
        config,
        manifest,
        split,
        *_agent(run, config, seed, agent),
        symbol if symbol and len(symbols) > 1 else "",
    )
    if not (found.folder / "evaluation.json").is_file():
        fix = f"--split {split}" if split in schema.SPLITS else "--on FILE, which names the split"
        raise ConfigError(
            f"{found.folder}: no evaluation here; make it first (jaxtrade evaluate {run} {fix})"
        )
    return found


def _agent(run: Path, config: RunConfig, seed: int | None, agent: int | None) -> tuple[int, str]:
    """Return the number of the agent and its folder below that of the split.

    The folder is "" for a run of one agent. The first agent is the default.
    """
    from jaxtrade.runs.stored_run import chosen_number
    from jaxtrade.training.population import Stack

    first = 0 if seed is None and agent is None else agent
    number = chosen_number(config, seed, first)
    name = Stack.of_run(config).folder(run, number)
    return number, "" if name == run else name.relative_to(run).as_posix()


def collect(choice: ReportChoice) -> ReportData:
    """Collect all content of a report.

    Raises DataError: a file of the evaluation is missing or damaged, or two disagree.
    """
    try:
        return _collect(choice)
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
    ) as error:  # of an evaluation without digests
        raise DataError(
            f"{choice.folder}: its evaluation.json, trades.csv and {RECORDS}, or the run's metrics.jsonl "
            f"and summary.json, do not fit together ({error!r}); evaluate the run again: jaxtrade evaluate "
            "RUN"
        ) from None


def _collect(choice: ReportChoice) -> ReportData:
    document = read_json(choice.folder / "evaluation.json")
    records = read_records(choice.folder / RECORDS)
    settings, shown, bars, meta = document["settings"], records.shown, records.bars, records.meta
    if not bars and "symbols" in settings:
        raise DataError(
            f"{choice.folder / RECORDS}: it holds the days alone: it was made by an earlier version; "
            f"evaluate the run again: jaxtrade evaluate {choice.run} (--split {choice.split})"
        )
    if not bars or meta["settings"] != settings:
        raise DataError(
            f"{choice.folder}: {RECORDS} and evaluation.json are of different evaluations; evaluate the "
            "run again: jaxtrade evaluate RUN"
        )
    shown_at, joint = bars.trades[shown], "symbols" in settings
    tick = 1.0 if joint else float(meta["tick_size"])
    clock = PageClock(meta["bar_seconds"], meta["zone"], tick, meta["decimals"])
    marked = marked_of(bars, records.dates, meta["start_balance"], clock)
    text = _text(choice.folder / "trades.csv")
    found = {"net_profit": round(float(marked.equity[-1]) - marked.start, 3)}
    trades: list[PlacedTrade] = []
    own: schema.Figures = {}
    if joint:
        traded = bars.session[bars.decision[shown_at["bar"]]]
        own["symbols"] = svg.contributions(marked, bars, shown, settings["symbols"])
        found |= {f"profit.{each['symbol']}": each["net"] for each in own["symbols"]["each"]}
        bars = replace(bars, **dict.fromkeys(BAR_COLUMNS, np.empty(0, np.int64)))
    else:
        traded = shown_at["session"]
        trades = _place_trades(choice.folder / "trades.csv", text, bars, shown, meta["actions"])
        found["trades"] = len(trades)
    _compare(choice.folder, document["agents"][shown]["strategy"], found)
    unchecked = [
        f"no digest of {name} is known: shown as found"
        for name in ("evaluation.json", "trades.csv")
        if not digests.has_digest(choice.folder / name)
    ]
    judged, trials = _collect_statistics(choice, document, meta)
    title = _title(choice, settings, shown)
    sections, about = studies.optional_sections(choice, meta.get("policy_sha256"), shown, title)
    trained, seeds = training(choice), _seeds(choice)
    data: schema.Figures = {
        "format": schema.FORMAT,
        "title": title,
        "settings": settings,
        "labels": [*document["labels"], *about, *unchecked],
        "agents": document["agents"],
        # Earlier versions named the policy by its key.
        "verdict": document["verdict"].replace(f"'{shown}'", name_agent(shown)),
        "trained": describe_training(
            choice.config,
            seeds["labels"][seeds["shown"]] if seeds else "",
            None if trained is None else trained["steps"],
        ),
        "in_sample": _in_sample(choice),
        "seeds": seeds,
        "sessions": svg.sessions(marked, records.dates[traded].astype(str).tolist()),
        "accounts": svg.accounts(marked),
        "floor": svg.floor(marked, _rules(settings)),
        "training": trained,
        "explorer": {
            "trades": len(trades),
            "bars": len(bars.row),
            "curve": svg.curve(marked),
            "zone": clock.zone,
            "notes": [],
        },
        "statistics": judged,
        "trials": trials,
        "provenance": document["provenance"],
        **sections,
        **own,
    }
    return ReportData(data, bars, clock, trades, marked, text if joint else "")


def _rules(settings: Mapping[str, Any]) -> str:
    """Describe the rules of the account; of one that holds several symbols, give their name."""
    rules = settings.get("rules")
    return rules_text(rules) if rules else f"those of {settings['account']}"


def _compare(folder: Path, strategy: Mapping[str, Any], found: Mapping[str, float]) -> None:
    """Compare the metrics of an evaluation with its records and trades.

    For folders without digests.
    """
    for name, value in found.items():
        if abs(strategy[name] - value) > 0.0005:
            raise DataError(
                f"{folder}: evaluation.json says {name} {strategy[name]}, {RECORDS} and trades.csv say "
                f"{value}; evaluate the run again: jaxtrade evaluate RUN"
            )


def _collect_statistics(
    choice: ReportChoice, document: Mapping[str, Any], meta: Mapping[str, Any]
) -> tuple[schema.Figures, schema.Figures | None]:
    """Collect the statistics of the daily net profit, and the current content of the trial log."""
    config = choice.config
    alike = not (config.sweep.on or config.evolve.on or config.shared.on)
    days = studies.read_days(choice, alike)
    history = studies.history_now(choice, meta.get("policy_sha256", str(choice.number)), days)
    why = (
        studies.TRAINED
        if trained_on(choice.split, document["labels"])
        else studies.CHOSEN
        if chosen_on(document["labels"])
        else None
    )
    return (
        studies.metric_lines(days, history, why),
        studies.trial_metrics(history, document.get("trials")),
    )


def _title(choice: ReportChoice, settings: Mapping[str, Any], shown: str) -> dict[str, Any]:
    return {
        "market": settings["market"],
        "split": choice.split,
        "agent": shown,
        "run": choice.run.resolve().name,
        "folder": schema.name_folder(choice.run),
        "symbol": choice.symbol or None,
        "number": choice.agent or None,
        "sessions": settings["sessions"],
        "first": settings["first_session"],
        "last": settings["last_session"],
    }


def _in_sample(choice: ReportChoice) -> dict[str, Any] | None:
    """Return settings and agents of the same policy on the training sessions.

    None if they were not evaluated, or if they are what the report shows.
    """
    path = choice.folder_of("train") / "evaluation.json"
    if choice.split == "train" or not path.is_file():
        return None
    document = read_json(path)
    return {"settings": document["settings"], "agents": document["agents"]}


def _seeds(choice: ReportChoice) -> schema.Figures | None:
    """Return the label and the net profit of every agent of the run, from its evaluation.

    None for a run of one agent.
    """
    from jaxtrade.training.population import Stack

    root = choice.run / "evaluation" / choice.split
    if not choice.agent:
        return None
    stack = Stack.of_run(choice.config)
    labels = {
        stack.folder(root, number).name: stack.label(number)
        for number in stack.numbers(choice.config.seed)
    }
    folders = (
        sorted(path.parent for path in root.glob("*/evaluation.json"))
        if not choice.symbol
        else sorted(path.parent for path in root.glob(f"*/{choice.symbol}/evaluation.json"))
    )
    nets = {}
    for folder in folders:
        agents = read_json(folder / "evaluation.json")["agents"]
        nets[folder.relative_to(root).parts[0]] = next(iter(agents.values()))["strategy"][
            "net_profit"
        ]
    return {"shown": choice.agent, "labels": labels, "net": nets}


def marked_of(bars: BarRecords, dates: np.ndarray, start: float, clock: PageClock) -> MarkedEquity:
    """Mark the shown agent's two passes at the decision bars, in dollars.

    start: dollars of a new account.
    """
    ends = np.array(["", *(reason.name.lower() for reason in EndReason if reason)])
    strategy, account = bars.strategy, bars.account
    floor = np.where(
        account["active"] & (account["floor"] != ABSENT), start + account["floor"] / 1000, np.nan
    )
    at = bars.decision + 1
    return MarkedEquity(
        at,
        bars.time[at] + clock.bar_seconds,
        dates[bars.session[bars.decision]].astype(str),
        start + strategy["equity"] / 1000,
        account["account"] + 1,
        start + account["equity"] / 1000,
        floor,
        ends[account["end"]],
        float(start),
        clock,
    )


def _text(path: Path) -> str:
    try:
        return digests.read_checked(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); evaluate the run again: jaxtrade evaluate RUN"
        ) from None


def _place_trades(
    path: Path, text: str, bars: BarRecords, shown: str, actions: Sequence[str]
) -> list[PlacedTrade]:
    """Place the trades on the bars. Raises DataError if they are others.

    text: of the `trades.csv`.
    """
    try:
        return place_trades(
            list(csv.DictReader(io.StringIO(text, newline=""))), bars, shown, actions
        )
    except ValueError as error:
        raise DataError(f"{path}: {error}; evaluate the run again: jaxtrade evaluate RUN") from None


def describe_training(config: RunConfig, agent: str, steps: int | None) -> str:
    """Say in one line how a policy was trained, and in which keys it differs from the defaults.

    Args:
        agent: its seed, of a sweep its number and setting; "" for the only one.
        steps: that were trained; None where the run does not say.
    """
    weights = ", ".join(f"{name} {weight:g}" for name, weight in config.reward.weights.items())
    said = [
        config.algorithm.upper(),
        f"reward preset {config.reward.preset}" + (f" (+ {weights})" if weights else ""),
        *([] if steps is None else [f"{steps:,} steps"]),
        agent or f"seed {config.seed}",
    ]
    own, default = (dict(flat(each.model_dump(mode="json"))) for each in (config, type(config)()))
    keys = [
        f"{key}={value}" if len(str(value)) <= LONGEST_VALUE else key
        for key, value in own.items()
        if value != default.get(key) and key not in SAID and not key.startswith("reward.")
    ]
    more = f" and {len(keys) - MOST_KEYS} more: config.yaml" if len(keys) > MOST_KEYS else ""
    differs = f"; differs from the defaults in: {', '.join(keys[:MOST_KEYS])}{more}" if keys else ""
    return f"Trained with: {', '.join(said)}{differs}"


def training(choice: ReportChoice) -> schema.Figures | None:
    """Collect the curves of `metrics.jsonl` in groups of updates, and the health of `summary.json`.

    None without metrics.
    """
    path, summary = choice.run / "metrics.jsonl", choice.run / "summary.json"
    if not path.is_file():
        return None
    digests.read_checked(path)
    rows = read_rows(path)
    if not rows:
        return None
    said = read_json(summary) if summary.is_file() else {}
    found = [curve(rows, name, label) for name, label in CURVES.items() if name in rows[-1]]
    steps = {row["update"]: row["steps"] for row in rows}
    scores = [
        (steps[at], float(score))
        for at, score in said.get("validation", {}).get("scores", ())
        if at in steps and score is not None
    ]
    if scores:
        found.append(
            {
                "name": "validation",
                "label": "Mean reward of a validation session",
                "x": [at for at, _ in scores],
                "y": [score for _, score in scores],
            }
        )
    return {
        "updates": int(rows[-1]["update"]),
        "steps": int(rows[-1]["steps"]),
        "curves": found,
        "health": [{"name": name, **each} for name, each in said.get("health", {}).items()],
        "warnings": [str(each) for each in said.get("warnings", ())],
    }


def curve(rows: Sequence[Mapping[str, Any]], name: str, label: str) -> schema.Figures:
    """Average a metric over groups of neighbouring updates.

    It is the mean of the known values of each group; None without any.
    """
    groups = np.array_split(np.arange(len(rows)), min(len(rows), CURVE_POINTS))
    values = [
        [float(rows[i][name]) for i in group.tolist() if _finite(rows[i].get(name))]
        for group in groups
    ]
    return {
        "name": name,
        "label": label,
        "x": [int(rows[group[-1]]["steps"]) for group in groups],
        "y": [float(f"{math.fsum(each) / len(each):.6g}") if each else None for each in values],
    }


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
