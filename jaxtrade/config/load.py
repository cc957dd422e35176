"""Typed configuration: YAML file, then `--set key=value`, into frozen models.

Every key is declared once, in this package. An unknown key is an error that names the nearest known
key. The models are hashable, so static sections can be arguments of jit. This module imports
neither JAX nor pandas, so configuration errors appear at once.

What follows from a configuration stands here too: the agents of a run, and all keys with their type,
range, default and description.
"""

from __future__ import annotations

import copy
import functools
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from jaxtrade.config.faults import (
    drop_faulty,
    explain_bars_file,
    explain_folder,
    explain_object,
    faults_of,
    flatten_settings,
    last_part,
    sections_of,
)
from jaxtrade.config.learners import SECTIONS, chosen_key, find_rising_rate
from jaxtrade.config.market import PLACES
from jaxtrade.config.run import RunConfig
from jaxtrade.config.sb3 import translate_sb3_name
from jaxtrade.config.sweep import SweepConfig, settings_of
from jaxtrade.config.yaml12 import dump_yaml, parse_yaml
from jaxtrade.errors import ConfigError, ConfigFaultsError
from jaxtrade.registry import import_parts
from jaxtrade.text import did_you_mean, pairs

ModelT = TypeVar("ModelT", bound=BaseModel)
Values = Mapping[str, Any]  # nested plain values: section -> key -> value
Changes = Iterable[str] | Values  # ["ppo.gamma=0.99"] or {"ppo.gamma": 0.99}
MAX_BYTES = 1_000_000  # largest size of a configuration file
BARS = (".csv", ".tsv", ".gz", ".zip", ".parquet")  # endings of files that are no text of keys
ALGORITHM, DEFAULT = "algorithm", RunConfig.model_fields["algorithm"].default
PATHS = {*PLACES, "calendar"}  # keys of `data` that may name a file
SET, KEYWORDS = "--set", "keywords"  # where a value came from, in messages, if it is no file


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"{path}: {path.stat().st_size:,} bytes; a configuration has at most {MAX_BYTES:,}; "
                f"if it is a file of bars, {explain_bars_file(path)}"
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _shipped_configs() -> Path:
    """Find the folder `configs/`, inside the installed package or at the top of a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def list_shipped(folder: str) -> list[Path]:
    """List the YAML files that the package ships in a folder of `configs/`, by name."""
    return sorted((_shipped_configs() / folder).glob("*.yaml"))


def config_path(name: str) -> Path:
    """Find the file of a configuration.

    name: a path, or the name of a shipped configuration such as `quickstart`.
    Raises ConfigError naming the places that were searched.
    """
    return find_file(name, ".", "configuration")


def find_file(name: str, folder: str, what: str) -> Path:
    """Find the path `name`, or else the shipped YAML file `name` in a folder of `configs/`.

    what: the kind of file, for messages.
    Raises ConfigError naming the places that were searched, or saying that the name is one of a
    file of bars.
    """
    given = Path(name)
    if given.is_file():
        if given.suffix.lower() in BARS:
            raise ConfigError(
                f"{given}: a file of bars, and a {what} is expected; {explain_bars_file(given)}"
            )
        return given
    packed = _shipped_configs() / folder / f"{given.stem}.yaml"
    if given.parent == Path(".") and given.suffix in ("", ".yaml") and packed.is_file():
        return packed
    if given.is_dir():
        raise ConfigError(f"{given}: a folder, and a {what} is expected{explain_folder(given)}")
    known = [path.stem for path in list_shipped(folder)]
    raise ConfigError(
        f"{what} '{name}': no such file, and no shipped {what} of that name "
        f"(shipped: {', '.join(known)}){did_you_mean(name, known)}"
    )


def _merge(base: dict[str, Any], key: str, value: Any, origin: str) -> None:
    parts = key.split(".")
    node = base
    for part in parts[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{origin}: '{key}': '{part}' is a value, not a section")
        node = child
    node[parts[-1]] = value


def origins_of(overrides: Iterable[str]) -> dict[str, str]:
    """Return the `origins` of overrides `a.b=value`: their keys, all of `--set`."""
    return {override.partition("=")[0].strip(): SET for override in overrides}


def validate(
    model: type[ModelT],
    values: Values,
    name: str,
    origins: Mapping[str, str] | None = None,
) -> ModelT:
    """Validate nested `values` as a model.

    name: the source, for messages.
    origins: dotted key -> where its value came from, if it is not of that source.
    Raises ConfigFaultsError with every fault.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        algorithm = values.get(ALGORITHM, DEFAULT) if ALGORITHM in model.model_fields else None
        faults = faults_of(error, model, algorithm)
        raise ConfigFaultsError(
            [(_origin(key, name, origins), text) for key, text in faults],
            drop_faulty(values, error),
        ) from None


