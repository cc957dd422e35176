"""The calls of IntradayJules' quick start on top of `jaxtrade.Trainer`.

    from jaxtrade.interop.jules import TrainerAgent      # was: from src.training.trainer_agent import TrainerAgent

Everything else of a script stays as it is. There are no worker processes and no fallbacks: what
cannot be built is an error, a key that means nothing here is explained once, and a key that nobody
knows is refused with a suggestion.
"""

from __future__ import annotations

import datetime
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtrade.config import Changes, RunConfig, changed_config, make_config
from jaxtrade.config.sweep import flat
from jaxtrade.data.members import member_configs
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.policy import FOLDER
from jaxtrade.interop.jules_config import (
    NONE,
    REFUSED,
    TARGETS,
    KeyFate,
    choose_actions,
    convert_config,
    folder,
    nest_keys,
    number_of_envs,
)
from jaxtrade.interop.jules_config import (
    symbols as markets_of,
)
from jaxtrade.progress.screen import Screen
from jaxtrade.runs.auto_envs import prepare_sized
from jaxtrade.runs.plan import check_names
from jaxtrade.runs.trainer import Trainer

SHARED_MEMORY = KeyFate(
    "use_shared_memory",
    NONE,
    "there are no worker processes: all environments are rows of arrays in one address space",
)
MONITOR_PATH = KeyFate("monitor_path", NONE, "monitor.csv is in the run's folder")
_TOLD: set[str] = set()


@dataclass(frozen=True)
class VectorizedEnv:
    """The environments that a run will have.

    `create_vectorized_env` returns them. They exist once the run trains.

    config: the run's configuration with these symbols and this number of environments.
    """

    config: RunConfig

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.config.data.markets or (self.config.data.market,)

    @property
    def num_envs(self) -> int | None:
        """Environments in parallel; None: they are measured when the run begins."""
        return None if self.config.rollout.auto else self.config.rollout.num_envs


def build_vec_env(
    symbols: Sequence[str],
    data_dir: Path | str | None,
    config: Mapping[str, Any],
    n_envs: int | None = None,
    monitor_path: str | None = None,
    use_shared_memory: bool | None = None,
    logger: logging.Logger | None = None,
    *,
    set: Changes = (),
) -> VectorizedEnv:
    """Build the environments of a training run on several symbols.

    Args:
        symbols: one is drawn for each environment and episode.
        data_dir: folder with one file of bars for each symbol. None: the bars that the package has.
        config: of IntradayJules, as `TrainerAgent` takes it.
        n_envs: None: as many as train fastest here, measured when the run begins.
        monitor_path, use_shared_memory, logger: have no meaning here; the first two are explained
            once if given.
        set: further keys of ours, as in `jaxtrade.run`. With an `env.task` of another kind, actions
            are not read as target positions.

    Raises:
        ConfigError, DataError: an unknown key, symbol or file. Nothing else is built instead.
    """
    del logger
    changes = set if isinstance(set, Mapping | str) else list(set)
    given = convert_config(config, "config", not _names_task(changes))
    unused = ((SHARED_MEMORY, use_shared_memory), (MONITOR_PATH, monitor_path))
    _explain([*given.fates, *(fate for fate, value in unused if value is not None)])
    places = (
        {"data.source": "bundled", "data.folder": None} if data_dir is None else folder(data_dir)
    )
    names = symbols if isinstance(symbols, str) else list(symbols)
    chosen = given.values | places | markets_of(names) | number_of_envs(n_envs)
    chosen |= choose_actions(chosen)
    made = changed_config(make_config(nest_keys(chosen), "config"), changes)
    try:
        for member in member_configs(made):  # a file for each symbol, and contracts of these names
            check_names(member)
    except DataError as error:  # the script has this key under another name
        text = str(error).replace("data.folder = ", "data_dir (data.folder) = ", 1)
        raise DataError(
            text.replace("(data.source=bundled, without data.folder)", "(data_dir=None)")
        ) from None
    return VectorizedEnv(made)


def _names_task(changes: Changes) -> bool:
    """Return whether changes choose a task that has no target positions."""
    if isinstance(changes, Mapping):
        pairs = list(flat(changes))
    else:
        pairs = [
            (key.strip(), value.strip())
            for key, _, value in (each.partition("=") for each in changes)
        ]
    return any(key == "env.task" and value != TARGETS[key] for key, value in pairs)


def _explain(fates: Sequence[KeyFate]) -> None:
    """Warn about keys that are not taken, each once in a process."""
    new = [fate for fate in fates if fate.kind in (NONE, REFUSED) and str(fate) not in _TOLD]
    _TOLD.update(map(str, new))
    if new:
        warnings.warn(
            "\n".join(["of this configuration:", *(f"  {fate}" for fate in new)]), stacklevel=4
        )


