"""The training loop: compiled chunks of updates, and a host loop that acts only between them."""

from __future__ import annotations

import enum
import functools
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade import checkpoint
from jaxtrade.config import TrainConfig
from jaxtrade.errors import ConfigError, DivergedError, InterruptedRunError, PreemptedError, StorageError
from jaxtrade.metrics import EACH, MetricSink, Rewinding
from jaxtrade.rl.advised import Exchange
from jaxtrade.rl.health import population_health
from jaxtrade.rl.population import mean_and_each, population
from jaxtrade.rl.signals import catch_signals
from jaxtrade.types import Algorithm, Array, LoopState, PyTree


class Control(enum.Enum):
    """What a hook wants at a chunk border."""

    CONTINUE = "continue"
    STOP = "stop"


# (state, updates done) -> (control, tunable floats to set from here on, by name)
Hook = Callable[[PyTree, int], tuple[Control, Mapping[str, float]]]
Row = dict[str, Any]


@runtime_checkable
class Remembering(Protocol):
    """A hook whose decisions follow from earlier ones. What it remembers goes into each checkpoint's metadata, as
    `hooks.<name>`, and back to what it was where the run rolls back; whoever resumes a run hands it over."""

    @property
    def name(self) -> str: ...

    def __call__(self, state: PyTree, update: int) -> tuple[Control, Mapping[str, float]]: ...

    def memory(self) -> dict[str, Any]:
        """JSON values; asked for when the run begins and just before each checkpoint is written."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None: ...


class Plan(NamedTuple):
    """Length of a run in updates and chunks. `message` says what was rounded, and is empty if nothing was."""

    total_updates: int
    chunks: int
    steps_per_update: int
    message: str

    @property
    def total_steps(self) -> int:
        return self.total_updates * self.steps_per_update


class TrainResult(NamedTuple):
    """What a run left: final state, one row per update of this process, and figures about the run itself.

    health: check -> (passed, value), see `learning_health`. stopped: a hook ended the run early. With several agents
    `state` is stacked, `steps` are those of each agent and `steps_per_second` those of all together.
    """

    state: PyTree
    history: list[Row]
    health: dict[str, tuple[bool, float]]
    updates: int
    steps: int
    compile_seconds: float
    steps_per_second: float
    stopped: bool


def plan_run(config: TrainConfig, num_envs: int, num_steps: int) -> Plan:
    """Round `total_timesteps` up to whole updates of `num_envs` x `num_steps` steps, and these to whole chunks."""
    steps_per_update = num_envs * num_steps
    per_chunk = steps_per_update * config.chunk_updates
    chunks = -(-config.total_timesteps // per_chunk)
    plan = Plan(chunks * config.chunk_updates, chunks, steps_per_update, "")
    if plan.total_steps == config.total_timesteps:
        return plan
    return plan._replace(message=(
        f"{config.total_timesteps:,} steps are rounded up to {plan.total_steps:,}: {chunks} chunks of "
        f"{config.chunk_updates} updates of {num_envs} environments x {num_steps} steps"))


class _Compilations:
    """How many programs XLA has compiled in this process, by JAX's own monitoring events."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        self.count += event == "/jax/core/compile/backend_compile_duration"


@functools.cache
def _compilations() -> _Compilations:
    return _Compilations()


class _Chunk:
    """`updates` updates as one compiled program, which takes the state over (donates it).

    inputs: of the updates, [updates, ...]; None where nothing comes from outside.
    """

    def __init__(self, algorithm: Algorithm, updates: int, exchange: Exchange | None = None) -> None:
        self.recompiles = 0

        def run(state: PyTree, params: PyTree, inputs: PyTree = None) -> tuple[PyTree, dict[str, Array], PyTree]:
            state, metrics = jax.lax.scan(lambda s, given: algorithm.update(s, params, given), state, inputs,
                                          length=updates)
            state, news = exchange.close_chunk(state) if exchange else (state, None)
            return state, metrics, news

        self._jitted = jax.jit(run, donate_argnums=0)

    def compile(self, state: PyTree, params: PyTree, inputs: PyTree = None) -> float:
        """Ahead of time; returns the seconds it took."""
        start = time.perf_counter()
        self._compiled = self._jitted.lower(state, params, inputs).compile()
        return time.perf_counter() - start

    def __call__(self, state: PyTree, params: PyTree,
                 inputs: PyTree = None) -> tuple[PyTree, dict[str, np.ndarray], PyTree]:
        """Returns once the device has finished. Counts what was compiled meanwhile."""
        before = _compilations().count
        state, metrics, news = self._compiled(state, params, inputs)
        state, (measured, news) = jax.block_until_ready(state), jax.device_get((metrics, news))
        self.recompiles += _compilations().count - before
        return state, measured, news


