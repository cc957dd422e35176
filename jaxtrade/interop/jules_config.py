"""Read a configuration of IntradayJules: ours, and the fate of each of its keys.

It is the command `jaxtrade config import`.

Pure functions of plain values; imports no heavy library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.config import RunConfig, make_config
from jaxtrade.config.accounts import PRESETS
from jaxtrade.config.sb3 import PARAMETERS
from jaxtrade.config.sweep import flat
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.data.features.schema import table_columns
from jaxtrade.env.reward_presets import REWARDS
from jaxtrade.errors import ConfigError, ConfigFaultsError
from jaxtrade.text import did_you_mean

_FILE = Path(__file__).with_name("jules_keys.yaml")
KEYS: dict[str, Any] = parse_yaml(_FILE.read_text(encoding="utf-8"), _FILE.name)
ALGORITHMS, PLAIN = KEYS["algorithms"], KEYS["plain"]
DQN, PPO = "dqn", "ppo"
TAKEN, NONE, REFUSED = "taken as", "has no meaning here:", "not supported:"
PARAMS, VECTOR = "training.algo_params.", "training.vectorized_training."
TIMES = (
    "hour_sin",
    "hour_cos",
    "day_of_week_sin",
    "day_of_week_cos",
    "time_sin",
    "time_cos",
)  # always observed
_VWAP = re.compile(r"vwap_[0-9]+")
BALANCE = "environment.initial_balance"
# The environments of IntradayJules have no rules of a prop firm.
NO_RULES = {
    "account.drawdown": "off",
    "account.profit_target": "off",
    "account.freeze": "never",
    "account.min_days": 0,
}
# Numbered actions are target positions there: flat, long or short. Costs are shares of the traded
# value. The task `allocate` has both.
ACTIONS, COST = "environment.action_type", "environment.transaction_cost"
TARGETS = {"env.task": "allocate"}
MOST_PRODUCT = 5  # symbols, above which `allocate` has too many combinations of positions
ONE_BAR = "target positions (env.task=allocate) are chosen from twelve features of the decision bar"
BRACKETS = (
    "the task with stops and targets takes it (set env.task=manage, without the section allocate)"
)
SHARDS = 8  # the default of `rollout.num_shards`


class KeyFate(NamedTuple):
    """What became of one key.

    kind: TAKEN, NONE, REFUSED, or that it was not given.
    text: our keys, or why.
    """

    key: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.kind} {self.text}"


class ConvertedConfig(NamedTuple):
    """A converted configuration.

    values: dotted key of ours -> value, of all keys that are not defaults.
    fates: one for each key that was read, for a balance that was not given, and for what is
        held out.
    """

    values: dict[str, Any]
    fates: tuple[KeyFate, ...]

    def config(self, name: str = "imported") -> RunConfig:
        """Return the configuration. Raises ConfigFaultsError if its values do not fit together."""
        return make_config(nest_keys(self.values), name)


def nest_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into nested sections."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        node = result
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return result


def convert_config(
    values: Mapping[str, Any], name: str = "configuration", targets: bool = True
) -> ConvertedConfig:
    """Convert a configuration of IntradayJules to our values.

    values: nested, as read from YAML or given to `TrainerAgent`.
    name: the source, for messages.
    targets: whether numbered actions, or costs as a share of the traded value, are read as target
        positions (`allocate`).
    Raises ConfigFaultsError naming every unknown key, with a suggestion, and every value that
    cannot be used.
    """
    given = dict(flat(values))
    targets = targets and (given.get(ACTIONS) == "discrete" or COST in given)
    faults, found, fates = list[tuple[str, str]](), dict[str, Any](), list[KeyFate]()
    try:
        learner, own = _algorithm(given)
    except ConfigError as error:
        raise ConfigFaultsError([(name, str(error))]) from None
    found |= {"algorithm": learner, **own}
    first: dict[str, str] = dict.fromkeys(
        found, "algorithm"
    )  # our key -> the key of theirs that set it
    for key in given:
        try:
            outcome = _fate(key, given, learner, targets)
        except ConfigError as error:
            faults.append((name, str(error)))
            continue
        if isinstance(outcome, dict):
            faults += [(name, text) for text in _contradictions(key, outcome, found, first)]
            found |= outcome
            first |= dict.fromkeys(outcome, key)
            taken = ", ".join(f"{ours}={_format_value(value)}" for ours, value in outcome.items())
            outcome = TAKEN, taken + _remark(key, given[key], targets)
        fates.append(KeyFate(key, *outcome))
    if faults:
        raise ConfigFaultsError(faults)
    if "account.preset" not in found:
        found |= NO_RULES
        rules = ", ".join(f"{ours}={value}" for ours, value in NO_RULES.items())
        fates.append(
            KeyFate(
                BALANCE,
                "not given:",
                f"{rules} (the default account, without rules that end an episode)",
            )
        )
    protocol = "the default protocol chooses them, and scores the policy on the validation sessions"
    fates.append(KeyFate("held-out sessions", "not given:", f"{protocol} (docs/training.md)"))
    found |= choose_actions(found)
    return ConvertedConfig(found, tuple(fates))


def _contradictions(
    key: str, outcome: Mapping[str, Any], found: Mapping[str, Any], first: Mapping[str, str]
) -> Iterator[str]:
    """Yield one text for each key of ours that `key` sets otherwise than an earlier key of theirs."""
    for ours, value in outcome.items():
        if ours in found and found[ours] != value:
            yield (
                f"{first[ours]} and {key} both set {ours}: to {_format_value(found[ours])} and to "
                f"{_format_value(value)}; give one of the two"
            )


def _format_value(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def choose_actions(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of actions for target positions in more symbols than have a product."""
    many = len(values.get("data.markets") or ()) > MOST_PRODUCT
    return {"allocate.actions": "increment"} if many and TARGETS.items() <= values.items() else {}


