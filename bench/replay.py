"""The JAX environment's trajectories replayed in its NumPy twin, step by step.

The twin (`bench.twin`) is written apart from the package, in Python's integers, by the rules of
docs/semantics.md. Masks, ends, exits, money and the market row have to be equal; rewards and
observations may differ by the rounding of float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason, EnvParams, ExitReason

from .twin import Twin

WILD = 0.04  # share of actions drawn without a look at the mask
TOLERANCE = 1e-5  # relative to max(1, |x|)
Played = dict[str, np.ndarray]


class Difference(NamedTuple):
    """fault: the first difference, or None. kinds: how often each kind of event was replayed.
    reward, observation: the greatest differences before it, relative to max(1, |x|)."""

    fault: str | None
    kinds: Counter[str]
    reward: float
    observation: float


def pick(mask: jax.Array, uniform: jax.Array) -> jax.Array:
    """int32[] HOLD in 7 of 10 cases, else a legal action, every one equally likely. uniform
    float32[] in [0, 1).
    """
    total = jnp.sum(mask)
    wanted = jnp.clip(((uniform - 0.7) / 0.3 * total).astype(jnp.int32), 0, total - 1)
    return jnp.argmax(jnp.cumsum(mask) > wanted).astype(jnp.int32)


def play(
    env: TradingEnv,
    params: EnvParams,
    slots: jax.Array,
    rows: jax.Array,
    key: jax.Array,
    steps: int,
) -> dict[str, Any]:
    """[steps, N, ...]: where each step stood, what was seen and legal, the action, and what came of
    it.
    """
    count = slots.shape[0]
    states = jax.vmap(lambda slot, row, seed: env.reset_at(params, slot, row, seed))(
        slots, rows, jnp.arange(count)
    )

    def one(state: Any, chances: jax.Array) -> Any:
        ref = env.ref(state, params)
        wild = jnp.int32(chances[1] * 7)
        action = jnp.where(chances[2] < WILD, wild, pick(ref.mask, chances[0]))
        following, _, outcome = env.step(key, state, action, params)
        event = outcome.info.event
        left = jnp.where(
            event.order_exit_quantity != 0, jnp.int32(ExitReason.ORDER), event.exit_reason
        )
        return following, {
            "slot": state.slot,
            "row": state.row,
            "time": state.time,
            "mask": ref.mask,
            "action": action,
            "observation": env.observe(ref, params),
            "final": env.observe(outcome.final_ref, params),
            "reward": outcome.reward,
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
            "end": outcome.info.end,
            "equity": outcome.info.equity,
            "exit": left,
            "illegal": outcome.info.illegal,
            "locked": following.account.locked,
        }

    chances = jax.random.uniform(key, (steps, count, 3))
    return jax.lax.scan(lambda states, drawn: jax.vmap(one)(states, drawn), states, chances)[1]


def played(
    env: TradingEnv, params: EnvParams, envs: int, steps: int, program: Callable[..., Any]
) -> Played:
    """`play` from starts all over the split, on the host. program: `play`, jitted with `env` and
    `steps` static.
    """
    rng = np.random.default_rng(0)
    slots = rng.integers(0, int(params.sessions.count), envs)
    first, last = (
        np.asarray(x)[slots] for x in (params.market.sessions.first, params.market.sessions.last)
    )
    rows = rng.integers(first, last + 1)
    return jax.device_get(
        program(env, params, jnp.asarray(slots), jnp.asarray(rows), jax.random.key(0), steps)
    )


def apart(ours: Any, theirs: Any) -> float:
    """The greatest difference, relative to max(1, |x|); infinite where one is not a number."""
    found = np.abs(np.asarray(ours, np.float64) - theirs) / np.maximum(1, np.abs(theirs))
    return float(np.max(found)) if np.all(np.isfinite(found)) else np.inf


class Replay:
    """Replays one environment after the other; see `compare`."""

    def __init__(self, env: Twin, reported: Mapping[str, np.ndarray]) -> None:
        self._env, self._reported = env, reported
        self.kinds: Counter[str] = Counter()
        self.reward = self.observation = 0.0

    def differing(self, lane: int) -> str | None:
        """Replay one environment -> its first difference."""
        env, seen = self._env, np.empty(0)
        for step in range(len(self._reported["row"])):
            then = {name: values[step, lane] for name, values in self._reported.items()}
            if then["time"] == 0:
                seen, _ = env.reset(options={"slot": then["slot"], "row": then["row"]})
            if env.row != then["row"] or self._far("observation", seen, then["observation"]):
                return f"step {step}: row {env.row}, not {then['row']}, or observations differ"
            if not np.array_equal(env.action_masks(), then["mask"]):
                return f"step {step}: masks {env.action_masks()}, {then['mask']}"
            refused = env.illegal
            seen, reward, terminated, truncated, info = env.step(then["action"])
            ours = (
                terminated,
                truncated,
                info.get("end_reason", 0),
                env.equity,
                env.exit_reason,
                env.illegal - refused,
            )
            theirs = tuple(
                then[name].item()
                for name in ("terminated", "truncated", "end", "equity", "exit", "illegal")
            )
            if ours != theirs:
                return f"step {step}: {ours}, not {theirs}"
            if self._far("reward", reward, then["reward"]) or (
                theirs[2] and self._far("observation", seen, then["final"])
            ):
                return (
                    f"step {step}: reward {reward}, {then['reward']}, or last observations differ"
                )
            self.kinds.update(
                [f"end_{EndReason(theirs[2]).name}", f"exit_{ExitReason(theirs[4]).name}"]
            )
            self.kinds.update(illegal=ours[5], locked=int(then["locked"]))
        return None

    def _far(self, kind: str, ours: Any, theirs: Any) -> bool:
        found = apart(ours, theirs)
        setattr(self, kind, max(getattr(self, kind), found))
        return found > TOLERANCE


def compare(env: Twin, reported: Mapping[str, np.ndarray]) -> Difference:
    """Replay what `play` reported, every environment of it, until one differs."""
    replay = Replay(env, reported)
    faults = (replay.differing(lane) for lane in range(reported["row"].shape[1]))
    fault = next((fault for fault in faults if fault), None)
    return Difference(fault, replay.kinds, replay.reward, replay.observation)