def _origin(key: str, name: str, origins: Mapping[str, str] | None) -> str:
    """Say where a key's value came from."""
    return next(
        (of for own, of in (origins or {}).items() if f"{key}.".startswith(f"{own}.")), name
    )


def make_config(
    values: Values,
    name: str = "configuration",
    origins: Mapping[str, str] | None = None,
    stored: bool = False,
) -> RunConfig:
    """Validate nested `values` (section -> key -> value) as the configuration of a run.

    The modules in `imports` are loaded first, so that they can register their parts.

    origins: as in `validate`.
    stored: whether a run has it already, so that the bounds of new ones (below) do not apply.
    Raises ConfigFaultsError with every fault.
    """
    if "phases" in values and not any(key.partition(".")[0] == "phases" for key in origins or ()):
        raise ConfigError(
            f"{name}: has 'phases', so it is a curriculum: jaxtrade curriculum {shlex.quote(name)}"
        )
    import_parts(module_names(values))
    config = validate(RunConfig, values, name, origins)
    changed = [key for key, of in (origins or {}).items() if of in (SET, KEYWORDS)]
    found = () if stored else [*find_out_of_bounds(config), *find_rising_rate(config, changed)]
    if faults := [(_origin(key, name, origins), text) for key, text in found]:
        raise ConfigFaultsError(faults, values)
    return config


def module_names(values: Values) -> tuple[str, ...]:
    """List the modules in `imports` of a configuration's values.

    None are listed if the value is wrong, which validation reports.
    """
    modules = values.get("imports", ())
    if isinstance(modules, str):
        return tuple(module.strip() for module in modules.split(","))
    listed = isinstance(modules, list | tuple) and all(
        isinstance(module, str) for module in modules
    )
    return tuple(modules) if listed else ()


def name_config(path: Path) -> str:
    """Name a configuration's file for messages.

    A shipped one is `quickstart`, another is its path.
    """
    return path.stem if path.is_relative_to(_shipped_configs()) else str(path)


def read_values(path: Path, exact: bool = False) -> dict[str, Any]:
    """Read the keys of a YAML file.

    exact: as in `parse_yaml`.
    Raises ConfigError if it cannot be read or is empty.
    """
    loaded = parse_yaml(_read(path), name_config(path), exact)
    if loaded in (None, {}):
        raise ConfigError(
            f"{name_config(path)}: is empty; expected sections of 'key: value', such as 'seed: 0' (for the "
            "defaults alone, name no file)"
        )
    if not isinstance(loaded, dict):
        raise ConfigError(
            f"{name_config(path)}: expected sections of 'key: value', found {type(loaded).__name__}; if it is "
            f"a file of bars, {explain_bars_file(path)}"
        )
    return loaded


def load_config(name: str | Path | None = None, set: Changes = (), **settings: Any) -> RunConfig:
    """Read a YAML configuration and change keys of it: first `set`, in order, then the keywords.

        load_config("quickstart", total_timesteps=50_000, network={"kind": "gru"})

    Args:
        name: a file, the name of a shipped configuration, or None for the defaults.
        set: strings `section.key=value`, whose values are read as YAML, or a mapping from dotted
            keys to values.
        settings: keys by name: one that only one section has (`gamma=0.99`), a section with a
            mapping of its keys (`network={"kind": "gru"}`), or a section's preset
            (`account="apex_like_50k_2025"`).

    Raises:
        ConfigError: unknown key (with a suggestion), a key that several sections have, wrong type
            or range, duplicate key, no such file, an empty file.
    """
    if name is None:
        return _apply_changes({}, "defaults", set, settings)
    if not isinstance(name, str | os.PathLike):
        raise ConfigError(explain_object(name))
    path = config_path(str(name))
    return _apply_changes(locate(read_values(path), path.parent), name_config(path), set, settings)


