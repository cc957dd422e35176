"""Typed configuration: YAML file, then `--set key=value`, into frozen models.

Every key is declared here once; an unknown key is an error that names the nearest one. The models are hashable, so
the static ones can be jit arguments. This module imports neither JAX nor pandas: configuration errors answer fast.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import reprlib
from collections.abc import Iterable, Mapping
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from jaxtrade.errors import ConfigError
from jaxtrade.yaml12 import dump_yaml, parse_yaml

ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_BYTES = 1_000_000  # of a configuration file
_SHORT = reprlib.Repr()  # of values in messages, which YAML aliases can make endless
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 2



def _roll(value: object) -> str | dict[str, str]:
    """`off`, `volume`, or expiry -> first trade date, the first of them `start`."""
    if value in ("off", "volume"):
        return str(value)
    shape = "expected off, volume, or {201312: start, 201403: 2013-12-18} (expiry: first trade date)"
    if not isinstance(value, Mapping) or not all(type(x) in (str, int) for x in (*value, *value.values())):
        raise ValueError(shape)
    firsts = {str(code): str(first) for code, first in value.items()}
    if len(firsts) < 2:
        raise ValueError("one contract is no roll: name at least two, or use data.expiry")
    opening, *dates = firsts.values()
    if opening != "start":
        raise ValueError(f"the first contract ({next(iter(firsts))}) must have 'start', found '{opening}' "
                         "(cut the data with data.start)")
    for text in dates:
        try:
            fits = date.fromisoformat(text).isoformat() == text
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"'{text}' is not a date; write YYYY-MM-DD")
    for before, after in pairwise(dates):
        if after <= before:
            raise ValueError(f"first trade dates must increase: {after} follows {before}")
    return firsts


Code = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]  # YAML: 201312
Roll = Literal["off", "volume"] | dict[str, str]
Names = Annotated[tuple[str, ...], Field(strict=False)]
Widths = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]


class _Model(BaseModel, frozen=True):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class DataConfig(_Model, frozen=True):
    """Where the bars come from. Nothing is guessed: zone, stamp side and price scale are stated or known."""

    market: str = Field(default="ES", description="contract symbol, e.g. ES, NQ, EURUSD")
    contract: str | None = Field(default=None, description="your own contract: a YAML file, or a shipped one such as "
                                 "SPY; its symbol is the market, whatever data.market says")
    source: Literal["bundled", "synthetic", "file"] = "bundled"
    file: str | None = Field(default=None, description="CSV, CSV.gz or Parquet of bars (source: file)")
    seconds: str | None = Field(default=None, description="second bars of the same instrument, read with the same "
                                "keys; they tell the order of prices inside a bar (env.intrabar: path)")
    conversion: str | None = Field(default=None, description="bars of the rate to the dollar, for markets whose "
                                   "profits arise in another currency; read with data.time_zone and data.stamp")
    quotes: str | None = Field(default=None, description="bid and ask bars of the same instrument, read with the same "
                               "keys: prices are theirs, volume is that of the bars")
    columns: dict[str, str] = Field(default_factory=dict, description="field -> column name: time, open, high, low, "
                                    "close, volume, expiry, symbol; bid_open .. ask_close of two-sided bars")
    time_zone: str | None = Field(default=None, description="IANA zone of stamps that carry no offset, with a "
                                  "fixed shift where needed (America/New_York+7h)")
    stamp: Literal["open", "close"] | None = Field(default=None, description="the side of a bar that its stamp names")
    price_scale: float = Field(default=1.0, gt=0, description="points per unit of the file (0.0001 for x10000)")
    expiry: Code | None = Field(default=None, description="the one contract to use of a file with expiries")
    roll: Annotated[Roll, PlainValidator(_roll)] = Field(
        default="off", description="splice the expiries of a file: off, volume (the one that traded more on the trade "
        "date before), or {201312: start, 201403: 2013-12-18} (expiry: first trade date)")
    splice: Literal["restart", "back_adjust"] = Field(default="restart", description="what feature windows do at a "
                                                      "splice; back_adjust is refused: it is not built")
    start: str | None = Field(default=None, description="first trade date, YYYY-MM-DD")
    end: str | None = Field(default=None, description="last trade date, YYYY-MM-DD")
    calendar: str = Field(default="table", description="'table', 'infer', or a calendar file")
    window_reset: Literal["hole", "session"] = Field(default="hole", description="feature windows restart after a hole "
                                                     "longer than one session, or with every trade date")
    synthetic: Literal["nq_like", "trend", "mean_reversion", "martingale", "phase_randomised"] = Field(
        default="nq_like", description="the kind of synthetic market (source: synthetic)")
    synthetic_sessions: int = Field(default=40, ge=2, le=5000, description="phase_randomised: at most as many")
    synthetic_seed: int = Field(default=0, ge=0)
    synthetic_drift: float | None = Field(default=None, description="trend: expected ticks per bar; None: 0.05")
    synthetic_pull: float | None = Field(default=None, description="mean_reversion: strength, in (0, 1]; None: 0.4")

    @model_validator(mode="after")
    def _one_series(self) -> DataConfig:
        if self.roll != "off" and self.expiry is not None:
            raise ValueError(f"data.expiry = {self.expiry} reads one contract and data.roll splices several; "
                             "give one of the two")
        if self.splice == "back_adjust":
            raise ValueError("data.splice=back_adjust is not built: feature windows restart at a splice "
                             "(data.splice=restart); prices are never adjusted")
        return self


class SessionConfig(_Model, frozen=True):
    """The daily window of decisions, in exchange time (New York)."""

    overnight: bool = Field(default=False, description="futures: decide 18:00-16:59 instead of 09:30-16:59")


class SplitConfig(_Model, frozen=True):
    """Sessions held out, counted from the end of the data, in time order: train, then validation, then test."""

    validation_sessions: int = Field(default=0, ge=0)
    test_sessions: int = Field(default=1, ge=0)
    embargo_sessions: int = Field(default=0, ge=0, description="sessions dropped before each held-out block")


class AccountConfig(_Model, frozen=True):
    """An account preset and what a user changes of it. Money in dollars; `off` switches a rule off."""

    preset: str = "apex_like_50k_2025"
    drawdown: float | Literal["off"] | None = None
    trailing: Literal["intraday", "end_of_day", "static"] | None = Field(
        default=None, description="when the mark that the drawdown floor follows rises: with live equity, at a "
        "session's end, never")
    daily_loss: float | Literal["off"] | None = None
    profit_target: float | Literal["off"] | None = None
    freeze: Literal["never", "at_start_plus_100", "at_target"] | None = None
    on_target: Literal["terminate", "continue"] | None = None
    on_daily_loss: Literal["lock_until_next_session", "fail"] | None = None
    min_days: int | None = Field(default=None, ge=0, le=100_000)
    max_contracts: int | None = Field(default=None, ge=1, le=100_000)


class CostConfig(_Model, frozen=True):
    """Costs of the market; None takes the contract's own figure."""

    commission: float | None = Field(default=None, ge=0, description="money per side per contract, all-in")
    slippage: int | None = Field(default=None, ge=0, le=10_000, description="ticks against us per market or stop fill")


