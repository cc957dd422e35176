"""Shared pytrees and Protocols (layer 0).

Shapes: T bars on the flat time axis, N sessions, C feature columns, S symbols held (1 for every task so far),
A actions, D observation slots, K reward terms. Prices are int32 ticks; money is int32 mills ($0.001) relative to the
account's start balance.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
from flax import struct

Array = jax.Array
PyTree = Any


class SessionTable(struct.PyTreeNode):
    """Sessions as row ranges of the flat time axis, each `int32[N]`.

    Decisions are taken at the closes of bars `first..last`; bar `last + 1` is the flat bar, at whose close a position
    leaves. Feature bars (the overnight bars too) are `start..end - 1`.
    """

    start: Array
    end: Array
    first: Array
    last: Array
    symbol: Array
    date: Array  # trade date, days since 1970-01-01
    complete: Array  # bool[N]: False where the data end before the flat bar (the session then truncates)


class IntrabarPath(struct.PyTreeNode):
    """What second bars say about the order of prices inside each bar. Of two-sided bars a long reads the bid's falls, a
    short the ask's.

    falls: int32[T, 2, 3, K] for a long [:, 0], and of the bar upside down for a short [:, 1], every fall from the
        running high that is deeper than all before it, in time order: the running high before the second of its low
        and with it, and that low; in ticks from the bar's open, padded by zeros.
    ambiguous: bool[T, 2] no seconds, seconds that do not rebuild the bar, or more falls than are kept: `stop_first`
        resolves such a bar.
    """

    falls: Array
    ambiguous: Array


class TickValue(struct.PyTreeNode):
    """Account money of one tick of one contract in each bar, of a market whose profits arise in another currency.

    times, over: int32[T] > 0. Mills per tick are the fraction times / over, at least 1, at the rate known at the bar's
        open: every fill and mark of the bar is converted at it, rounded half-even, once.
    """

    times: Array
    over: Array


class Quotes(struct.PyTreeNode):
    """The ask side of a market with two-sided bars.

    open, high, low, close: int32[T] ticks, nowhere below the bid's.
    """

    open: Array
    high: Array
    low: Array
    close: Array


class MarketView(struct.PyTreeNode):
    """The float half of the market, the only floats an observation reads (`data.features.view` has the formula).

    value: float32[T, F + 3] one column per feature, then three times. level: the same shape, whole ticks that prices
        are relative to; None (static) where no column needs them. now: float32[T, 4], what a bar's own figures scale
        its window by.
    scaling, features: what the view was made for (static).
    context: float32[T, 28] slots of each bar's own context, ready to be shown; None (static) for tasks that show none.
    """

    value: Array
    level: Array | None
    now: Array
    scaling: str = struct.field(pytree_node=False, default="relative")
    features: tuple[str, ...] = struct.field(pytree_node=False, default=())
    context: Array | None = None


class MarketData(struct.PyTreeNode):
    """A market on device: a traced argument inside `EnvParams`, never captured in a closure.

    open, high, low, close: int32[T] ticks; of two-sided bars the bid.
    tr_sum: int32[T] sum of the last 14 true ranges in ticks (of two-sided bars their mid) up to and with this bar; -1
        until 14 exist.
    bars_to_flat: int32[T] whole bar lengths from this bar's scheduled close to the session's flat time, from the
        calendar alone; 0 at the flat bar.
    fingerprint: uint32[8], the sha256 of everything above, as read on the host.
    path: the order of prices inside each bar, or None where only minute bars are known (static: it shapes the pytree).
    tick_value: what a tick is worth in each bar, or None where profits arise in dollars (static too).
    ask: the other side of two-sided bars, or None (static).
    """

    open: Array
    high: Array
    low: Array
    close: Array
    tr_sum: Array
    bars_to_flat: Array
    sessions: SessionTable
    view: MarketView
    fingerprint: Array
    path: IntrabarPath | None = None
    tick_value: TickValue | None = None
    ask: Quotes | None = None

    @property
    def mid_close(self) -> Array:
        """int32[T] ticks: floor((bid + ask) / 2) at each close, the close itself of one-sided bars."""
        return self.close if self.ask is None else (self.close + self.ask.close) // 2


class SessionSet(struct.PyTreeNode):
    """A split as traced data: rows of the session table, in time order.

    ids: int32[N] padded to the market's session count (padding repeats the first id, 0 where the set is empty).
    count: int32[] how many of them are real.
    """

    ids: Array
    count: Array


class EndReason(enum.IntEnum):
    """Why an episode (or an account, in evaluation) ended."""

    NONE = 0
    BUST = 1
    DAILY_LOSS = 2  # only where on_daily_loss=fail
    TARGET = 3
    SESSION_END = 4  # end of the episode's last session
    STEP_LIMIT = 5  # truncated
    END_OF_DATA = 6  # truncated


RefT = TypeVar("RefT")


class Outcome(struct.PyTreeNode, Generic[RefT]):
    """What one environment step produced besides the next state and reference.

    final_ref: the reference before any auto-reset; equals the next reference where the episode goes on.
    reward: float32[]; terminated, truncated: bool[], never both merged (only `terminated` zeroes the bootstrap).
    info: environment-specific pytree (the trading environment: `StepInfo`).
    """

    final_ref: RefT
    reward: Array
    terminated: Array
    truncated: Array
    info: PyTree


class Env(Protocol):
    """What a learner needs of an environment. Functions are pure; `params` is traced."""

    @property
    def num_actions(self) -> int: ...

    @property
    def observation_size(self) -> int: ...

    def reset(self, key: Array, params: PyTree) -> tuple[PyTree, PyTree]:
        """-> (state, ref)."""
        ...

    def step(self, key: Array, state: PyTree, action: Array, params: PyTree) -> tuple[PyTree, PyTree, Outcome]:
        """One step with auto-reset -> (state, ref, outcome)."""
        ...

    def observe(self, ref: PyTree, params: PyTree) -> Array:
        """float32[D], the same bits wherever it is called."""
        ...

    def action_mask(self, ref: PyTree) -> Array:
        """bool[A], at least one True."""
        ...


class Transition(NamedTuple):
    """One step of a rollout, stacked to [num_steps, num_envs, ...].

    `first` marks an observation that starts an episode. `behaviour_version` is the update count of the weights that
    acted. `carry` is the policy's memory with `ref` taken in, float32[num_steps, num_envs, H]; None where it has none.
    `info` is the environment's, or what `Summary.tell` kept. `extras` is what the learner's acting function returned
    beside the action, a NamedTuple of its own (PPO: log-probability and value of `action` in `ref`).
    """

    ref: PyTree
    final_ref: PyTree
    first: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    behaviour_version: Array
    info: PyTree
    carry: PyTree = None
    extras: PyTree = None


class Summary(NamedTuple):
    """Figures that an environment reports about a rollout, so that no step's `info` needs to be kept until its end.

    tell(transitions of one step, [N, ...]) -> what is kept of it (sums over environments; T of them are stored).
    figures(what was kept, [T, ...]) -> metrics by name.
    """

    tell: Callable[[Transition], PyTree]
    figures: Callable[[PyTree], Mapping[str, Array]]


# (environment parameters, fraction of the run float32[]) -> (the parameters at that fraction, metrics about them)
Stage = Callable[[PyTree, Array], tuple[PyTree, dict[str, Array]]]


# --- learners --------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]  # the metrics of one update, on the host


class LoopState(Protocol):
    """What the training loop reads of a learner's state, which is a flax `PyTreeNode` (it has `replace`).

    update: int32[] updates done. total_updates: int32[] length of the run. key: typed; a rollback changes it.
    rollbacks: int32[], how often the run went back to a checkpoint. hparams: a `PyTreeNode` of tunable floats, each
    float32[], or None. With several agents every array has a leading axis of agents. A learner that accepts advice has
    a field `advice` too, None at first.
    """

    @property
    def update(self) -> Array: ...

    @property
    def total_updates(self) -> Array: ...

    @property
    def key(self) -> Array: ...

    @property
    def rollbacks(self) -> Array: ...

    @property
    def hparams(self) -> Any: ...

    def replace(self, **changes: Any) -> Any: ...


class HealthCheck(NamedTuple):
    """A check whether a run learns at all, over the rows of its updates.

    name: of its result. label: what is measured, for people. measure(rows) -> the value. passed(value) -> whether it is
    healthy. worst: picks the value to report out of those of several agents.
    """

    name: str
    label: str
    measure: Callable[[Sequence[Row]], float]
    passed: Callable[[float], bool]
    worst: Callable[..., float] = min


class Warn(NamedTuple):
    """A warning while a run goes wrong.

    kind: its name. look(newest rows) -> one line (what was seen, likely cause, what to try), or "" where all is well.
    at_once: a single row is enough; otherwise a whole window of them is needed.
    """

    kind: str
    look: Callable[[Sequence[Row]], str]
    at_once: bool = False


class Column(NamedTuple):
    """A metric on the console's line: its label, name, and format specification."""

    label: str
    metric: str
    form: str