def locate(values: Values, folder: Path, inside: bool = False) -> dict[str, Any]:
    """Return the nested values of a configuration in `folder`.

    In its sections `data`, a relative path of a file that lies there leads there; any other stays,
    and is seen from the working directory. inside: whether the values are of such a section.
    """
    found = dict(values)
    for key, value in values.items():
        if isinstance(value, Mapping):
            found[key] = locate(value, folder, inside or key == "data")
        elif inside and key in PATHS and isinstance(value, str) and folder != Path():
            place = folder / value
            found[key] = (
                str(place) if place.is_file() or (key == "folder" and place.is_dir()) else value
            )
    return found


def changed_config(
    config: RunConfig, set: Changes = (), stored: bool = False, **settings: Any
) -> RunConfig:
    """Return `config` with keys changed, as in `load_config`.

    stored: as in `make_config`.
    Raises ConfigError.
    """
    return _apply_changes(config.model_dump(mode="json"), "configuration", set, settings, stored)


def _apply_changes(
    values: Values,
    origin: str,
    changes: Changes,
    settings: Values,
    stored: bool = False,
) -> RunConfig:
    if isinstance(changes, str):
        raise ConfigError(f"set={changes!r}: give a list, set=[{changes!r}], or a dict")
    if isinstance(changes, Mapping):
        merged, origins = copy.deepcopy(dict(values)), dict.fromkeys(changes, "set")
        algorithm = changes.get(ALGORITHM, merged.get(ALGORITHM, DEFAULT))
        for key, value in changes.items():
            _merge(merged, chosen_key(key, algorithm), value, f"set={{'{key}': ...}}")
    else:
        changes = list(changes)
        merged, origins = apply_overrides(values, changes), origins_of(changes)
    algorithm = settings.get(ALGORITHM, merged.get(ALGORITHM, DEFAULT))
    try:
        plain = flatten_settings(settings, RunConfig, algorithm)
    except ConfigError as error:
        others = _unknown_keys(merged, origin, origins)
        raise ConfigError("\n".join([str(error), *others])) from None
    for key, value in plain.items():
        _merge(merged, key, value, f"{key}=...")
        origins[key] = KEYWORDS
    return make_config(merged, origin, origins, stored)


def _unknown_keys(values: Values, name: str, origins: Mapping[str, str]) -> list[str]:
    """List the lines about unknown keys in nested values."""
    try:
        validate(RunConfig, values, name, origins)
    except ConfigFaultsError as error:
        return [line for line in str(error).splitlines() if "unknown key" in line]
    return []


def apply_overrides(values: Values, overrides: Iterable[str]) -> dict[str, Any]:
    """Apply overrides `a.b=value` to nested `values`.

    Each value is read as YAML. `learner.KEY` is the key of the learner that is chosen in the end.
    Raises ConfigError, with every override that cannot be read.
    """
    merged, faults = copy.deepcopy(dict(values)), list[tuple[str, str]]()
    overrides = list(overrides)
    algorithm = _algorithm(merged, overrides)
    for override in overrides:
        key, sign, text = override.partition("=")
        try:
            if not sign or not key.strip():
                raise ConfigError(f"{SET} {override}: expected {SET} section.key=value")
            _merge(
                merged,
                chosen_key(key.strip(), algorithm),
                parse_yaml(text, f"{SET} {override}"),
                f"{SET} {override}",
            )
        except ConfigError as error:
            faults.append(("", str(error)))
    if faults:
        raise ConfigFaultsError(faults)
    return merged


