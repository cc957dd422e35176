"""The sections that say which agents a run trains: `sweep`, `evolve` and `walk`.

A sweep has their settings as a grid, drawn at random, or written out.

A pure function of the configuration says what they are: `settings_of`. Imports no heavy library.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from math import comb
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError

from jaxtrade.config.base import FromOne, FromZero, Section, Share, declare_bounds
from jaxtrade.config.learners import SECTIONS, TUNABLE
from jaxtrade.errors import ConfigError

MOST_AGENTS = 1024  # of one run, as `train.num_seeds`
DIGITS = 4  # significant digits of a drawn number, so that a table can show it in full
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_RANGE = re.compile(rf"(log:)?\s*({_NUMBER})\s*\.\.\s*({_NUMBER})")
_WHOLE = re.compile(r"[+-]?[0-9]+")
REFUSED = (
    "seed",
    "imports",
    "train.num_seeds",
)  # keys that decide the agents themselves, or are read before them


class Range(NamedTuple):
    """An interval of numbers.

    log: drawn evenly in the logarithm.
    whole: only whole numbers, both ends included.
    """

    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, source: random.Random) -> float | int:
        """Draw a number of the interval.

        It has at most `DIGITS` significant digits unless it is whole.
        """
        if self.whole and not self.log:
            return source.randint(int(self.low), int(self.high))
        found = (
            math.exp(source.uniform(math.log(self.low), math.log(self.high)))
            if self.log
            else (source.uniform(self.low, self.high))
        )
        return self.within(found)

    def within(self, number: float) -> float | int:
        """Round a number as `draw` rounds, and keep it inside the interval."""
        rounded = round(number) if self.whole else float(f"{number:.{DIGITS}g}")
        kept = min(max(rounded, self.low), self.high)
        return int(kept) if self.whole else float(kept)


def range_of(value: object) -> Range | None:
    """Parse the range that a text such as `1e-4..1e-2`, `log:1e-4..1e-2` or `2..8` writes.

    Returns None for any other value. Raises ValueError for a range that is empty, or logarithmic
    and not above 0.
    """
    found = _RANGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return None
    log, low, high = bool(found[1]), float(found[2]), float(found[3])
    if not low < high:
        raise ValueError(f"{value}: the range is empty; write the lower number first")
    if log and low <= 0:
        raise ValueError(f"{value}: a logarithmic range must begin above 0")
    return Range(low, high, log, bool(_WHOLE.fullmatch(found[2]) and _WHOLE.fullmatch(found[3])))


def flat(keys: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key of nested keys, dotted, with its value."""
    for name, value in keys.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _list_values(keys: Any) -> Any:
    """Map each dotted key to its list of values.

    Keys may be nested as in a file of keys; a value alone is a list of one.
    """
    if not isinstance(keys, Mapping):
        return keys
    return {
        key: list(value) if isinstance(value, list | tuple) else [value]
        for key, value in flat(keys)
    }


def _flatten_keys(settings: Any) -> Any:
    """Return each setting with dotted keys."""
    if not isinstance(settings, list | tuple) or not all(
        isinstance(each, Mapping) for each in settings
    ):
        return settings
    return [dict(flat(each)) for each in settings]


Values = Annotated[list[Any], Field(min_length=1)]


