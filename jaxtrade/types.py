"""Shared pytrees and Protocols.

Shapes: T bars on the flat time axis, N sessions, C feature columns, S symbols held (1 for every
task so far), A actions, D observation slots, K reward terms.

Prices are int32 ticks; money is int32 mills ($0.001) relative to the account's start balance.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
from flax import struct

Array = jax.Array
PyTree = Any
Metrics = dict[str, Array]  # figures of an update or of a gradient step, by name
AGENTS = "agents"  # name of the mapped axis over which the agents of a shared market meet


class SessionTable(struct.PyTreeNode):
    """Sessions as row ranges of the flat time axis, each `int32[N]`.

    The agent decides at the closes of bars `first..last`. Bar `last + 1` is the flat bar: any open
    position is closed at its close. Feature bars, which include the overnight bars, are `start..end
    - 1`.
    """

    start: Array
    end: Array
    first: Array
    last: Array
    date: Array  # trade date, days since 1970-01-01
    complete: (
        Array  # bool[N]: False where the data end before the flat bar (the session then truncates)
    )


class IntrabarPath(struct.PyTreeNode):
    """The order of prices inside each bar, taken from one-second bars.

    A fall is a drop from the bar's running high. Only record falls are kept: each is deeper than
    all before it. Column [:, 0] is for a long position (on the bid), [:, 1] for a short one (on the
    ask), computed on the inverted bar.

    falls: int32[T, 2, 3, K] ticks from the bar's open, in time order, padded with zeros. Entries of
        a fall: the running high before the second in which the low occurs, the running high
        including that second, and the low.
    ambiguous: bool[T, 2] True without second bars, where they do not rebuild the bar, and with more than K falls:
        `stop_first` resolves such a bar.
    """

    falls: Array
    ambiguous: Array


class TickValue(struct.PyTreeNode):
    """Value of one tick of one contract in each bar.

    It is for a market whose profits arise in another currency.

    times, over: int32[T] > 0. One tick is worth times / over mills (at least 1), at the exchange
        rate that is known at the bar's open. Every fill and mark of the bar is converted at this
        rate and rounded once, half to even.
    """

    times: Array
    over: Array


class Quotes(struct.PyTreeNode):
    """The ask side of two-sided bars: open, high, low, close, never below the bid.

    They are int32[T] ticks.
    """

    open: Array
    high: Array
    low: Array
    close: Array


class MarketView(struct.PyTreeNode):
    """The float part of the market: the only floats that an observation reads.

    Formula: `data.device`.

    value: float32[T, F + 3] one column per feature, then three time columns.
    level: float32[T, F + 3] whole ticks that prices are relative to. None (static) if no column
        needs them.
    now: float32[T, 4] numbers of the current bar, which scale its observation window.
    scaling, features: the configuration that the view was built for (static).
    context: float32[T, 28] observation slots about the bar itself. None (static) for tasks that do
        not show them.
    windows, level_windows: float32[T, W (F + 3)] their windows by bar (`data.windows`). None
        (static): slices instead.
    base: int32[] ticks, which `level` and `now` are relative to, so that float32 is exact. None
        (static): 0.
    """

    value: Array
    level: Array | None
    now: Array
    scaling: str = struct.field(pytree_node=False, default="relative")
    features: tuple[str, ...] = struct.field(pytree_node=False, default=())
    context: Array | None = None
    windows: Array | None = None
    level_windows: Array | None = None
    base: Array | None = None


class MarketData(struct.PyTreeNode):
    """A market on device: a traced argument inside `EnvParams`.

    A closure would compile it into the program.

    open, high, low, close: int32[T] ticks; the bid if the bars are two-sided.
    tr_sum: int32[T] sum of the last 14 true ranges (two-sided: of the mid price) in ticks, with
        this bar; before: -1.
    bars_to_flat: int32[T] whole bars from this bar's scheduled close to the session's flat time, 0
        at the flat bar. It depends on the calendar alone, so it reveals nothing about later bars.
    fingerprint: uint32[8] sha256 of everything above, as read on the host.
    path: order of prices inside each bar. None (static) without second bars.
    tick_value: value of a tick in each bar. None (static) if profits arise in dollars.
    ask: the ask side of two-sided bars. None (static) if the bars are one-sided.
    symbol: int8[T] the symbol of each bar, as its place in the set. None (static) for one symbol.
        The bars of a set stand one symbol after the other, without padding, and so do its sessions.
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
    symbol: Array | None = None

    @property
    def mid_close(self) -> Array:
        """int32[T] ticks: floor((bid + ask) / 2) at each close.

        With one-sided bars it is the close itself.
        """
        return self.close if self.ask is None else (self.close + self.ask.close) // 2


