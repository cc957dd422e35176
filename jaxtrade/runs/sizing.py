"""How many environments train fastest: the search for `rollout.num_envs: auto`. Imports no JAX.

The number of environments is doubled until two doublings gain less than `GROWTH`, or its memory is
not there, or the run would have too few updates, or measuring would take longer than it can save.
What is measured is given by the caller.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxtrade.config import RunConfig, changed_config
from jaxtrade.config.learners import AUTO_ROWS
from jaxtrade.errors import ConfigError, OutOfMemoryError
from jaxtrade.runs.memory import MOST_ROWS, first_line, is_exhausted, size

GROWTH = 1.03  # two doublings of which none is this many times as fast as the size before both end the search
NEAR = 0.95  # of the fastest size: the smallest one that is at least so fast is chosen
SHARE = 0.8  # of the memory that is free: what a run may take
LEAST_UPDATES = 50  # that a run has, whatever it would gain in speed
TRIED = 256  # multiples of the number of groups among which the first size is sought


class Measured(NamedTuple):
    """One size. steps_per_second: of all agents together; None if the size was not run, because
    `bytes` is too much.
    bytes: the compiled program's need with two copies of the state. compile_seconds: of one
        update."""

    num_envs: int
    steps_per_second: float | None
    bytes: int
    compile_seconds: float


class Choice(NamedTuple):
    """The size that was chosen, what was measured, and why the search ended."""

    num_envs: int
    measured: tuple[Measured, ...]
    reason: str


def only(number: int) -> Choice:
    """The choice where one size is left, so that there is nothing to measure."""
    return Choice(
        number,
        (),
        f"it is the smallest that fits, and more would leave the run fewer than {LEAST_UPDATES} "
        "updates",
    )


def sized(config: RunConfig, num_envs: int) -> RunConfig:
    """The configuration with a number of environments, and with minibatches that keep their rows.

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
    """The sizes to measure: the smallest that fits and fills a minibatch, and its doublings, as
    long as a run of
    `train.total_timesteps` has `LEAST_UPDATES` updates. Raises ConfigError if none fits."""
    rollout = config.rollout
    first = _first(config)
    most = min(config.train.total_timesteps // LEAST_UPDATES, MOST_ROWS - 1) // rollout.num_steps
    yield from itertools.takewhile(
        lambda number: number == first or number <= most,
        (first << doubling for doubling in itertools.count()),
    )


def _first(config: RunConfig) -> int:
    """The smallest number of environments that fits. Raises ConfigError."""
    group, fault = config.rollout.num_shards, None
    least = -(-AUTO_ROWS // (config.rollout.num_steps * group))
    for number in range(least * group, (least + TRIED) * group, group):
        try:
            sized(config, number)
            return number
        except ConfigError as error:
            fault = error
    raise ConfigError(
        f"rollout.num_envs=auto: no number from {least * group} to {number} fits ({fault}); give one"
    ) from None


def search(
    candidates: Iterable[int],
    measure: Callable[[int], Measured],
    limit: int | None,
    steps: float = math.inf,
) -> Choice:
    """Measure sizes, the smallest first, until one is not worth it -> the smallest that is about as
    fast as any.

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
    found, reason = list[Measured](), f"more would leave the run fewer than {LEAST_UPDATES} updates"
    for number in candidates:
        if found and (takes := steps / _speed(found[-1])) / 2 < found[-1].compile_seconds:
            reason = (
                f"the run takes {takes:.1f} s at this speed, of which {number:,} would save less than their "
                f"compilation takes ({found[-1].compile_seconds:.1f} s for {found[-1].num_envs:,})"
            )
            break
        try:
            now = measure(number)
            if _ends(found, now):  # perhaps because the machine was slow for a moment
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
        if _ends(found[:-1], now):
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


def _ends(found: Sequence[Measured], now: Measured) -> bool:
    """Whether the last of `found` and the size after it are not worth it. One doubling alone says
    little: small gains add up."""
    return (
        now.steps_per_second is not None
        and len(found) > 1
        and (max(_speed(found[-1]), _speed(now)) < GROWTH * _speed(found[-2]))
    )


def _faster(one: Measured, other: Measured) -> Measured:
    """The better of two measurements of one size, of which the second may not have run."""
    return one if other.steps_per_second is None else max(one, other, key=_speed)


def _speed(measured: Measured) -> float:
    assert measured.steps_per_second is not None
    return measured.steps_per_second


def line(choice: Choice, config: RunConfig, where: str) -> str:
    """One line about a choice. config: the run's, with the number. where: what was measured on, or
    where it is from.
    """
    speeds = ", ".join(f"{each.num_envs:,}: {_speed(each):,.0f}" for each in choice.measured)
    measured = f"steps/s by number {speeds}; " if speeds else ""
    rows = config.rollout.num_envs * config.rollout.num_steps
    return (
        f"rollout.num_envs: auto is {config.rollout.num_envs:,} ({rows:,} steps per update; {where}): "
        f"{measured}{choice.reason}"
    )
