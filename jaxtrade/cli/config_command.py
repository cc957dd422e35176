"""`jaxtrade config show`, `explain`, `keys` and `import`. Imports no heavy library."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtrade.cli.flags import COMMON, KEY_FLAGS, SEED, columns, table
from jaxtrade.cli.shared import (
    ABSENT,
    ADVISOR,
    DATA,
    PATHS,
    TRUST,
    flag_overrides,
    refuse,
    resolve,
    say,
    with_absent,
)
from jaxtrade.config import RunConfig, apply_overrides, config_path, name_config, read_values
from jaxtrade.config.faults import explain_unknown, is_run, last_part
from jaxtrade.config.learners import SECTIONS
from jaxtrade.config.load import (
    ALGORITHM,
    ConfigKey,
    all_keys,
    format_yaml,
    keys_named,
    list_shipped,
    lookup,
    sections,
)
from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError, StorageError
from jaxtrade.interop.jules_config import convert_config, nest_keys
from jaxtrade.registry import import_parts
from jaxtrade.runs.rundir import read_run
from jaxtrade.text import align, did_you_mean, pairs

DEFAULT, FILE, SET, RUN = "default", "file", "--set", "run"
# The longest beginning of a key counts.
PAGES = pairs(
    """
    seed  docs/training.md
    imports  docs/architecture.md
    algorithm  docs/training.md
    data  docs/data.md
    sampler  docs/symbols.md
    data.markets  docs/symbols.md
    data.folder  docs/symbols.md
    data.per_market  docs/symbols.md
    session  docs/semantics.md
    split  docs/training.md
    env  docs/semantics.md
    env.features  docs/features.md
    env.guards  docs/training.md
    account  docs/semantics.md
    allocate  docs/symbols.md
    costs  docs/semantics.md
    brackets  docs/semantics.md
    episode  docs/semantics.md
    reward  docs/features.md
    network  docs/training.md
    rollout  docs/training.md
    actor  docs/learners.md
    ppo  docs/training.md
    pqn  docs/learners.md
    dqn  docs/learners.md
    evolve  docs/agents.md
    compute  docs/training.md
    parallel  docs/scale.md
    monitor  docs/training.md
    shared  docs/agents.md
    stages  docs/training.md
    train  docs/training.md
    sweep  docs/agents.md
    walk  docs/believe.md
    advisor  docs/advisor.md
    transfer  docs/training.md
    control  docs/training.md
    evaluation  docs/training.md
    """
)
# Keys whose values are names of parts -> what `jaxtrade list` calls them.
LISTS = pairs(
    """
    data.market  markets
    data.contract  contracts
    account.preset  accounts
    reward.preset  rewards
    reward.weights  rewards
    env.features  features
    env.task  tasks
    network.kind  networks
    algorithm  learners
    advisor.kind  advisors
    """
)
# Example of a key as YAML, and behind it what that asks for: overrides, or keys whose own examples
# it takes. Keys without one have their default as an example, those of few values another of them.
EXAMPLES = pairs(
    """
    data.contract  SPY
    data.file  bars.csv  data.source=file
    data.seconds  seconds.csv
    data.conversion  usdjpy.csv
    data.quotes  quotes.csv
    data.columns  {time: Timestamp, close: Last}
    data.time_zone  America/New_York
    data.date_order  dmy
    data.expiry  201312
    data.roll  volume
    data.splice  restart
    data.start  2013-10-07
    data.end  2013-10-11
    data.synthetic_drift  0.1
    data.synthetic_pull  0.4
    env.advice  true  env.task=advised
    env.fill  close  env.mark=close
    env.guards.trades_per_day  5
    env.guards.cooldown  5
    env.guards.cooldown_after_loss  30
    env.guards.daily_stop  500
    env.guards.daily_goal  1000
    account.drawdown  2000
    account.daily_loss  1000
    account.profit_target  3000
    account.min_days  5
    account.max_contracts  2
    costs.commission  2.50
    costs.slippage  1
    brackets.min_stop_ticks  8
    brackets.be_ticks  1
    allocate.actions  increment
    allocate.preset  full
    allocate.size  [2]
    allocate.max_units  2
    allocate.max_total  2
    allocate.cooldown  5
    allocate.trades_per_day  50
    allocate.gate  5
    allocate.cost_bp  0.5
    allocate.impact_bp  1.5
    allocate.impact_base  50000.0
    allocate.fee  1.0
    reward.weights  {equity_change: 1.0, loss: -0.1}
    network.hidden  [256, 128]
    rollout.num_envs  512
    actor.delay  2
    actor.rho_clip  2.0  actor.delay=2
    actor.c_clip  2.0  actor.delay=2
    ppo.ent_coef_end  0.001
    stages.commission_start  0.2  stages.commission_until=0.5
    stages.commission_until  0.5  stages.commission_start=0.2
    stages.forced_start  0.3
    stages.forced_start_end  0.1
    stages.forced_start_until  0.5  stages.forced_start=0.3
    sweep.keys  {ppo.learning_rate: [1e-3, 3e-4]}
    sweep.settings  [{ppo.learning_rate: 1e-3}, {ppo.learning_rate: 3e-4}]
    sweep.random  4  sweep.keys={ppo.learning_rate: ['log:1e-4..1e-2']}
    sweep.seeds  2  sweep.keys={ppo.learning_rate: [1e-3, 3e-4]}
    sweep.optuna  32  sweep.keys={ppo.learning_rate: ['log:1e-4..1e-2']}  train.num_seeds=8
    shared.on  true  train.num_seeds=8
    shared.kappa  500  shared.on
    shared.eta  1000  shared.on
    shared.decay  0.95  shared.on
    advisor.kind  mock:skilled:0.6
    advisor.panel  [rules,mock:skilled:0.6]  advisor.kind=panel
    advisor.fusion  gate
    advisor.template  window
    advisor.options  {model: NAME}
    advisor.service.requests_per_minute  60
    advisor.service.tokens_per_minute  100_000
    advisor.service.max_calls  10_000
    advisor.service.max_tokens  5_000_000
    advisor.service.max_cost  5  advisor.service.price_prompt=0.15  advisor.service.price_completion=0.60
    advisor.service.price_prompt  0.15
    advisor.service.price_completion  0.60
    advisor.service.cache  answers.sqlite
    advisor.service.ledger  spent.sqlite
    advisor.context.news  news.jsonl  advisor.template=window
    advisor.context.calendar  events.csv  advisor.template=window
    control.evaluate_every  5  split.validation_sessions=1
    control.patience  8  control.evaluate_every
    control.plateau_patience  4  control.evaluate_every
    control.wall_clock  2h
    evolve.keys  {ppo.learning_rate: [1e-4, 1e-2]}  train.num_seeds=8
    evolve.every  5  evolve.keys  split.validation_sessions=1
    evolve.truncation  0.5  evolve.every
    evolve.perturb  1.5  evolve.every
    evolve.resample  0.0  evolve.every
    imports  [my_module]
    """
)


CONFIG = (
    "show a resolved configuration, explain a key, list all keys",
    "action",
    {
        "show": (
            "the resolved configuration as YAML; a comment says where each value is from",
            "config?  a YAML file, a shipped configuration or a run's folder (default: quickstart)",
            DATA,
            SEED,
            COMMON,
            f"""
            --test  as train --test resolves it
            --advisor KIND|URL  {ADVISOR}
            --changed  leave out the keys that have their default
            """,
            TRUST,
        ),
        "explain": (
            "type, range, default, meaning and an example of a key, or the keys of a section",
            "KEY  section.key, a section, or a key's own name if only one section has it",
        ),
        "keys": ("a table of all keys", "PREFIX?  a section, or the beginning of a key"),
        "import": (
            "turn a configuration of IntradayJules (Stable-Baselines3 keys) into "
            "one of ours; stderr says what became of each key",
            """
            FILE : Path  its YAML file
            -o, --out FILE : Path  write ours there instead of to stdout; it must not exist
            """,
        ),
    },
)


def run(args: argparse.Namespace) -> int:
    """Handle `config`. Return the exit code. Raises ConfigError, DataError."""
    if args.action == "show":
        print(show(args))
    elif args.action == "explain":
        print("\n".join(explain(args.key)))
    elif args.action == "import":
        import_file(args.file, args.out)
    else:
        print("\n".join(key_table(chosen_keys(args.prefix or ""), columns())))
    return 0


def import_file(file: Path, out: Path | None) -> None:
    """Print or write our YAML for a foreign file, and report on stderr what became of each key.

    Raises ConfigError: no such file, an unknown key or value, values that do not fit together, or
    `out` exists.
    """
    if not file.is_file():
        raise ConfigError(f"{file}: there is no such file")
    if out is not None and out.exists():
        raise ConfigError(f"-o {out}: exists; choose another name")
    found = convert_config(read_values(file), str(file))
    found.config(str(file))
    text = (
        f"# made of {file.name} by `jaxtrade config import`\n{dump_yaml(nest_keys(found.values))}"
    )
    if out is None:
        print(text, end="")
    else:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"-o {out}: cannot be written: {error.strerror}") from None
    for line in align([(fate.key, fate.kind, fate.text) for fate in found.fates], (0, 1, 2)):
        say(line)
    if out is not None:
        say(f"written: {out}; next: jaxtrade train {out}")


def show(args: argparse.Namespace) -> str:
    """Format the resolved configuration as YAML, each value with its origin as a comment.

    Raises ConfigError, DataError: as training with these flags does.
    """
    given = with_absent(args)
    if is_run(Path(given.config or "")):
        return _show_run(args, Path(given.config))
    path = config_path(given.config or "quickstart")
    values = read_values(path)
    if "phases" in values:
        raise ConfigError(
            f"{name_config(path)}: a curriculum, which has one configuration per phase; give the file of one "
            "run"
        )
    config = resolve(args)
    layers = [*flag_overrides(given), *((SET, override) for override in given.overrides)]
    origins = origins_of(values, layers)
    # Keys that `resolve` sets without an override.
    for key, name in (*PATHS.items(), ("market", "contract")):
        if getattr(given, name) is not None:
            origins[f"data.{key}"] = f"--{name}"
    head = f"# the resolved configuration of a run; {FILE}: {path}"
    return "\n".join([head, *render_config(config, origins, args.changed)])


def _show_run(args: argparse.Namespace, path: Path) -> str:
    """Format the configuration of a run's folder, of which every key is written there.

    Raises ConfigError as `read_run`, and for flags that would change it.
    """
    refuse(
        args,
        sorted(ABSENT.keys() - {"config", "modules"}),
        f"{path}: a run keeps its configuration",
    )
    import_parts(args.modules)
    config, _ = read_run(path)
    values = config.model_dump(mode="json")
    origins = {
        name: RUN
        for name, key in all_keys().items()
        if lookup(values, name) not in ((True, key.default), (False, None))
    }
    head = f"# the configuration of {path}; {RUN}: not the default"
    return "\n".join([head, *render_config(config, origins, args.changed)])


def origins_of(values: Mapping[str, Any], layers: list[tuple[str, str]]) -> dict[str, str]:
    """Map every key that is not a default to where its value is from.

    values: the file's.
    layers: (origin, override `a.b=value`), in the order in which they apply.
    """
    origins = {name: FILE for name in all_keys() if lookup(values, name)[0]}
    for origin, override in layers:
        values = apply_overrides(values, [override])
        changed = override.partition("=")[0].strip()
        for name in all_keys():
            # An override may be of a section above the key, or of one entry of a mapping below it.
            if not lookup(values, name)[0]:
                origins.pop(name, None)
            elif f"{name}.".startswith(f"{changed}.") or changed.startswith(f"{name}."):
                origins[name] = origin
    return origins


def render_config(config: RunConfig, origins: Mapping[str, str], changed: bool) -> list[str]:
    """Format a configuration as YAML lines.

    changed: leave out the keys without an origin.
    """
    values, lines, opened = config.model_dump(mode="json"), list[tuple[str, str]](), list[str]()
    for name, key in all_keys().items():
        origin = origins.get(name, DEFAULT)
        if changed and origin == DEFAULT:
            continue
        *path, last = name.split(".")
        for depth in range(len(path)):
            if opened[: depth + 1] != path[: depth + 1]:
                lines.append((f"{'  ' * depth}{path[depth]}:", ""))
                opened = path[: depth + 1]
        opened = path
        known, value = lookup(values, name)
        value = format_yaml(value if known else key.default)
        lines.append((f"{'  ' * len(path)}{last}: {value}", origin))
    column = min(48, max((len(text) for text, _ in lines), default=0))
    return [f"{text.ljust(column)}  # {origin}" if origin else text for text, origin in lines]


def shipped_values(key: str) -> dict[str, str]:
    """Map each shipped configuration that gives a key a value to that value, as in YAML."""
    found = {}
    for path in list_shipped("."):
        values = read_values(path)
        given, value = lookup(values.get("base", values), key)
        if given:
            found[path.stem] = format_yaml(value)
    return found


def explain(name: str) -> list[str]:
    """Return what `config explain` prints.

    Raises ConfigError for an unknown key, with a suggestion.
    """
    name = name.strip().strip(".")
    if name in sections():
        return [name, f"  {sections()[name]}", "", *key_table(chosen_keys(f"{name}."), columns())]
    key = find_key(name)
    rows = [("type", key.kind), ("default", format_yaml(key.default))]
    if others := [f"{value} in {name}" for name, value in shipped_values(key.name).items()]:
        rows.append(("shipped", ", ".join(others)))
    rows += [("flag", f"--{flag}") for flag, name in KEY_FLAGS.items() if name == key.name]
    rows += [("values", f"jaxtrade list {LISTS[key.name]}")] if key.name in LISTS else []
    rows += [
        ("documented", page_of(key.name)),
        ("example", f"jaxtrade train {' '.join(example_words(key))}"),
    ]
    *path, last = key.name.split(".")
    value = example_of(key)[0].partition("=")[2]
    nested = [
        *(f"{'  ' * depth}{part}:" for depth, part in enumerate(path)),
        f"{'  ' * len(path)}{last}: {value}",
    ]
    rows += [("in a file" if not i else "", line) for i, line in enumerate(nested)]
    return [key.name, f"  {key.description}", *(f"  {line}" for line in align(rows, (0, 1)))]


def example_of(key: ConfigKey) -> tuple[str, ...]:
    """Return the overrides of a key's example.

    The first one sets the key, more follow where it asks for them. Of a key of few values, and
    without an example of its own, it is not the default.
    """
    others = [choice for choice in key.choices if choice not in (key.default, None)]
    usual = format_yaml(others[0] if others else key.default)
    own, *needs = EXAMPLES.get(key.name, usual).split("  ")
    found = [f"{key.name}={own}"]
    for need in needs:
        found += [need] if "=" in need else example_of(all_keys()[need])
    if key.section in SECTIONS and key.section != all_keys()[ALGORITHM].default:
        found.append(f"{ALGORITHM}={key.section}")  # a key of a learner needs this learner
    return tuple(found)


def example_words(key: ConfigKey) -> list[str]:
    """Return the example as words after `jaxtrade train`, quoted for a shell.

    The first one may name the configuration that it starts from.
    """
    words = [word for each in example_of(key) for word in ("--set", shlex.quote(each))]
    return ["fx_allocate", *words] if key.section == "allocate" else words


def find_key(name: str) -> ConfigKey:
    """Find a key by its dotted name, or by its last part if no other key has it.

    A key that several learners have is that of the first one.

    Raises ConfigError for an unknown or ambiguous name, with the keys that it may mean.
    """
    known = all_keys()
    if name in known:
        return known[name]
    same = [key for key in known if last_part(key) == name]
    if same and (len(same) == 1 or all(known[key].section in SECTIONS for key in same)):
        return known[same[0]]  # of several learners' that of the default one
    near = " or ".join(keys_named(name))
    said = f"; did you mean {near}?" if near else ""
    said = said or explain_unknown(name, known, SECTIONS[0], RunConfig)
    raise ConfigError(f"no key is called '{name}'{said} (all keys: jaxtrade config keys)")


def page_of(name: str) -> str:
    """Find the page that documents a key."""
    return PAGES[max((prefix for prefix in PAGES if name.startswith(prefix)), key=len)]


def chosen_keys(prefix: str) -> list[ConfigKey]:
    """List the keys that begin with `prefix`.

    Raises ConfigError, with a suggestion, where none does.
    """
    found = [key for key in all_keys().values() if key.name.startswith(prefix)]
    if not found:
        hint = did_you_mean(prefix, [*sections(), *all_keys()], "")
        raise ConfigError(
            f"no key begins with '{prefix}'{hint} (sections: {', '.join(sections())})"
        )
    return found


def key_table(keys: list[ConfigKey], wide: int | None) -> list[str]:
    """Format keys as a table: name, default, description.

    wide: as in `flags.table`.
    """
    return table(
        [
            ("key", "default", "meaning"),
            *((key.name, format_yaml(key.default), key.description) for key in keys),
        ],
        wide,
    )
