"""The policy card of an export: what the policy needs, where it comes from, what was checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import name_account
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.export.graph import Graph
from jaxtrade.storage import digests
from jaxtrade.text import align, several
from jaxtrade.version import __version__

FORMAT = 1
CARD, PAGE = "card.json", "policy_card.md"
LEFT_OUT = (
    "random choices: it takes the best legal action",
    "the calculation of observations and masks: slots, units and warm-up are below",
    "the rules of the account, orders and fills",
)
LISTENS = "advice: it acts as without an advisor (advice absent), though the policy listens to one"
SLOTS = "advice: its slots are part of the observation"
SAME_OR_NEWER = "runs in JAX {} or newer, not in an older one"


def card_of(
    kind: str, path: Path, config: RunConfig, loaded: LoadedPolicy, graph: Graph, symbol: str
) -> dict[str, Any]:
    """Return the content of `card.json`, but for the checks.

    path: the folder of the run.
    """
    schema = loaded.schema
    markets = {each["symbol"]: each for each in schema.get("markets") or [schema["market"]]}
    on = schema.get("advisor", {}).get("kind", "off") != "off"
    advice = [LISTENS] if loaded.listens else [SLOTS] if on else []
    return {
        "card_format": FORMAT,
        "format": kind,
        "run": path.resolve().name,
        "jaxtrade": __version__,
        "jax": jax.__version__,
        "runs_in": SAME_OR_NEWER.format(jax.__version__) if kind == "stablehlo" else None,
        "policy_sha256": policy_digest(loaded.policy),
        **{key: schema[key] for key in ("observation_sha256", "actions_sha256", "data_sha256")},
        "algorithm": schema.get("algorithm", "ppo"),
        "network": schema["network"] | schema.get("learner", {}),
        "memory": graph.memory,
        "episode_sessions": config.episode.sessions,
        "market": markets.get(symbol, schema.get("market")),
        "symbol": symbol,
        "trained_on": loaded.symbols,
        "account": name_account(config.account),
        "scaling": schema["observation"]["scaling"],
        "observation": schema["observation"]["slots"],
        "constant_in_training": schema["absent"],
        "actions": loaded.action_names,
        "not_carried": [*LEFT_OUT, *advice],
    }


def evaluations(folders: dict[str, Path]) -> dict[str, Any]:
    """Return labels and verdict of the evaluations that the run has, by split."""
    found = {split: folder / "evaluation.json" for split, folder in folders.items()}
    documents = {split: digests.read_json(file) for split, file in found.items() if file.is_file()}
    return {
        split: {name: document.get(name) for name in ("labels", "verdict")}
        for split, document in documents.items()
    }


def check_lines(checks: dict[str, Any]) -> Iterator[str]:
    """Say what the checks of an export found."""
    rows, trades = checks["rows"], checks["evaluation"]
    errors = ", ".join(f"{name} {x:.1e}" for name, x in rows["largest_difference"].items())
    yield (
        f"outputs: on {rows['rows']:,} observations, {rows['held_out_rows']:,} of them held out, the largest "
        f"difference is {errors} (limit {rows['limit']:g}, times the size of a logit or value above 1)"
    )
    yield (
        f"actions: equal wherever the two best logits differ by more than {rows['close_margin']:g} (times the "
        f"same); {several(rows['close_rows'], 'row')} closer, of which "
        f"{rows['close_rows_with_another_action']:,} with another action"
    )
    yield (
        "trades: NOT checked (--no-evaluation)"
        if trades is None
        else f"trades: {several(trades['trades'], 'trade')} on {several(trades['sessions'], 'session')} "
        f"({trades['split']}, {trades['bars']:,} bars), every number of both passes is the same"
    )


def checks_of(folder: Path) -> str:
    """Return what a command prints of an export."""
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    return "\n".join([*check_lines(card["checks"]), f"export: {folder} (read {PAGE})"])


def markdown(card: dict[str, Any]) -> str:
    """Write the card for a reader."""
    return "\n".join([f"# Policy of {card['run']}, as {card['format']}", "", *_lines(card)]) + "\n"


def _lines(card: dict[str, Any]) -> Iterator[str]:
    network, days = card["network"], card["training_days"]
    memory = f", memory {card['memory']}, zero at the start of an episode ({several(card['episode_sessions'], 'session')}, or a new account)"
    about = {
        "learner": card["algorithm"],
        "network": f"{network.get('kind', 'mlp')} {network['hidden']}, {network['activation']}"
        + (memory if card["memory"] else ""),
        "symbol": f"{card['symbol']} (trained on {', '.join(card['trained_on'])})",
        "trained": f"{days[0]} to {days[1]}, {several(days[2], 'session')}"
        if days
        else "not known",
        "account": card["account"],
        "made by": f"jaxtrade {card['jaxtrade']}, JAX {card['jax']}",
        **({"needs": card["runs_in"]} if card["runs_in"] else {}),
        **{name: card[name] for name in card if name.endswith("sha256")},
    }
    yield from (f"- {name}: {value}" for name, value in about.items())
    for split, found in card["evaluations"].items():
        yield from ("", f"## Evaluation ({split})", "", str(found["verdict"]))
        yield from (f"- {label}" for label in found["labels"] or ())
    yield from ("", "## Checks of this export", "")
    yield from (f"- {line}" for line in check_lines(card["checks"]))
    yield from ("", "## Not part of it", "", *(f"- {each}" for each in card["not_carried"]))
    yield from ("", "## Actions", "")
    yield from (f"- {number}: {name}" for number, name in enumerate(card["actions"]))
    absent = ", ".join(card["constant_in_training"])
    yield from ("", f"## Observation ({card['scaling']})", "")
    yield from [f"Constant in training: {absent}", ""] if absent else []
    table = [("slot", "name", "unit", "warm-up")] + [
        (str(number), slot["name"], slot["unit"], f"{slot['warm_up']} bars")
        for number, slot in enumerate(card["observation"])
    ]
    yield from (f"    {line}" for line in align(table, (1, 2)))
