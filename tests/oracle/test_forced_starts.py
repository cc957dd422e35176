"""Episodes that start in a position, played by the oracle: drawn, refused, entered, ended and
counted alike.
"""

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.env.dynamics import TradingEnv
from tests import compiling
from tests.env.test_episode import lowbias32
from tests.env.worlds import ints
from tests.oracle.agreement import INTS, STATS, columns, differing, jax_ints, oracle_ints, stack
from tests.oracle.engines import env_config
from tests.oracle.markets import env_params
from tests.oracle.model import BUY, SELL
from tests.oracle.oracle import OracleEnv
from tests.oracle.test_agreement import PRESETS, markets

SEEDS = 60  # starts of each market under each preset
RULES = (
    "rules_off_two_sessions",
    "drawdown",
    "daily_loss_fails",
    "daily_loss_locks",
    "target_terminates",
    "step_limit",
)


def word(seed, stream):
    """Episode 0's random word of a stream, in Python integers."""
    return lowbias32((lowbias32(seed ^ stream * 0x9E3779B9 % 2**32)) % 2**32)


def begin(env, seed):
    """Start episode 0 with a forced entry wherever it is legal -> what became of it."""
    slot = word(seed, 1) % len(env.slots)
    session = env.bars.sessions[env.slots[slot]]
    row = session.first + word(seed, 2) % (session.last - session.first + 1)
    env.reset(slot, row)
    if not env.may_enter() or row == session.last:
        return "refused"
    env.time = -1  # the entry's bar is no step
    env.step(SELL if word(seed, 4) % 2 else BUY)
    if env.done:
        env.reset(slot, row)
        return "ended"
    env.stats.length = 0
    return {1: "long", -1: "short", 0: "closed"}[env.position.side]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"tick_mills": 37_500},  # floors within reach of one bar
        {"mark": "close", "fill": "close", "tick_mills": 37_500},
        {"intrabar": "path", "quantity": 2},
    ],
)
def test_forced_starts_agree(changes):
    cases = [
        (dataclasses.replace(PRESETS[name], **changes), bars)
        for name in RULES
        for bars in markets()[:2]
    ]
    params = stack([env_params(bars, settings) for settings, bars in cases])
    params = params.replace(forced_start=jnp.ones(len(cases)))
    env = TradingEnv(env_config(cases[0][0]))
    keys = jax.random.split(jax.random.key(7), (len(cases), SEEDS))
    reset = jax.jit(jax.vmap(jax.vmap(env.reset, (0, None))), compiler_options=compiling.fast())
    states, _ = jax.device_get(reset(keys, params))
    rows = jax_ints(states)
    stats = columns(states.stats, STATS)
    kinds = Counter()
    for e, (settings, bars) in enumerate(cases):
        oracle = OracleEnv(bars, settings)
        for k in range(SEEDS):
            kinds[begin(oracle, int(states.seed[e, k]))] += 1
            fault = differing("state", INTS, rows[e, k], oracle_ints(oracle)) or differing(
                "stats", STATS, stats[e, k], ints(oracle.stats, *STATS)
            )
            assert fault is None, f"case {e}, start {k}: {fault}"
    assert min(kinds[kind] for kind in ("refused", "long", "short", "closed", "ended")) >= 5, kinds