class BracketConfig(_Model, frozen=True):
    """Stops and targets. Multiples are integer thousandths of the 14-bar average true range."""

    stop_atr: int = Field(default=1500, ge=1, le=1_000_000, description="thousandths of ATR")
    target_multiple: int = Field(default=3, ge=1, le=10_000, description="target distance over stop distance")
    trail_atr: int = Field(default=1000, ge=1, le=1_000_000, description="thousandths of ATR")
    min_stop_ticks: int | None = Field(default=None, ge=1, le=1_000_000, description="None: the contract's")
    be_ticks: int | None = Field(default=None, ge=0, le=1_000_000, description="break-even stop past the entry; None: "
                                 "1 (0.25 points in parity scaling)")


class EnvConfig(_Model, frozen=True):
    """The static half of the environment: what changes the compiled program."""

    task: Literal["entry", "manage"] = "manage"
    actions: Literal["full", "seed6"] = Field(default="full", description="manage: 'full' has CLOSE, 'seed6' has not")
    scaling: Literal["relative", "seed"] = Field(default="relative", description="'seed' is parity mode: raw values")
    fill: Literal["next_open", "close"] = "next_open"
    mark: Literal["extreme", "close"] = "extreme"
    intrabar: Literal["stop_first", "nearer_extreme", "path"] = "stop_first"
    window: int = Field(default=20, ge=1, le=512, description="bars of history in the observation")
    features: Names = Field(default=("close", "volume", "sma_5", "sma_20", "rsi", "macd", "momentum", "atr"),
                            description="feature columns of each window bar")
    quantity: int = Field(default=1, ge=1, le=100_000, description="contracts per entry")
    random_start: bool = Field(default=True, description="start training episodes anywhere in a session")

    @model_validator(mode="after")
    def _optimistic_pairs(self) -> EnvConfig:
        if self.fill == "close" and self.mark != "close":
            raise ValueError("fill=close exists only together with mark=close (set env.mark=close); "
                             "reports label the pair 'optimistic'")
        return self

    @property
    def optimistic(self) -> bool:
        """True where fills or marks are kinder than a market would be; every report says so."""
        return self.fill == "close" or self.mark == "close"