def set_hparams(state: PyTree, overrides: Mapping[str, float]) -> PyTree:
    """`state` with some tunable floats changed, for good: they are part of the state. Raises ConfigError."""
    if not overrides:
        return state
    known = {name: getattr(state.hparams, name) for name in getattr(state.hparams, "__dataclass_fields__", ())}
    for name in overrides:
        if name not in known:
            raise ConfigError(f"'{name}' is not a tunable float of this run (there are: {', '.join(known) or 'none'})")
    changed = {name: jnp.full_like(known[name], value) for name, value in overrides.items()}
    return state.replace(hparams=state.hparams.replace(**changed))


def _rows(metrics: dict[str, np.ndarray], first_update: int, total_updates: int, steps_per_update: int,
          num_seeds: int) -> list[Row]:
    """Metrics stacked over a chunk -> one row per update, of Python numbers and lists; see `mean_and_each`."""

    def plain(values: dict[str, np.ndarray]) -> dict[str, Any]:
        if num_seeds > 1:
            return mean_and_each(values)
        return {name: value.tolist() for name, value in values.items()}

    count = len(next(iter(metrics.values())))
    return [
        {"update": first_update + i + 1, "total_updates": total_updates,
         "steps": (first_update + i + 1) * steps_per_update,
         **plain({name: values[i] for name, values in metrics.items()})}
        for i in range(count)
    ]


def _fault(row: Row) -> str:
    each = row.get("finite" + EACH)
    whose = f" of agent {each.index(False)}" if each else ""
    rate = f", at learning rate {row['learning_rate']:.3g}" if "learning_rate" in row else ""
    return f"update {row['update']}: a loss or gradient{whose} is not finite{rate}"


def _diverged(row: Row, directory: Path | None, rollbacks: int, remedy: str) -> DivergedError:
    saved = checkpoint.list_checkpoints(directory) if directory else []
    kept = f"; the last checkpoint is {saved[-1][1]}" if saved else ""
    often = f", after {rollbacks} rollback{'' if rollbacks == 1 else 's'}" if rollbacks else ""
    tries = f"{remedy}, or check" if remedy else "check"
    return DivergedError(f"{_fault(row)}{often}{kept}; {tries} the scale of the reward")


class _Point(NamedTuple):
    """Where a run can roll back to: what was saved, or started from, last. memories: of hooks, by name."""

    state: LoopState
    update: int
    memories: dict[str, dict[str, Any]]

    @property
    def rollbacks(self) -> int:
        return _first(self.state.rollbacks)


def rolled_back(state: LoopState, times: int, retry: Callable[[Any, int], Any]) -> PyTree:
    """`state` to go on from, after the run has come back to it `times` times: the count of all rollbacks is folded into
    its key, and `retry` (`Algorithm.retry`) changes its hparams."""
    rollbacks = state.rollbacks + jnp.int32(times)
    fold = jax.vmap(jax.random.fold_in) if rollbacks.ndim else jax.random.fold_in
    return state.replace(key=fold(state.key, rollbacks), rollbacks=rollbacks, hparams=retry(state.hparams, times))


