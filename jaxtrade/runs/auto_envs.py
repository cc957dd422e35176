"""`rollout.num_envs: auto`: measure the run's update at several sizes, and choose one."""

from __future__ import annotations

import gc
import itertools
import math
import operator
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from jaxtrade.storage.sizes import program_bytes, tree_bytes

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

    steps_per_second: of all agents together.
    bytes: the compiled program's need with two copies of the state.
    compile_seconds: of one update.
    """

    num_envs: int
    steps_per_second: float
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
    steps: float = math.inf,
) -> Choice:
    """Measure sizes, the smallest first, until one is not worth it.

    Return the smallest that is about as fast as any.

    Args:
        candidates: from `sizes`.
        measure: of a number of environments. It may raise what the end of memory raises.
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
        if found and (takes := steps / found[-1].steps_per_second) / 2 < found[-1].compile_seconds:
            reason = (
                f"the run takes {takes:.1f} s at this speed, of which {number:,} would save less than their "
                f"compilation takes ({found[-1].compile_seconds:.1f} s for {found[-1].num_envs:,})"
            )
            break
        try:
            now = measure(number)
            if _is_search_over(found, now):  # perhaps because the machine was slow for a moment
                found[-1], now = (
                    max(each, measure(each.num_envs), key=_speed) for each in (found[-1], now)
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
    return len(found) > 1 and max(map(_speed, (found[-1], now))) < GROWTH * _speed(found[-2])


_speed = operator.attrgetter("steps_per_second")


def line(choice: Choice, config: RunConfig, where: str) -> str:
    """Format one line about a choice.

    config: the run's, with the number.
    where: what was measured on.
    """
    speeds = ", ".join(f"{each.num_envs:,}: {_speed(each):,.0f}" for each in choice.measured)
    measured = f"steps/s by number {speeds}; " if speeds else ""
    rows = config.rollout.num_envs * config.rollout.num_steps
    return (
        f"rollout.num_envs: auto is {config.rollout.num_envs:,} ({rows:,} steps per update; {where}): "
        f"{measured}{choice.reason}"
    )


SECONDS, LEAST_REPEATS = 0.5, 3  # how long a size is measured at least, and how often

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

    limit: bytes; None if unknown.

    The need counts the state twice, because the training loop keeps one to go back to.

    Raises MemoryError if the need is above the limit.
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
        raise MemoryError(f"it needs {size(needed)}, and a run may take {size(limit)}")
    state, times = init(keys, params), list[float]()
    while len(times) <= LEAST_REPEATS or sum(times[1:]) < SECONDS:  # the first is a warm-up
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program(state, params))
        times.append(time.perf_counter() - start)
    steps = setup.algorithm.info.steps_per_update * setup.stack.count
    return SizeMeasurement(number, steps / statistics.median(times[1:]), needed, seconds)


def prepare_sized(
    config: RunConfig,
    screen: Screen,
    measure: Measure = measure_update,
    left: Callable[[], int | None] = memory_left,
) -> SizedSetup:
    """Do `setup.prepare`, after measuring how many environments the run has if that is `auto`.

    Args:
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
    free = left()
    limit = None if free is None else int(SHARE * free)

    def at(number: int) -> SizeMeasurement:
        screen.phase("measuring", f"{number:,} environments")
        gc.collect()  # of the size before, so that two are not held at once
        return measure(with_learner_of(setup, set_num_envs(config, number)), limit)

    choice = search(candidates, at, config.train.total_timesteps * setup.stack.count)
    setup = with_learner_of(setup, set_num_envs(config, choice.num_envs))
    where = f"measured on {jax.local_devices()[0].device_kind}"
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