class Remedies(NamedTuple):
    """What to try with a learner's own keys where the loop reports a fault ("raise ppo.ent_coef"); "" for nothing."""

    no_trades: str = ""
    one_action: str = ""
    diverged: str = ""


def unchanged(hparams: Any, times: int) -> Any:
    """The default of `Algorithm.retry`."""
    del times
    return hparams


class Algorithm(NamedTuple):
    """A learner: pure functions, and what the training loop needs to know about them (contract C6).

    init(key, params) -> state, a `LoopState`. update(state, params, inputs) -> (state, metrics), one update; `inputs`
    is None unless something comes from outside (advice). Metrics are arrays by name; every learner reports `finite`
    (bool[]: all losses and gradients were finite), and whatever else it wants to. act(policy, carry, ref, params, key,
    explore) -> (carry, action, extras): action int32[] of one reference or int32[B] of a batch of them; the key may be
    None where `explore` is False. policy(state) -> what `act` takes, an `rl.state.Policy`.

    steps_per_update: environment steps of one agent in an update. carry: one policy's memory before an episode's first
    observation, all zeros; None for a policy without one. The caller of `act` passes the carry that the last call
    returned, and the zeros again where an episode begins.

    health, warnings, progress: what the learner adds to the checks, warnings and console columns of the loop, and
    remedies to its messages. step_sizes, exploration: names of hparams that a plateau lowers and raises
    (`control.plateau_*`). retry(hparams, times) -> the hparams to go on with after the run went back to the same
    checkpoint `times` times; retry_note says so in words.
    """

    init: Callable[[Array, PyTree], Any]
    update: Callable[[Any, PyTree, PyTree], tuple[Any, dict[str, Array]]]
    act: Callable[[PyTree, PyTree, PyTree, PyTree, Array | None, bool], tuple[PyTree, Array, PyTree]]
    policy: Callable[[Any], PyTree]
    env: Env
    steps_per_update: int
    carry: PyTree = None
    health: tuple[HealthCheck, ...] = ()
    warnings: tuple[Warn, ...] = ()
    progress: tuple[Column, ...] = ()
    remedies: Remedies = Remedies()
    step_sizes: tuple[str, ...] = ()
    exploration: tuple[str, ...] = ()
    retry: Callable[[Any, int], Any] = unchanged
    retry_note: str = ""
