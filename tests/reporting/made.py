"""A run folder with made-up results, so that a report can be tested at any size without
training.
"""

import csv
import datetime
import json
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.config import load_config
from jaxtrade.env.state import EndReason, ExitReason
from jaxtrade.evaluation.frames import TRADE_COLUMNS
from jaxtrade.evaluation.records import (
    ABSENT,
    BarRecords,
    EvaluationRecords,
    write_records,
)
from jaxtrade.evaluation.run_days import evaluated_records
from jaxtrade.runs import rundir
from jaxtrade.storage.trials import SplitLook, append_look

OLD = Path(__file__).parents[1] / "fixtures" / "run_0_1_0"
ACTIONS = (
    "HOLD",
    "BUY",
    "SELL",
    "MOVE_STOP_TO_BREAKEVEN",
    "ENABLE_TRAIL",
    "DISABLE_TRAIL",
    "CLOSE",
)
ZONE, TICK, START = "America/New_York", 0.25, 50_000.0
DATA = "d" * 64
COST = 4_160  # mills of commission per trade
PER_TICK = 12_500  # mills
AGENTS = ("greedy", "sampled", "flat", "random", "buy_hold", "sma_cross")
ESTIMATE = {"value": 12.5, "low": -40.25, "high": 61.0}
SHARE = {"value": 0.62, "low": 0.31, "high": 0.87}


def sessions_of(count):
    """datetime64[D][count]: business days from 2013-10-01 on."""
    return np.busday_offset("2013-10-01", np.arange(count), roll="forward").astype("datetime64[D]")


