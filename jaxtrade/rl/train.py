"""The training loop: compiled chunks of updates, and a host loop that acts only between them."""

from __future__ import annotations

import enum
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade import checkpoint
from jaxtrade.config import TrainConfig
from jaxtrade.errors import ConfigError, DivergedError, InterruptedRunError, PreemptedError, StorageError
from jaxtrade.metrics import MetricSink
from jaxtrade.rl.population import EACH, agent_rows, mean_and_each, population
from jaxtrade.types import Algorithm, Array, PyTree


class Control(enum.Enum):
    """What a hook wants at a chunk border."""

    CONTINUE = "continue"
    STOP = "stop"


# (state, updates done) -> (control, tunable floats to set from here on, by name)
Hook = Callable[[PyTree, int], tuple[Control, Mapping[str, float]]]
Row = dict[str, Any]


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
    """Round `total_timesteps` up to whole updates and these to whole chunks."""
    steps_per_update = num_envs * num_steps
    per_chunk = steps_per_update * config.chunk_updates
    chunks = -(-config.total_timesteps // per_chunk)
    plan = Plan(chunks * config.chunk_updates, chunks, steps_per_update, "")
    if plan.total_steps == config.total_timesteps:
        return plan
    return plan._replace(message=(
        f"{config.total_timesteps:,} steps are rounded up to {plan.total_steps:,}: {chunks} chunks of "
        f"{config.chunk_updates} updates of {num_envs} environments x {num_steps} steps"))


def learning_health(history: Sequence[Row], recompiles: int) -> dict[str, tuple[bool, float]]:
    """Did the run learn at all? check -> (passed, measured value).

    learning_rate: smallest of all updates, > 0. approx_kl: largest, > 0. param_delta: smallest, > 0.
    illegal: sampled illegal actions, by the mask that the learner acted on and by the environment's own account
    (`illegal_executed`, where it keeps one), 0. recompiles: programs compiled while chunks ran, 0.
    """
    learning_rate = min(row["learning_rate"] for row in history)
    approx_kl = max(row["approx_kl"] for row in history)
    param_delta = min(row["param_delta"] for row in history)
    illegal = sum(row["illegal"] + row.get("illegal_executed", 0) for row in history)
    return {
        "learning_rate": (learning_rate > 0, learning_rate),
        "approx_kl": (approx_kl > 0, approx_kl),
        "param_delta": (param_delta > 0, param_delta),
        "illegal": (illegal == 0, illegal),
        "recompiles": (recompiles == 0, recompiles),
    }


def population_health(history: Sequence[Row], recompiles: int, num_seeds: int) -> dict[str, tuple[bool, float]]:
    """`learning_health` of every agent: passed where all have, with the worst value among them."""
    if num_seeds == 1:
        return learning_health(history, recompiles)
    agents = [learning_health(agent_rows(history, i), recompiles) for i in range(num_seeds)]
    worst = {"illegal": max, "recompiles": max}
    return {name: (all(health[name][0] for health in agents),
                   worst.get(name, min)(health[name][1] for health in agents)) for name in agents[0]}


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
    """`updates` updates as one compiled program, which takes the state over (donates it)."""

    def __init__(self, algorithm: Algorithm, updates: int) -> None:
        self.recompiles = 0

        def run(state: PyTree, params: PyTree) -> tuple[PyTree, dict[str, Array]]:
            return jax.lax.scan(lambda s, _: algorithm.update(s, params, ()), state, None, length=updates)

        self._jitted = jax.jit(run, donate_argnums=0)

    def compile(self, state: PyTree, params: PyTree) -> float:
        """Ahead of time; returns the seconds it took."""
        start = time.perf_counter()
        self._compiled = self._jitted.lower(state, params).compile()
        return time.perf_counter() - start

    def __call__(self, state: PyTree, params: PyTree) -> tuple[PyTree, dict[str, np.ndarray]]:
        """Returns once the device has finished. Counts what was compiled meanwhile."""
        before = _compilations().count
        state, metrics = self._compiled(state, params)
        state, measured = jax.block_until_ready(state), jax.device_get(metrics)
        self.recompiles += _compilations().count - before
        return state, measured


class _Signals:
    """The signal that asked this run to stop at the next chunk border, if any."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __call__(self, number: int, frame: Any) -> None:
        del frame
        if self.received == signal.SIGINT == number:  # a second Ctrl-C does not wait for the border
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        os.write(2, f"{self.received.name}: stopping at the end of this chunk{again}\n".encode())


@contextmanager
def _catch_signals() -> Iterator[_Signals]:
    signals = _Signals()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield signals
        return
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def set_hparams(state: PyTree, overrides: Mapping[str, float]) -> PyTree:
    """`state` with some tunable floats changed, for good: they are part of the state. Raises ConfigError."""
    known = {name: getattr(state.hparams, name) for name in state.hparams.__dataclass_fields__}
    for name in overrides:
        if name not in known:
            raise ConfigError(f"'{name}' is not a tunable float of this run (there are: {', '.join(known)})")
    changed = {name: jnp.full_like(known[name], value) for name, value in overrides.items()}
    return state.replace(hparams=state.hparams.replace(**changed)) if changed else state


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


def _check_finite(rows: Sequence[Row], directory: Path | None) -> None:
    for row in rows:
        if not row["finite"]:
            saved = checkpoint.list_checkpoints(directory) if directory else []
            kept = f"; the last checkpoint is {saved[-1][1]}" if saved else ""
            each = row.get("finite" + EACH)
            whose = f" of agent {each.index(False)}" if each else ""
            raise DivergedError(
                f"update {row['update']}: a loss or gradient{whose} is not finite, at learning rate "
                f"{row['learning_rate']:.3g}{kept}; lower ppo.learning_rate or ppo.max_grad_norm, or check the scale "
                "of the reward")


def train(algorithm: Algorithm, params: PyTree, *, config: TrainConfig, key: Array | None = None,
          state: PyTree | None = None, sinks: Sequence[MetricSink] = (), checkpoint_dir: Path | str | None = None,
          metadata: Mapping[str, Any] | None = None, hooks: Sequence[Hook] = (),
          num_seeds: int | None = None) -> TrainResult:
    """Train until `state.total_updates`, the length that the algorithm was made for (see `plan_run`).

    Args:
        params: what the environment is told; traced, never copied into the program.
        key: starts a new run. state: continues one. Exactly one of them; the caller's `state` stays valid.
        num_seeds: agents trained side by side as one program, over the same `params` (default: `config.num_seeds`).
            With more than one, `key` is one key per agent (`population.seed_keys`), or one key from which agent i gets
            `fold_in(key, i)`; every array of the state has a leading axis of agents, checkpoints and the state that
            hooks see too; rows hold the mean over agents by name and a list by agent as "name/each".
        sinks: each receives the rows of every chunk.
        checkpoint_dir: whole-state checkpoints, every `config.checkpoint_every` chunks and at the end.
        metadata: JSON values that go into each checkpoint.
        hooks: called after every chunk; may stop the run or set tunable floats.
    Raises:
        DivergedError: a loss or gradient is not finite; that state is not saved.
        PreemptedError, InterruptedRunError: SIGTERM, SIGINT; saved at the chunk border (main thread only).
        StorageError: a checkpoint could not be written.
        ConfigError: the run's length is not a whole number of chunks, a hook names an unknown float, or `state` or
            `key` is of another number of agents.
    """
    if (key is None) == (state is None):
        raise ValueError("train needs either key (a new run) or state (to continue one)")
    agents = config.num_seeds if num_seeds is None else num_seeds
    algorithm = population(algorithm, agents)
    given: PyTree = jax.jit(algorithm.init)(_agent_keys(key, agents), params) if state is None else state
    if given.update.shape != _leading(agents):
        raise ConfigError(f"train.num_seeds={agents}: the given state is of {given.update.size} agent(s); keep the "
                          "value that the run was started with")
    # A chunk takes its input over: the caller keeps his arrays, and no two leaves may share one.
    current: PyTree = jax.tree.map(jnp.copy, given)
    update, total = (int(np.reshape(count, -1)[0]) for count in (current.update, current.total_updates))
    steps_per_update = algorithm.config.num_envs * algorithm.config.num_steps
    if (total - update) % config.chunk_updates:
        raise ConfigError(f"train.chunk_updates={config.chunk_updates}: the {total - update} updates left are not a "
                          "whole number of chunks; keep the value that the run was started with")
    directory = Path(checkpoint_dir) if checkpoint_dir is not None else None
    run = _Run(sinks, directory, dict(metadata or {}), config.keep_checkpoints, steps_per_update)
    chunk = _Chunk(algorithm, config.chunk_updates)
    history: list[Row] = []
    stopped = False
    compile_seconds = seconds = 0.0
    first_update = update
    with _catch_signals() as signals:
        if update < total:
            compile_seconds = chunk.compile(current, params)
            run.message(f"compiled in {compile_seconds:.1f} s")
        while update < total and not stopped:
            start = time.perf_counter()
            current, metrics = chunk(current, params)
            seconds += time.perf_counter() - start
            rows = _rows(metrics, update, total, steps_per_update, agents)
            update += config.chunk_updates
            speed = (update - first_update) * steps_per_update * agents / seconds
            for row in rows:
                row |= {"seconds": seconds, "steps_per_second": speed,
                        "eta_seconds": (total - update) * steps_per_update * agents / speed}
            history += rows
            run.write(rows)
            _check_finite(rows, directory)
            for hook in hooks:
                control, overrides = hook(current, update)
                current = set_hparams(current, overrides)
                stopped |= control is Control.STOP
            ends = update >= total or stopped or signals.received is not None
            if ends or update // config.chunk_updates % config.checkpoint_every == 0:
                run.save(current, update)
            if signals.received is not None and update < total:
                run.interrupted(signals.received, update)
    steps = update * steps_per_update
    speed = (update - first_update) * steps_per_update * agents / seconds if seconds else float("nan")
    health = population_health(history, chunk.recompiles, agents) if history else {}
    return TrainResult(current, history, health, update, steps, compile_seconds, speed, stopped)


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

    def save(self, state: PyTree, update: int) -> None:
        if self.directory is None:
            return
        steps = update * self.steps_per_update
        try:
            checkpoint.save(self.directory, update, state, self.metadata | {"steps": steps}, self.keep)
        except OSError as error:
            raise StorageError(f"{self.directory}: the checkpoint of update {update} could not be written: {error}; "
                               "free some space or name another --run-dir, then resume") from error

    def interrupted(self, received: signal.Signals, update: int) -> None:
        kept = f"saved in {self.directory}" if self.directory is not None else "nothing was saved (no directory)"
        text = f"{received.name}: stopped after update {update}; {kept}"
        raise (InterruptedRunError if received == signal.SIGINT else PreemptedError)(text)
