"""Runs on the mean-reverting chain: configuration, fresh paths, what an agent earns there and what
the optimum does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.synthetic import LEVELS, REVERSION_PULL
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.evaluation.baselines import Agent
from jaxtrade.runs.setup import prepare
from tests.optimum.dp import solve
from tests.oracle.model import Settings

# Task, observation, brackets, costs and fills are the defaults; only the market and the account
# rules are chosen.
CHAIN = (
    "data.source=synthetic",
    "data.synthetic=mean_reversion",
    "account.preset=rules_off_50k",
    "split.test_sessions=0",
)
# What a greedy score must reach: CartPole's own threshold, gymnasium's for Acrobot, and a share of
# the chain's optimum.
WANTED = {"cartpole": 475.0, "acrobot": -100.0, "chain": 0.85}
FRESH_SEED, FRESH_SESSIONS = 1_000_003, 100  # never trained on


def chain_config(task, *overrides):
    return load_config(None, [*CHAIN, f"env.task={task}", *overrides])


def fresh(config):
    """The same run on a path that no training has seen."""
    data = config.data.model_copy(
        update={"synthetic_seed": FRESH_SEED, "synthetic_sessions": FRESH_SESSIONS}
    )
    return prepare(config.model_copy(update={"data": data}))


def settings(task):
    """The oracle's settings of `chain_config(task)`: ES, every rule off."""
    return Settings(task=task, drawdown=None, target=None, risk_unit=500_000.0)


class Sessions(NamedTuple):
    """first: int[n] first decision row of each session. bars: int[n] its decisions. state: int[n]
    the chain's there.
    """

    first: np.ndarray
    bars: np.ndarray
    state: np.ndarray


def states_of(close, rows):
    """The chain's state at the close of each row."""
    level = np.searchsorted(LEVELS, close - close.min())
    return 2 * level[rows] + (close[rows] > close[rows - 1])


def sessions_of(setup):
    table, close = setup.market.data.sessions, np.asarray(setup.market.bars.close)
    first = np.asarray(table.first)
    assert np.array_equal(np.unique(close) - close.min(), LEVELS)
    return Sessions(first, np.asarray(table.last) - first + 1, states_of(close, first))


def optimum_of(task, sessions):
    """The solved task, and float64[n] mills that its optimum expects of each session."""
    solved = solve(settings(task), REVERSION_PULL, int(sessions.bars.max()))
    return solved, solved.value[sessions.bars, sessions.state, 0]


def reward_per_step(config):
    """Reward per step, in risk units, of the optimum over random starts: the expected reward of all
    training episodes over their expected steps."""
    market, task = load_market(config), config.env.task
    first, last = (
        np.asarray(column) for column in (market.data.sessions.first, market.data.sessions.last)
    )
    close = np.asarray(market.bars.close)
    solved = solve(settings(task), REVERSION_PULL, int((last - first + 1).max()))
    mills = steps = 0.0
    for start, end in zip(first, last, strict=True):
        row = np.arange(start, end + 1)
        left = end - row + 1
        mills += solved.value[left, states_of(close, row), 0].mean()
        steps += left.mean()
    return mills / steps / settings(task).risk_unit


def profits(env, agent, params, sessions):
    """int64[n] mills that an agent makes in each session, all of them side by side through
    `env.transition`.
    """
    return np.asarray(
        _profits(env, agent.act, int(sessions.bars.max()), agent.carry, params), np.int64
    )


def _profits(env, act, length, carry, params):
    table = params.market.sessions

    def one(slot):
        def decide(loop, _):
            carry, state = loop
            after, order, _ = act(
                carry,
                state,
                env.ref(state, params),
                params,
                jax.random.fold_in(jax.random.key(0), state.row),
            )
            moved, _ = env.transition(state, order, params)
            over = state.row > table.last[slot]  # a half day: nothing after its flat bar
            return jax.tree.map(
                lambda a, b: jnp.where(over, a, b), (carry, state), (after, moved)
            ), None

        state = env.reset_at(params, slot, table.first[slot])
        (_, state), _ = jax.lax.scan(decide, (carry, state), None, length=length)
        return state.account.balance

    return jax.jit(jax.vmap(one))(jnp.arange(len(table.first)))


@dataclass(frozen=True)
class PlannedAct:
    """A solved policy, by table look-up. seen(carry, state, params, bars left) -> (best action of
    each position, what their prices are relative to). Carry: (own carry, positions int32[P, 5]).
    """

    env: TradingEnv
    seen: Callable

    def __call__(self, carry, state, ref, params, key):
        del ref, key
        own, positions = carry
        p, session = state.position, params.sessions.ids[state.slot]
        left = params.market.sessions.last[session] - state.row + 1
        actions, base = self.seen(own, state, params, left)
        held = jnp.stack([p.quantity, p.entry - base, p.stop - base, p.target - base, p.trailing])
        same = (positions == jnp.where(p.quantity != 0, held, 0)).all(axis=1)
        action = jnp.where(same.any(), actions[jnp.argmax(same)], -1).astype(jnp.int32)
        order = self.env.decode(jnp.maximum(action, 0), state, params)
        # a position that the enumeration does not know: money that no assertion can overlook
        unknown = (action < 0) | ~self.env.mask(state, params)[jnp.maximum(action, 0)]
        return carry, order.replace(quantity=jnp.where(unknown, 10**6, order.quantity)), action


def planned(env, seen, carry, positions):
    """A solved policy as an agent of the evaluator. The quantities of the enumerated positions are
    sides: 1 contract.
    """
    table = jnp.asarray([[int(x) for x in key] for key in positions], jnp.int32)
    return Agent("optimum", PlannedAct(env, seen), (carry, table), "exact dynamic programming")


def _seen_on_chain(carry, state, params, left):
    actions, levels, base = carry
    close = params.market.close
    level = jnp.searchsorted(levels, close[state.row] - base)
    return actions[left, 2 * level + (close[state.row] > close[state.row - 1])], base


def optimal(setup, solved):
    """The optimum of the chain as an agent."""
    base = jnp.int32(int(np.asarray(setup.market.bars.close).min()))
    carry = (jnp.asarray(solved.action), jnp.asarray(LEVELS, jnp.int32), base)
    return planned(setup.env, _seen_on_chain, carry, solved.positions)
