"""The training loop: compiled chunks of updates, and a host loop that acts at chunk borders only.

Also the length of a run.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import TrainConfig
from jaxtrade.errors import ConfigError
from jaxtrade.storage.compiling import Pending, Programs
from jaxtrade.storage.host_arrays import to_host
from jaxtrade.storage.monitor import ROWS, ended_episodes
from jaxtrade.storage.sinks import Episodes, MetricSink
from jaxtrade.storage.sizes import program_bytes
from jaxtrade.text import several, short_repr
from jaxtrade.training import replacement
from jaxtrade.training.health import population_health
from jaxtrade.training.hooks import (
    NO_HPARAMS,
    Exchange,
    Hook,
    Hparams,
    Memories,
    apply_change,
    memories,
    recall,
    set_hparams,
)
from jaxtrade.training.population import ONE_DEVICE, RunDevices, Stack
from jaxtrade.training.run_io import RunIO, catch_signals, signal_stops_run
from jaxtrade.types import Array, Learner, LoopState, Metrics, PyTree, Row

# The length of a run in updates and chunks.


class RunLength(NamedTuple):
    """Length of a run in updates and chunks.

    `message` describes the rounding, or is empty if there was none.
    """

    total_updates: int
    chunks: int
    steps_per_update: int
    message: str

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.total_updates * self.steps_per_update


def plan_run(config: TrainConfig, num_envs: int, num_steps: int) -> RunLength:
    """Round `total_timesteps` up to whole chunks of updates.

    One update takes `num_envs` x `num_steps` steps.
    """
    steps_per_update = num_envs * num_steps
    chunks = config.chunks(steps_per_update)
    plan = RunLength(chunks * config.chunk_updates, chunks, steps_per_update, "")
    if plan.total_steps == config.total_timesteps:
        return plan
    return plan._replace(
        message=(
            f"{config.total_timesteps:,} steps are rounded up to {plan.total_steps:,}: {several(chunks, 'chunk')} of "
            f"{several(config.chunk_updates, 'update')} of {num_envs} environments x {num_steps} steps"
        )
    )


# A chunk: a fixed number of updates as one compiled program. The host acts only at chunk
# borders.


class _Compilations(threading.local):
    """Counts the programs that XLA compiles, by thread.

    Others are compiled beside a run, and do not delay it.
    """

    count = 0


_COMPILATIONS = _Compilations()


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    """Count a compilation.

    JAX calls this in the thread that has compiled a program, or read it from JAX's cache.
    """
    del duration_secs, kwargs
    _COMPILATIONS.count += event == "/jax/core/compile/backend_compile_duration"


@functools.cache  # one listener per process
def _count_compilations() -> _Compilations:
    jax.monitoring.register_event_duration_secs_listener(_listen)
    return _COMPILATIONS


def chunk_program(
    algorithm: Learner,
    updates: int,
    exchange: Exchange | None = None,
    place: RunDevices = ONE_DEVICE,
    state: PyTree = None,
    params: PyTree = None,
) -> Any:
    """Return the jitted function of `updates` updates.

    It maps (state, params, inputs) to (state, metrics [updates, ...], news), and donates the state:
    its arrays are invalid after the call.

    inputs: [updates, ...], or None if the algorithm takes no inputs.
    news: result of `exchange.close_chunk`, or None.
    place: the devices; with several, `algorithm` is from its `wrap`, and `state` and `params` are
        given, or shapes of them.
    """

    def run(state: PyTree, params: PyTree, inputs: PyTree = None) -> tuple[PyTree, Metrics, PyTree]:
        state, metrics = jax.lax.scan(
            lambda state, now: algorithm.update(state, params, now), state, inputs, length=updates
        )
        state, news = exchange.close_chunk(state) if exchange else (state, None)
        return state, metrics, news

    return place.program(run, state, params)


@dataclass
class Chunk:
    """A chunk that is being compiled.

    pending: its program, from `chunk_program`.
    recompiles: programs that were compiled because chunks ran.
    """

    pending: Pending
    recompiles: int = 0

    def __call__(
        self, state: PyTree, params: PyTree, inputs: PyTree = None
    ) -> tuple[PyTree, dict[str, np.ndarray], PyTree]:
        """Run the chunk and wait for the device. Metrics and news are NumPy arrays.

        Programs that this thread compiles meanwhile count as recompiles.
        """
        program, counted = self.pending.wait(), _count_compilations()
        before = counted.count
        state, metrics, news = program(state, params, inputs)
        state, (measured, news) = jax.block_until_ready(state), to_host((metrics, news))
        self.recompiles += (
            0 if self.pending.eager else counted.count - before
        )  # without jit, each operation is compiled
        return state, measured, news


class TrainResult(NamedTuple):
    """Result of a run: final state, one row per update of this process, and facts about it.

    health: check -> (passed, value), see `health.learning_health`.
    stopped: True if a hook ended the run early. With several agents, `state` is stacked, `steps`
        counts the steps of one agent, and `steps_per_second` is that of all agents together.
    program_bytes: what the compiled chunk works on; None if it is unknown or none was compiled.
    """

    state: PyTree
    history: list[Row]
    health: dict[str, tuple[bool, float]]
    updates: int
    steps: int
    compile_seconds: float
    steps_per_second: float
    stopped: bool
    program_bytes: int | None = None

    def __repr__(self) -> str:
        failed = [name for name, (passed, _) in self.health.items() if not passed]
        return short_repr(
            "TrainResult",
            several(self.updates, "update"),
            several(self.steps, "step"),
            f"{self.steps_per_second:,.0f} steps/s",
            f"compiled in {self.compile_seconds:.1f} s",
            f"health: {'failed ' + ', '.join(failed) if failed else 'ok'}",
            *(["stopped early"] if self.stopped else []),
            several(len(self.history), "metric row"),
        )


def train(
    algorithm: Learner,
    params: PyTree,
    *,
    config: TrainConfig,
    key: Array | None = None,
    state: PyTree | None = None,
    sinks: Sequence[MetricSink] = (),
    checkpoint_dir: Path | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    hooks: Sequence[Hook] = (),
    num_seeds: int | Stack | None = None,
    hparams: Hparams = NO_HPARAMS,
    max_rollbacks: int | None = 0,
    exchange: Exchange | None = None,
    programs: Programs | None = None,
    ahead: Callable[[PyTree], object] | None = None,
    place: RunDevices = ONE_DEVICE,
) -> TrainResult:
    """Train until `state.total_updates`, the length of the algorithm's run (see `plan_run`).

    Args:
        algorithm: the algorithm of one agent, built for that length.
        params: environment parameters; traced, never compiled into the program.
        key: starts a new run.
        state: continues a run, and stays valid for the caller. Give exactly one of `key`
            and `state`.
        sinks: each receives the rows of every chunk.
        checkpoint_dir: folder of whole-state checkpoints, written every `config.checkpoint_every`
            chunks and at the end. None: the run saves nothing.
        metadata: JSON values for each checkpoint; only with `checkpoint_dir`.
        hooks: called in order after every chunk. See `hooks.Change` for what they may change, and
            `hooks.StatefulHook` for hooks with a memory.
        num_seeds: number of agents that train side by side as one program and share `params`
            (default: `config.num_seeds`), or a `population.Stack` that says what they share. With
            several agents, `key` is one key per agent (`Stack.keys`), or a single key from which
            agent i gets `fold_in(key, i)`. Every array of the state then has a leading axis of
            agents, in checkpoints and hooks too. Rows hold the mean over agents under "name" and a
            list by agent under "name/each".
        hparams: tunable floats with which a new run begins, by name, in place of the algorithm's
            own; as `hooks.Change.hparams`. Not with `state`, which has its own.
        max_rollbacks: how often the run may roll back when a loss or gradient is not finite (see
            `replacement.rolled_back`). The state counts rollbacks over the whole run. The run goes
            back to its last checkpoint (without `checkpoint_dir`: to the state that would have been
            saved), or to its start before the first one. Later rows are dropped, also by
            the sinks. Of several agents only the one that diverged goes back, and the limit
            is for each (see `replacement`). A resumed run goes back to where it was stopped at
            most. None: it neither rolls back nor ends; the learner skips steps that are not finite.
        exchange: exchange of data with the host in each update. A stateful exchange must be among
            `hooks` too.
        programs: where `init` and the chunk are compiled, side by side. Default: here.
        ahead: called once with the shapes of the state while the chunk is compiled, to begin
            further programs.
        place: the devices. `state`, checkpoints, the result and what hooks get have the same form
            on any of them.

    Raises:
        ValueError: both or neither of `key` and `state` are given, hparams with `state`, or
            metadata without a folder.
        DivergedError: a loss or gradient is not finite and no rollback is left; of several agents,
            for none of them. That state is not saved.
        PreemptedError, InterruptedRunError: SIGTERM, SIGINT (main thread). It stops at the chunk
            border and is saved.
        StorageError: a checkpoint could not be written.
        ConfigError: the length of the run is not a whole number of chunks, a hook sets an unknown
            hyper-parameter, or `state` or `key` is for another number of agents.
    """
    if (key is None) == (state is None):
        raise ValueError("train needs either key (a new run) or state (to continue one)")
    if state is not None and hparams:
        raise ValueError(
            "hparams are those with which a new run begins; a state has its own (see hooks.set_hparams)"
        )
    if metadata and checkpoint_dir is None:
        raise ValueError("metadata go into checkpoints, and without checkpoint_dir there are none")
    stack = Stack.of(config.num_seeds if num_seeds is None else num_seeds)
    stacked, params = place.wrap(algorithm, stack), place.put_params(params)
    if exchange is not None:
        stacked = exchange.wrap(stacked)
    directory = None if checkpoint_dir is None else Path(checkpoint_dir)
    io = RunIO(sinks, directory, metadata or {}, config.keep_checkpoints)
    with Programs() if programs is None else nullcontext(programs) as compiling:
        io.phase("compiling", "the training program", lambda: compiling.busy)
        # A new state is drawn while the chunk is compiled for its shapes. With an exchange the
        # chunk waits: its inputs follow from the first state.
        init = keys = None
        if key is not None:
            keys = stack.split_key(key)
            init = compiling.begin("init", jax.jit(stacked.init), (keys, params))
        first = place.put(state) if init is None else init.result_like
        stack.check(first)
        name = f"train chunk of {config.chunk_updates} updates"
        name += "" if exchange is None else " with advice"
        program = chunk_program(stacked, config.chunk_updates, exchange, place, first, params)
        chunk = None
        if init is not None:
            if exchange is None:
                chunk = _begin(compiling, io, name, program, (first, params, None))
            # The floats are set after `init`, so that other values are no other program.
            first = place.reshard(set_hparams(init.wait()(keys, params), hparams))
        run = _TrainingRun(stacked, params, first, config, stack, io, hooks, exchange, place, chunk)
        # Else a third copy of a large state (a replay) would stay in memory beside the run's two.
        del first
        if run.chunk is None and run.is_unfinished:
            run.ready = run.inputs()
            run.chunk = _begin(compiling, io, name, program, (run.state, params, run.ready))
        _loop(run, max_rollbacks, ahead)
    return run.result()


def _begin(compiling: Programs, io: RunIO, name: str, program: Any, args: tuple[Any, ...]) -> Chunk:
    """Begin to compile the chunk, and tell once how long that takes."""
    pending = compiling.begin(name, program, args)
    if line := pending.forecast():
        io.message(line)
    return Chunk(pending)


class _Point(NamedTuple):
    """The point to which a run can roll back: its last checkpoint, or its start."""

    state: LoopState
    update: int
    rollbacks: int
    memories: Memories


@dataclass
class _TrainingRun:
    """The progress of a run. The next chunk donates `state`, so nothing else may hold its arrays.

    retries: number of rollbacks to `good`, the current rollback point.
    trained: updates done by this process, including undone ones.
    seconds: time that they took.
    """

    algorithm: Learner
    params: PyTree
    state: Any
    config: TrainConfig
    stack: Stack
    io: RunIO
    hooks: Sequence[Hook]
    exchange: Exchange | None
    place: RunDevices
    chunk: Chunk | None
    history: list[Row] = field(default_factory=list)
    ended: Sequence[Episodes] = ()  # of the last chunk, by update
    stopped: bool = False
    trained: int = 0
    retries: Any = 0  # several agents: int[agents]
    seconds: float = 0.0
    asked: bool = False  # a hook has asked for a checkpoint

    def __post_init__(self) -> None:
        self.update, self.total = map(
            self.stack.first, to_host((self.state.update, self.state.total_updates))
        )
        self.updates = self.config.chunk_updates
        self.steps_per_update = self.algorithm.info.steps_per_update
        if (self.total - self.update) % self.updates:
            raise ConfigError(
                f"train.chunk_updates={self.updates}: the {self.total - self.update} updates left are "
                "not a whole number of chunks; keep the value that the run was started with"
            )
        self.good = self._point(memories(self.hooks))
        self.state = self.place.copy(self.state)
        self.ready: PyTree = (
            None  # inputs of the first chunk, which the compilation has already requested
        )

    @property
    def is_unfinished(self) -> bool:
        return self.update < self.total and not self.stopped

    @property
    def rollbacks(self) -> int:
        """Number of rollbacks in the whole run, including earlier processes.

        Of several agents it is the most of any.
        """
        return self.good.rollbacks + int(np.max(self.retries))

    @property
    def speed(self) -> float:
        """Environment steps per second of all agents together, without the compilation.

        NaN before the first chunk.
        """
        steps = self.trained * self.steps_per_update * self.stack.count
        return steps / self.seconds if self.seconds else float("nan")

    def wait(self, ahead: Callable[[PyTree], object] | None) -> None:
        """Wait for the chunk's program, unless the run is finished.

        Other programs are begun meanwhile (`ahead`).
        """
        if self.chunk is None or not self.is_unfinished:
            return
        if ahead is not None:
            ahead(jax.eval_shape(lambda state: state, self.state))
        pending = self.chunk.pending
        pending.wait()
        if pending.eager:
            self.io.message("compute.eager: nothing is compiled, which is very slow")
        self.io.phase(
            "training", f"{self.total * self.steps_per_update:,} steps in {self.total} updates"
        )

    def inputs(self) -> PyTree:
        """Return the inputs of the next chunk: None without an exchange."""
        return None if self.exchange is None else self.exchange.inputs(self.update, self.updates)

    def advance(self) -> list[dict[str, Any]]:
        """Run one chunk, and return its rows.

        `update` does not change: `report` advances it once the chunk is accepted.
        """
        assert self.chunk is not None
        start = time.perf_counter()
        inputs, self.ready = self.inputs() if self.ready is None else self.ready, None
        self.state, metrics, news = self.chunk(self.state, self.params, inputs)
        self.ended = ended_episodes(metrics.pop(ROWS, None), self.update, self.stack.count)
        if self.exchange is not None:
            self.exchange.receive(self.update + self.updates, news)
        self.seconds += time.perf_counter() - start
        self.trained += self.updates
        return [
            {
                "update": update,
                "total_updates": self.total,
                "steps": update * self.steps_per_update,
                **self.stack.row({name: values[i] for name, values in metrics.items()}),
            }
            for i, update in enumerate(range(self.update + 1, self.update + self.updates + 1))
        ]

    def respond(self, rows: list[dict[str, Any]], allowed: int | None) -> replacement.Response:
        """Handle the losses and gradients of a chunk, and return what followed from them."""
        if self.stack.shape and allowed and not self.stack.meets:
            return (
                replacement.Response.END
                if self.replace(rows, allowed)
                else replacement.Response.GO_ON
            )
        action = replacement.respond(rows, self.rollbacks, allowed)
        if action is replacement.Response.ROLL_BACK:
            fault = replacement.describe(rows, self.algorithm.info.step_sizes)
            self.roll_back(
                f"{fault}; rolled back to update {self.good.update} "
                f"(rollback {self.rollbacks + 1} of at most {allowed})"
            )
        return action

    def roll_back(self, message: str) -> None:
        """Go back to the rollback point.

        The run goes on with other random numbers and the changes of `LearnerInfo.retry`.
        """
        self.retries += 1
        again = replacement.rolled_back(self.good.state, self.retries, self.algorithm.info.retry)
        self.state = self.place.copy(self.place.reshard(again))
        self.update = self.good.update
        self.history = [row for row in self.history if row["update"] <= self.update]
        recall(self.hooks, self.good.memories)
        self.io.rewind(self.update, self.update * self.steps_per_update)
        self.io.message(f"{message}, with {replacement.changes_of(self.algorithm)}")

    def replace(self, rows: list[dict[str, Any]], allowed: int) -> bool:
        """Put back the agents, of several, that diverged in this chunk.

        Returns whether all of them have diverged for good.
        """
        before = to_host(self.state.rollbacks).reshape(-1)
        decision = replacement.decide(rows, before, allowed)
        if decision.back.any():
            self.retries = self.retries + decision.again
            self.state = self.place.reshard(
                replacement.replace_diverged(
                    self.state,
                    self.good.state,
                    decision,
                    self.retries,
                    self.algorithm.info.retry,
                    self.stack,
                )
            )
            replacement.mark_undone(rows, decision)
        for line in replacement.messages(
            rows, decision, before, allowed, self.good.update, self.algorithm
        ):
            self.io.message(line)
        return bool(decision.stays.all())

    def report(self, rows: list[dict[str, Any]]) -> None:
        """Accept a chunk: advance `update`, and write its rows to the history and the sinks."""
        self.update += self.updates
        eta = (self.total - self.update) * self.steps_per_update * self.stack.count / self.speed
        for row in rows:
            row |= {"seconds": self.seconds, "steps_per_second": self.speed, "eta_seconds": eta}
        self.history += rows
        self.io.write(rows)
        self.io.episodes(self.ended)

    def call_hooks(self) -> None:
        if not self.hooks:
            return
        before = state = self.place.gather(self.state)
        for hook in self.hooks:
            change = hook(state, self.update)
            state = apply_change(state, change)
            self.stopped |= change.stop
            self.asked |= change.save
        if state is not before:
            self.state = self.place.put(state)

    def save(self, interrupted: bool, keep: bool) -> None:
        """Write a checkpoint if one is due.

        keep: also keep its state in memory as the rollback point.
        """
        due = self.update // self.updates % self.config.checkpoint_every == 0 or self.asked
        self.asked = False
        if due or interrupted or not self.is_unfinished:
            saved = memories(self.hooks)
            self.io.save(
                self.place.gather(self.state),
                self.update,
                self.update * self.steps_per_update,
                saved,
            )
            if keep:
                self.good, self.retries = self._point(saved), 0
                self.state = self.place.copy(self.state)

    def _point(self, saved: Memories) -> _Point:
        return _Point(self.state, self.update, int(np.max(self.state.rollbacks)), saved)

    def result(self) -> TrainResult:
        recompiles, seconds, size, health = 0, 0.0, None, {}
        if self.chunk is not None:
            pending, recompiles = self.chunk.pending, self.chunk.recompiles
            seconds, size = pending.seconds, program_bytes(pending.wait())
        if self.history:
            health = population_health(
                self.history, recompiles, self.stack, self.algorithm.info.health
            )
        return TrainResult(
            self.place.gather(self.state),
            self.history,
            health,
            self.update,
            self.update * self.steps_per_update,
            seconds,
            self.speed,
            self.stopped,
            size,
        )


def _loop(
    run: _TrainingRun, max_rollbacks: int | None, ahead: Callable[[PyTree], object] | None
) -> None:
    """Run chunk by chunk to the end, or until a hook, a signal or a divergence ends the run."""
    with catch_signals() as signals:
        with signals.no_border():
            run.wait(ahead)
        while run.is_unfinished:
            rows = run.advance()
            action = run.respond(rows, max_rollbacks)
            if action is replacement.Response.ROLL_BACK:
                continue
            run.report(rows)
            if action is replacement.Response.END:
                raise replacement.make_diverged_error(
                    rows, run.rollbacks, run.io.newest(), run.algorithm
                )
            run.call_hooks()
            received = signals.at_border()
            run.save(received is not None, keep=bool(max_rollbacks))
            if received is not None and signal_stops_run(
                received, finished=run.update >= run.total
            ):
                raise run.io.make_interrupted_error(received, run.update)
