"""The environment for programs on the host: compiled functions on the CPU, with NumPy arrays as
input and output.

The gymnasium and Stable-Baselines3 adapters use it. With `num_envs` None there is one environment,
and arrays have no leading axis. Otherwise there are N environments, and every array has a leading
axis N. Below, [...] stands for both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array

OPTIONS = ("session", "row")
MAX_SEED = 2**32 - 1


class Observed(NamedTuple):
    """Input of a decision: observation float32[..., D], mask bool[..., A], and market row
    int32[...].
    """

    observation: Any
    mask: Any
    row: Any


class StepResult(NamedTuple):
    """Result of a step: reward float32[...]; terminated, truncated, illegal bool[...]; equity
    int32[...] mills; end int32[...] EndReason; final: the last observation of the step's own
    episode, before any reset.
    """

    reward: Any
    terminated: Any
    truncated: Any
    illegal: Any
    equity: Any
    end: Any
    final: Observed


class _Programs(NamedTuple):
    reset: Callable[..., tuple[EnvState, Observed]]
    restart: Callable[..., tuple[EnvState, Observed]]
    start_at: Callable[..., tuple[EnvState, Observed]]
    step: Callable[..., tuple[EnvState, Observed, StepResult]]


@functools.lru_cache(maxsize=64)
def _programs(env: TradingEnv, batched: bool) -> _Programs:
    """Programs shared by all hosts with an equal environment. The market is an argument, so it is
    not compiled in.
    """

    def see(ref: ObservationRef, params: EnvParams) -> Observed:
        return Observed(env.observe(ref, params), ref.mask, ref.row[0])

    def shown(state: EnvState, params: EnvParams) -> tuple[EnvState, Observed]:
        return state, see(env.ref(state, params), params)

    def reset(seed: Array, params: EnvParams) -> tuple[EnvState, Observed]:
        state, ref = env.reset(jax.random.key(seed), params)
        return state, see(ref, params)

    def restart(state: EnvState, params: EnvParams) -> tuple[EnvState, Observed]:
        return shown(env.next_episode(state, params), params)

    def start_at(
        state: EnvState, params: EnvParams, slot: Array, row: Array
    ) -> tuple[EnvState, Observed]:
        return shown(env.reset_at(params, slot, row, state.seed, state.episode), params)  # pyright: ignore

    def step(
        state: EnvState, action: Array, params: EnvParams
    ) -> tuple[EnvState, Observed, StepResult]:
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
                see(outcome.final_ref, params),
            ),
        )

    if not batched:
        return _Programs(*(jax.jit(f) for f in (reset, restart, start_at, step)))
    return _Programs(
        jax.jit(jax.vmap(reset, (0, None))),
        jax.jit(jax.vmap(restart, (0, None))),
        jax.jit(jax.vmap(start_at, (0, None, None, None))),
        jax.jit(jax.vmap(step, (0, 0, None))),
    )


def _cpu() -> Any:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError as error:
        raise ConfigError(
            f"environments of host programs run on the CPU, which JAX does not offer here ({error}); "
            "let it, e.g. with JAX_PLATFORMS=cuda,cpu, or unset JAX_PLATFORMS"
        ) from None


def _to_host(tree: Any) -> Any:
    """Copy arrays to NumPy. Views of JAX buffers would be read-only, and torch warns about such
    arrays.
    """
    return jax.tree.map(np.array, jax.device_get(tree))


class HostEnv:
    """Holds the state of one environment or of N environments. `state` is None before the first
    reset.
    """

    def __init__(self, env: TradingEnv, params: EnvParams, num_envs: int | None = None) -> None:
        if num_envs is not None and num_envs < 1:
            raise ConfigError(f"num_envs = {num_envs}: expected 1 or more")
        self.env, self.num_envs = env, num_envs
        self.state: EnvState | None = None
        self._params = jax.device_put(params, _cpu())
        self._programs = _programs(env, num_envs is not None)
        self._shape = () if num_envs is None else (num_envs,)

    def seeded(self, seeds: np.ndarray | int) -> Observed:
        """Start the first episode of `env.reset(jax.random.key(seed))`. Raises ConfigError if a
        seed is not uint32.
        """
        seeds = np.asarray(seeds)
        if seeds.shape != self._shape or seeds.min() < 0 or seeds.max() > MAX_SEED:
            raise ConfigError(
                f"seed {seeds.tolist()}: expected {'one' if not self._shape else self._shape[0]} of "
                f"0 .. {MAX_SEED}"
            )
        self.state, observed = self._programs.reset(seeds.astype(np.uint32), self._params)
        return _to_host(observed)

    def next_episode(self) -> Observed:
        """Leave the current episode(s) and start the next."""
        self.state, observed = self._programs.restart(self.state, self._params)
        return _to_host(observed)

    def start_at(self, options: Mapping[str, Any]) -> Observed:
        """Start at a chosen place (see `place`). The starts of later episodes are drawn as
        usual.
        """
        slot, row = self.place(options)
        self.state, observed = self._programs.start_at(
            self.state, self._params, np.int32(slot), np.int32(row)
        )
        return _to_host(observed)

    def step(self, actions: np.ndarray) -> tuple[Observed, StepResult]:
        """Step with actions int[...] in 0 .. A - 1 -> (next input, result of the step). Ended
        episodes are reset.
        """
        self.state, observed, result = self._programs.step(
            self.state, np.asarray(actions, np.int32), self._params
        )
        return _to_host((observed, result))

    def place(self, options: Mapping[str, Any]) -> tuple[int, int]:
        """(slot, row) for options {"session": ..., "row": ...}, of which one or both are given.

        session: trade date "YYYY-MM-DD", or the number of the session in the split. row: market
            row. The default row is
        the first decision bar of the session. The default session is the one that contains the row.
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
