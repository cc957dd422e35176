"""How a run begins: from its seed, from its own newest checkpoint, or from a source run.

The three classes have one interface:

- `state`: the state to train from; None if it is to be drawn from the seed.
- `update`: the number of updates done so far.
- `coverage`: the report of a transfer, or None.
- `resume_update`: rows of metrics up to this update, written by an earlier process, are kept; None if there are none.
- `memory(hook)`: what the hook saved in the checkpoint, or None.
- `arguments(setup, advice)`: the argument `key` or `state` of `training.loop.train`. `advice` goes into the first
  state of a new run.
- `lines()`: what the run prints about its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxtrade.errors import ConfigError
from jaxtrade.rl.listening import AdviceState, start_advice
from jaxtrade.rl.state import OpeningPlan
from jaxtrade.rl.train_state import TrainState
from jaxtrade.rl.transfer import Coverage, coverage_lines
from jaxtrade.runs.setup import Setup
from jaxtrade.runs.source import Source, begin, layout_of, open_source
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import Programs
from jaxtrade.training.hooks import set_hparams
from jaxtrade.types import LoopState, PyTree

METRICS = "metrics.jsonl"  # in the run folder


@dataclass(frozen=True)
class Fresh:
    """A run that begins from its seed. resume_update: 0 if an earlier process started but saved no
    checkpoint.
    """

    resume_update: int | None = None
    state: ClassVar[None] = None
    update: ClassVar[int] = 0
    coverage: ClassVar[None] = None

    def memory(self, hook: str) -> None:
        """None: no hook has a memory yet."""
        del hook

    def arguments(self, setup: Setup, advice: AdviceState | None) -> dict[str, PyTree]:
        """One key per agent, and in a sweep its tunable floats. The learner's `init` adds the
        advice.
        """
        del advice
        return {"key": setup.stack.keys(setup.config.seed), "hparams": setup.hparams}

    def lines(self) -> Iterator[str]:
        if self.resume_update is not None:
            yield "no checkpoint had been written: starting again from the beginning"


@dataclass(frozen=True)
class Transferred:
    """A run that begins with the parameters of a source run. resume_update: as in `Fresh`."""

    state: TrainState
    coverage: Coverage
    resume_update: int | None = None
    update: ClassVar[int] = 0

    def memory(self, hook: str) -> None:
        """None: no hook has a memory yet."""
        del hook

    def arguments(self, setup: Setup, advice: AdviceState | None) -> dict[str, PyTree]:
        """The transferred state, with `advice` and the tunable floats of a sweep added."""
        state = set_hparams(self.state, setup.hparams)
        return {"state": state if advice is None else state.replace(advice=advice)}

    def lines(self) -> Iterator[str]:
        yield from Fresh(self.resume_update).lines()
        yield from coverage_lines(self.coverage)


@dataclass(frozen=True)
class Resumed:
    """A run that continues from its own newest good checkpoint."""

    restored: checkpoint.Restored
    coverage: ClassVar[None] = None

    @property
    def state(self) -> LoopState:
        """The saved state of the run's learner."""
        return self.restored.state

    @property
    def update(self) -> int:
        """The update after which the run goes on."""
        return self.restored.step

    @property
    def resume_update(self) -> int:
        return self.restored.step

    def memory(self, hook: str) -> dict[str, Any]:
        """What the hook saved in the checkpoint."""
        return self.restored.metadata["hooks"][hook]

    def arguments(self, setup: Setup, advice: AdviceState | None) -> dict[str, PyTree]:
        """The saved state. It already holds its advice, so `advice` is not used."""
        del setup, advice
        return {"state": self.restored.state}

    def lines(self) -> Iterator[str]:
        yield from (f"passed over: {problem}" for problem in self.restored.problems)
        yield f"resumed after update {self.restored.step}"


Beginning = Fresh | Resumed | Transferred


def transferred(
    setup: Setup, source: Source, programs: Programs | None = None, resume_update: int | None = None
) -> Transferred:
    """The beginning of a run from `source`. setup: made from a configuration that `adopt` returned.

    programs: where `init` is compiled. Default: here.

    Raises ConfigError.
    """
    init = jax.jit(setup.stack.wrap(setup.algorithm).init)
    args = (setup.stack.keys(setup.config.seed), setup.trained_params)
    fresh = init(*args) if programs is None else programs.begin("init", init, args).wait()(*args)
    return Transferred(*begin(setup.config, source, fresh), resume_update)


def resumed(
    setup: Setup, path: Path, manifest: dict[str, Any], programs: Programs | None = None
) -> Beginning:
    """How the run at `path` continues: from its newest good checkpoint, or from its beginning if it
    saved none.

    programs: as in `transferred`.

    Raises CheckpointError (every checkpoint is damaged) or ConfigError (its source run has
    changed).
    """
    if checkpoint.list_checkpoints(path / "checkpoints"):
        return Resumed(
            checkpoint.restore_latest(path / "checkpoints", _state_like(setup, manifest))
        )
    again = 0 if (path / METRICS).exists() else None
    if manifest.get("source"):
        return transferred(setup, source_again(path, manifest["source"]), programs, again)
    return Fresh(again)


def source_again(path: Path, named: dict[str, Any]) -> Source:
    """The source of a run that stopped before its first checkpoint, beside the run or where it was
    then.

    Raises ConfigError if the source has changed.
    """
    beside = (
        path / named["relative"] if "relative" in named else None
    )  # runs of earlier versions lack it
    source = open_source(named["path"] if beside is None or not beside.is_dir() else str(beside))
    if (source.update, source.config_sha256) != (named["update"], named["config_sha256"]):
        raise ConfigError(
            f"{path}: began with update {named['update']} of {named['path']}, whose newest checkpoint is "
            f"now of update {source.update}; nothing of this run was saved, so train a new one"
        )
    return source


def _state_like(setup: Setup, manifest: dict[str, Any]) -> PyTree:
    """The structure of the run's state: shapes and dtypes only, nothing is computed."""
    stack = setup.stack
    state = jax.eval_shape(
        stack.wrap(setup.algorithm).init, stack.keys(setup.config.seed), setup.trained_params
    )
    if (view := setup.params.advice) is not None:
        size = setup.market.num_bars
        state = state.replace(
            advice=jax.eval_shape(
                lambda: start_advice(
                    view, jnp.zeros(size, jnp.int8), jnp.zeros(size, bool), setup.config.advisor
                )
            )
        )
    opens = (manifest.get("source") or {}).get("new_actions") and not layout_of(
        setup.config
    ).head.held
    if not opens:
        return state
    plan = jax.eval_shape(
        lambda: OpeningPlan(jnp.zeros(setup.env.num_actions, bool), jnp.float32(0), jnp.float32(0))
    )
    return state.replace(opening=stack.like(plan))
