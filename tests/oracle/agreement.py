"""Drive the JAX environment and the oracle with the same actions and say where they first differ.

The JAX side is one `scan` over `vmap`: every environment has its own market and account, so one
compiled program serves all presets of a task. The oracle replays the actions and is compared in
every field.
"""

from collections import Counter
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from tests import compiling
from tests.env.worlds import ints
from tests.oracle.engines import EVENTS, env_config
from tests.oracle.events import habit_logits
from tests.oracle.markets import env_params, view_of
from tests.oracle.model import Bars, Settings
from tests.oracle.oracle import OracleEnv

TOLERANCE = 1e-5  # of observations and rewards, relative to max(1, |x|)
WILD = 0.04  # share of actions drawn without a look at the mask


@dataclass(frozen=True)
class Lane:
    """One environment of the batch."""

    bars: Bars
    settings: Settings
    habit: str


@dataclass
class Comparison:
    """fault: the first disagreement, or None. steps and kinds are counted on the oracle's side."""

    fault: str | None
    steps: int
    kinds: Counter[str]


def both_scalings(params, seed):
    """`params`, and the same for the environment with `env.scaling=seed`."""
    return params, params.replace(market=params.market.replace(view=seed))


def stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def make_rollout(settings, env_class, look=True):
    """jit of (both[E], keys[E], logits[E, A], noise[T, E, A], wild[T, E]) -> (last states, trace of
    T steps).

    look: rebuild observations as well.
    """
    env, seed_env = env_class(env_config(settings)), env_class(env_config(settings, "seed"))

    def one(
        state,
        both,
        key,
        logits,
        noise,
        wild,
    ):
        params, raw = both
        ref, mask = env.ref(state, params), env.mask(state, params)
        action = jnp.where(wild >= 0, wild, jnp.argmax(jnp.where(mask, logits + noise, -jnp.inf)))
        following, _, outcome = env.step(key, state, action, params)
        trace = {
            "state": state,
            "mask": mask,
            "ref_mask": env.action_mask(ref),
            "action": action,
            "reward": outcome.reward,
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
            "info": outcome.info,
            "seen": {},
        }
        if look:
            trace["seen"] = {
                "relative": env.observe(ref, params),
                "seed": seed_env.observe(ref, raw),
                "final_relative": env.observe(outcome.final_ref, params),
                "final_seed": seed_env.observe(outcome.final_ref, raw),
            }
        return following, trace

    def rollout(both, keys, logits, noise, wild):
        states, _ = jax.vmap(env.reset)(keys, both[0])

        def body(states, inputs):
            return jax.vmap(one)(states, both, keys, logits, *inputs)

        return jax.lax.scan(body, states, (noise, wild))

    return jax.jit(rollout, compiler_options=compiling.fast())


def draw(lanes, steps, seed):
    """Preferences, Gumbel noise and wild actions (-1: none) for a rollout."""
    rng, actions = np.random.default_rng(seed), lanes[0].settings.num_actions
    noise = rng.gumbel(size=(steps, len(lanes), actions)).astype(np.float32)
    anything = rng.integers(0, actions, (steps, len(lanes)))
    wild = np.where(rng.random((steps, len(lanes))) < WILD, anything, -1).astype(np.int32)
    return habit_logits([lane.habit for lane in lanes], actions), noise, wild


def compare(lanes, steps, seed, rollout, params=None):
    """Roll the JAX environment, replay in the oracle, compare everything. All lanes share the
    static settings.
    """
    if params is None:
        params = stack(
            [
                both_scalings(
                    env_params(lane.bars, lane.settings), view_of(lane.bars, lane.settings, "seed")
                )
                for lane in lanes
            ]
        )
    keys = jax.random.split(jax.random.key(seed), len(lanes))
    last, trace = jax.device_get(rollout(params, keys, *draw(lanes, steps, seed)))
    kinds = Counter()
    counted = 0
    for e, lane in enumerate(lanes):
        mine = jax.tree.map(lambda leaf, e=e: leaf[:, e], trace)
        final = jax.tree.map(lambda leaf, e=e: leaf[e], last)
        fault, played = compare_lane(lane, mine, final, steps, kinds)
        counted += played
        if fault:
            return Comparison(f"lane {e} ({lane.habit}): {fault}", counted, kinds)
    return Comparison(None, counted, kinds)


STATE = ("row", "slot", "sessions_left", "time")
POSITION = ("quantity", "entry", "stop", "target", "stop_kind", "trailing", "opened")
ACCOUNT = ("balance", "equity", "high_water", "session_equity", "locked", "days", "traded")
INTS = STATE + POSITION + ACCOUNT
STATS = (
    "length",
    "trades",
    "wins",
    "sides",
    "commission",
    "illegal",
    "breaches",
    "peak",
    "max_drawdown",
)


def fields_of(state):
    """The values of INTS, in either engine."""
    parts = ((state, STATE), (state.position, POSITION), (state.account, ACCOUNT))
    return [getattr(part, name) for part, names in parts for name in names]


def oracle_ints(env):
    return [value or 0 for value in fields_of(env)]