def made_records(sessions, each, trades, seed=0):
    """Records of `sessions` sessions of `each` bars with `trades` trades in each, and the columns
    of the trades. The bars and the baselines are the same for each seed; the sides of the trades
    are not."""
    rng = np.random.default_rng(0)
    dates = sessions_of(sessions)
    count = sessions * each
    opened = np.array(
        [
            int(
                datetime.datetime.fromisoformat(f"{day}T09:30")
                .replace(tzinfo=ZoneInfo(ZONE))
                .timestamp()
            )
            for day in dates.astype(str)
        ]
    )
    close = 6_700 + np.cumsum(rng.integers(-3, 4, count))
    opens = np.append(close[:1], close[:-1]) + rng.integers(-1, 2, count)
    session = np.repeat(np.arange(sessions), each)
    decision = np.flatnonzero(session[1:] == session[:-1])
    high = np.maximum(opens, close) + rng.integers(0, 4, count)
    low = np.minimum(opens, close) - rng.integers(0, 4, count)
    slots = np.linspace(3, each - 12, trades).astype(int) if trades else np.zeros(0, int)
    entry = (np.arange(sessions)[:, None] * each + slots + 1).ravel()
    held = rng.integers(0, max(1, min(10, (each - 15) // max(1, trades))), len(entry))
    side = np.random.default_rng(seed).choice([-1, 1], len(entry))
    paid, got = opens[entry], close[entry + held]
    columns = {
        "session": session[entry],
        "side": side,
        "contracts": np.ones_like(side),
        "decision_row": 500 + entry - 1,
        "entry_row": 500 + entry,
        "entry_price": paid,
        "exit_row": 500 + entry + held,
        "exit_price": got,
        "reason": rng.choice([ExitReason.ORDER, ExitReason.STOP, ExitReason.TARGET], len(entry)),
        "ticks": side * (got - paid),
        "commission": np.full_like(side, COST),
        "slippage": np.zeros_like(side),
        "net": side * (got - paid) * PER_TICK - COST,
        "mae": np.abs(side) * 3,
        "mfe": np.abs(side) * 2,
    }
    columns = {name: np.asarray(values, np.int64) for name, values in columns.items()}
    strategy = _pass(decision, columns, entry, held, len(decision))
    time = np.repeat(opened, each) + 60 * np.tile(np.arange(each), sessions)
    bars = BarRecords(
        500 + np.arange(count),
        time,
        session,
        opens,
        high,
        low,
        close,
        decision,
        strategy,
        _account(strategy),
        {"greedy": columns}
        | {name: {key: values[:0] for key, values in columns.items()} for name in AGENTS[1:]},
    )
    net = (
        np.array([columns["net"][columns["session"] == day].sum() for day in range(sessions)])
        / 1000
    )
    others = np.random.default_rng(1).normal(-20, 100, (len(AGENTS), sessions)).round(3)
    daily = np.array(
        [
            net,
            net * 0.4,
            *(own * (name != "flat") for name, own in zip(AGENTS[2:], others, strict=False)),
        ]
    )
    return EvaluationRecords(AGENTS, "greedy", dates, daily, daily, {}, bars), columns


def _pass(decision, columns, entry, held, length):
    booked = np.zeros(int(decision[-1]) + 3, np.int64)
    np.add.at(booked, entry + held, columns["net"])
    equity = np.cumsum(booked)[decision + 1]
    stop, target = np.full(length, ABSENT), np.full(length, ABSENT)
    number = np.searchsorted(decision, entry - 1)
    for k, first in enumerate(number):
        side, paid = int(columns["side"][k]), int(columns["entry_price"][k])
        stop[first : first + held[k]] = paid - 20 * side
        target[first : first + held[k]] = paid + 40 * side
        stop[first + 3 : first + held[k]] = paid  # moved to break-even
    zeros = np.zeros(length, np.int64)
    mask = np.zeros((length, len(ACTIONS)), bool)
    mask[:, :3] = True
    return {
        "action": zeros,
        "legal": np.ones(length, bool),
        "quantity": np.where(stop == ABSENT, 0, 1),
        "stop": stop,
        "target": target,
        "equity": equity,
        "high_water": np.maximum.accumulate(np.maximum(equity, 0)),
        "floor": np.full(length, ABSENT),
        "account": zeros,
        "active": np.ones(length, bool),
        "end": zeros,
        "reached": np.zeros(length, bool),
        "mask": mask,
        **{f"event.{name}": zeros[:0] for name in ("bar", "kind", "quantity", "price", "reason")},
    }


def _account(strategy):
    """The same equity in two accounts: the first one ends in the middle."""
    length = len(strategy["equity"])
    half = length // 2
    number = (np.arange(length) >= half).astype(np.int64)
    equity = strategy["equity"] - np.where(number, strategy["equity"][half - 1], 0)
    end = np.zeros(length, np.int64)
    end[half - 1] = EndReason.BUST
    floor = np.where(number, -2_500_000, -2_000_000)
    return {**strategy, "equity": equity, "account": number, "end": end, "floor": floor}


def trade_lines(records, columns):
    """The lines of `trades.csv`."""
    bars, zone = records.bars, ZoneInfo(ZONE)
    assert bars is not None

    def at(row, after=0):
        return datetime.datetime.fromtimestamp(int(bars.time[row - 500]) + after, zone).isoformat()

    return [
        (
            str(records.dates[columns["session"][k]]),
            "long" if columns["side"][k] > 0 else "short",
            1,
            at(columns["decision_row"][k], 60),
            f"{bars.close[columns['decision_row'][k] - 500] * TICK:.2f}",
            at(columns["entry_row"][k]),
            f"{columns['entry_price'][k] * TICK:.2f}",
            at(columns["exit_row"][k]),
            f"{columns['exit_price'][k] * TICK:.2f}",
            ExitReason(columns["reason"][k]).name.lower(),
            columns["ticks"][k],
            f"{COST / 1000:.3f}",
            "0.000",
            f"{columns['net'][k] / 1000:.3f}",
            3,
            2,
        )
        for k in range(len(columns["side"]))
    ]


def settings_of(symbol, records):
    return {
        "market": symbol,
        "sessions": len(records.dates),
        "first_session": str(records.dates[0]),
        "last_session": str(records.dates[-1]),
        "decision_bars": len(records.bars.decision),  # type: ignore[union-attr]
        "coverage": 1.0,
        "task": "manage",
        "contracts_per_entry": 1,
        "intrabar": "stop_first",
        "fill": "next_open",
        "mark": "extreme",
        "two_sided": False,
        "commission_per_side": 2.08,
        "slippage_ticks": 0,
        "tick_value": 12.5,
        "currency": "USD",
        "start_balance": START,
        "account": "apex_like_50k_2025",
        "rules": {
            "drawdown": 2500,
            "daily_loss": None,
            "profit_target": 3000,
            "trailing": "intraday",
            "freeze": "at_target",
            "on_target": "terminate",
            "on_daily_loss": "lock_until_next_session",
            "min_days": 1,
        },
        "seed": 0,
        "config_sha256": "c" * 64,
        "data_sha256": DATA,
    }


def document_of(symbol, records, trades, labels=()):
    """`evaluation.json`."""

    def strategy(i):
        net = float(records.daily_net[i].sum())
        own = i == 0
        return {
            "net_profit": net,
            "return_pct": net / 500,
            "sharpe_daily": 0.8 if own else None,
            "max_drawdown": 321.0 + i,
            "best_session": float(records.daily_net[i].max()),
            "worst_session": float(records.daily_net[i].min()),
            "trades": trades if own else 0,
            "win_rate": 0.4 if own and trades else None,
            "profit_factor": 0.9 if own else None,
            "average_trade": net / trades if own and trades else None,
            "average_mae_ticks": None,
            "average_mfe_ticks": None,
            "turnover": 2.0,
            "exposure": 0.5,
            "commission": 4.16 * trades,
            "slippage": 0.0,
            "illegal_actions": 0,
        }

    account = {
        "accounts": 2,
        "passed": 0,
        "bust": 1,
        "failed_daily_loss": 0,
        "open_at_end": 1,
        "reached_target": 0,
        "breaches": 1,
        "trades": trades,
        "net_profit": -1.25,
        "best_session_share": None,
        "illegal_actions": 0,
        "idle_bars": 0,
    }
    return {
        "format": 1,
        "settings": settings_of(symbol, records),
        "labels": list(labels),
        "passes": {},
        "agents": {
            name: {"about": f"about {name}", "strategy": strategy(i), "account": account}
            for i, name in enumerate(records.agents)
        },
        "verdict": f"'greedy' on {symbol} made what it made.",
        "provenance": {"git": "abc123", "versions": {"jax": "0.10.2"}, "seed": 0, "split": "test"},
    }


NULLS = {
    "results": {
        "greedy": {
            "name": "greedy",
            "kind": "sign",
            "draws_asked": 19,
            "draws_made": 19,
            "exceedances": 3,
            "p": 0.2,
            "floor": 0.05,
            "real": 12.5,
            "nulls": [20.0 - 2.5 * i for i in range(19)],
        }
    }
}


def optional_sections():
    """Sections that other commands compute, with figures of all kinds."""
    grid = {
        "rows": {"1x": dict.fromkeys(AGENTS, -12.5), "2x": dict.fromkeys(AGENTS, 7.25)},
        "spread": dict.fromkeys(AGENTS, 19.75),
        "notes": ["1x is the run's own"],
    }
    cells = [
        {"name": "09:30", "count": 40, "mean": ESTIMATE, "total": 500.0, "p": 0.04},
        {
            "name": "10:00",
            "count": 3,
            "mean": {"value": None, "why": "fewer than 10 trades"},
            "total": -30.0,
            "p": None,
        },
    ]
    return {
        "challenge": {
            "rules": "drawdown $2,500",
            "days": 20,
            "horizon": 60,
            "accounts": 400,
            "point_accounts": 4_000,
            "resamples": 300,
            "agents": {
                name: {
                    "passed": SHARE,
                    "bust": SHARE,
                    "daily_loss": {"value": None, "why": "no daily loss ends the account"},
                    "time_out": {"value": None, "why": "no limit"},
                    "days_to_pass": 14.0,
                    "monte_carlo": 0.015,
                }
                for name in AGENTS[:3]
            },
        },
        "costs": grid,
        "intrabar": grid,
        "latency": grid,
        "breakdown": {
            "tables": [{"by": by, "cells": cells} for by in ("half hour", "weekday")],
            "notes": ["a note"],
        },
        "attribution": {
            "methods": [
                {
                    "name": "gradient",
                    "unit": "share",
                    "about": "How much it moves.",
                    "parts": [{"name": "rsi", "value": SHARE}],
                },
                {
                    "name": "ablation",
                    "unit": "dollars",
                    "about": "What it costs.",
                    "parts": [{"name": "rsi", "value": ESTIMATE}],
                },
            ],
            "notes": [],
        },
    }


def metrics_rows(updates):
    return [
        {
            "update": i,
            "total_updates": updates,
            "steps": 2048 * i,
            "episode_reward": None if i == 1 else 0.01 * i,
            "entropy": 1 / i,
            "approx_kl": 0.01,
            "explained_variance": -0.5 + i / updates,
            "learning_rate": 1e-3,
        }
        for i in range(1, updates + 1)
    ]


def made_run(
    path,
    *,
    sessions=3,
    each=60,
    trades=4,
    symbol="NQ",
    optional=False,
    labels=(),
    seeds=1,
    swept=False,
):
    """Write the folder of a run with an evaluation on its test sessions, by each of its seeds.

    swept: a setting for each instead of a seed.
    """
    rates = [10.0**-i for i in range(1, seeds + 1)]
    many = f'sweep.keys={{"ppo.learning_rate": {rates}}}' if swept else f"train.num_seeds={seeds}"
    config = load_config("quickstart", [many])
    manifest = json.loads((OLD / "manifest.json").read_text(encoding="utf-8"))
    rundir.create_run(
        path, config, manifest | {"config_sha256": config.digest(), "data_sha256": DATA}
    )
    for seed in range(seeds):
        folder = path / "evaluation" / "test"
        _evaluation(
            folder if seeds == 1 else folder / (f"agent_{seed:03d}" if swept else f"seed_{seed}"),
            seed,
            sessions,
            each,
            trades,
            symbol,
            optional,
            labels,
        )
    if optional:  # pooled over the seeds, so in the folder of the split
        (path / "evaluation" / "test" / "nulls.json").write_text(
            json.dumps(NULLS), encoding="utf-8"
        )
    (path / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in metrics_rows(50)), encoding="utf-8"
    )
    (path / "summary.json").write_text(
        json.dumps(
            {
                "health": {"approx_kl": {"passed": True, "value": 0.01}},
                "warnings": ["entropy is low"],
                "validation": {"scores": [[10, 0.5], [20, None], [40, -0.25]]},
            }
        ),
        encoding="utf-8",
    )
    return path


def _evaluation(
    folder,
    seed,
    sessions,
    each,
    trades,
    symbol,
    optional,
    labels,
):
    """The files of one policy's evaluation."""
    records, columns = made_records(sessions, each, trades, seed)
    document = document_of(symbol, records, len(columns["side"]), labels)
    records.meta.update(
        settings=document["settings"],
        split="test",
        seed=seed,
        agent=None,
        actions=ACTIONS,
        tick_size=str(TICK),
        decimals=2,
        bar_seconds=60,
        zone=ZONE,
        start_balance=START,
        labels=list(labels),
    )
    folder.mkdir(parents=True)
    write_records(folder / "records.npz", records)
    document["trials"] = {
        "opened": 1,
        "trials": 1,
        "fault": None,
        "counted": True,
        "log": "/a/place/trials.jsonl",
    }
    sections = {"evaluation": document, **(optional_sections() if optional else {})}
    for name, values in sections.items():
        (folder / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")
    with (folder / "trades.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([TRADE_COLUMNS, *trade_lines(records, columns)])


def logged(run, times=1, others=0):
    """Enter the evaluation of a made run in the trial log beside it, `times` times, and then that
    of `others` other policies, each with profits of its own. Returns the run."""
    records = evaluated_records(run)
    dates = next(iter(records.values())).dates.astype(str).tolist()
    config = rundir.read_run(run)[1]["config_sha256"]
    net = {
        name.removeprefix("seed ") or "0": tuple(each.daily_net[0].tolist())
        for name, each in records.items()
    }
    opening = SplitLook(
        "train",
        run.name,
        config,
        DATA,
        "test",
        dates[0],
        dates[-1],
        len(dates),
        "greedy",
        tuple(dates),
        net,
    )
    for _ in range(times):
        append_look(run.parent, opening)
    rng = np.random.default_rng(3)
    for number in range(others):
        append_look(
            run.parent,
            opening._replace(
                run=f"other{number}",
                config=f"{number:064d}",
                net={"0": tuple(rng.normal(0, 50, len(dates)).round(3).tolist())},
            ),
        )
    return run
