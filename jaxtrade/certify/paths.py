"""The paths of a policy, and how two of them differ.

All paths are held against the account pass of an evaluation. A path is the decisions that it made,
each with what it saw and what came of it; whatever it does not have is not compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade.data.bars import Bars
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams, EnvState, Event, Order
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.record import Record
from jaxtrade.export import numpy_policy
from jaxtrade.formatting import iso
from jaxtrade.paper.broker import BrokerFill, fills_of
from jaxtrade.paper.engine import Engine
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.nautilus import DIFFERENCES, NautilusBroker
from jaxtrade.paper.rails import PaperConfig
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.runs.setup import Setup
from jaxtrade.stream.live import Decision, Seen, Stream

EXCHANGE, GAP = "NautilusTrader", "target_gap"
VOID = (
    "The stream cannot know that no bar will follow. What it decided at a close that turned out to be "
    "the last of its session is void, and an evaluation decides nothing there."
)


Acts = dict[int, dict[str, list[Any]]]
"""Decisions, by UTC seconds of the bar at whose close they are: of each kind in `ROWS` that the path
has, what is compared."""
Shown = dict[int, tuple[Any, Any]]  # observation float32[D], mask bool[A]
Declared = Mapping[str, set[int]]  # rule -> decisions that differ by it
ROWS = (
    "decisions",
    "observation bits",
    "masks",
    "actions",
    "fills",
    "prices",
    "mills",
    "weights",
)


def describe(
    policy: LoadedPolicy,
    seen: Any,
    mask: Any,
    action: str,
    fills: Iterable[BrokerFill],
    equity: int,
) -> dict[str, list[Any]]:
    """Describe a decision, what was seen, and what came of it in the next bar.

    seen: float32[D]; its text has every bit. mask: bool[A]. equity: mills.
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


def describe_fills(fills: Iterable[BrokerFill]) -> dict[str, list[Any]]:
    """Describe what was filled: signed contracts, and ticks."""
    quantities, prices = [fill.quantity for fill in fills], [fill.price for fill in fills]
    return {"fills": quantities, "prices": prices}


def describe_weights(arrays: Mapping[str, Any]) -> list[str]:
    """Describe the numbers of a policy."""
    every = ((name, np.ravel(arrays[name]).tolist()) for name in sorted(arrays))
    return [f"{name}[{i}] {x!r}" for name, numbers in every for i, x in enumerate(numbers)]


def compare(own: Acts, other: Acts, declared: Declared) -> dict[str, Any]:
    """Compare two paths.

    Returns `compared`: kind -> how many numbers, and how many differ; `first`: the first
    difference; `declared`: rule -> decisions.
    """
    known = {time for times in declared.values() for time in times}
    compared: dict[str, dict[str, int]] = {}
    first = None
    for time in sorted((own.keys() | other.keys()) - known):
        mine, found = ({"decisions": [time in path], **path.get(time, {})} for path in (own, other))
        for kind in found.keys() & mine.keys():
            pairs = list(zip_longest(mine[kind], found[kind]))
            wrong = [pair for pair in pairs if pair[0] != pair[1]]
            count = compared.setdefault(kind, {"numbers": 0, "different": 0})
            count["numbers"] += len(pairs)
            count["different"] += len(wrong)
            rank = time, ROWS.index(kind)
            if wrong and (first is None or rank < first[0]):
                first = rank, dict(zip(("expected", "found"), wrong[0], strict=True))
    return {
        "compared": compared,
        "first": first and {"time": iso(first[0][0]), "kind": ROWS[first[0][1]], **first[1]},
        "declared": {rule: len(times) for rule, times in declared.items() if times},
    }


# --- the paths -----------------------------------------------------------------------------------


def evaluate(
    setup: Setup, loaded: LoadedPolicy, number: int, symbol: str, split: str
) -> tuple[Acts, Shown]:
    """Return the account pass of an evaluation, advice absent, as `acts_of`."""
    own = setup.symbols[symbol]
    config, rules = setup.of_agent(number, symbol, jax.device_put(own.params))
    evaluator, learner = evaluator_of(own.env), make_algorithm(config, own.env, 1)
    agents = evaluator.agents(own.env, own.single, rules, config, learner, loaded.policy)[:1]
    given = own.env, rules, own.single, own.splits[split], config, agents
    record = evaluator.evaluate(*given, steps=setup.steps(split)).agents[0].account
    return acts_of(record, own.env, rules, own.single.bars.time, loaded)


