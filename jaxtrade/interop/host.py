"""The environment for programs on the host: compiled functions on the CPU, NumPy in and out.

The gymnasium and Stable-Baselines3 adapters use it, for one environment or for N of them, whose
arrays have a leading axis N. Below, [...] stands for both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import MarketEnv, TradingEnv
from jaxtrade.env.rules import of_symbol
from jaxtrade.env.state import EndReason, Event, ExitReason, ObservationRef
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.trades import mills_at
from jaxtrade.types import Array, PyTree

OPTIONS = ("session", "row")
FILLS = (
    *("order_exit_quantity", "order_exit_price", "entry_quantity", "entry_price"),
    *("exit_quantity", "exit_price", "exit_reason"),
)  # of `Event`
MAX_SEED = 2**32 - 1


class DecisionInput(NamedTuple):
    """Input of a decision: observation float32[..., D], mask bool[..., A], market row int32[...].

    Of several symbols in one account, the row is that of the first one's own bar.
    """

    observation: Any
    mask: Any
    row: Any


class StepResult(NamedTuple):
    """Result of a step.

    reward: float32[...].
    terminated, truncated, illegal: bool[...].
    equity: int32[...], mills.
    end: int32[...], EndReason.
    fills: int32[..., 7], `FILLS` of the step's bar; None of several symbols in one account, and
        once `HostEnv` has noted them.
    final: the last observation of the step's own episode, before any reset.
    """

    reward: Any
    terminated: Any
    truncated: Any
    illegal: Any
    equity: Any
    end: Any
    fills: Any
    final: DecisionInput


class _Programs(NamedTuple):
    reset: Callable[..., tuple[PyTree, DecisionInput]]
    restart: Callable[..., tuple[PyTree, DecisionInput]]
    start_at: Callable[..., tuple[PyTree, DecisionInput]]
    step: Callable[..., tuple[PyTree, DecisionInput, StepResult]]


@functools.lru_cache(maxsize=64)
def _programs(env: MarketEnv[Any], batched: bool) -> _Programs:
    """Return the programs shared by all hosts with an equal environment.

    The market is an argument, so it is not compiled in.
    """

    def see(ref: ObservationRef, params: PyTree) -> DecisionInput:
        return DecisionInput(env.observe(ref, params), ref.mask, ref.row[0])

    def observe(state: PyTree, params: PyTree) -> tuple[PyTree, DecisionInput]:
        return state, see(env.ref(state, params), params)

    def reset(seed: Array, params: PyTree) -> tuple[PyTree, DecisionInput]:
        state, ref = env.reset(jax.random.key(seed), params)
        return state, see(ref, params)

    def restart(state: PyTree, params: PyTree) -> tuple[PyTree, DecisionInput]:
        return observe(env.next_episode(state, params), params)

    def start_at(
        state: PyTree, params: PyTree, slot: Array, row: Array
    ) -> tuple[PyTree, DecisionInput]:
        return observe(env.reset_at(params, slot, row, state.seed, state.episode), params)

    def step(
        state: PyTree, action: Array, params: PyTree
    ) -> tuple[PyTree, DecisionInput, StepResult]:
        state, ref, outcome = env.step(jax.random.key(0), state, action, params)
        info = outcome.info
        return (
            state,
            see(ref, params),
            StepResult(
                outcome.reward,
                outcome.terminated,
                outcome.truncated,
                info.illegal,
                info.equity,
                info.end,
                jnp.stack([getattr(info.event, name) for name in FILLS], axis=-1)
                if isinstance(info.event, Event)
                else None,
                see(outcome.final_ref, params),
            ),
        )

    axes = {
        reset: (0, None),
        restart: (0, None),
        start_at: (0, None, None, None),
        step: (0, 0, None),
    }
    return _Programs(*(jax.jit(jax.vmap(f, each) if batched else f) for f, each in axes.items()))


def _cpu() -> Any:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError as error:
        raise ConfigError(
            f"environments of host programs run on the CPU, which JAX does not offer here ({error}); "
            "let it, e.g. with JAX_PLATFORMS=cuda,cpu, or unset JAX_PLATFORMS"
        ) from None


def _to_host(tree: Any) -> Any:
    """Copy arrays to NumPy.

    Views of JAX buffers would be read-only, and torch warns about such arrays.
    """
    return jax.tree.map(np.array, jax.device_get(tree))


Fill = tuple[int, list[int]]  # market row of a bar, and its `FILLS`


def list_trades(fills: list[Fill], params: PyTree) -> list[dict[str, Any]]:
    """List the closed round turns of an episode, in order.

    Rows are market rows of the bars with the fills, prices points with slippage, net dollars after
    costs. A position that a curriculum opened at the start has no entry, and no trade here.
    """
    trades, opened = [], None
    for row, (left, left_at, size, entry, out, out_at, why) in fills:
        for quantity, price, reason in (
            (left, left_at, int(ExitReason.ORDER)),
            (size, entry, None),
            (out, out_at, why),
        ):
            if not quantity:
                continue
            if reason is None:
                opened = row, price
            elif opened:
                own = of_symbol(params, row)  # type: ignore[arg-type]
                tick, ticks = float(str(own.contract.tick_size)), (price - opened[1]) * quantity
                gain = int(mills_at(np.array([ticks]), np.array([row]), own)[0])
                trades.append(
                    {
                        "entry_row": opened[0],
                        "exit_row": row,
                        "side": "long" if quantity > 0 else "short",
                        "quantity": abs(quantity),
                        "entry_price": round(opened[1] * tick, 10),
                        "exit_price": round(price * tick, 10),
                        "net": (gain - 2 * abs(quantity) * int(own.contract.commission)) / 1000,
                        "exit_reason": ExitReason(reason).name.lower(),
                    }
                )
                opened = None
    return trades


class HostEnv:
    """Holds the state of one environment, or of N environments.

    shape: () for one environment, whose arrays have no leading axis; else (N,).
    observed: input of the next decision; None before the first reset, and after an episode
        that ended.
    """

    def __init__(self, env: MarketEnv[Any], params: PyTree, shape: tuple[int, ...] = ()) -> None:
        if min(shape, default=1) < 1:
            raise ConfigError(f"num_envs = {shape[0]}: expected 1 or more")
        self.env, self.shape = env, shape
        self.observed: DecisionInput | None = None
        self._fills: list[list[Fill]] = []  # of each environment's episode so far
        self._state: Any = None
        self._params = jax.device_put(params, _cpu())
        self._programs = _programs(env, bool(shape))

    def latest(self, error: type[Exception], what: str) -> DecisionInput:
        """Return the input of the next decision. Raises `error` if there is none.

        what: what is asked for.
        """
        if self.observed is None:
            raise error(f"{what}: call reset() first")
        return self.observed

    def reset(
        self,
        seeds: Any,
        options: Mapping[str, Any],
        random: np.random.Generator,
        prepared: DecisionInput | None = None,
    ) -> DecisionInput:
        """Start the next episode(s).

        With seeds these are the first ones of `env.reset(jax.random.key(seed))`.

        Args:
            seeds: int[...] or None; the first time, `random` draws them then.
            options: a chosen place (see `place`); empty for a drawn one.
            prepared: the first observation of the next episode, if a step has started it already.
        Raises ConfigError if a seed is not uint32, or the options do not name a decision bar.
        """
        slot, row = self.place(options) if options else (0, 0)  # raises before any state changes
        if seeds is None and self._state is None:
            seeds = random.integers(MAX_SEED, size=self.shape)
        begin, observed = self._programs, prepared
        if seeds is not None:
            self._state, observed = begin.reset(self._check_seeds(seeds), self._params)
        elif prepared is None:
            self._state, observed = begin.restart(self._state, self._params)
        if options:  # the starts of later episodes are drawn as usual
            self._state, observed = begin.start_at(
                self._state, self._params, np.int32(slot), np.int32(row)
            )
        self.observed = found = _to_host(observed)
        self._fills = [[] for _ in range(math.prod(self.shape))]
        return found

    def _check_seeds(self, seeds: Any) -> np.ndarray:
        seeds = np.asarray(seeds)
        if seeds.shape != self.shape or seeds.min() < 0 or seeds.max() > MAX_SEED:
            raise ConfigError(
                f"seed {seeds.tolist()}: expected {'one' if not self.shape else self.shape[0]} of "
                f"0 .. {MAX_SEED}"
            )
        return seeds.astype(np.uint32)

    def step(self, actions: np.ndarray) -> tuple[DecisionInput, StepResult]:
        """Step with actions int[...] in 0 .. A - 1 -> (next input, result of the step).

        Ended episodes are reset.
        """
        before = self.latest(RuntimeError, "step")
        self._state, observed, result = self._programs.step(
            self._state, np.asarray(actions, np.int32), self._params
        )
        fills = None if result.fills is None else np.asarray(result.fills)  # a view: no copy
        following, result = _to_host((observed, result._replace(fills=None)))
        self.observed = following
        if fills is not None and fills[..., (0, 2, 4)].any():
            rows, fills = np.atleast_1d(before.row), np.atleast_2d(fills)
            for i in np.flatnonzero(fills[:, (0, 2, 4)].any(axis=1)):
                self._fills[i].append((int(rows[i]) + 1, fills[i].tolist()))
        return following, result

    def describe_end(self, result: StepResult, number: int = 0) -> dict[str, Any]:
        """Return `end` and `trades` of an episode that this step has ended.

        number: of the environment.
        """
        found: dict[str, Any] = {"end": EndReason(int(np.atleast_1d(result.end)[number])).name}
        if isinstance(self.env, TradingEnv):
            found["trades"] = list_trades(self._fills[number], self._params)
            self._fills[number] = []
        return found

    def place(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """Find (slot, row) for the options "session" and "row", of which one or both are given.

        session: trade date "YYYY-MM-DD", or the number of the session in the split. The default is
            the session that contains the row.
        row: market row. The default is the first decision bar of the session.
        Raises ConfigError if there is no such session or decision bar.
        """
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise ConfigError(
                f"reset option '{unknown[0]}': unknown; there are {' and '.join(OPTIONS)}"
            )
        table, chosen = self._params.market.sessions, self._params.sessions
        ids = np.asarray(chosen.ids)[: int(chosen.count)]
        first, last = np.asarray(table.first)[ids], np.asarray(table.last)[ids]
        if "session" in options:
            slot = self._slot(options["session"], np.asarray(table.date)[ids])
            row = int(options.get("row", first[slot]))
            if not first[slot] <= row <= last[slot]:
                raise ConfigError(
                    f"reset option row = {row}: session {options['session']} has decision bars "
                    f"{first[slot]} .. {last[slot]}"
                )
            return slot, row
        row = int(options["row"])
        holding = np.flatnonzero((first <= row) & (row <= last))
        if not len(holding):
            raise ConfigError(
                f"reset option row = {row}: not a decision bar of this split's {len(ids)} sessions"
            )
        return int(holding[0]), row

    @staticmethod
    def _slot(session: Any, dates: np.ndarray) -> int:
        days = dates.astype("datetime64[D]").astype(str)
        if isinstance(session, str):
            found = np.flatnonzero(days == session)
            if len(found) == 1:
                return int(found[0])
            what = (
                "several; give its number instead"
                if len(found)
                else f"not among {days[0]} .. {days[-1]}"
            )
            raise ConfigError(
                f"reset option session = '{session}': {what} ({len(days)} sessions in this split)"
            )
        if not 0 <= int(session) < len(days):
            raise ConfigError(
                f"reset option session = {session}: this split has sessions 0 .. {len(days) - 1}"
            )
        return int(session)