class SweepConfig(Section, frozen=True):
    """Agents with different settings of some keys, trained side by side.

    They train as one program where their keys allow it.

    Off unless `keys` or `settings` has something in it.
    """

    keys: Annotated[dict[str, Values], BeforeValidator(_list_values)] = Field(default_factory=dict)
    """key -> its values, e.g. {ppo.learning_rate: [1e-3, 3e-4]}: every combination is a setting.
    With random or optuna also ranges: 1e-4..1e-2, log:1e-4..1e-2, 2..8 (whole numbers)
    """
    settings: Annotated[
        tuple[dict[str, Any], ...], Field(strict=False), BeforeValidator(_flatten_keys)
    ] = ()
    """instead of keys: the settings themselves, a list of {key: value}"""
    random: int = declare_bounds(0, 0, MOST_AGENTS)
    """settings drawn at random from keys; 0: every combination"""
    seeds: int = declare_bounds(1, 1, MOST_AGENTS)
    """agents per setting, from seed, seed+1, ...; all settings have the same seeds"""
    optuna: int = declare_bounds(0, 0, 1_000_000)
    """settings that Optuna proposes from keys, in batches of train.num_seeds agents; 0: none (needs
    the extra jaxtrade[optuna])
    """

    @property
    def on(self) -> bool:
        """Whether the agents have settings of their own."""
        return bool(self.keys or self.settings)

    @property
    def count(self) -> int:
        """The number of settings."""
        if self.settings or not self.keys:
            return max(1, len(self.settings))
        return self.random or self.combinations

    @property
    def combinations(self) -> int:
        """The number of combinations of the values of `keys`."""
        return math.prod(map(len, self.keys.values()))


def check_sweep(sweep: SweepConfig, num_seeds: int) -> None:
    """Raise ValueError where the keys of the section contradict each other.

    num_seeds: `train.num_seeds`.
    """
    if not sweep.on:
        for name in ("random", "seeds", "optuna"):
            if (value := getattr(sweep, name)) > (name == "seeds"):
                raise ValueError(
                    f"sweep.{name} ({value}) needs keys to set: give sweep.keys (--sweep KEY=V1,V2)"
                    + (
                        ", or for agents that differ by their seeds alone train.num_seeds (--population)"
                        if name == "seeds"
                        else ""
                    )
                )
        return
    if sweep.keys and sweep.settings:
        raise ValueError("sweep.keys and sweep.settings are both given: keep one")
    if sweep.settings and (sweep.random or sweep.optuna):
        raise ValueError(
            "sweep.settings lists all settings: drop sweep.random and sweep.optuna, or give sweep.keys"
        )
    names = [*sweep.keys, *itertools.chain.from_iterable(sweep.settings)]
    if refused := [name for name in names if name in REFUSED or name.startswith("sweep.")]:
        raise ValueError(
            f"sweep: '{refused[0]}' cannot differ between the agents of a sweep (for seeds: sweep.seeds)"
        )
    _check_ranges(sweep)
    if sweep.optuna:
        if sweep.random or sweep.seeds > 1:
            raise ValueError(
                "sweep.optuna proposes the settings itself, one agent for each: drop sweep.random and "
                "sweep.seeds"
            )
        return
    if num_seeds != 1:
        raise ValueError(
            f"train.num_seeds (--population) is {num_seeds}, and a sweep counts its own agents: give "
            "sweep.seeds (--seeds) for several agents per setting"
        )
    if sweep.count * sweep.seeds > MOST_AGENTS:
        raise ValueError(
            f"sweep: {sweep.count:,} settings x {sweep.seeds} seeds are more than {MOST_AGENTS:,} agents: "
            "give fewer values, or draw some of them (sweep.random)"
        )


def _check_ranges(sweep: SweepConfig) -> None:
    """Raise ValueError for a range where values are expected, or fewer combinations than drawn."""
    ranged = [
        (key, value) for key, values in sweep.keys.items() for value in values if range_of(value)
    ]
    if ranged and not (sweep.random or sweep.optuna):
        key, value = ranged[0]
        raise ValueError(
            f"sweep.keys: {key}={value} is a range: say how many settings to draw from it (sweep.random, "
            "--random N), or list values"
        )
    if sweep.random and not ranged and sweep.random > sweep.combinations:
        raise ValueError(
            f"sweep.random ({sweep.random}) is more than the {sweep.combinations} combinations of sweep.keys: "
            "lower it, or leave it out"
        )