class JointMarket(struct.PyTreeNode):
    """The shared bars of several symbols on device, a traced argument inside `PortfolioParams`.

    open, high, low, close: int32[T, S] ticks, the bid; bars between two shared stamps are joined to
        the later one.
    ask: the ask side, [T, S]. None (static) if all symbols are one-sided; among others a one-sided
        one has ask = bid.
    rows: int32[T, S] each symbol's own bar, in its view.
    tr_sum: int32[T] -1 until every symbol has 14 true ranges.
    bars_to_flat: int32[T] the least of all symbols.
    sessions: rows of the shared bars.
    views: one per symbol.
    tick_value: [T, S]. None (static) if all profits arise in dollars.
    fingerprint: uint32[8].
    symbol: None (static): no bar belongs to one symbol, as those of a `MarketData` may.
    """

    open: Array
    high: Array
    low: Array
    close: Array
    rows: Array
    tr_sum: Array
    bars_to_flat: Array
    sessions: SessionTable
    views: tuple[MarketView, ...]
    fingerprint: Array
    ask: Quotes | None = None
    tick_value: TickValue | None = None
    symbol: None = None


class SessionSet(struct.PyTreeNode):
    """The sessions of one split (training, validation, test) as traced data.

    ids: int32[N] rows of the session table in time order (by symbol), padded to the market's
        session count. The padding repeats the first id (0 if the set is empty).
    count: int32[] number of ids before the padding.
    offsets: int32[M + 1]: ids offsets[m]..offsets[m + 1] - 1 are of symbol m. None (static) for one
        symbol.
    """

    ids: Array
    count: Array
    offsets: Array | None = None


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
    """Result of one environment step, besides the next state and reference.

    final_ref: reference before an auto-reset. Equal to the next reference if the episode goes on.
    reward: float32[].
    info: pytree of the environment (`StepInfo` for the trading environment).
    terminated, truncated: bool[]. They stay separate because only `terminated` zeroes the
        bootstrapped value.
    """

    final_ref: RefT
    reward: Array
    terminated: Array
    truncated: Array
    info: PyTree


class Env(Protocol):
    """The interface of an environment. Its functions are pure, and `params` is traced.

    reset(key, params) -> (state, ref).
    step: one step with auto-reset -> (state, ref, outcome).
    observe -> float32[D]; acting and learning must be bit-identical for the same reference.
    action_mask -> bool[A], at least one True.
    """

    @property
    def num_actions(self) -> int: ...

    @property
    def observation_size(self) -> int: ...

    def reset(self, key: Array, params: PyTree) -> tuple[PyTree, PyTree]: ...

    def step(
        self, key: Array, state: PyTree, action: Array, params: PyTree
    ) -> tuple[PyTree, PyTree, Outcome]: ...

    def observe(self, ref: PyTree, params: PyTree) -> Array: ...

    def action_mask(self, ref: PyTree) -> Array: ...


class Transition(NamedTuple):
    """One step of a rollout, stacked to [num_steps, num_envs, ...].

    first: True for an observation that starts an episode.
    info: the environment's `info`. Where a tally took its place (`rl.rollout.unroll`): None, or
        what `keep` left of it.
    carry: float32[num_steps, num_envs, H] memory of the policy after it has read `ref`. None
        without a memory.
    extras: further results of the learner's act function, a NamedTuple (PPO: log-probability of
        `action`, and value).
    """

    ref: PyTree
    final_ref: PyTree
    first: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    info: PyTree
    carry: PyTree = None
    extras: PyTree = None


class Summary(NamedTuple):
    """Metrics about a rollout, from sums over its steps.

    The `info` of every step would take far more memory.

    start(params) -> zeros of one environment, a tree of scalars and small arrays.
    collect(transitions of one step [N, ...]) -> the numbers to add in this step, the same tree with
        a leading axis N.
    figures(sums over all steps and environments, number of environment steps) -> metrics by name.
    keep(transitions of one step [N, ...]) -> what stays of `info`, a tree of [N]. None: nothing
        stays.
    close(transitions [T, N, ...] with that `info`, params, `networks.reductions.Reduce`) -> further
        metrics by name.
    """

    start: Callable[[PyTree], PyTree]
    collect: Callable[[Transition], PyTree]
    figures: Callable[[PyTree, int], Mapping[str, Array]]
    keep: Callable[[Transition], PyTree] | None = None
    close: Callable[[Transition, PyTree, Any], Mapping[str, Array]] | None = None