class EpisodeConfig(_Model, frozen=True):
    """How long an episode runs."""

    sessions: int = Field(default=1, ge=1, lt=2**31)
    max_steps: int = Field(default=0, ge=0, lt=2**31, description="0: no step limit")


class RewardConfig(_Model, frozen=True):
    """A named composition of reward terms, and weights put over it; a term without a weight is not compiled.

    The default is the change of equity in account risk units alone.
    """

    preset: str = "equity_change"
    weights: dict[str, float] = Field(default_factory=dict, description="reward term -> weight, over the preset's")


class PPOConfig(_Model, frozen=True):
    """Masked PPO. Counts are static; the floats become leaves of the train state, so sweeps are one vmap."""

    num_envs: int = Field(default=256, ge=1)
    num_steps: int = Field(default=128, ge=1)
    num_minibatches: int = Field(default=8, ge=1)
    num_epochs: int = Field(default=4, ge=1)
    gradient_rows: int = Field(default=16384, ge=1, description="mlp: a larger minibatch forms its gradient in "
                               "equal blocks, if it can: the same but for the order of float sums, in less memory")
    num_shards: int = Field(default=8, ge=1, description="fixed env groups inside which minibatches permute")
    network: Literal["mlp", "gru"] = Field(default="mlp", description="gru: the policy remembers its episode; "
                                           "minibatches are then whole rollouts of some envs")
    rnn_width: int = Field(default=64, ge=1, description="gru: numbers that it remembers")
    hidden: Widths = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    normalise_observations: bool = True
    normalise_advantages: bool = True
    learning_rate: float = Field(default=3.0e-4, gt=0)
    learning_rate_end: float = Field(default=3.0e-5, gt=0, description="reached at the last update")
    gamma: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip_eps: float = Field(default=0.2, gt=0)
    vf_clip_eps: float = Field(default=0.0, ge=0, description="0: no value clipping")
    ent_coef: float = Field(default=0.01, ge=0)
    ent_coef_end: float | None = Field(default=None, ge=0, description="None: constant")
    vf_coef: float = Field(default=0.5, ge=0)
    max_grad_norm: float = Field(default=0.5, gt=0)
    target_kl: float = Field(default=0.0, ge=0, description="0: off; else epochs stop once KL passes it")

    @model_validator(mode="after")
    def _divisible(self) -> PPOConfig:
        if self.shards > 1 and self.num_envs % self.shards:
            raise ValueError(f"num_envs ({self.num_envs}) must be a multiple of num_shards ({self.shards})")
        group = self.num_envs // self.shards * self.num_steps
        if group % self.num_minibatches:
            raise ValueError(f"num_envs/num_shards*num_steps ({group}) must be a multiple of num_minibatches "
                             f"({self.num_minibatches})")
        envs = self.num_envs // self.shards
        if self.network == "gru" and envs % self.num_minibatches:
            raise ValueError(f"network=gru: num_envs/num_shards ({envs}) must be a multiple of num_minibatches "
                             f"({self.num_minibatches}), because a minibatch holds whole rollouts of some envs")
        return self

    @property
    def sequence(self) -> int:
        """Consecutive steps of one env that stay together in a minibatch: 1, or with a memory all of a rollout's."""
        return self.num_steps if self.network == "gru" else 1

    @property
    def shards(self) -> int:
        """Env groups in use: `num_shards`, or 1 where there are fewer envs."""
        return self.num_shards if self.num_envs >= self.num_shards else 1


