"""The policy card of an export: what the policy needs, where it comes from, what was checked."""

from __future__ import annotations

from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import name_account
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.text import align, several
from jaxtrade.version import __version__

CARD, PAGE = "card.json", "policy_card.md"
LEFT_OUT = (
    "random choices: it takes the best legal action",
    "the calculation of observations and masks: slots, units and warm-up are below",
    "the rules of the account, orders and fills",
)
LISTENS = "advice: the policy listens to an advisor, and acts here as without one (advice absent)"


def card_of(kind: str, run: str, config: RunConfig, loaded: LoadedPolicy, symbol: str) -> Any:
    """Return the content of `card.json`, but for the checks and what the run's folder tells.

    kind: the format.
    """
    schema, network = loaded.schema, loaded.schema["network"]
    return {
        "card_format": 1,
        "format": kind,
        "run": run,
        "jaxtrade": __version__,
        "jax": f"{jax.__version__}{' or newer, not older' if kind == 'stablehlo' else ''}",
        "policy_sha256": policy_digest(loaded.policy),
        **{name: schema[name] for name in ("observation_sha256", "actions_sha256", "data_sha256")},
        "algorithm": config.algorithm,
        "network": network | schema.get("learner", {}),
        "memory": network["rnn_width"] if network["kind"] == "gru" else 0,
        "episode_sessions": config.episode.sessions,
        "symbol": symbol,
        "markets": schema.get("markets") or [schema["market"]],
        "account": name_account(config.account),
        "scaling": schema["observation"]["scaling"],
        "constant_in_training": schema["absent"],
        "not_carried": [*LEFT_OUT, *([LISTENS] if loaded.listens else [])],
        "actions": loaded.action_names,
        "observation": schema["observation"]["slots"],
    }


def describe_checks(checks: dict[str, Any]) -> str:
    """Say what the checks of an export found, as three lines."""
    rows, replay = checks["rows"], checks["evaluation"]
    errors = ", ".join(f"{name} {x:.1e}" for name, x in rows["largest_difference"].items())
    trades = "NOT checked (--no-evaluation)"
    if replay:
        trades = (
            f"{several(replay['trades'], 'trade')} on {several(replay['sessions'], 'session')} "
            f"({replay['split']}), {replay['bars']:,} bars: every number of both passes is the same"
        )
    return (
        f"- outputs: {rows['rows']:,} observations, {rows['held_out_rows']:,} of them held out: largest "
        f"difference {errors} (limit {rows['limit']:.1e}, times the row's largest number where above 1)\n"
        f"- actions: the same wherever the best two logits are more than {rows['close_margin']:g} apart "
        f"(times the same); {several(rows['close_rows'], 'row')} closer, "
        f"{rows['close_rows_with_another_action']:,} of them with another action\n- trades: {trades}"
    )


def markdown(card: dict[str, Any]) -> str:
    """Write the card for a reader."""

    def points(values: Any) -> str:
        return "\n".join(f"- {value}" for value in values)

    network, days, found = card["network"], card["training_days"], card["evaluation"]
    memory = (
        f", memory {card['memory']}: zero where an episode begins, which is at each new account and every "
        f"{several(card['episode_sessions'], 'session')}"
    )
    slots = [(str(i), *map(str, slot.values())) for i, slot in enumerate(card["observation"])]
    table = align([("slot", *card["observation"][0]), *slots], (1, 2))
    return f"""# Policy of {card["run"]}, as {card["format"]}

- learner: {card["algorithm"]}
- network: {network["kind"]} {network["hidden"]}, {network["activation"]}{memory if card["memory"] else ""}
- symbol: {card["symbol"]} (trained on {", ".join(each["symbol"] for each in card["markets"])})
- training days: {f"{days[0]} to {days[-1]}, {several(len(days), 'session')}" if days else "not known"}
- account: {card["account"]}
- jaxtrade {card["jaxtrade"]}, JAX {card["jax"]}
{points(f"{name}: {value}" for name, value in card.items() if name.endswith("sha256"))}

## Evaluation

{found["verdict"] if found else "none on the test sessions"}

{points(found["labels"] if found else [])}

## Checks of this export

{describe_checks(card["checks"])}

## Not part of it

{points(card["not_carried"])}

## Actions

{points(f"{i}: {name}" for i, name in enumerate(card["actions"]))}

## Observation ({card["scaling"]})

Constant in training: {", ".join(card["constant_in_training"]) or "none"}

    {chr(10).join(table).replace(chr(10), chr(10) + "    ")}
"""
