"""The tables of docs/accelerators.md, from committed results: `python -m bench.compiled_table`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import catalogue

NOW, BEFORE, Q_LEARNERS = "accelerator.json", "accelerator_20cc2a7.json", "q_learners.json"
COLUMNS = {
    "launches": "launches",
    "rollout step": "rollout_step",
    "after the rollout, per step": "after_rollout_per_step",
    "minibatch": "minibatch",
    "step": "step",
    "loops over rows": "row_loops",
}
Q_COLUMNS = {
    "launches": "launches",
    "rollout step": "rollout_step",
    "gradient step": "gradient_step",
    "loops over rows": "row_loops",
    "replay, bytes": "replay_bytes",
    "temporaries, bytes": "temporaries",
}


def read(name: str) -> dict[str, Any]:
    """One of the committed results, from the working directory."""
    return json.loads((catalogue.COMPILED / name).read_text(encoding="utf-8"))


def lines() -> Iterator[str]:
    """Markdown: one row for each device and program; before -> now where the earlier version was
    compiled too.
    """
    now, before = read(NOW)["targets"], read(BEFORE)["targets"]
    yield "| device | program | " + " | ".join(COLUMNS) + " | estimate, steps/s |"
    yield "|---|---|" + "---|" * (len(COLUMNS) + 1)
    for device, shapes in now.items():
        for shape, found in shapes.items():
            old = before.get(device, {}).get(shape, {})
            if "unread" in found:
                cells = ["not readable", *[""] * len(COLUMNS)]
            else:
                cells = [_cell(old.get(key), found.get(key)) for key in COLUMNS.values()]
                cells.append(
                    _cell(
                        *(each.get("estimate", {}).get("steps_per_second") for each in (old, found))
                    )
                )
            yield f"| {device} | {shape} | " + " | ".join(cells) + " |"


def q_lines() -> Iterator[str]:
    """Markdown: one row for each device and program of a Q-learner."""
    yield "| device | program | " + " | ".join(Q_COLUMNS) + " | estimate, steps/s |"
    yield "|---|---|" + "---|" * (len(Q_COLUMNS) + 1)
    for device, shapes in read(Q_LEARNERS)["targets"].items():
        for shape, found in shapes.items():
            if "unread" in found:
                cells = ["not readable", *[""] * len(Q_COLUMNS)]
            else:
                cells = [f"{found[key]:,}" for key in Q_COLUMNS.values()]
                cells.append(f"{found['estimate']['steps_per_second']:,}")
            yield f"| {device} | {shape} | " + " | ".join(cells) + " |"


def _cell(old: float | None, new: float | None) -> str:
    if new is None:
        return ""
    return f"{new:,}" if old is None else f"{old:,} -> {new:,}"


if __name__ == "__main__":
    print("\n".join([*lines(), "", *q_lines()]))