def jax_ints(state):
    """int64[..., len(INTS)]"""
    return np.stack([np.asarray(leaf, np.int64) for leaf in fields_of(state)], -1)


def columns(part, names):
    """int64[..., len(names)]"""
    return np.stack([np.asarray(getattr(part, name), np.int64) for name in names], -1)


def compare_lane(lane, trace, last, steps, kinds):
    """-> (first fault or None, steps played)."""
    env, info = OracleEnv(lane.bars, lane.settings), trace["info"]
    states, end_state = jax_ints(trace["state"]), jax_ints(last)
    ends = np.asarray(info.end)
    events, stats = columns(info.event, EVENTS), columns(info.stats, STATS)
    env.reset(int(states[0, 1]), int(states[0, 0]))
    seen = {name: np.asarray(values, np.float64) for name, values in trace["seen"].items()}
    mine = {name: values.copy() for name, values in seen.items()}
    rewards = np.zeros((steps, 1 + len(lane.settings.reward)))  # the reward, then its terms
    for i in range(steps):
        fault = differing(f"step {i} state", INTS, states[i], oracle_ints(env))
        mask = env.mask()
        if fault is None and not (
            mask == trace["mask"][i].tolist() == trace["ref_mask"][i].tolist()
        ):
            fault = f"step {i} mask: jax {trace['mask'][i]}, in the ref {trace['ref_mask'][i]}, oracle {mask}"
        if fault:
            return fault, i
        look_at(env, i, mine, "")
        half_day = is_half_day(env)
        result = env.step(int(trace["action"][i]))
        kinds.update(result.event.kinds)
        kinds["half_day"] += half_day and env.row == env.session.last + 1
        rewards[i] = [result.reward, *result.terms.values()]
        event = result.event
        reported = ints(event, *EVENTS)
        found = [int(result.end), result.terminated, result.truncated, env.account.equity]
        theirs = [
            int(ends[i]),
            bool(trace["terminated"][i]),
            bool(trace["truncated"][i]),
            int(info.equity[i]),
        ]
        fault = (
            differing(f"step {i} event", EVENTS, events[i], reported)
            or differing(f"step {i}", ("end", "terminated", "truncated", "equity"), theirs, found)
            or differing(f"step {i} stats", STATS, stats[i], ints(env.stats, *STATS))
        )
        if fault is None and event.floor is not None and int(info.event.floor[i]) != event.floor:
            fault = f"step {i} event: floor: jax {int(info.event.floor[i])}, oracle {event.floor}"
        sums = {
            "reward": (info.stats.reward[i], env.stats.reward),
            **{name: (info.stats.terms[name][i], value) for name, value in env.stats.terms.items()},
        }
        for name, (sum_, mine_) in sums.items():
            if fault is None and abs(float(sum_) - mine_) > 1e-4 * max(1, abs(mine_)):
                fault = f"step {i} stats: {name}: jax {sum_}, oracle {mine_}"
        if fault:
            return fault, i
        look_at(env, i, mine, "final_")  # before the reset; after a jump between sessions
        if env.done:
            following = states[i + 1] if i + 1 < steps else end_state
            slot, row = int(following[1]), int(following[0])
            if not 0 <= slot < len(env.slots):
                return f"step {i}: reset to slot {slot} of {len(env.slots)}", i
            env.reset(slot, row)
            if not env.session.first <= row <= env.session.last:
                return f"step {i}: reset to row {row}, no decision bar of session {env.session}", i
    fault = differing("after the last step: state", INTS, end_state, oracle_ints(env))
    for name, values in mine.items():
        fault = fault or far(name, seen[name], values)
    reported = [trace["reward"], *(info.terms[name] for name in lane.settings.reward)]
    return fault or far("reward, terms", np.stack(reported, -1).astype(np.float64), rewards), steps


def look_at(env, step, into, prefix):
    """Write both observations into the arrays, where there are any."""
    for scaling in ("relative", "seed"):
        if prefix + scaling in into:
            into[prefix + scaling][step] = env.observation(scaling)


def is_half_day(env):
    return env.bars.flat_time[env.row] - env.bars.window_open[env.row] < 60 * 300


def differing(where, names, jax_values, oracle_values):
    """The first field in which two lists of integers differ."""
    theirs = jax_values.tolist() if isinstance(jax_values, np.ndarray) else jax_values
    if theirs == oracle_values:
        return None
    for name, a, b in zip(names, theirs, oracle_values, strict=True):
        if a != b:
            return f"{where}: {name}: jax {a}, oracle {b}"
    return None


def far(where, jax_values, oracle_values):
    """The first number that is off by more than the tolerance (or is not a number)."""
    off = ~(
        np.abs(jax_values - oracle_values) <= TOLERANCE * np.maximum(1.0, np.abs(oracle_values))
    )
    if not off.any():
        return None
    step, slot = (int(x) for x in np.argwhere(off)[0])
    return (
        f"step {step} {where}[{slot}]: jax {jax_values[step, slot]!r}, oracle {oracle_values[step, slot]!r} "
        f"({off.sum()} such)"
    )
