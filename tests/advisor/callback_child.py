"""A process of its own for tests of the callback transport: `callback_child.py CALLS RAISES_AT...`,
prints JSON.

A scan in a compiled program, with work for XLA's threads around every callback, against one bridge;
what the device holds at the end must be what the bridge handed out.
"""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.advisor.bridge import Bridge, exchange
from jaxtrade.advisor.table import demand, empty_table, write_delta
from tests.advisor.bridge_parts import HandSource, row

BARS, ROWS, DEMAND, CHUNK = 4096, 256, 64, 500


class Echo(HandSource):
    """Answers at the next update what was wanted, all of it."""

    def want(self, wants):
        self.rows.extend(row(bar, weight) for bar, weight in wants)


class Raises(Bridge):
    """A bridge with a bug: raises at some of its calls, whatever its guard says."""

    at: frozenset[int] = frozenset()
    calls = 0

    def delta(self, update):
        self.calls += 1
        if self.calls in self.at:
            raise SystemExit("of the test") if self.calls % 2 else RuntimeError("of the test")
        return super().delta(update)


def run(calls, raises):
    reported = []
    bridge = Raises(Echo(), BARS, ROWS, log=reported.append)
    bridge.at = raises
    ask = exchange(bridge)

    def update(carry, _):
        table, number, work = carry
        work = jnp.tanh(work @ work)  # keeps XLA's threads at it
        want = (
            jnp.mod(jnp.arange(BARS, dtype=jnp.float32) * 0.37 + number + work.sum() * 0, 1.0)
            + 0.01
        )
        bars, weights = demand(want, jnp.ones(BARS, bool), table.version, DEMAND)
        table = write_delta(table, ask(number, bars, weights))
        # Asked again and again: what was answered is forgotten, a bar at a time.
        return (
            table.replace(version=table.version.at[jnp.mod(number, BARS)].set(0)),
            number + 1,
            work,
        ), None

    chunk = jax.jit(lambda carry: jax.lax.scan(update, carry, None, length=CHUNK), donate_argnums=0)
    carry = (empty_table(BARS), jnp.int32(0), jnp.eye(128) * 0.5)
    for _ in range(calls // CHUNK):
        carry, _ = chunk(carry)
    bridge.wait_for_answers()
    table = carry[0]
    held = np.flatnonzero(np.asarray(table.version))
    last = {
        int(bar): handed.rows[i]
        for handed in bridge._visible._history
        for i, bar in enumerate(handed.bars)
    }
    return {
        "calls": bridge.calls,
        "version": bridge.version,
        "newest": int(table.newest),
        "compiled": chunk._cache_size(),
        "same": all(np.array_equal(np.asarray(table.rows)[bar], last[int(bar)]) for bar in held),
        "held": len(held),
        "contained": bridge.statistics()["contained"],
        "reported": reported,
    }


def main():
    calls, raises = int(sys.argv[1]), frozenset(map(int, sys.argv[2:]))
    found = run(calls, raises)
    print(
        json.dumps({**found, "cores": len(os.sched_getaffinity(0)), "devices": jax.device_count()})
    )


if __name__ == "__main__":
    main()