def train(algorithm: Algorithm, params: PyTree, *, config: TrainConfig, key: Array | None = None,
          state: PyTree | None = None, sinks: Sequence[MetricSink] = (), checkpoint_dir: Path | str | None = None,
          metadata: Mapping[str, Any] | None = None, hooks: Sequence[Hook] = (),
          num_seeds: int | None = None, max_rollbacks: int = 0, exchange: Exchange | None = None) -> TrainResult:
    """Train until `state.total_updates`, the length that the algorithm was made for (see `plan_run`).

    Args:
        params: the environment's parameters; traced, never copied into the program.
        key: starts a new run. state: continues one. Exactly one of them; the caller's `state` stays valid.
        num_seeds: agents trained side by side as one program, over the same `params` (default: `config.num_seeds`).
            With more than one, `key` is one key per agent (`population.seed_keys`), or one key from which agent i gets
            `fold_in(key, i)`; every array of the state has a leading axis of agents, checkpoints and the state that
            hooks see too; rows hold the mean over agents by name and a list by agent as "name/each".
        sinks: each receives the rows of every chunk.
        checkpoint_dir: whole-state checkpoints, every `config.checkpoint_every` chunks and at the end.
        metadata: JSON values that go into each checkpoint.
        hooks: called after every chunk; may stop the run or set tunable floats. One that remembers is `Remembering`.
        max_rollbacks: how often the run may go back to the state that was saved (or would have been, without a
            directory) or started from last, when a loss or gradient is not finite: see `rolled_back`. Counted over the
            whole run, in the state. Rows since then are dropped, by sinks that are `Rewinding` too. Of several agents
            all go back when one has to. A run that was stopped by a signal between two checkpoints of its schedule and
            resumed goes back to where it was stopped, and no further.
        exchange: brings advice into the run's updates; one that remembers is among the hooks, too.
    Raises:
        DivergedError: a loss or gradient is not finite, and no rollback is left; that state is not saved.
        PreemptedError, InterruptedRunError: SIGTERM, SIGINT; saved at the chunk border (main thread only).
        StorageError: a checkpoint could not be written.
        ConfigError: the run's length is not a whole number of chunks, a hook names an unknown float, or `state` or
            `key` is of another number of agents.
    """
    if (key is None) == (state is None):
        raise ValueError("train needs either key (a new run) or state (to continue one)")
    agents = config.num_seeds if num_seeds is None else num_seeds
    algorithm = population(algorithm, agents)
    if exchange is not None:
        algorithm = exchange.wrap(algorithm)
    given: LoopState = jax.jit(algorithm.init)(_agent_keys(key, agents), params) if state is None else state
    if given.update.shape != _leading(agents):
        raise ConfigError(f"train.num_seeds={agents}: the given state is of {given.update.size} agent(s); keep the "
                          "value that the run was started with")
    # A chunk takes its input over: the caller keeps his arrays, and no two leaves may share one.
    current: PyTree = jax.tree.map(jnp.copy, given)
    update, total = _first(current.update), _first(current.total_updates)
    steps_per_update = algorithm.steps_per_update
    if (total - update) % config.chunk_updates:
        raise ConfigError(f"train.chunk_updates={config.chunk_updates}: the {total - update} updates left are not a "
                          "whole number of chunks; keep the value that the run was started with")
    directory = Path(checkpoint_dir) if checkpoint_dir is not None else None
    run = _Run(sinks, directory, dict(metadata or {}), config.keep_checkpoints, steps_per_update)
    chunk = _Chunk(algorithm, config.chunk_updates, exchange)
    history: list[Row] = []
    stopped = False
    compile_seconds = seconds = 0.0
    trained = tries = 0
    good = _Point(given, update, _memories(hooks))
    ready: PyTree = None
    with catch_signals() as signals:
        if update < total:
            ready = _inputs(exchange, update, config.chunk_updates)
            compile_seconds = chunk.compile(current, params, ready)
            run.message(f"compiled in {compile_seconds:.1f} s")
        while update < total and not stopped:
            start = time.perf_counter()
            inputs, ready = ready or _inputs(exchange, update, config.chunk_updates), None
            current, metrics, news = chunk(current, params, inputs)
            if exchange is not None:
                exchange.receive(update + config.chunk_updates, news)
            seconds += time.perf_counter() - start
            trained += config.chunk_updates
            rows = _rows(metrics, update, total, steps_per_update, agents)
            fault = next((row for row in rows if not row["finite"]), None)
            if fault is not None and good.rollbacks + tries < max_rollbacks:
                tries += 1
                current = jax.tree.map(jnp.copy, rolled_back(good.state, tries, algorithm.retry))
                update = good.update
                history = [row for row in history if row["update"] <= update]
                _recall(hooks, good.memories)
                run.rewind(update)
                changes = " and ".join(note for note in (algorithm.retry_note, "other random numbers") if note)
                run.message(f"{_fault(fault)}; rolled back to update {update} (rollback {good.rollbacks + tries} of at "
                            f"most {max_rollbacks}), with {changes}")
                continue
            update += config.chunk_updates
            speed = trained * steps_per_update * agents / seconds
            for row in rows:
                row |= {"seconds": seconds, "steps_per_second": speed,
                        "eta_seconds": (total - update) * steps_per_update * agents / speed}
            history += rows
            run.write(rows)
            if fault is not None:
                raise _diverged(fault, directory, good.rollbacks + tries, algorithm.remedies.diverged)
            for hook in hooks:
                control, overrides = hook(current, update)
                current = set_hparams(current, overrides)
                stopped |= control is Control.STOP
            ends = update >= total or stopped or signals.received is not None
            if ends or update // config.chunk_updates % config.checkpoint_every == 0:
                memories = _memories(hooks)
                run.save(current, update, memories)
                if max_rollbacks:
                    good, tries = _Point(jax.tree.map(jnp.copy, current), update, memories), 0
            if signals.received is not None and update < total:
                run.interrupted(signals.received, update)
    steps = update * steps_per_update
    speed = trained * steps_per_update * agents / seconds if seconds else float("nan")
    health = population_health(history, chunk.recompiles, agents, algorithm.health) if history else {}
    return TrainResult(current, history, health, update, steps, compile_seconds, speed, stopped)