def _algorithm(values: Values, overrides: Iterable[str]) -> Any:
    """Return the learner that is chosen once the overrides are applied.

    One that cannot be read counts as absent.
    """
    chosen = values.get(ALGORITHM, DEFAULT)
    for key, _, text in (each.partition("=") for each in overrides):
        if key.strip() == ALGORITHM:
            try:
                chosen = parse_yaml(text, key)
            except ConfigError:
                continue  # `apply_overrides` reports it
    return chosen


def dump_config(config: RunConfig) -> str:
    """Write the resolved configuration as YAML, with every key (of `env.guards` where one is on)."""
    return dump_yaml(config.model_dump(mode="json"))


# --- Upper bounds of the numbers of a new configuration that no rule of its section bounds.
#
# A value beyond them is a slip (`1e9` epochs, a learning rate of `1e30`): nobody has a use for it,
# and it would end in days of computing or in NaN. Folders of earlier runs may hold such values and
# still open.


def _largest(text: str) -> dict[str, float]:
    """Map each key to the number with a colon that stands before it."""
    found, most = {}, 0
    for word in text.split():
        if word.endswith(":"):
            most = parse_yaml(word[:-1], "bound")
        else:
            found[word] = most
    return found


# Key -> the largest value. A list or mapping of numbers: of each of them; a number below zero: of
# its size. Of environments and widths far more than fits: `runs.memory` refuses less, and says what
# would fit.
MOST = _largest(
    """
    1: data.synthetic_pull ppo.adapter_freeze control.plateau_lr_min ppo.learning_rate
        ppo.learning_rate_end dqn.learning_rate dqn.learning_rate_end pqn.learning_rate
        pqn.learning_rate_end
    10: ppo.clip_eps ppo.ent_coef ppo.ent_coef_end ppo.target_kl control.plateau_ent_max
    100: ppo.vf_coef evolve.perturb
    1_000: actor.rho_clip actor.c_clip dqn.replay_ratio advisor.abstain advisor.cap
        advisor.gate_cost advisor.veto control.plateau_ent_factor ppo.num_epochs pqn.num_epochs
    10_000: data.synthetic_drift brackets.stop_atr brackets.trail_atr evaluation.policy_samples
    16_384: network.rnn_width network.adapter
    65_536: rollout.num_shards
    86_400: advisor.evaluation_wait_s advisor.service.deadline_s advisor.service.grace_s
        advisor.service.retry_base_s advisor.service.retry_cap_s advisor.service.failed_for_s
        advisor.service.breaker_open_s advisor.service.breaker_longest_s
    1e5: split.validation_sessions split.test_sessions split.embargo_sessions allocate.size
        allocate.max_total advisor.max_age walk.embargo walk.train walk.test evaluation.sma_fast
        evaluation.sma_slow
    1e6: costs.commission reward.weights rollout.num_steps ppo.max_grad_norm dqn.max_grad_norm
        pqn.max_grad_norm ppo.vf_clip_eps train.chunk_updates train.checkpoint_every
        train.keep_checkpoints advisor.prior advisor.service.queue_size
        advisor.service.ttl_chunks advisor.service.ready_rows advisor.service.poison_after
        advisor.service.breaker_failures advisor.service.unusable_pause_after
        advisor.service.price_prompt advisor.service.price_completion
        advisor.service.completion_tokens advisor.service.overhead_tokens control.evaluate_every
        control.patience control.min_evaluations control.plateau_patience
        control.plateau_cooldown evolve.every
    1_048_576: ppo.num_minibatches pqn.num_minibatches dqn.batch_size
    1e7: advisor.memory
    16_777_216: network.hidden
    31_622_400: control.wall_clock
    1e9: data.price_scale account.drawdown account.daily_loss account.profit_target
        dqn.target_every control.improvement
    1e12: advisor.service.requests_per_minute advisor.service.tokens_per_minute
        advisor.service.max_calls advisor.service.max_tokens advisor.service.max_cost
    1_099_511_627_776: rollout.num_envs ppo.gradient_rows
    9223372036854775807: data.synthetic_seed advisor.service.seed
    """
)
SEEDS = "keep one (for more seeds of each setting: sweep.seeds)"


