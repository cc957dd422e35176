"""PPO under stages: what its updates charge, force and report, with one compiled program for all of
them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.config import EnvConfig, StageConfig, TrainConfig
from jaxtrade.env import monitor
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_stages
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.training.loop import train
from jaxtrade.training.population import Stack
from jaxtrade.types import Summary
from tests.env.worlds import leaves_differ, make_params, walk_market

pytestmark = pytest.mark.slow

UPDATES = 3  # at fractions 0, 1/2 and 1 of the run
CONFIG = Learning(num_envs=16, num_steps=32, num_minibatches=2, num_epochs=1, hidden=(8,))
STAGES = StageConfig(
    commission_start=0.25, commission_until=1.0, forced_start=1.0, forced_start_end=0.0
)
PARAMS = make_params(walk_market(0, sessions=4), max_steps=9)
ENV = TradingEnv(EnvConfig(window=2))


def collect(seen):
    """The figures of trading, and what its fills paid."""
    event = seen.info.event
    sides = sum(
        jnp.abs(x) for x in (event.order_exit_quantity, event.entry_quantity, event.exit_quantity)
    )
    return monitor.collect(seen) | {"paid": event.commission, "sides": sides}


def start(params):
    return monitor.first_sums(params) | {"paid": jnp.int32(0), "sides": jnp.int32(0)}


def figures(sums, steps):
    return monitor.metrics(sums, steps) | {"paid": sums["paid"], "sides": sums["sides"]}


ALGORITHM = make_ppo(
    CONFIG.run, ENV, UPDATES, summarise=Summary(start, collect, figures), stage=make_stages(STAGES)
)


@functools.cache
def trained():
    steps = UPDATES * CONFIG.num_envs * CONFIG.num_steps
    return train(
        ALGORITHM,
        PARAMS,
        config=TrainConfig(total_timesteps=steps, chunk_updates=1),
        key=jax.random.key(0),
    )


def test_a_rollout_pays_the_share_of_its_update():
    """2,080 mills a side, from a quarter of it: 520; halfway 5/8: 1,300; in the last update the
    whole.
    """
    rows = trained().history
    assert [row["commission_share"] for row in rows] == [0.25, 0.625, 1.0]
    assert all(row["sides"] > 50 for row in rows)
    assert [row["paid"] / row["sides"] for row in rows] == [520, 1_300, 2_080]


def test_forced_starts_fade_and_their_share_is_measured():
    rows = trained().history
    assert [row["forced_start"] for row in rows] == [1.0, 0.5, 0.0]
    first, middle, last = (row["forced_share"] for row in rows)
    count = rows[1]["episodes"]
    assert count > 40
    assert first > 0.9  # all but those drawn where no entry is legal
    assert abs(middle - 0.5 * first) < 5 * 0.5 / np.sqrt(count)
    assert last == 0
    health = trained().health
    assert health["recompiles"] == (True, 0)
    assert health["illegal"] == (True, 0)


def test_the_first_episodes_begin_as_the_run_does():
    state = jax.jit(ALGORITHM.init)(jax.random.key(0), PARAMS)
    stats = state.env_state.stats
    assert (stats.sides > 0).mean() > 0.8
    entered = np.asarray(stats.sides == 1)  # and not left in the same bar
    assert entered.any()
    assert (np.asarray(stats.commission)[entered] == 520).all()
    assert leaves_differ(state.ref, jax.vmap(ENV.ref, (0, None))(state.env_state, PARAMS)) == []


def test_an_update_returns_the_state_it_takes_and_agents_have_a_stage_each():
    many = Stack.of(2).wrap(ALGORITHM)
    states = jax.eval_shape(many.init, Stack.of(2).keys(0), PARAMS)
    after, metrics = jax.eval_shape(many.update, states, PARAMS, None)
    assert after == states
    for name in ("commission_share", "forced_start", "forced_share"):
        assert metrics[name].shape == (2,)