def _inputs(exchange: Exchange | None, update: int, updates: int) -> PyTree:
    return None if exchange is None else exchange.inputs(update, updates)


def _first(count: Array) -> int:
    """A count that all agents share."""
    return int(np.reshape(count, -1)[0])


def _memories(hooks: Sequence[Hook]) -> dict[str, dict[str, Any]]:
    return {hook.name: hook.memory() for hook in hooks if isinstance(hook, Remembering)}


def _recall(hooks: Sequence[Hook], memories: Mapping[str, Mapping[str, Any]]) -> None:
    for hook in hooks:
        if isinstance(hook, Remembering):
            hook.recall(memories[hook.name])


def write_checkpoint(directory: Path, update: int, state: PyTree, metadata: Mapping[str, Any], keep: int) -> Path:
    """`checkpoint.save`, whose faults become StorageError: what was to be saved, and what to do."""
    try:
        return checkpoint.save(directory, update, state, metadata, keep)
    except OSError as error:
        raise StorageError(f"{directory}: the checkpoint of update {update} could not be written: {error}; "
                           "free some space or name another --run-dir, then resume") from error


def _leading(agents: int) -> tuple[int, ...]:
    return () if agents == 1 else (agents,)


def _agent_keys(key: Array | None, agents: int) -> Array:
    """One key per agent. Raises ConfigError where `key` holds another number of them."""
    assert key is not None
    if agents > 1 and key.shape == ():
        return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(agents))
    if key.shape != _leading(agents):
        raise ConfigError(f"train.num_seeds={agents}: got {key.size} keys; give one, or one per agent")
    return key


class _Run(NamedTuple):
    """Where a run reports and saves."""

    sinks: Sequence[MetricSink]
    directory: Path | None
    metadata: dict[str, Any]
    keep: int
    steps_per_update: int

    def write(self, rows: Sequence[Row]) -> None:
        for sink in self.sinks:
            sink.write(rows)

    def message(self, text: str) -> None:
        for sink in self.sinks:
            sink.message(text)

    def rewind(self, update: int) -> None:
        for sink in self.sinks:
            if isinstance(sink, Rewinding):
                sink.rewind(update, update * self.steps_per_update)

    def save(self, state: PyTree, update: int, memories: Mapping[str, Any]) -> None:
        if self.directory is None:
            return
        metadata = self.metadata | {"steps": update * self.steps_per_update} | ({"hooks": memories} if memories else {})
        write_checkpoint(self.directory, update, state, metadata, self.keep)

    def interrupted(self, received: signal.Signals, update: int) -> None:
        kept = f"saved in {self.directory}" if self.directory is not None else "nothing was saved (no directory)"
        text = f"{received.name}: stopped after update {update}; {kept}"
        raise (InterruptedRunError if received == signal.SIGINT else PreemptedError)(text)