# (environment parameters, fraction of the run float32[]) -> (parameters at that fraction, metrics
# about them)
Stage = Callable[[PyTree, Array], tuple[PyTree, Metrics]]


Row = Mapping[str, Any]  # the metrics of one update, on the host


class LoopState(Protocol):
    """The part of a learner's state that the training loop reads.

    The state is a flax `PyTreeNode` (it has `replace`).

    update: int32[] updates done.
    total_updates: int32[] length of the run in updates.
    key: typed random key; a rollback changes it.
    rollbacks: int32[] number of times that the run went back to a checkpoint.
    hparams: `PyTreeNode` of tunable floats, each float32[], or None.

    With several agents every array has a leading axis of agents. The state of a learner that
    accepts advice also has a field `advice`, which `init` sets to None.
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
    """A check that a run learns at all, computed from the metrics of its updates.

    name: key of its result.
    label: description for reports.
    measure(rows) -> value.
    passed(value) -> True if healthy.
    worst: selects the value to report from those of several agents.
    """

    name: str
    label: str
    measure: Callable[[Sequence[Row]], float]
    passed: Callable[[float], bool]
    worst: Callable[..., float] = min


class Warn(NamedTuple):
    """A warning during training.

    kind: its name. look(newest rows) -> one line (observation, likely cause, what to try), or ""
        for no warning.
    at_once: True if a single row is enough; otherwise `look` needs a whole window of rows.
    """

    kind: str
    look: Callable[[Sequence[Row]], str]
    at_once: bool = False


class Column(NamedTuple):
    """A metric on the console's progress line: label, name, format specification."""

    label: str
    metric: str
    form: str


class Remedies(NamedTuple):
    """Advice on the learner's own settings for the loop's warnings ("raise ppo.ent_coef").

    It is "" for none.
    """

    no_trades: str = ""
    one_action: str = ""
    diverged: str = ""


class LearnerInfo(NamedTuple):
    """What the training loop has to know about a learner, and what it says about it.

    steps_per_update: environment steps of one agent per update.
    together: agents of a population that are computed side by side; None: all.
    health, warnings, progress, remedies: the learner's additions to the loop's checks, warnings,
        console columns and messages.
    step_sizes, exploration: names of the hparams that a plateau lowers and raises
        (`control.plateau_*`).
    retry(hparams, times) -> hparams after the run has gone back to the same checkpoint `times`
        times; retry_note describes this change in words.
    """

    steps_per_update: int
    together: int | None = None
    health: tuple[HealthCheck, ...] = ()
    warnings: tuple[Warn, ...] = ()
    progress: tuple[Column, ...] = ()
    remedies: Remedies = Remedies()
    step_sizes: tuple[str, ...] = ()
    exploration: tuple[str, ...] = ()
    retry: Callable[[Any, int], Any] = lambda hparams, times: hparams
    retry_note: str = ""


class Learner(NamedTuple):
    """A learner: four pure functions, the policy's first memory, and what is said about them.

    init(key, params) -> state, a `LoopState`.
    update(state, params, inputs) -> (state, metrics): one update. `inputs` is data from outside the
        program (advice), or None. Metrics are arrays by name. Each learner must report `finite`
        (bool[]: all losses and gradients were finite); with advice also `visits` (float32[bars],
        need per bar).
    act(policy, carry, ref, params, key, explore) -> (carry, action, extras): action is int32[] for
        one reference and int32[B] for a batch. The key may be None if `explore` is False.
    policy(state) -> the first argument of `act`.
    carry: the policy's memory before the first observation of an episode, all zeros; None for a
        policy without memory. The caller of `act` passes the carry that the previous call returned,
        and passes the zeros again at the start of each episode.
    """

    init: Callable[[Array, PyTree], Any]
    update: Callable[[Any, PyTree, PyTree], tuple[Any, Metrics]]
    act: Callable[
        [PyTree, PyTree, PyTree, PyTree, Array | None, bool], tuple[PyTree, Array, PyTree]
    ]
    policy: Callable[[Any], PyTree]
    info: LearnerInfo
    carry: PyTree = None
