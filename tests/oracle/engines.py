"""Play a list of actions in either engine and note the same facts after every step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import NO_LEVEL
from tests.oracle.markets import env_params, pad_bars
from tests.oracle.oracle import OracleEnv

Record = dict[str, Any]
EVENT_FIELDS = (
    "order_exit_quantity",
    "order_exit_price",
    "entry_quantity",
    "entry_price",
    "exit_quantity",
    "exit_price",
    "exit_reason",
    "commission",
    "favourable",
    "adverse",
)


def env_config(settings, scaling="relative"):
    return EnvConfig.model_validate(
        {
            "task": settings.task,
            "advice": settings.advice,
            "actions": settings.actions,
            "scaling": scaling,
            "fill": settings.fill,
            "mark": settings.mark,
            "intrabar": settings.intrabar,
            "window": settings.window,
            "features": settings.features,
            "quantity": settings.quantity,
        }
    )


def play_oracle(bars, settings, actions, slot=0):
    env = OracleEnv(bars, settings)
    env.reset(slot, env.bars.sessions[env.slots[slot]].first)
    records = []
    for action in actions:
        mask = env.mask()
        result = env.step(action)
        record: Record = {name: int(getattr(result.event, name)) for name in EVENT_FIELDS}
        record |= {
            "mask": mask,
            "reward": result.reward,
            "end": int(result.end),
            "terminated": result.terminated,
            "truncated": result.truncated,
            "breach": result.event.breach,
            "floor": result.event.floor,
            "balance": env.account.balance,
            "equity": env.account.equity,
            "high_water": env.account.high_water,
            "locked": env.account.locked,
            "days": env.account.days,
            "quantity": env.position.quantity,
            "stop": env.position.stop,
            "target": env.position.target,
            "row": env.row,
        }
        records.append(record)
    return records


@functools.cache
def compiled(config):
    """jit of (state, action, params) -> mask before, state and event of the bar alone, next state,
    outcome.
    """
    env = TradingEnv(config)

    def play(state, action, params):
        after, event = env.transition(state, env.decode(action, state, params), params)
        following, _, outcome = env.step(jax.random.key(0), state, action, params)
        return env.mask(state, params), after, event, following, outcome

    return jax.jit(play)


def play_jax(bars, settings, actions, slot=0):
    """The same facts: the account from `transition` (before a session jump or reset), the ends from
    `step`.
    """
    config, params = env_config(settings), env_params(pad_bars(bars, 64), settings)
    first = int(params.market.sessions.first[params.sessions.ids[slot]])
    state = TradingEnv(config).reset_at(params, jnp.int32(slot), jnp.int32(first))
    records = []
    for action in actions:
        mask, after, event, state, outcome = compiled(config)(state, jnp.int32(action), params)
        found = outcome.info.event
        record: Record = {name: int(getattr(found, name)) for name in EVENT_FIELDS}
        assert record == {name: int(getattr(event, name)) for name in EVENT_FIELDS}, (
            "step and transition differ"
        )
        jumped = not bool(outcome.terminated | outcome.truncated)
        account, position = (
            (state if jumped else after).account,
            (state if jumped else after).position,
        )
        record |= {
            "mask": [bool(m) for m in mask],
            "reward": float(outcome.reward),
            "end": int(outcome.info.end),
            "terminated": bool(outcome.terminated),
            "truncated": bool(outcome.truncated),
            "breach": bool(found.breach),
            "floor": int(found.floor) if settings.drawdown is not None else None,
            "balance": int(account.balance),
            "equity": int(account.equity),
            "high_water": int(account.high_water),
            "locked": bool(account.locked),
            "days": int(account.days),
            "quantity": int(position.quantity),
            "stop": _level(position.stop, position.quantity),
            "target": _level(position.target, position.quantity),
            "row": int((state if jumped else after).row),
        }
        records.append(record)
    return records


def _level(level, quantity):
    return None if int(quantity) == 0 or abs(int(level)) >= NO_LEVEL else int(level)


ENGINES: dict[str, Callable[..., list[Record]]] = {"oracle": play_oracle, "jax": play_jax}
