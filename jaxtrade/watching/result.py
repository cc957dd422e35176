"""What the page shows of a finished run: its held-out result, and the equity of its policy."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jaxtrade.formatting import name_agent
from jaxtrade.runs.inventory import HELD_OUT

POINTS = 2000  # of the equity, at most about so many


def find_evaluation(folder: Path) -> Path | None:
    """Return the `evaluation.json` of a run's held-out sessions; None if there is none.

    Of several policies it is that of the first.
    """
    for split in HELD_OUT:
        root = folder / "evaluation" / split
        found = [root / "evaluation.json", *sorted(root.glob("*/evaluation.json"), key=_number)]
        if first := next((each for each in found if each.is_file()), None):
            return first
    return None


def _number(path: Path) -> tuple[int, str]:
    """Return the number of the policy in a folder such as `seed_10`, and the folder's name."""
    name = path.parent.name
    number = name.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0, name


def stamp_result(folder: Path) -> int | None:
    """Return a number that changes whenever the run is evaluated again; None without a result."""
    path = find_evaluation(folder)
    return None if path is None else path.stat().st_mtime_ns // 1000


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the verdict, the figures of all agents, the equity of the policy, and symbol names.

    The symbols are those that have a report of their own. None without a result; a file that cannot
    be read is named in place of the verdict.
    """
    path = find_evaluation(folder)
    if path is None:
        return None
    try:
        return _read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fault = (
            f"{path.name} cannot be read ({type(error).__name__}: {error}); evaluate the run again"
        )
        return {"verdict": fault, "policy": "", "agents": [], "symbols": [], "equity": None}


def _read(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="utf-8"))
    agents = document["agents"]
    first = next(iter(agents))
    equity = path.parent / "equity.csv"
    return {
        # Earlier versions named the policy by its key.
        "verdict": document["verdict"].replace(f"'{first}'", name_agent(first)),
        "policy": path.parent.name if path.parent.name not in HELD_OUT else "",
        "agents": [
            {
                "name": name_agent(name),
                **{key: each["strategy"][key] for key in ("net_profit", "max_drawdown", "trades")},
                "account": each["account"]["net_profit"],
            }
            for name, each in agents.items()
        ],
        "symbols": list(document.get("symbols", ())),
        "equity": read_equity(equity, document["settings"]) if equity.is_file() else None,
    }


def read_equity(path: Path, settings: dict[str, Any]) -> dict[str, list[float]]:
    """Return the equity in dollars, account rules off, at some bars, with their local times.

    The times are as if they were seconds since 1970 in UTC.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    step = max(1, len(rows) // POINTS)
    chosen = rows[::step] + (rows[-1:] if (len(rows) - 1) % step else [])
    joint = "symbols" in settings  # its equity counts from the start balance
    before = settings["start_balance"] if joint else 0.0
    name = "equity" if joint else "strategy_equity"
    return {
        "time": [
            datetime.fromisoformat(row["time"]).replace(tzinfo=UTC).timestamp() for row in chosen
        ],
        "equity": [round(before + float(row[name]), 2) for row in chosen],
    }
