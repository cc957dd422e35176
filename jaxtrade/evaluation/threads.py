"""The parts of an evaluation in threads, one for each core: XLA and NumPy let go of Python's lock
while they work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """The cores that XLA uses: NPROC, if it is set, or those that this process may use."""
    given = os.environ.get("NPROC", "")
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return int(given) if given.isdecimal() and int(given) else usable


def each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of every item, in their order. Raises what the function raises for the first item
    that it fails for.

    Settings of JAX that hold in the caller's thread alone (`with jax.debug_nans(True)`) do not
    reach the threads.
    """
    every = list(items)
    if (threads := min(cores(), len(every))) <= 1:
        return [function(item) for item in every]
    with ThreadPoolExecutor(threads, thread_name_prefix="jaxtrade-evaluate") as pool:
        return list(pool.map(function, every))
