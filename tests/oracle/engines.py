"""Play a list of actions in either engine and note the same facts after every step."""

import functools

import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import NO_LEVEL
from tests import compiling
from tests.oracle.markets import env_params, pad_bars
from tests.oracle.oracle import OracleEnv

EVENTS = (
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
    "breach",
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


def facts(mask, event, end, account, position, row):
    """What golden episodes may ask of a step. end: reward, reason, terminated, truncated."""
    record = {name: int(getattr(event, name)) for name in EVENTS}
    for name, value in zip(("reward", "end", "terminated", "truncated"), end, strict=True):
        record[name] = float(value) if name == "reward" else int(value)
    for name in ("balance", "equity", "high_water", "locked", "days"):
        record[name] = int(getattr(account, name))
    for name in ("stop", "target"):
        record[name] = _level(getattr(position, name), position.quantity)
    return record | {
        "mask": [bool(legal) for legal in mask],
        "breach": bool(event.breach),
        "floor": None if event.floor is None else int(event.floor),
        "quantity": int(position.quantity),
        "row": int(row),
    }


def _level(level, quantity):
    return None if not int(quantity) or level is None or abs(int(level)) >= NO_LEVEL else int(level)


def play_oracle(bars, settings, actions, slot=0):
    env, records = OracleEnv(bars, settings), []
    env.reset(slot, env.bars.sessions[env.slots[slot]].first)
    for action in actions:
        mask = env.mask()
        result = env.step(action)
        end = result.reward, result.end, result.terminated, result.truncated
        records.append(facts(mask, result.event, end, env.account, env.position, env.row))
    return records


@functools.cache
def compiled(config):
    """jit of (state, action, params) -> mask before, state after the bar alone, next state,
    outcome.
    """
    env = TradingEnv(config)

    def play(state, action, params):
        after, _ = env.transition(state, env.decode(action, state, params), params)
        following, _, outcome = env.step(jax.random.key(0), state, action, params)
        return env.mask(state, params), after, following, outcome

    return jax.jit(play, compiler_options=compiling.fast())


def play_jax(bars, settings, actions, slot=0):
    """The same facts: where an episode ends, the account from `transition`, before the reset."""
    config, params = env_config(settings), env_params(pad_bars(bars, 64), settings)
    first = int(params.market.sessions.first[params.sessions.ids[slot]])
    state = TradingEnv(config).reset_at(params, jnp.int32(slot), jnp.int32(first))
    records = []
    for action in actions:
        mask, after, state, outcome = compiled(config)(state, jnp.int32(action), params)
        over, info = outcome.terminated | outcome.truncated, outcome.info
        shown = after if bool(over) else state
        end = outcome.reward, info.end, outcome.terminated, outcome.truncated
        record = facts(mask, info.event, end, shown.account, shown.position, shown.row)
        records.append(record if settings.drawdown is not None else record | {"floor": None})
    return records


ENGINES = {"oracle": play_oracle, "jax": play_jax}