def settings_of(sweep: SweepConfig, seed: int) -> tuple[dict[str, Any], ...]:
    """List the settings of a sweep, each a mapping of dotted key -> value, in order.

    There is one empty setting if it is off. A grid counts like an odometer: the last key changes
    fastest. Random settings depend on `seed` and the section alone; combinations of listed values
    are drawn without repetition.
    """
    if sweep.settings or not sweep.keys:
        return sweep.settings or ({},)
    source = random.Random(f"sweep {seed}")
    if sweep.random and any(range_of(each) for values in sweep.keys.values() for each in values):
        return tuple(
            {key: _draw(values, source) for key, values in sweep.keys.items()}
            for _ in range(sweep.random)
        )
    every = range(sweep.combinations)
    chosen = source.sample(every, sweep.random) if sweep.random else every
    return tuple(_combination(sweep.keys, number) for number in chosen)


def _combination(keys: Mapping[str, Sequence[Any]], number: int) -> dict[str, Any]:
    """Return combination `number` of a grid."""
    chosen = {}
    for key in reversed(list(keys)):
        number, place = divmod(number, len(keys[key]))
        chosen[key] = keys[key][place]
    return {key: chosen[key] for key in keys}


def _draw(values: Sequence[Any], source: random.Random) -> Any:
    chosen = source.choice(values)
    found = range_of(chosen)
    return found.draw(source) if found else chosen


def examples_of(sweep: SweepConfig) -> tuple[dict[str, Any], ...]:
    """List settings that together hold every listed value and both ends of every range.

    They are checked before a run.
    """
    if not sweep.keys:
        return sweep.settings
    listed = {
        key: [end for value in values for end in _ends(value)] for key, values in sweep.keys.items()
    }
    most = max(len(values) for values in listed.values())
    return tuple(
        {key: values[min(i, len(values) - 1)] for key, values in listed.items()}
        for i in range(most)
    )


def _ends(value: Any) -> tuple[Any, ...]:
    found = range_of(value)
    return (found.within(found.low), found.within(found.high)) if found else (value,)


# --- The section `evolve` of a configuration, and what must hold between it and the others


FOLLOWS = {
    "learning_rate": "learning_rate_end",
    "ent_coef": "ent_coef_end",
}  # start of a schedule -> its end

Bounds = Annotated[tuple[float, float], Field(strict=False)]


class EvolveConfig(Section, frozen=True):
    """Population-based training of agents whose settings are drawn from ranges.

    The worst agents go on from the best.
    """

    keys: dict[str, Bounds] = Field(default_factory=dict)
    """tunable floats of the learner and their ranges, above 0: {ppo.learning_rate: [1e-4, 1e-2]}.
    Each agent draws its own, evenly in the logarithm
    """
    every: FromZero = 0
    """chunks between events, in which the worst agents become copies of the best; 0: never, so the
    drawn settings stay (random search)
    """
    truncation: float = Field(default=0.25, gt=0, le=0.5)
    """share of the agents that is replaced, and share that is copied; at least one agent each"""
    perturb: float = Field(default=1.2, gt=1)
    """a replaced agent multiplies or divides each of its settings by this, within the ranges"""
    resample: Share = 0.25
    """probability with which it draws a setting anew instead"""

    @property
    def on(self) -> bool:
        """Whether the agents have drawn settings of their own."""
        return bool(self.keys)


def names_of(config: Any) -> dict[str, tuple[float, float]]:
    """Map each evolved float (its name in the learner's hyper-parameters) to its range, in order."""
    return {key.partition(".")[2]: bounds for key, bounds in config.evolve.keys.items()}


def find_tied_ends(config: Any) -> dict[str, tuple[str, float]]:
    """Return the ends of schedules that move with an evolved start.

    Maps the name of the end to (name of the start, end / start). A schedule keeps its shape unless
    both of its ends are evolved.
    """
    section, names = config.learner, names_of(config)
    found = {}
    for start, end in FOLLOWS.items():
        if start in names and end not in names and hasattr(section, end):
            first, last = getattr(section, start), getattr(section, end)
            found[end] = (start, 1.0 if last is None or not first else last / first)
    return found


