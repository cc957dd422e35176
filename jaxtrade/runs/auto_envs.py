"""`rollout.num_envs: auto`: measure the run's update at several sizes, and keep the choice."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import math
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxtrade.config import RunConfig, changed_config
from jaxtrade.config.learners import AUTO_ROWS
from jaxtrade.errors import ConfigError, OutOfMemoryError
from jaxtrade.limits import available_memory
from jaxtrade.progress.screen import Screen
from jaxtrade.runs.initial_state import METRICS
from jaxtrade.runs.memory import MOST_ROWS, first_line, is_exhausted, size
from jaxtrade.runs.setup import Setup, prepare, with_learner_of
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import describe_arguments
from jaxtrade.storage.digests import write_whole
from jaxtrade.storage.sizes import program_bytes, tree_bytes
from jaxtrade.version import __version__

# How many environments train fastest: the search for `rollout.num_envs: auto`.
#
# The number of environments is doubled until two doublings gain less than `GROWTH`, or its memory
# is not there, or the run would have too few updates, or measuring would take longer than it can
# save. What is measured is given by the caller.

GROWTH = 1.03  # two doublings of which none is this many times as fast as the size before both end the search
NEAR = 0.95  # of the fastest size: the smallest one that is at least so fast is chosen
SHARE = 0.8  # of the memory that is free: what a run may take
LEAST_UPDATES = 50  # that a run has, whatever it would gain in speed
TRIED = 256  # multiples of the number of groups among which the first size is sought


class SizeMeasurement(NamedTuple):
    """One size.

    steps_per_second: of all agents together; None if the size was not run, because `bytes` is
        too much.
    bytes: the compiled program's need with two copies of the state.
    compile_seconds: of one update.
    """

    num_envs: int
    steps_per_second: float | None
    bytes: int
    compile_seconds: float


class Choice(NamedTuple):
    """The size that was chosen, what was measured, and why the search ended."""

    num_envs: int
    measured: tuple[SizeMeasurement, ...]
    reason: str


def set_num_envs(config: RunConfig, num_envs: int) -> RunConfig:
    """Set the number of environments, with minibatches that keep their rows.

    Where `num_minibatches` of the learner is auto, it becomes as many as have `AUTO_ROWS` rows
    each, without the limit on their number that auto has: with it, minibatches would grow, and
    speed would be gained by fewer gradient steps.

    Raises ConfigError if the number does not fit the groups, the minibatches or the learner.
    """
    given = changed_config(config, {"rollout.num_envs": num_envs})
    if getattr(given.learner, "num_minibatches", None) != "auto":
        return given
    rollout = given.rollout
    sequences = (
        num_envs // rollout.shards * (rollout.num_steps if given.network.kind == "mlp" else 1)
    )
    wanted = max(num_envs * rollout.num_steps // AUTO_ROWS, 1)
    count = next(count for count in range(min(wanted, sequences), 0, -1) if sequences % count == 0)
    return changed_config(given, {f"{given.algorithm}.num_minibatches": count})


def sizes(config: RunConfig) -> Iterator[int]:
    """Yield the sizes to measure: the smallest that fits and fills a minibatch, and its doublings.

    They go on as long as a run of `train.total_timesteps` has `LEAST_UPDATES` updates. Raises
    ConfigError if none fits.
    """
    rollout = config.rollout
    first = _smallest_size(config)
    most = min(config.train.total_timesteps // LEAST_UPDATES, MOST_ROWS - 1) // rollout.num_steps
    yield from itertools.takewhile(
        lambda number: number == first or number <= most,
        (first << doubling for doubling in itertools.count()),
    )


def _smallest_size(config: RunConfig) -> int:
    """Find the smallest number of environments that fits. Raises ConfigError."""
    group, fault = config.rollout.num_shards, None
    least = -(-AUTO_ROWS // (config.rollout.num_steps * group))
    for number in range(least * group, (least + TRIED) * group, group):
        try:
            set_num_envs(config, number)
            return number
        except ConfigError as error:
            fault = error
    raise ConfigError(
        f"rollout.num_envs=auto: no number from {least * group} to {number} fits ({fault}); give one"
    ) from None


def search(
    candidates: Iterable[int],
    measure: Callable[[int], SizeMeasurement],
    limit: int | None,
    steps: float = math.inf,
) -> Choice:
    """Measure sizes, the smallest first, until one is not worth it.

    Return the smallest that is about as fast as any.

    Args:
        candidates: from `sizes`.
        measure: of a number of environments. It may raise what the end of memory raises.
        limit: bytes that a run may take; None if unknown. `measure` returns no speed for a size
            that needs more.
        steps: of the run, of all agents together. Twice the environments are at most twice as fast,
            so a doubling saves at most half of the time that these steps take: the search ends
            where compiling the last size took longer.
    Raises OutOfMemoryError if the first size does not fit, and ConfigError if other keys refuse it.
    """
    found, reason = (
        list[SizeMeasurement](),
        f"more would leave the run fewer than {LEAST_UPDATES} updates",
    )
    for number in candidates:
        if found and (takes := steps / _speed(found[-1])) / 2 < found[-1].compile_seconds:
            reason = (
                f"the run takes {takes:.1f} s at this speed, of which {number:,} would save less than their "
                f"compilation takes ({found[-1].compile_seconds:.1f} s for {found[-1].num_envs:,})"
            )
            break
        try:
            now = measure(number)
            if _is_search_over(found, now):  # perhaps because the machine was slow for a moment
                found[-1], now = (
                    _faster(each, measure(each.num_envs)) for each in (found[-1], now)
                )
        except (
            ConfigError
        ) as error:  # other keys, such as a replay's size, leave no room for more environments
            if not found:
                raise
            reason = f"{number:,} do not fit ({error})"
            break
        except (MemoryError, RuntimeError) as error:
            if not is_exhausted(error):
                raise
            reason = f"memory ran out with {number:,} ({first_line(error)})"
            break
        if now.steps_per_second is None:
            reason = f"{number:,} need {size(now.bytes)}, and a run may take {size(limit or 0)}"
            break
        found.append(now)
        if _is_search_over(found[:-1], now):
            gain = max(map(_speed, found[-2:])) / _speed(found[-3])
            reason = (
                f"{found[-2].num_envs:,} and {number:,} gain at most {gain - 1:+.0%} over "
                f"{found[-3].num_envs:,}"
            )
            break
    if not found:
        raise OutOfMemoryError(
            f"rollout.num_envs=auto: {reason}; lower rollout.num_steps or network.hidden, or free "
            "memory"
        )
    fastest = max(map(_speed, found))
    chosen = next(each for each in found if _speed(each) >= NEAR * fastest)
    return Choice(chosen.num_envs, tuple(found), reason)


def _is_search_over(found: Sequence[SizeMeasurement], now: SizeMeasurement) -> bool:
    """Return whether the last of `found` and the size after it are not worth it.

    One doubling alone says little: small gains add up.
    """
    return (
        now.steps_per_second is not None
        and len(found) > 1
        and (max(_speed(found[-1]), _speed(now)) < GROWTH * _speed(found[-2]))
    )


def _faster(one: SizeMeasurement, other: SizeMeasurement) -> SizeMeasurement:
    """Choose the better of two measurements of one size, of which the second may not have run."""
    return one if other.steps_per_second is None else max(one, other, key=_speed)


def _speed(measured: SizeMeasurement) -> float:
    assert measured.steps_per_second is not None
    return measured.steps_per_second


def line(choice: Choice, config: RunConfig, where: str) -> str:
    """Format one line about a choice.

    config: the run's, with the number.
    where: what was measured on, or where it is from.
    """
    speeds = ", ".join(f"{each.num_envs:,}: {_speed(each):,.0f}" for each in choice.measured)
    measured = f"steps/s by number {speeds}; " if speeds else ""
    rows = config.rollout.num_envs * config.rollout.num_steps
    return (
        f"rollout.num_envs: auto is {config.rollout.num_envs:,} ({rows:,} steps per update; {where}): "
        f"{measured}{choice.reason}"
    )


FOLDER = "sizes"  # in the folder of compiled programs
SECONDS, LEAST_REPEATS = 0.5, 3  # how long a size is measured at least, and how often
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
# Variables that XLA and its CPU backend read.
VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "OMP_NUM_THREADS", "JAXTRADE_XLA_DEFAULTS")
# Settings of JAX that say where programs are kept and what is logged. All others are part of the
# key of a choice.
HARMLESS = frozenset(
    {
        "jax_compilation_cache_dir",
        "jax_enable_compilation_cache",
        "jax_compilation_cache_max_size",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_raise_persistent_cache_errors",
        "jax_log_compiles",
        "jax_logging_level",
        "jax_explain_cache_misses",
        "jax_debug_log_modules",
        "jax_traceback_filtering",
        "jax_dump_ir_to",
    }
)

Measure = Callable[[Setup, int | None], SizeMeasurement]


class SizedSetup(NamedTuple):
    """A setup whose number of environments is known.

    asked: the configuration as it was given.
    choice: how the number was found; None if the user gave it.
    """

    setup: Setup
    asked: RunConfig
    choice: Choice | None = None


def memory_left() -> int | None:
    """Return the bytes that are free on the device; None if unknown.

    They are an accelerator's own, on a CPU the machine's.
    """
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return available_memory(platform.system())
    stats = device.memory_stats() or {}
    return (
        int(stats["bytes_limit"] - stats.get("bytes_in_use", 0)) if "bytes_limit" in stats else None
    )


def measure_update(setup: Setup, limit: int | None) -> SizeMeasurement:
    """Compile and time the update of a run, with all its agents.

    limit: bytes; a larger need is not run.

    The need counts the state twice, because the training loop keeps one to go back to.
    """
    algorithm, keys = setup.stack.wrap(setup.algorithm), setup.stack.keys(setup.config.seed)
    init = jax.jit(algorithm.init)
    params = setup.agents.params
    like = jax.eval_shape(init, keys, params)
    start = time.perf_counter()
    update = jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)
    program = update.lower(like, params).compile()
    seconds, state_bytes = time.perf_counter() - start, tree_bytes(like)
    needed = (program_bytes(program) or state_bytes + tree_bytes(params)) + state_bytes
    number = setup.config.rollout.num_envs
    if limit is not None and needed > limit:
        return SizeMeasurement(number, None, needed, seconds)
    state, times = init(keys, params), list[float]()
    while len(times) <= LEAST_REPEATS or sum(times[1:]) < SECONDS:  # the first is a warm-up
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program(state, params))
        times.append(time.perf_counter() - start)
    steps = setup.algorithm.info.steps_per_update * setup.stack.count
    return SizeMeasurement(number, steps / statistics.median(times[1:]), needed, seconds)


def choices_folder() -> Path | None:
    """Return the folder of choices, where JAX keeps compiled programs.

    None if it keeps none in a local folder.
    """
    found = jax.config.jax_compilation_cache_dir  # pyright: ignore
    off = not jax.config.jax_enable_compilation_cache  # pyright: ignore
    return None if off or found is None or "://" in str(found) else Path(found) / FOLDER


def prepare_sized(
    config: RunConfig,
    folder: Path | None,
    screen: Screen,
    measure: Measure = measure_update,
    left: Callable[[], int | None] = memory_left,
) -> SizedSetup:
    """Do `setup.prepare`, after measuring how many environments the run has if that is `auto`.

    Args:
        folder: where choices are remembered, by device, versions, settings, shapes and
            configuration. None: a choice is neither read nor kept.
        measure: of a setup, within a limit in bytes.
        left: bytes that are free.
    Raises ConfigError, DataError, OutOfMemoryError.
    """
    if not config.rollout.auto:
        return SizedSetup(prepare(config), config)
    if config.advisor.on:
        raise ConfigError(
            f"rollout.num_envs=auto with advisor.kind={config.advisor.kind}: how fast an advisor answers "
            "cannot be measured before the run; give a number"
        )
    candidates = list(sizes(config))
    setup = prepare(set_num_envs(config, candidates[0]))
    if len(candidates) == 1:
        reason = (
            f"it is the smallest that fits, and more would leave the run fewer than {LEAST_UPDATES} "
            "updates"
        )
        choice = Choice(candidates[0], (), reason)
        screen.message(line(choice, setup.config, "not measured"))
        return SizedSetup(setup, config, choice)
    own = None if folder is None or config.imports else _path(folder, setup)
    free = left()
    limit = None if free is None else int(SHARE * free)
    choice, where = (
        None if own is None else read_choice(own, candidates, limit),
        f"measured earlier: {own}",
    )
    if choice is None:

        def at(number: int) -> SizeMeasurement:
            screen.phase("measuring", f"{number:,} environments")
            gc.collect()  # of the size before, so that two are not held at once
            return measure(with_learner_of(setup, set_num_envs(config, number)), limit)

        steps = config.train.total_timesteps * setup.stack.count
        choice, where = (
            search(candidates, at, limit, steps),
            f"measured on {jax.local_devices()[0].device_kind}",
        )
        if own is not None:
            _write(own, choice, screen)
    setup = with_learner_of(setup, set_num_envs(config, choice.num_envs))
    screen.message(line(choice, setup.config, where))
    return SizedSetup(setup, config, choice)


def shrink_setup(found: SizedSetup, path: Path) -> SizedSetup | None:
    """Shrink a run to the next smaller size that was measured, after memory ran out.

    The folder of the new run at `path` is removed, and made again.

    None if the number was not chosen here, is the smallest, or something was trained with it.
    """
    number = found.setup.config.rollout.num_envs
    measured = () if found.choice is None else found.choice.measured
    smaller = [each.num_envs for each in measured if each.num_envs < number]
    if not smaller or _has_trained(path):
        return None
    shutil.rmtree(path, ignore_errors=True)
    return found._replace(
        setup=with_learner_of(found.setup, set_num_envs(found.asked, max(smaller)))
    )


def _has_trained(path: Path) -> bool:
    rows = path / METRICS
    return bool(checkpoint.list_checkpoints(path / "checkpoints")) or (
        rows.is_file() and rows.stat().st_size > 0
    )


def describe_choice(choice: Choice, num_envs: int) -> dict[str, Any]:
    """Describe a choice for a run's manifest.

    num_envs: what the run has, after any shrinking.
    """
    return {
        "num_envs": num_envs,
        "reason": choice.reason,
        "measured": [each._asdict() for each in choice.measured],
    }


def _processor() -> str:
    """Identify the processor: its model and instructions."""
    told = Path("/proc/cpuinfo")
    if not told.exists():
        return f"{platform.machine()} {platform.processor()} {platform.version()}"
    lines = told.read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    return (
        platform.machine()
        + " "
        + " ".join(sorted({line for line in lines if line.startswith(wanted)}))
    )


def _surroundings() -> dict[str, Any]:
    """Collect versions, settings and the device, as plain values."""
    device = jax.local_devices()[0]
    settings = {
        name: str(value) for name, value in jax.config.values.items() if name not in HARMLESS
    }
    return {
        "versions": {name: metadata.version(name) for name in LIBRARIES}
        | {"python": f"{platform.python_implementation()} {sys.version}"},
        "settings": settings,
        "processor": _processor(),
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "flags": [word for word in sys.argv if word.startswith("--xla")],
        "device": [
            device.platform,
            device.device_kind,
            device.client.platform_version,
            device.id,
            jax.device_count(),
            jax.process_count(),
        ],
    }


def _path(folder: Path, setup: Setup) -> Path:
    whole = {
        "surroundings": _surroundings(),
        "facts": setup.facts,
        "shapes": describe_arguments(setup.agents.params),
        "jaxtrade": __version__,
    }
    return (
        folder
        / f"{hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]}.json"
    )


def read_choice(path: Path, candidates: list[int], limit: int | None) -> Choice | None:
    """Read a choice that was kept.

    None if there is none, if its file is damaged, or if it needs more than `limit` bytes.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        measured = tuple(
            SizeMeasurement(**{name: each[name] for name in SizeMeasurement._fields})
            for each in found["measured"]
        )
        chosen = next(
            each
            for each in measured
            if each.num_envs == found["num_envs"] and each.num_envs in candidates
        )
        choice = Choice(chosen.num_envs, measured, str(found["reason"]))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None  # it is measured again, and written anew
    return choice if limit is None or chosen.bytes <= limit else None


def _write(path: Path, choice: Choice, screen: Screen) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(describe_choice(choice, choice.num_envs), indent=1) + "\n")
    except OSError as error:
        screen.message(
            f"note: {path}: the number of environments is measured again at the next start: {error}"
        )
