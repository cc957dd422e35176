"""`Trainer`: one run as an object with `train`, `evaluate`, `performance_info` and `policy`, for
notebooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.config import Changes, RunConfig
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.data.read.bars import Bars
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.policy import LoadedPolicy
from jaxtrade.runs.evaluate import evaluate_run
from jaxtrade.runs.performance import performance_info
from jaxtrade.runs.python import configured, run
from jaxtrade.runs.stored import StoredEvaluation, StoredRun, open_run
from jaxtrade.runs.train import RunResult, resume
from jaxtrade.text import short_repr

if TYPE_CHECKING:
    import pandas as pd


class Trainer:
    """A run to be trained, evaluated and looked at.

        trainer = jaxtrade.Trainer("quickstart", total_timesteps=40_960, num_envs="auto")
        trainer.train()
        print(trainer.evaluate().table, trainer.performance_info()["steps_per_second"])

    It is `jaxtrade.run` in steps: the same arguments, the same run folder. Its configuration is
    read and checked at once, and nothing is trained before `train`.
    """

    def __init__(
        self,
        config: RunConfig | str | Path = "quickstart",
        path: Path | str | None = None,
        *,
        data: pd.DataFrame | Bars | Path | str | Mapping[str, Any] | None = None,
        set: Changes = (),
        from_run: Path | str | None = None,
        **settings: Any,
    ) -> None:
        """Arguments as `jaxtrade.run`. Raises ConfigError."""
        self.config = configured(config, data, set, settings)
        self._given = {"data": data, "set": set, "from_run": from_run} | settings
        self._config, self._new, self._path = config, path, None if path is None else Path(path)
        self._trained = False

    def __repr__(self) -> str:
        """What is trained, and where it is once it is trained."""
        config = self.config
        done = f"trained: {self._path}" if self._trained else "not trained yet"
        return short_repr(
            "Trainer",
            set_name(symbols_of(config)),
            f"task {config.env.task}",
            config.algorithm,
            f"{config.train.total_timesteps:,} steps",
            done,
        )

    @property
    def path(self) -> Path:
        """The run folder. Raises ConfigError before `train`."""
        if not self._trained or self._path is None:
            raise ConfigError(
                "this Trainer has trained nothing yet; call train() first, or open a finished run: "
                "jaxtrade.open_run(PATH)"
            )
        return self._path

    @property
    def run(self) -> StoredRun:
        """The run, read from its folder. Raises ConfigError before `train`."""
        return open_run(self.path)

    def train(self) -> RunResult:
        """Train a new run, save its policy and evaluate it; a run that `control.wall_clock` has
        stopped goes on.

        Raises what `jaxtrade.run` raises.
        """
        if self._trained:
            return resume(self.path)
        result = run(self._config, self._new, **self._given)
        self._trained, self._path = True, result.path
        return result

    def evaluate(self, split: str = "test") -> StoredEvaluation:
        """The policy on a split: `test`, `validation`, `train` or `all`. It is read if the run has
        it already.

        Of several seeds it is the first one's. Raises ConfigError before `train`, and for an
        unknown or empty split.
        """
        if split not in _splits(self.run):
            evaluate_run(self.path, split)
        return _splits(self.run)[split]

    def performance_info(self, against_one: bool = False) -> dict[str, Any]:
        """What the run measured of itself: `jaxtrade.performance_info`."""
        return performance_info(self.path, against_one)

    @property
    def policy(self) -> LoadedPolicy:
        """The trained policy (of the first seed), ready to act. Raises ConfigError before
        `train`.
        """
        return self.run.policy


def _splits(stored: StoredRun) -> dict[str, StoredEvaluation]:
    """Split -> its evaluation, of the first seed."""
    found: dict[str, StoredEvaluation] = {}
    for name, evaluation in stored.evaluations.items():
        found.setdefault(name.partition("/")[0], evaluation)
    return found