def check_evolve(config: Any) -> None:
    """Check what must hold between `evolve` and the other sections.

    config: a `RunConfig`, which imports this module.
    Raises ValueError, which pydantic expects.
    """
    evolve = config.evolve
    if not evolve.on:
        if changed := evolve.list_changed():
            raise ValueError(
                f"evolve.{changed[0]}={getattr(evolve, changed[0]):g}: no effect without evolve.keys, the "
                "settings to evolve: set evolve.keys={ppo.learning_rate: [1e-4, 1e-2]}, or leave it out"
            )
        return
    if config.algorithm not in SECTIONS:
        raise ValueError(
            f"evolve.keys with algorithm={config.algorithm}: only settings of the built-in learners "
            f"({', '.join(SECTIONS)}) can evolve"
        )
    if config.sweep.on:
        raise ValueError(
            "evolve.keys draws the settings of the agents, and section sweep lists them: use one of them"
        )
    for key, bounds in evolve.keys.items():
        _check_key(config, key, bounds)
    if evolve.every and config.train.num_seeds < 2:
        raise ValueError(
            f"evolve.every={evolve.every} copies agents, and train.num_seeds is "
            f"{config.train.num_seeds}: set train.num_seeds (--population) to at least 2, better 8"
        )
    if evolve.every and (why := config.split.without_validation):
        raise ValueError(
            f"evolve.every={evolve.every} scores agents on the validation sessions, and {why}: hold some "
            "out, e.g. split.validation_sessions=1"
        )


def _check_key(config: Any, key: str, bounds: tuple[float, float]) -> None:
    section, (low, high) = config.learner, bounds
    name = key.partition(".")[2]
    known = [f"{config.algorithm}.{each}" for each in TUNABLE[config.algorithm]]
    if key not in known:
        raise ValueError(
            f"evolve.keys: {key[:60]} is no tunable float of algorithm={config.algorithm}; expected one "
            f"of {', '.join(known)}"
        )
    if not 0 < low <= high:
        raise ValueError(
            f"evolve.keys: {key}: [{low:g}, {high:g}]: expected [low, high] with 0 < low <= high, because "
            "settings are drawn evenly in the logarithm"
        )
    if key == "dqn.tau" and not section.tau:
        raise ValueError(
            "evolve.keys: dqn.tau with dqn.tau=0: a target network that is copied now and then is another "
            "program than one that moves in each step: set dqn.tau above 0"
        )
    for end in bounds:
        try:
            type(section).model_validate(section.model_dump() | {name: end})
        except ValidationError as error:
            raise ValueError(f"evolve.keys: {key}={end:g}: {error.errors()[0]['msg']}") from None


# The section `walk` of a configuration: the folds of `jaxtrade walkforward`, and what must hold
# between it and the other sections.

Mode = Literal["rolling", "anchored", "cpcv"]
FORWARD_EMBARGO = 1  # sessions: `embargo: auto` of folds whose training lies before their test
EMBARGO_SHARE = (
    100  # one session in so many: `embargo: auto` of cpcv (Lopez de Prado 2018, section 7.4.2)
)


