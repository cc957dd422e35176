"""Export the policy of a finished run: its file, its card, and the checks of both."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax

from jaxtrade.config import NetworkConfig, RunConfig
from jaxtrade.config.accounts import name_account
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.export import check_format, numpy_policy
from jaxtrade.export.checks import compare, replay
from jaxtrade.export.graph import CARD, require_known, weights_of, write
from jaxtrade.runs import rundir, stored_run
from jaxtrade.runs.evaluate import open_run
from jaxtrade.text import align, json_text, several
from jaxtrade.training.population import Stack
from jaxtrade.version import __version__

PAGE = "policy_card.md"
LEFT_OUT = (
    "random choices: it takes the best legal action",
    "the calculation of observations and masks: slots, units and warm-up are below",
    "the rules of the account, orders and fills",
)
LISTENS = "advice: the policy listens to an advisor, and acts here as without one (advice absent)"


def export_policy(
    run: Any,
    format: str = "npz",
    out: Path | str | None = None,
    *,
    seed: int | None = None,
    agent: int | None = None,
    symbol: str | None = None,
    data: Path | None = None,
    evaluation: bool = True,
) -> Path:
    """Export a run's policy, and return the folder of the export.

    Args:
        run: folder of a run, or a run that `jaxtrade.run` or `open_run` returned.
        format: `npz` (NumPy), `onnx` or `stablehlo` (JAX); the last two need `jaxtrade[export]`.
        out: folder of the export; default: RUN/export/FORMAT. An earlier export is replaced.
        seed: which policy, of a run with several.
        agent: the same, of a sweep.
        symbol: whose observation statistics are used, of a run with several.
        data: the run's own bars at another place.
        evaluation: False leaves out the check on trades, which needs the run's bars.

    Raises:
        ConfigError: the choice is not clear, a package is absent, or an export cannot carry
            the policy.
        DataError: the run's bars are gone.
        UnequalError: the export does not act as the policy; nothing is left of it.
    """
    check_format(format)
    stored = stored_run.open_run(getattr(run, "path", run))
    path, config = stored.path, stored.config
    number, stack = stored_run.chosen_number(config, seed, agent), Stack.of_run(config)
    try:
        setup = open_run(path, data, advisor=False)[0] if evaluation else None
    except DataError as error:
        leave_out = "or leave the check on trades out (--no-evaluation, evaluation=False)"
        raise DataError(f"{error}; {leave_out}") from None
    loaded = stored.policy_of(seed, agent)
    network = NetworkConfig.model_validate(loaded.schema["network"])  # an old run lacks keys
    loaded.schema["network"] = network.model_dump(mode="json")
    require_known(loaded)
    symbols, name = loaded.symbols, format
    if len(symbols) > 1:
        if symbol is None:
            raise ConfigError(
                "this run has several symbols, and an export is for one; give symbol (--symbol) "
                + " or ".join(symbols)
            )
        name = f"{format}-{symbol.upper()}"
    chosen = (symbol or symbols[0]).upper()
    card = card_of(format, path.resolve().name, config, loaded, chosen)
    loaded = loaded.for_symbol(chosen)
    folder = Path(out or stack.folder(path / "export" / name, number))
    if folder.exists() and not (folder / CARD).is_file():
        raise ConfigError(f"out (--out) {folder}: exists, and is no export; choose another folder")
    rundir.check_place(folder.parent, f"out (--out) {folder}")
    report = stored.evaluations.get(stack.folder(Path("test"), number).as_posix())
    card["training_days"] = setup and setup.dates("train").astype(str).tolist()
    card["evaluation"] = report and {key: report.document.get(key) for key in ("labels", "verdict")}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".jaxtrade-", dir=folder.parent) as temporary:
        new = Path(temporary) / "export"
        new.mkdir()
        act = write(new, weights_of(loaded), card)
        card["checks"] = {
            "evaluation": setup and replay(setup, loaded, number, chosen, act),
            "rows": compare(loaded, act),
        }
        (new / CARD).write_text(json_text(card), encoding="utf-8")
        (new / PAGE).write_text(markdown(card), encoding="utf-8")
        if format == "npz":
            shutil.copy(numpy_policy.__file__, new)
        shutil.rmtree(folder, ignore_errors=True)
        new.replace(folder)
    return folder


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
        f"- outputs: {rows['rows']:,} observations: largest difference {errors} (limit {rows['limit']:.1e}, "
        f"times the row's largest number where above 1)\n"
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


def describe(folder: Path) -> str:
    """Return what a command prints of an export."""
    checks = json.loads((folder / CARD).read_text(encoding="utf-8"))["checks"]
    return f"{describe_checks(checks)}\n{folder}: read {PAGE}"