def acts_of(
    record: Record, env: TradingEnv, params: EnvParams, times: np.ndarray, loaded: LoadedPolicy
) -> tuple[Acts, Shown]:
    """Return the path of a record [L], and what was shown. times: int64[n], of the market's rows."""
    seen = jax.jit(jax.vmap(env.observe, (0, None)))(record.ref, params)
    record, seen = jax.device_get((record, seen))
    found, shown = Acts(), Shown()
    for i, time in enumerate(times[record.row].tolist()):
        fills = fills_of(jax.tree.map(lambda x, i=i: x[i], record.event))
        action, equity = env.actions[record.action[i]], int(record.equity[i])
        shown[time] = seen[i], record.ref.mask[i]
        found[time] = describe(loaded, *shown[time], action, fills, equity)
    return found, shown


class Watched(Stream):
    """A stream that keeps what it decided, and which decision it last filled."""

    def __init__(self, *given: Any) -> None:
        self.made: dict[int, Decision] = {}
        self.begun: set[int] = set()  # where the policy remembers nothing
        self.filled = 0
        super().__init__(*given)

    def decide_at(self, seen: Seen) -> Decision:
        """Decide, as `Stream`."""
        time = int(self.rows.bar.time[0])
        if not any(np.any(leaf) for leaf in jax.tree.leaves(self.carry)):
            self.begun.add(time)
        self.made[time] = super().decide_at(seen)
        return self.made[time]

    def step(self, state: EnvState, order: Order) -> tuple[EnvState, Event]:
        """BrokerFill, as `Stream`."""
        self.filled = next(
            time for time, each in reversed(self.made.items()) if each.order is order
        )
        return super().step(state, order)


class Tape(PaperJournal):
    """The paths of an engine and of the exchange beside it. A step that is made again replaces."""

    def __init__(self, stream: Watched, exchange: NautilusBroker | None) -> None:
        self.stream, self.exchange, self.recorded = stream, exchange, deque()
        self.paths: dict[str, Acts] = {"stream": {}, **({EXCHANGE: {}} if exchange else {})}
        self.gaps: set[int] = set()

    def add(self, kind: str, **fields: Any) -> None:
        """Keep a step."""
        if kind != "step":
            return
        time, policy = self.stream.filled, self.stream.policy
        made, fills = self.stream.made[time], [BrokerFill(*each) for each in fields["fills"]]
        given = made.seen.observation, made.seen.mask, made.action, fills, fields["equity"]
        assert policy
        self.paths["stream"][time] = describe(policy, *given)
        if self.exchange:
            self.paths[EXCHANGE][time] = describe_fills(self.exchange.poll())
            _, kinds = next(reversed(self.exchange.found.values()))
            (self.gaps.add if {*kinds} == {GAP} else self.gaps.discard)(time)

    def sync(self) -> None:
        """Do nothing."""


def trade(
    stream: Watched, bars: Bars, dates: Any, complete: bool, exchange: bool, screen: Screen
) -> tuple[dict[str, Acts], dict[str, Declared]]:
    """Trade bar by bar, as on paper without rails.

    bars: that follow the history of the stream.
    dates: those that are traded. complete: whether the last one is whole.
    exchange: whether NautilusTrader's fills the same orders.
    Returns the paths by name, and what is declared of each.
    """
    ticks, intrabar = stream.contract.slippage_ticks, stream.config.env.intrabar
    broker = NautilusBroker(ticks, intrabar) if exchange else None
    tape = Tape(stream, broker)
    engine = Engine(stream, tape, PaperConfig(), sinks=[broker] if broker else [])
    with ExitStack() as stack:
        if broker:
            stack.callback(broker.close)
            broker.connect()
        for at, trades in enumerate(np.isin(bars.trade_dates, dates)):
            if at % 100 == 0:
                screen.step(f"bar {at:,} of {len(bars):,}")
            if trades:
                engine.on_bar(bars.rows(slice(at, at + 1)), None)
                continue
            if engine.open:
                engine.end(True)
            stream.push(bars.rows(slice(at, at + 1)))
        if engine.open:
            engine.end(complete)
    void = stream.made.keys() - tape.paths["stream"].keys()
    return tape.paths, {"stream": {VOID: void}, EXCHANGE: {DIFFERENCES[GAP]: tape.gaps}}


def run_export(folder: Path, shown: Shown, begun: set[int]) -> Acts:
    """Return the actions of an export in NumPy, and its weights; no more if it refuses those.

    begun: decisions before which nothing is remembered.
    """
    weights = describe_weights(np.load(folder / "policy.npz", allow_pickle=False))
    found: Acts = {min(shown): {"weights": weights}}
    try:
        policy = numpy_policy.NumpyPolicy(folder)
    except ValueError:
        return found
    carry = policy.first_carry()
    for time, given in shown.items():
        carry = policy.first_carry() if time in begun else carry
        carry, action = policy.step(carry, *given)
        found.setdefault(time, {})["actions"] = [policy.action_names[action]]
    return found