class TrainConfig(_Model, frozen=True):
    """How long to train, in environment steps over all envs, and what to write on the way."""

    total_timesteps: int = Field(default=1_000_000, ge=1, le=10**15)
    num_seeds: int = Field(default=1, ge=1, le=1024, description="agents trained side by side as one program, from "
                           "seed, seed+1, ...; each for total_timesteps")
    chunk_updates: int = Field(default=5, ge=1, description="updates per compiled call; part of the run's identity")
    checkpoint_every: int = Field(default=10, ge=1, description="chunks between checkpoints; the last has one")
    keep_checkpoints: int = Field(default=3, ge=1)
    tensorboard: bool = True


class EvaluationConfig(_Model, frozen=True):
    """What is evaluated beside the greedy policy; `sma_*` are bars of the moving-average baseline."""

    policy_samples: int = Field(default=1, ge=1, description="sampled-policy passes beside the greedy one")
    sma_fast: int = Field(default=10, ge=1)
    sma_slow: int = Field(default=50, ge=2)

    @model_validator(mode="after")
    def _ordered(self) -> EvaluationConfig:
        if self.sma_fast >= self.sma_slow:
            raise ValueError(f"sma_fast ({self.sma_fast}) must be below sma_slow ({self.sma_slow})")
        return self


class RunConfig(_Model, frozen=True):
    """Everything a run is made of."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    data: DataConfig = DataConfig()
    session: SessionConfig = SessionConfig()
    split: SplitConfig = SplitConfig()
    env: EnvConfig = EnvConfig()
    account: AccountConfig = AccountConfig()
    costs: CostConfig = CostConfig()
    brackets: BracketConfig = BracketConfig()
    episode: EpisodeConfig = EpisodeConfig()
    reward: RewardConfig = RewardConfig()
    ppo: PPOConfig = PPOConfig()
    train: TrainConfig = TrainConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def digest(self) -> str:
        """sha256 of the resolved configuration (hex)."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: {path.stat().st_size:,} bytes; a configuration has at most {MAX_BYTES:,} "
                              "(is this a data file? give it with data.file)")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _shipped_configs() -> Path:
    """`configs/`: inside the installed package, or at the top of a source checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def config_path(name: str) -> Path:
    """The file of a named or given configuration: a path, else a shipped one such as `quickstart`.

    Raises ConfigError naming what was searched.
    """
    return find_file(name, ".", "configuration")


def find_file(name: str, folder: str, what: str) -> Path:
    """A path that exists, else the shipped YAML file `name` of a folder of `configs/`; `what` names it in messages.

    Raises ConfigError naming what was searched.
    """
    given = Path(name)
    if given.is_file():
        return given
    shipped = _shipped_configs() / folder / f"{given.stem}.yaml"
    if given.parent == Path(".") and given.suffix in ("", ".yaml") and shipped.is_file():
        return shipped
    known = sorted(path.stem for path in (_shipped_configs() / folder).glob("*.yaml"))
    raise ConfigError(f"{what} '{name}': no such file, and no shipped {what} of that name "
                      f"(shipped: {', '.join(known)}){_suggest(name, known)}")


def _suggest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    same = [name for name in known if "." in word and name.rpartition(".")[2] == word.rpartition(".")[2]]
    near = same or difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _keys(inner, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


def _key(location: tuple[int | str, ...]) -> str:
    """Dotted key of a fault. For a union pydantic appends the member it tried, such as `float` or `literal['off']`."""
    parts = [str(part) for part in location]
    member = len(parts) > 2 and re.fullmatch(r"float|literal\[.*\]", parts[-1])
    return ".".join(parts[:-1] if member else parts)


def _message(error: ValidationError, name: str, model: type[BaseModel]) -> str:
    lines: list[str] = []
    faults: dict[str, list[str]] = {}
    known = _keys(model)
    for item in error.errors():
        key = _key(item["loc"])
        if item["type"] == "extra_forbidden":
            if isinstance(item["input"], Mapping) and item["input"] and key.isidentifier():
                key = f"{key}.{next(iter(item['input']))}"  # a whole section is unknown: its first key tells more
            section = key.rpartition(".")[0]
            siblings = [k for k in known if section and k.rpartition(".")[0] == section] or list(model.model_fields)
            hint = _suggest(key, known) or f"; expected one of: {', '.join(siblings)}"
            lines.append(f"{name}: unknown key '{key}'{hint}")
        else:
            found = "" if isinstance(item["input"], Mapping) else f" = {_SHORT.repr(item['input'])}"
            where = f"'{key}'{found}: " if key else ""  # a rule over several keys names them itself
            faults.setdefault(f"{name}: {where}", []).append(item["msg"].removeprefix("Value error, "))
    return "\n".join([*lines, *(where + "; or: ".join(what) for where, what in faults.items())])


def _merge(base: dict[str, Any], key: str, value: Any, origin: str) -> None:
    parts = key.split(".")
    node = base
    for part in parts[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{origin}: '{key}': '{part}' is a value, not a section")
        node = child
    node[parts[-1]] = value


def validated(model: type[ModelT], values: Mapping[str, Any], name: str) -> ModelT:
    """A model from nested `values`; `name` stands in messages. Raises ConfigError listing every fault."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(_message(error, name, model)) from None


