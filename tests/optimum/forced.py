"""Agents that must trade, and trades as an exact null sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from jaxtrade.config import load_config
from jaxtrade.env.actions import Action
from jaxtrade.env.state import bits_of
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import Act
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.evaluation.trades import assemble_trades
from jaxtrade.runs.setup import prepare

MARTINGALE = (
    "data.source=synthetic",
    "data.synthetic=martingale",
    "account.preset=rules_off_50k",
    "split.test_sessions=0",
)


@dataclass(frozen=True)
class Forced:
    """Another agent that may not stay flat: HOLD is taken from its mask wherever it may open a
    position.
    """

    inner: Act

    def __call__(self, carry, state, ref, params, key):
        mask = ref.mask.at[Action.HOLD].set(~ref.mask[Action.BUY])
        return self.inner(carry, state, ref.replace(legal=bits_of(mask)), params, key)


def forced(agent):
    return agent._replace(name=f"forced {agent.name}", act=Forced(agent.act))


def martingale(seed, *overrides):
    return prepare(load_config(None, [*MARTINGALE, f"data.synthetic_seed={seed}", *overrides]))


def trades_of(setup, agent, key=0):
    """Every round turn of an agent over all sessions, through the evaluator's strategy pass."""
    decisions = decision_bars(setup.market.data, setup.splits["all"])
    params = setup.params.replace(sessions=setup.splits["all"])
    return assemble_trades(
        backtest(setup.env, agent, params, decisions, "strategy", jax.random.key(key)),
        decisions,
        params,
    )


SCORE = 2.576  # a normal variable lies within as many standard errors 99 times in 100


class Null(NamedTuple):
    """Mean net result and mean cost per trade in mills, half-width of the 99 % interval of the
    first, trades.
    """

    net: float
    cost: float
    half_width: float
    trades: int

    @property
    def z(self):
        """Distance from minus the cost in standard errors."""
        return (self.net + self.cost) / (self.half_width / SCORE)


def null_of(trades):
    """Of the trades of several seeds together."""
    net = np.concatenate([t.net for t in trades]).astype(float)
    cost = np.concatenate([t.commission + t.slippage for t in trades]).astype(float)
    half = SCORE * (net + cost).std(ddof=1) / np.sqrt(len(net))
    return Null(net.mean(), cost.mean(), half, len(net))
