"""The paths of a policy, and how two of them differ.

A path is the decisions that it made, each with what it saw and what came of it. They are held against
the account pass of an evaluation, and the fills of another exchange against those of the stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product, zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.data.bars import Bars
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams, EnvState, Event, Order
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.record import Record
from jaxtrade.export.numpy_policy import NumpyPolicy
from jaxtrade.formatting import iso
from jaxtrade.paper.broker import BrokerFill, fills_of
from jaxtrade.paper.engine import Engine
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.nautilus import DIFFERENCES, NautilusBroker, differences
from jaxtrade.paper.rails import PaperConfig
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.runs.distributed import say
from jaxtrade.runs.setup import Setup
from jaxtrade.stream.live import Decision, Seen, Stream
from jaxtrade.types import SessionSet

VOID = (
    "The stream cannot know that no bar will follow. What it decided at a close that turned out to be "
    "the last of its session is void, and an evaluation decides nothing there."
)
Acts = dict[int, dict[str, list[Any]]]
"""Of each decision, by UTC seconds of the bar at whose close it is, what is compared of each kind."""
ROWS = ("observation bits", "masks", "actions", "prices", "mills")


class PathComparison(NamedTuple):
    """A path, and what it is held against.

    kinds: those of `ROWS` that it has. declared: rule -> decisions that differ by it.
    """

    expected: Acts
    found: Acts
    kinds: Sequence[str] = ROWS
    declared: Mapping[str, set[int]] = {}


def describe(
    policy: Any, seen: Any, mask: Any, action: str, fills: Sequence[BrokerFill], equity: int
) -> dict[str, list[Any]]:
    """Describe a decision, what was seen, and what came of it in the next bar.

    policy: LoadedPolicy. seen: float32[D]; its text has every bit. mask: bool[A]. equity: mills.
    """
    named = zip(policy.observation_names, seen.tolist(), strict=True)
    legal = zip(policy.action_names, mask.tolist(), strict=True)
    return {
        "observation bits": [f"{name} {x!r}" for name, x in named],
        "masks": [f"{name} {x}" for name, x in legal],
        "actions": [action],
        **describe_fills(fills),
        "mills": [equity],
    }


def describe_fills(fills: Sequence[BrokerFill]) -> dict[str, list[Any]]:
    """Describe what was filled: signed contracts and ticks of each."""
    return {"prices": [[fill.quantity, fill.price] for fill in fills]}


def compare(path: PathComparison) -> dict[str, Any]:
    """Compare a path with what is expected.

    Returns `compared`: kind -> how many numbers, and how many differ; `first`: the first
    difference; `declared`: rule -> decisions.
    """
    first, compared = None, {kind: {"numbers": 0, "different": 0} for kind in path.kinds}
    times = {*path.expected, *path.found}.difference(*path.declared.values())
    for time, kind in product(sorted(times), path.kinds):
        acts = (each.get(time, {}).get(kind, []) for each in path[:2])
        pairs = [*zip_longest(*acts)]
        wrong = [pair for pair in pairs if pair[0] != pair[1]]
        compared[kind]["numbers"] += len(pairs)
        compared[kind]["different"] += len(wrong)
        if wrong and first is None:
            expected, found = wrong[0]
            first = {"time": iso(time), "kind": kind, "expected": expected, "found": found}
    declared = {rule: len(times) for rule, times in path.declared.items() if times}
    return {"compared": compared, "first": first, "declared": declared}


# --- the paths -----------------------------------------------------------------------------------


def evaluate(
    setup: Setup, loaded: LoadedPolicy, number: int, symbol: str, sessions: SessionSet
) -> Acts:
    """Return the account pass of an evaluation, advice absent."""
    own = setup.symbols[symbol]
    config, rules = setup.of_agent(number, symbol, jax.device_put(own.params))
    learner = make_algorithm(config, own.env, 1)
    given = own.env, rules, sessions, learner, [loaded.policy], None, None, None
    (record,) = evaluator_of(own.env).records(*given)
    return acts_of(record, own.env, rules, own.single.bars.time, loaded)


def acts_of(
    record: Record, env: TradingEnv, params: EnvParams, times: np.ndarray, loaded: LoadedPolicy
) -> Acts:
    """Return the path of a record [L]. times: int64[n], of the market's rows."""
    seen = jax.jit(jax.vmap(env.observe, (0, None)))(record.ref, params)
    record, seen = jax.device_get((record, seen))
    found = Acts()
    for i, time in enumerate(times[record.row].tolist()):
        fills = fills_of(jax.tree.map(lambda x, i=i: x[i], record.event))
        action, equity = env.actions[record.action[i]], int(record.equity[i])
        found[time] = describe(loaded, seen[i], record.mask[i], action, fills, equity)
    return found