def make_config(values: Mapping[str, Any], name: str = "configuration") -> RunConfig:
    """Validate nested `values` (section -> key -> value). Raises ConfigError listing every fault."""
    return validated(RunConfig, values, name)


def read_values(path: Path) -> dict[str, Any]:
    """The keys of a YAML file. Raises ConfigError where it cannot be read or holds no keys."""
    loaded = parse_yaml(_read(path), str(path))
    if loaded is not None and not isinstance(loaded, dict):
        raise ConfigError(f"{path}: expected sections of 'key: value', found {type(loaded).__name__}")
    return loaded or {}


def load_config(name: str | None = None, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a YAML configuration and apply `section.key=value` overrides, last one wins.

    Args:
        name: a file, the name of a shipped configuration, or None for the defaults.
        overrides: strings `a.b=value`; the value is read as YAML.
    Raises:
        ConfigError: unknown key (with a suggestion), wrong type or range, duplicate key, no such file.
    """
    origin = name or "defaults"
    values: dict[str, Any] = {}
    if name is not None:
        path = config_path(name)
        values = read_values(path)
        origin = str(path)
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--set {override}: expected --set section.key=value")
        _merge(values, key.strip(), parse_yaml(text, f"--set {override}"), f"--set {override}")
        origin = origin if origin.endswith("and --set") else f"{origin} and --set"
    return make_config(values, origin)


def dump_config(config: RunConfig) -> str:
    """The resolved configuration as YAML, every key written out."""
    return dump_yaml(config.model_dump(mode="json"))