def _algorithm(given: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    name = given.get("algorithm", given.get("training.algorithm", "DQN"))
    if "algorithm" in given and given.get("training.algorithm", name) != name:
        raise ConfigError(
            f"algorithm = {name} and training.algorithm = {given['training.algorithm']}: give one of the "
            "two"
        )
    known = {each.lower(): each for each in ALGORITHMS}
    if str(name).lower() in known:
        found = ALGORITHMS[known[str(name).lower()]]
        return found["learner"], found["keys"]
    if str(name).upper() in KEYS["not_here"]:
        raise ConfigError(
            f"algorithm = {name}: not supported; expected one of {', '.join(ALGORITHMS)}"
        )
    raise ConfigError(
        f"algorithm = {name!r}: no learner has this name{did_you_mean(str(name), ALGORITHMS)} (known: "
        f"{', '.join(ALGORITHMS)})"
    )


# Our values, or (NONE or REFUSED, why).
Outcome = dict[str, Any] | tuple[str, str]


def _fate(key: str, given: Mapping[str, Any], learner: str, targets: bool) -> Outcome:
    """Return what becomes of a key.

    Raises ConfigError for an unknown one, or a value that cannot be used.
    """
    value, name = given[key], key.removeprefix(PARAMS)
    if targets and key in OF_TARGETS:
        return OF_TARGETS[key](value)
    if key in PLAIN:
        return {PLAIN[key]: value}
    if key in MADE:
        return MADE[key](value)
    if key != name and name in PARAMETER_NAMES:
        return _parameter(name, value, given, learner)
    if key in ("algorithm", "training.algorithm"):
        return {"algorithm": learner, **_algorithm(given)[1]}
    untaken = [(NONE, *row) for row in KEYS["no_meaning"].items()]
    untaken += [(REFUSED, *row) for row in KEYS["unsupported"].items()]
    for kind, known, why in untaken:
        if key == known or (known.endswith(".*") and f"{key}.".startswith(known[:-1])):
            return kind, why
    names = [
        *("algorithm", "training.algorithm", *PLAIN, *MADE),
        *(f"{PARAMS}{each}" for each in PARAMETER_NAMES),
        *(known.removesuffix(".*") for _, known, _ in untaken),
    ]
    raise ConfigError(f"unknown key '{key}'{did_you_mean(key, names)}")


def number_of_envs(value: Any) -> dict[str, Any]:
    """Convert `n_envs` to keys of ours; None is auto. Raises ConfigError."""
    if value is None:
        return {"rollout.num_envs": "auto"}
    if type(value) is not int or value < 1:
        raise ConfigError(
            f"n_envs = {value!r}: expected a whole number of at least 1, or null for as many as train "
            "fastest"
        )
    if value < SHARDS or value % SHARDS == 0:
        return {"rollout.num_envs": value}
    return {"rollout.num_envs": value, "rollout.num_shards": math.gcd(value, SHARDS)}


def symbols(value: Any) -> dict[str, Any]:
    """Convert `symbols` to keys of ours. Raises ConfigError."""
    if (
        not isinstance(value, list | tuple)
        or not value
        or not all(isinstance(each, str) for each in value)
    ):
        raise ConfigError(
            f"symbols = {value!r}: expected a list of symbols, such as [EURUSD, GBPUSD]"
        )
    return {"data.markets": [each.upper() for each in value]}


def folder(value: Any) -> dict[str, Any]:
    """Convert `data_dir` to keys of ours: one file for each symbol, stamps of a bar's open in UTC.

    Raises ConfigError.
    """
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigError(
            f"data_dir = {value!r}: expected the folder that has a file of bars for each symbol"
        )
    return {
        "data.source": "file",
        "data.folder": str(value),
        "data.stamp": "open",
        "data.time_zone": "UTC",
    }


def _remark(key: str, value: Any, targets: bool) -> str:
    """Return a note on a key that is taken, if there is more to say than its value."""
    if key == ACTIONS:
        return " (target positions: flat, long or short)"
    if targets and key.endswith(".symbols"):
        return " (one account holds all of them)"
    if key.endswith("data_dir"):
        return " (one file per symbol; stamps are read as the open of a bar, in UTC: change them if they are not)"
    if not key.endswith("observation_feature_cols"):
        return ""
    times, vwaps = (
        [each for each in value if each in TIMES],
        [each for each in value if _VWAP.fullmatch(str(each))],
    )
    said = [f"{', '.join(times)}: every observation has the time of day"] if times else []
    said += [f"{', '.join(vwaps)}: vwap counts from the trade date's first bar"] if vwaps else []
    return f" ({'; '.join(said)})" if said else ""


def _features(value: Any) -> Outcome:
    if not isinstance(value, list | tuple) or not value:
        raise ConfigError(
            f"environment.observation_feature_cols = {value!r}: expected a list of features"
        )
    kept = [
        "vwap" if _VWAP.fullmatch(str(each)) else str(each) for each in value if each not in TIMES
    ]
    for each in kept:
        try:
            table_columns((each,))
        except ConfigError as error:
            raise ConfigError(f"environment.observation_feature_cols: {error}") from None
    return {"env.features": kept or ["close"]}


def _account(value: Any) -> Outcome:
    """Return an account of this start balance without rules. Raises ConfigError."""
    balances = {
        preset.start_balance: name
        for name, preset in reversed(PRESETS.items())
        if name.startswith("apex_like") and name.endswith("k_2025")
    }
    if value not in balances:
        raise ConfigError(
            f"environment.initial_balance = {value!r}: accounts begin with "
            f"{', '.join(f'{each:,.0f}' for each in sorted(balances))}; choose one of them"
        )
    return {"account.preset": balances[value], **NO_RULES}


def _reward(value: Any) -> Outcome:
    if value != "pnl":
        known = ", ".join(name for name in REWARDS if name.startswith("jules"))
        return REFUSED, f"{value!r}: choose another composition of terms (reward.preset: {known})"
    return {"reward.preset": "jules_net"}


def _action_type(value: Any) -> Outcome:
    if value != "discrete":
        raise ConfigError(
            f"environment.action_type = {value!r}: expected discrete; all tasks have numbered actions"
        )
    return NONE, "all tasks have numbered actions (env.task)"


def _threads(value: Any) -> Outcome:
    return (NONE, "compute.threads is auto") if value is None else {"compute.threads": value}


# key -> our values for its value
MADE: dict[str, Callable[[Any], Outcome]] = {
    f"{VECTOR}n_envs": number_of_envs,
    f"{VECTOR}symbols": symbols,
    f"{VECTOR}data_dir": folder,
    f"{VECTOR}monitor.enabled": lambda value: {"monitor.on": bool(value)},
    "environment.observation_feature_cols": _features,
    "environment.initial_balance": _account,
    "environment.reward_type": _reward,
    "environment.action_type": _action_type,
    "hardware.cpu.torch_threads": _threads,
}


def _cost(value: Any) -> Outcome:
    """Return a share of the traded value in basis points. Raises ConfigError."""
    points = None if type(value) not in (int, float) else round(10_000 * value, 2)
    if points is None or not 0 <= value <= 0.1 or abs(points - 10_000 * value) > 1e-9:
        raise ConfigError(
            f"{COST} = {value!r}: expected a share of the traded value from 0 to 0.1, in hundredths of a "
            "basis point (0.0005 is 5)"
        )
    return {**TARGETS, "allocate.cost_bp": points}


def _target_positions(value: Any) -> Outcome:
    _action_type(value)
    return dict(TARGETS)


def _untaken_features(value: Any) -> Outcome:
    _features(value)  # an unknown one is told all the same
    return REFUSED, f"{ONE_BAR}; {BRACKETS}"


# The same where numbered actions are target positions.
OF_TARGETS: dict[str, Callable[[Any], Outcome]] = {
    ACTIONS: _target_positions,
    COST: _cost,
    "environment.observation_feature_cols": _untaken_features,
    "environment.lookback_window": lambda value: (REFUSED, f"{ONE_BAR}; {BRACKETS}"),
}
PARAMETER_NAMES = {*KEYS["parameters"], *(name for names in PARAMETERS.values() for name in names)}


def _parameter(name: str, value: Any, given: Mapping[str, Any], learner: str) -> Outcome:
    """Return what becomes of a key of `training.algo_params`."""
    if (
        learner == DQN
        and name.startswith("prioritized_replay_")
        and not given.get(f"{PARAMS}prioritized_replay")
    ):
        return NONE, "prioritized_replay is off: all transitions are drawn alike"
    if name in PARAMETERS[learner]:
        return {f"{learner}.{PARAMETERS[learner][name]}": value}
    match name:
        case "learning_rate":
            return {f"{learner}.learning_rate": value, f"{learner}.learning_rate_end": value}
        case "seed":
            return {"seed": value}
        case "n_steps":
            return {"rollout.num_steps": value}
        case "policy":
            return {"network.kind": "gru" if "Lstm" in str(value) else "mlp"}
        case "policy_kwargs.net_arch":
            return {"network.hidden": value}
        case "train_freq" | "gradient_steps" if learner == DQN:
            return _replay_ratio(given)
        case "tau" if learner == DQN:
            if value == 1:
                return NONE, "the whole network is copied every dqn.target_every steps"
            return {"dqn.tau": value}
        case "prioritized_replay" if learner == DQN:
            return {"dqn.replay": "prioritised" if value else "uniform"}
        case "batch_size" if learner == PPO:
            return (
                REFUSED,
                "a minibatch has rollout.num_envs * rollout.num_steps / ppo.num_minibatches rows",
            )
    return REFUSED, f"{learner} has no such setting"


def _replay_ratio(given: Mapping[str, Any]) -> Outcome:
    """Compute the samples trained per environment step.

    SB3 takes `gradient_steps` steps of `batch_size` samples each time that every environment has
    taken `train_freq` steps; here the ratio does not fall with the number of environments.
    """
    frequency, steps, batch = (
        given.get(PARAMS + name, default)
        for name, default in (("train_freq", 4), ("gradient_steps", 1), ("batch_size", 32))
    )
    for name, value in (
        ("train_freq", frequency),
        ("gradient_steps", steps),
        ("batch_size", batch),
    ):
        if type(value) is not int or value < 1:
            raise ConfigError(f"{PARAMS}{name} = {value!r}: expected a whole number of at least 1")
    return {"dqn.replay_ratio": steps * batch / frequency}