def find_out_of_bounds(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) of every number above its bound and of doubled values of a sweep."""
    for key, most in MOST.items():
        value: Any = config
        for name in key.split("."):
            value = getattr(value, name, None)
        for number in (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, tuple)
            else (value,)
        ):
            if isinstance(number, int | float) and not abs(number) <= most:
                yield key, f"'{key}' = {number!r}: expected at most {most:g}"
    for symbol, own in config.data.per_market.items():
        for name, value in own.items():
            if isinstance(value, int | float) and not abs(value) <= MOST.get(
                f"data.{name}", math.inf
            ):
                key = f"data.per_market.{symbol}.{name}"
                yield key, f"'{key}' = {value!r}: expected at most {MOST[f'data.{name}']:g}"
    for key, values in config.sweep.keys.items():
        if twins := [value for i, value in enumerate(values) if value in values[:i]]:
            yield (
                f"sweep.keys.{key}",
                f"sweep.keys: {key} has the value {twins[0]!r} twice; {SEEDS}",
            )
    settings = config.sweep.settings
    if any(each in settings[:i] for i, each in enumerate(settings)):
        yield "sweep.settings", f"sweep.settings: a setting is there twice; {SEEDS}"


# The agents of a run: the seed and the settings of each. Imports no heavy library.


class SweepAgent(NamedTuple):
    """One agent of a run.

    index: its place in the run.
    setting: the number of its setting.
    overrides: key -> value.
    """

    index: int
    seed: int
    setting: int
    overrides: Values

    @property
    def chosen(self) -> str:
        """What its setting has of its own, for people: "ppo.learning_rate=0.001"."""
        return ", ".join(f"{key}={setting_text(value)}" for key, value in self.overrides.items())

    @property
    def text(self) -> str:
        """What the agent has of its own, for people: "ppo.learning_rate=0.001, seed 3"."""
        return ", ".join([*filter(None, [self.chosen]), f"seed {self.seed}"])


def setting_text(value: Any) -> str:
    """Format a value of a setting for a table or a message."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def agents_of(config: RunConfig) -> tuple[SweepAgent, ...]:
    """List the agents of a run in the order of their indices.

    All seeds of the first setting come first, then those of the second, ... Agent i of a sweep has
    the seed `config.seed + i mod sweep.seeds`, so settings are compared with the same random
    numbers. Without a sweep agent i has the seed `config.seed + i`.
    """
    seeds = config.sweep.seeds if config.sweep.on else config.train.num_seeds
    settings = settings_of(config.sweep, config.seed)
    return tuple(
        SweepAgent(number * seeds + i, config.seed + i, number, setting)
        for number, setting in enumerate(settings)
        for i in range(seeds)
    )


def config_of(config: RunConfig, agent: SweepAgent) -> RunConfig:
    """Return the configuration of an agent alone.

    Raises ConfigError for a key or a value that does not exist.
    """
    alone = config.replace(seed=agent.seed, sweep=SweepConfig(), train={"num_seeds": 1})
    if not agent.overrides:
        return alone
    try:
        return changed_config(alone, agent.overrides)
    except ConfigError as error:
        raise ConfigError(
            f"sweep, setting {agent.setting} ({agent.text}): {str(error).removeprefix('set: ')}"
        ) from None


# Every configuration key with its type, range, default and description, read from the models that
# declare it.

_WORDS = pairs(
    """
    integer  whole number
    number  number
    string  text
    boolean  true or false
    null  null
    """
)
_LIMITS = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
    ("multipleOf", "a multiple of"),
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
# pydantic knows no type of these.
_SHAPES = pairs(
    """
    data.roll  off, volume, or a mapping expiry: first trade date
    data.splits  list of {date: YYYY-MM-DD, ratio: NEW:OLD}
    sweep.keys  mapping of key to list of values, or ranges such as log:1e-4..1e-2
    sweep.settings  list of {key: value}
    evolve.keys  mapping of key to [low, high]
    data.per_market  mapping of symbol to keys of the section data
    """
)