class WalkConfig(Section, frozen=True):
    """The folds of `jaxtrade walkforward`, each with training and test sessions of its own.

    The other keys have no effect without `on`, so that one file can serve `train` and
    `walkforward`.
    """

    on: bool = False
    """whether the run is a walk-forward; `jaxtrade walkforward` sets it, and nothing else needs to
    """
    mode: Mode = "rolling"
    """how the sessions become folds: rolling, a training block of fixed length before each test
    block; anchored, all sessions before it; cpcv, every choice of test_groups out of groups blocks
    is tested, and the rest is trained on
    """
    train: FromOne = 60
    """training sessions of a fold: of rolling all, of anchored the least (not of cpcv)"""
    test: FromOne = 10
    """test sessions of a fold (not of cpcv)"""
    embargo: FromZero | Literal["auto"] = Field(
        default="auto",
        description="sessions left out between training and test, beside those that are purged; auto: "
        f"{FORWARD_EMBARGO}, and of cpcv one in {EMBARGO_SHARE} of all sessions, at least {FORWARD_EMBARGO}",
    )
    groups: int = declare_bounds(6, 2, 50)
    """of cpcv: blocks of equal length that the sessions form"""
    test_groups: int = declare_bounds(2, 1, 49)
    """of cpcv: blocks that a fold tests"""
    seeds: int = declare_bounds(10, 1, MOST_AGENTS)
    """agents per fold, from seed, seed+1, ...; all folds have the same seeds"""

    def embargo_of(self, sessions: int) -> int:
        """Return the number of sessions that `embargo` stands for.

        sessions: of the data.
        """
        if self.embargo != "auto":
            return self.embargo
        return (
            FORWARD_EMBARGO
            if self.mode != "cpcv"
            else max(FORWARD_EMBARGO, -(-sessions // EMBARGO_SHARE))
        )


def check_walk(config: Any) -> None:
    """Check what must hold between `walk` and the other sections.

    config: a `RunConfig`, which imports this module.
    Raises ValueError, which pydantic expects.
    """
    walk = config.walk
    if not walk.on:
        return
    if walk.mode == "cpcv":
        if walk.test_groups >= walk.groups:
            raise ValueError(
                f"walk.test_groups={walk.test_groups} tests as many blocks as there are (walk.groups="
                f"{walk.groups}), and none is left for training: lower it"
            )
        if (folds := comb(walk.groups, walk.test_groups)) * walk.seeds > MOST_AGENTS:
            raise ValueError(
                f"walk.groups={walk.groups}, walk.test_groups={walk.test_groups}: {folds:,} folds x "
                f"{walk.seeds} seeds are more than {MOST_AGENTS:,} agents: lower one of them"
            )
    _refuse_agents(config)
    _refuse_rest(config)


def _refuse_agents(config: Any) -> None:
    """Refuse other sections that say which agents there are."""
    if config.train.num_seeds != 1:
        raise ValueError(
            f"train.num_seeds={config.train.num_seeds}: a walk-forward counts its own agents, walk.seeds "
            "(--seeds) in each fold: leave it out"
        )
    for name in ("sweep", "evolve", "shared"):
        if getattr(config, name).on:
            raise ValueError(
                f"{name}: a walk-forward trains the same settings in every fold, each agent in a market "
                f"of its own: leave section {name} out"
            )


def _refuse_rest(config: Any) -> None:
    """Refuse what has no meaning for folds, or is not built for them."""
    if config.advisor.on:
        raise ValueError(
            f"advisor.kind={config.advisor.kind[:60]}: all agents of a program share one state of advice, "
            "and folds must not learn from each other's days: set advisor.kind=off"
        )
    if config.env.joint:
        raise ValueError(
            f"env.task={config.env.task}: a walk-forward has one symbol in an account: choose another env.task"
        )
    if len(config.data.markets) > 1:
        raise ValueError(
            f"data.markets names {len(config.data.markets)} symbols, and a walk-forward has one: leave it "
            "empty, and set data.market"
        )
    if config.control.evaluate_every:
        raise ValueError(
            f"control.evaluate_every={config.control.evaluate_every} scores policies on validation "
            "sessions, and the folds of a walk-forward have none: set it to 0"
        )
    if config.control.keep == "best":
        raise ValueError(
            "control.keep=best chooses a policy on validation sessions, and the folds of a walk-forward "
            "have none: set control.keep=last"
        )
    if config.rollout.auto:
        raise ValueError(
            "rollout.num_envs=auto: a walk-forward does not measure it: give a number (--envs)"
        )
    if config.parallel.devices not in ("auto", 1):
        raise ValueError(
            f"parallel.devices={config.parallel.devices}: a walk-forward trains on one device: leave it "
            "out"
        )


def require_no_walk(config: Any) -> None:
    """Refuse a walk-forward where a run of one split is expected.

    config: a `RunConfig`.
    Raises ConfigError.
    """
    if config.walk.on:
        raise ConfigError(
            "walk.on=true: this is a walk-forward: train it with `jaxtrade walkforward`, continue it "
            "with `jaxtrade walkforward --resume`, and find its results in its folder's "
            "walkforward.json, of which `jaxtrade report` makes a page"
        )