def get_optimal_n_envs(
    symbols: Sequence[str],
    config: Mapping[str, Any] | None = None,
    data_dir: Path | str | None = None,
    *,
    set: Changes = (),
) -> int:
    """Return how many environments train fastest on this machine.

    Measures it now, which compiles a few programs. Arguments as `build_vec_env`. Raises
    ConfigError, DataError, OutOfMemoryError.
    """
    given = {"algorithm": "PPO"} if config is None else config
    env = build_vec_env(symbols, data_dir, given, set=set)
    return prepare_sized(env.config, Screen()).setup.config.rollout.num_envs


class TrainerAgent:
    """IntradayJules' trainer: `create_vectorized_env`, `set_env`, `train`.

    config: nested keys of IntradayJules (docs/interop.md has them all).
    training_env: as `set_env`.
    path: the new run folder; default below `runs/`.
    set: further keys of ours, as in `jaxtrade.run`.

    Raises ConfigError for an unknown key, with a suggestion, and for an algorithm that is not here.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        training_env: VectorizedEnv | None = None,
        *,
        path: Path | str | None = None,
        set: Changes = (),
    ) -> None:
        convert_config(config, "config")
        self._config, self._path, self._set = dict(config), path, set
        self.training_env: VectorizedEnv | None = None
        self.trainer: Trainer | None = None
        if training_env is not None:
            self.set_env(training_env)

    @property
    def trainer_core(self) -> TrainerAgent:
        """Itself: `trainer.trainer_core.get_training_performance_info()`."""
        return self

    def create_vectorized_env(
        self,
        symbols: Sequence[str],
        data_dir: Path | str | None,
        n_envs: int | None = None,
        use_shared_memory: bool | None = None,
        monitor_path: str | None = None,
    ) -> VectorizedEnv:
        """Build environments as `build_vec_env`, with this trainer's configuration."""
        return build_vec_env(
            symbols, data_dir, self._config, n_envs, monitor_path, use_shared_memory, set=self._set
        )

    def set_env(self, env: VectorizedEnv) -> None:
        """Choose what `train` trains on.

        Raises ConfigError for an object that `create_vectorized_env` did not make.
        """
        if not isinstance(env, VectorizedEnv):
            raise ConfigError(
                f"set_env: got <{type(env).__name__}>; give what create_vectorized_env returned: another "
                "environment cannot be compiled with the learner (jaxtrade.from_gymnax takes functional "
                "ones)"
            )
        self.training_env = env

    def get_recommended_n_envs(
        self, symbols: Sequence[str], data_dir: Path | str | None = None
    ) -> int:
        """Return how many environments train fastest here with this learner, measured now.

        Raises as `get_optimal_n_envs`.
        """
        return get_optimal_n_envs(symbols, self._config, data_dir, set=self._set)

    def train(self, existing_model_path: Path | str | None = None) -> Path:
        """Train, save and evaluate -> the folder of the policy.

        The run around it is `self.trainer.run`.

        existing_model_path: a policy folder that this returned, or its run, to begin with.
        Raises ConfigError without an environment, and what `jaxtrade.run` raises.
        """
        if self.training_env is None:
            raise ConfigError(
                "TrainerAgent has no environment: call create_vectorized_env(symbols, data_dir) and give "
                "it to set_env"
            )
        source = None if existing_model_path is None else _run_of(Path(existing_model_path))
        self.trainer = Trainer(self.training_env.config, self._path, from_run=source)
        return self.trainer.train().path / FOLDER

    def get_training_performance_info(self, against_one: bool = False) -> dict[str, Any]:
        """Return what was measured.

        It is `jaxtrade.performance_info`, and the names that IntradayJules has for some of it. None
        is what was not measured, so before `train` most of it. `expected_speedup` is no
        expectation: it is `times_one_env`, which `against_one` measures.
        """
        found = {} if self.trainer is None else self.trainer.performance_info(against_one)
        env = self.training_env
        return found | {
            "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "environment_type": "rows of one compiled program",
            "num_workers": found.get("num_envs", None if env is None else env.num_envs),
            "expected_speedup": found.get("times_one_env"),
            "shared_memory": False,
        }


def _run_of(path: Path) -> Path:
    """Return the run folder of a policy folder. Raises DataError if there is none."""
    for each in (path, *path.parents):
        if (each / "config.yaml").is_file():  # a policy's folder has a manifest too
            return each
    raise DataError(f"{path}: neither a run nor in one; give the path that train() returned")