class Watched(Stream):
    """A stream that keeps what an engine decided on it, and what came of it.

    made: by its order: the time of a decision, whether the policy remembered nothing, and itself.
    acts: of the decisions that were filled.
    """

    engine: Engine

    def __init__(self, *given: Any) -> None:
        self.made, self.acts = dict[int, tuple[int, bool, Decision]](), Acts()
        super().__init__(*given)

    def decide_at(self, seen: Seen) -> Decision:
        """Decide, as `Stream`."""
        fresh = not any(np.any(leaf) for leaf in jax.tree.leaves(self.carry))
        decision = super().decide_at(seen)
        self.made[id(decision.order)] = int(self.rows.bar.time[0]), fresh, decision
        return decision

    def step(self, state: EnvState, order: Order) -> tuple[EnvState, Event]:
        """Fill an order, as `Stream`. A step that is made again replaces."""
        moved, event = super().step(state, order)
        time, _, made = self.made[id(order)]
        equity = self.engine.now._replace(state=moved).equity
        shown = made.seen.observation, made.seen.mask, made.action
        self.acts[time] = describe(self.policy, *shown, fills_of(event), equity)
        return moved, event


def trade(
    stream: Watched, bars: Bars, trades: np.ndarray, sinks: list[NautilusBroker], screen: Screen
) -> None:
    """Trade bar by bar, as on paper without rails, and close the sinks.

    bars: that follow the history of the stream. trades: bool[n], those of traded sessions.
    """
    with TemporaryFile(buffering=0) as file, ExitStack() as ending:
        for sink in sinks:
            ending.callback(sink.close)
        journal = PaperJournal(file)
        stream.engine = engine = Engine(stream, journal, PaperConfig(), sinks=sinks)
        for at, traded in enumerate(trades):
            screen.step(f"bar {at:,} of {len(bars):,}")
            bar = bars.rows(slice(at, at + 1))
            if engine.open and not traded:
                engine.end(True)
            if traded:
                engine.on_bar(bar, None)
            else:
                stream.push(bar)
        if engine.open:
            engine.end(False)


def stream_path(expected: Acts, stream: Watched) -> PathComparison:
    """Return the path of a stream after `trade`."""
    times = {time for time, _, _ in stream.made.values()}
    void = times.difference(stream.acts, expected)  # what the evaluation decides too is not void
    return PathComparison(expected, stream.acts, declared={VOID: void})


def paths_of(
    expected: Acts, stream: Watched, sinks: list[NautilusBroker], export: Path
) -> dict[str, PathComparison]:
    """Return the paths after `trade`, by name. export: folder of an export to NumPy."""
    found = {"stream": stream_path(expected, stream)}
    for broker in sinks:
        pairs = broker.found.items()
        ours, theirs = ({at: describe_fills(pair[i]) for at, pair in pairs} for i in (0, 1))
        gaps = {
            at for at, pair in pairs if {*differences(*pair, broker.intrabar)} == {"target_gap"}
        }
        declared = {DIFFERENCES["target_gap"]: gaps}
        found["NautilusTrader"] = PathComparison(ours, theirs, ("prices",), declared)
    return found | {
        "NumPy export": PathComparison(expected, run_export(export, stream), ("actions",))
    }


def run_export(folder: Path, stream: Watched) -> Acts:
    """Return what an export in NumPy does with what a stream saw; nothing if it refuses its weights."""
    try:
        policy = NumpyPolicy(folder)
    except ValueError as error:
        say(f"note: {error}")
        return {}
    found, carry = Acts(), None
    for time, fresh, made in stream.made.values():
        if time in stream.acts:
            carry = policy.first_carry() if fresh else carry
            carry, action = policy.step(carry, made.seen.observation, made.seen.mask)
            found[time] = {"actions": [policy.action_names[action]]}
    return found
