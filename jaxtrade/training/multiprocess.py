"""What the processes of one run do together: process 0 writes and decides, and all of them agree.

They talk through JAX's coordination service, which process 0 holds, and not through their devices.
So no program is compiled for it, no two programs wait for each other on a device, and one process
may wait for as long as another one evaluates. Every process must make the same calls in the same
order, from its main thread.

In a run of one process every function is the identity. This module loads JAX only in a process that
has joined others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from jaxtrade.errors import JaxtradeError, StoppedTogetherError
from jaxtrade.storage.internals import find_distributed_state

LONGEST_S = 30 * 24 * 3600  # a wait ends when a process dies, so it needs no other limit
FOLDER = "jaxtrade"  # of the keys in the coordination service

ValueT = TypeVar("ValueT", bool, int, float, str, dict[str, Any], list[Any])


class _Calls:
    """Numbers the calls of this process, which are the same in all of them.

    kept: keys that process 0 has to delete.
    """

    def __init__(self) -> None:
        self.made = 0
        self.kept: list[str] = []

    def next(self) -> str:
        self.made += 1
        return f"{FOLDER}/{self.made}"


_CALLS = _Calls()


def process_index() -> int:
    """Return the number of this process among those of the run, from 0."""
    state = find_distributed_state()
    return 0 if state is None else int(state.process_id)


def process_count() -> int:
    """Return how many processes train the run together."""
    state = find_distributed_state()
    return 1 if state is None else int(state.num_processes)


def is_main() -> bool:
    """Return whether this process writes the run's files and takes its decisions.

    It is process 0, or the only one.
    """
    return process_index() == 0


def barrier(name: str, seconds: float = LONGEST_S) -> None:
    """Wait until all processes are here.

    Raises RuntimeError (JAX's own) if they are not within `seconds`.

    name: for JAX's own messages.
    """
    if (state := find_distributed_state()) is not None:
        state.client.wait_at_barrier(f"{_CALLS.next()}/{name}", int(1000 * seconds))


def from_main(make: Callable[[], ValueT]) -> ValueT:
    """Return the value that process 0 makes, in every process.

    The others do not call `make`: they wait. Raises what `make` raises in process 0. The others
    then raise StoppedTogetherError with the same exit code, if it is an error of jaxtrade.

    make: returns a value that JSON can express; a float keeps its bits.
    """
    if (state := find_distributed_state()) is None:
        return make()
    key = _CALLS.next()
    if state.process_id == 0:
        try:
            value = make()
        except JaxtradeError as error:
            state.client.key_value_set(
                key, json.dumps({"error": str(error), "exit_code": error.exit_code})
            )
            raise
        state.client.key_value_set(key, json.dumps({"value": value}))
        _CALLS.kept.append(key)
        return value
    answer = json.loads(state.client.blocking_key_value_get(key, 1000 * LONGEST_S))
    if "error" in answer:
        text, code = answer["error"], answer["exit_code"]
        raise StoppedTogetherError(f"process 0 has stopped the run: {text}", code)
    return answer["value"]


def agree(number: int) -> int:
    """Return the largest number of all processes, in every process."""
    if (state := find_distributed_state()) is None:
        return number
    key, client = _CALLS.next(), state.client
    client.key_value_set(f"{key}/{state.process_id}", str(int(number)))
    client.wait_at_barrier(f"{key}/all", 1000 * LONGEST_S)
    found = max(int(value) for _, value in client.key_value_dir_get(key))
    if (
        state.process_id == 0
    ):  # all processes have come this far, so no one reads an earlier key any more
        for old in _CALLS.kept:
            client.key_value_delete(old)
        _CALLS.kept = [f"{key}/"]  # with the slash, all keys below it
    return found