class ConfigKey(NamedTuple):
    """One key.

    kind: its type and range in words.
    default: the value, as plain data.
    choices: the only values that it may have; empty if there are others.
    """

    name: str
    kind: str
    default: Any
    description: str
    choices: tuple[Any, ...]

    @property
    def section(self) -> str:
        """The section of the key, "" for a key of the top level."""
        return self.name.rpartition(".")[0]


@functools.cache
def all_keys() -> dict[str, ConfigKey]:
    """Return every key by its dotted name, in the order in which the models declare them."""
    defaults = RunConfig().model_dump(mode="json")
    schema = RunConfig.model_json_schema()
    return {
        name: ConfigKey(
            name,
            _SHAPES.get(name) or _kind(part, schema),
            value,
            part.get("description", ""),
            _choices(part),
        )
        for name, part, value in _leaves(schema, schema, defaults)
    }


def keys_named(name: str) -> list[str]:
    """List the keys whose last part is a name, or that stand for it in Stable-Baselines3."""
    same = [key for key in all_keys() if last_part(key) == name]
    theirs = [translate_sb3_name(name, learner) for learner in SECTIONS]
    return list(dict.fromkeys([*same, *filter(None, theirs)]))


@functools.cache
def sections() -> dict[str, str]:
    """Return every section by its dotted name, with the first paragraph of its class docstring."""

    def walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
        for name, section in sections_of(model).items():
            first = (section.__doc__ or "").strip().partition("\n\n")[0]
            yield prefix + name, " ".join(first.split())
            yield from walk(section, f"{prefix}{name}.")

    return dict(walk(RunConfig, ""))


def format_yaml(value: Any) -> str:
    """Format a plain value as YAML on one line, as it may stand in a file or after `--set KEY=`."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and parse_yaml(value, "value") == value:
        return value  # PyYAML would quote words such as off, which YAML 1.2 reads as text
    return dump_yaml([value], flow=True).strip()[1:-1]


def lookup(values: Values, name: str) -> tuple[bool, Any]:
    """Look up a dotted key in nested `values` -> (whether they hold it, its value or None)."""
    node: Any = values
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False, None
        node = node[part]
    return True, node


def _leaves(
    part: Values,
    schema: Values,
    defaults: Values,
    prefix: str = "",
) -> Iterator[tuple[str, Values, Any]]:
    """Yield (dotted key, its JSON schema, its default) of every key below a section's schema."""
    for name, child in part["properties"].items():
        inner = _inner(child, schema)
        if "properties" in inner:
            # A section that is left out while it is off has its defaults in the schema.
            usual = defaults.get(name, child.get("default"))
            yield from _leaves(inner, schema, usual, f"{prefix}{name}.")
        else:
            yield prefix + name, inner, defaults[name]


def _inner(part: Values, schema: Values) -> Values:
    """Return the schema itself, or the definition that it refers to."""
    reference = part.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else part


def _choices(part: Values) -> tuple[Any, ...]:
    """Return the values of an enumeration; nothing for other types.

    null is among them where it is allowed.
    """
    if "enum" in part:
        return tuple(part["enum"])
    if "const" in part:
        return (part["const"],)
    if part.get("type") == "boolean":
        return (False, True)
    if part.get("type") == "null":
        return (None,)
    members = [_choices(member) for member in part.get("anyOf", ())]
    return (
        tuple(value for member in members for value in member) if members and all(members) else ()
    )


def _kind(part: Values, schema: Values) -> str:
    """Describe a JSON schema in words."""
    part = _inner(part, schema)
    if part.get("type") != "boolean" and (choices := _choices(part)):
        return " | ".join(format_yaml(value) for value in choices)
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_kind(member, schema) for member in part["anyOf"]))
    if part.get("type") == "array":
        return f"list, each item: {_kind(part.get('items', {}), schema)}"
    if "properties" in part:
        return f"text, or keys {', '.join(part['properties'])}"
    if part.get("type") == "object":
        return f"mapping of text to {_kind(part.get('additionalProperties', {}), schema)}"
    limits = [f"{words} {part[name]:,}" for name, words in _LIMITS if name in part]
    return ", ".join([_WORDS.get(part.get("type", ""), "any value"), *limits])
