"""The same market for both engines: the oracle's `Bars` and settings as `MarketData` and
`EnvParams`.

The columns of small generated markets come from the oracle's own indicators (how the package
computes them from real bars is tested where `jaxtrade.data` builds the market).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.data.features.view import host_view
from jaxtrade.env.state import (
    OFF,
    AccountParams,
    BracketParams,
    ContractParams,
    EnvParams,
    Trailing,
)
from jaxtrade.types import MarketData, Quotes, SessionSet, SessionTable, TickValue
from tests.oracle.context_indicators import NAMES
from tests.oracle.features import Features, is_level
from tests.oracle.model import Ask
from tests.paths import path_arrays


def pad_bars(bars, count):
    """The same market with copies of its last bar behind the end, where no session looks: equal
    shapes for vmap.
    """
    extra = count - len(bars.close)

    def longer(values):
        return [*values, *[values[-1]] * extra]

    names = ("open", "high", "low", "close", "volume", "window_open", "flat_time", "trade_date")
    stamps = [*bars.stamps, *[bars.stamps[-1] + bars.bar_seconds * (i + 1) for i in range(extra)]]
    paths, rates = (longer(values) if values else () for values in (bars.paths, bars.rates))
    ask = (
        None
        if bars.ask is None
        else Ask(
            *(
                longer(getattr(bars.ask, field.name)) if getattr(bars.ask, field.name) else ()
                for field in dataclasses.fields(Ask)
            )
        )
    )
    return dataclasses.replace(
        bars,
        stamps=stamps,
        paths=paths,
        rates=rates,
        ask=ask,
        **{name: longer(getattr(bars, name)) for name in names},
    )


def tick_value(bars, settings):
    """Rates as the environment holds them; None where profits arise in dollars."""
    return (
        TickValue(*(ints(column) for column in zip(*bars.rates, strict=True)))
        if settings.converted
        else None
    )


def ask_arrays(ask):
    """The other side as the environment holds it; None where there is none."""
    if ask is None:
        return None
    return Quotes(ints(ask.open), ints(ask.high), ints(ask.low), ints(ask.close))


def ints(values):
    return jnp.asarray(values, jnp.int32)


def session_table(bars):
    rows = {
        name: ints([getattr(s, name) for s in bars.sessions])
        for name in ("start", "end", "first", "last")
    }
    return SessionTable(
        **rows,
        date=ints([bars.trade_date[s.first] for s in bars.sessions]),
        complete=jnp.asarray([s.complete for s in bars.sessions]),
    )


def view_of(bars, settings, scaling):
    """The table columns in the package's order: base columns, then one per feature (gaps to
    close).
    """
    features = Features(bars.mid, settings)
    atr = np.array([features.atr_at(row) for row in range(len(bars.close))])
    columns = [
        features.close,
        atr,
        features.volume_mean,
        features.hour,
        *features.clock["seed"],
        *features.clock["relative"],
    ]
    context = tuple(NAMES) if settings.task == "advised" else ()
    values = [*features.columns.T, *(features.context_columns().T if context else ())]
    for name, x in zip((*settings.features, *context), values, strict=True):
        columns.append(x - (features.close if is_level(name) else 0.0))
    table = np.nan_to_num(np.stack(columns, 1)).astype(np.float32)
    return jax.tree.map(
        jnp.asarray, host_view(table, settings.features, scaling, settings.tick_size, context)
    )


def market_data(bars, settings):
    """Everything but the account and the costs."""
    tr_sum = Features(bars.mid, settings).tr_sum
    closes = np.array(bars.stamps) + bars.bar_seconds
    to_flat = (np.array(bars.flat_time) - closes) // bars.bar_seconds
    return MarketData(
        open=ints(bars.open),
        high=ints(bars.high),
        low=ints(bars.low),
        close=ints(bars.close),
        tr_sum=ints(tr_sum),
        bars_to_flat=ints(to_flat),
        sessions=session_table(bars),
        view=view_of(bars, settings, "relative"),
        fingerprint=jnp.zeros(8, jnp.uint32),
        path=path_arrays(
            bars.open, bars.paths, *((bars.ask.open, bars.ask.paths) if bars.ask else ())
        ),
        ask=ask_arrays(bars.ask),
        tick_value=tick_value(bars, settings),
    )


def session_set(bars, settings):
    ids = list(settings.session_slots) or list(range(len(bars.sessions)))
    padded = ids + ids[:1] * (len(bars.sessions) - len(ids))
    return SessionSet(ids=ints(padded), count=ints(len(ids)))


def env_params(bars, settings, market=None):
    """The traced half of the environment, straight from the oracle's settings."""

    def limit(value):
        return ints(OFF if value is None else value)

    contract = ContractParams(
        tick_mills=None if settings.converted else ints(settings.tick_mills),
        commission=ints(settings.commission),
        slippage=ints(settings.slippage),
        min_stop=ints(settings.min_stop),
        be_ticks=ints(settings.be_ticks),
        tick_size=jnp.float32(settings.tick_size),
    )
    account = AccountParams(
        drawdown=limit(settings.drawdown),
        daily_loss=limit(settings.daily_loss),
        target=limit(settings.target),
        floor_cap=limit(settings.floor_cap),
        min_days=ints(settings.min_days),
        stop_at_target=jnp.bool_(settings.stop_at_target),
        fail_on_daily_loss=jnp.bool_(settings.fail_on_daily_loss),
        max_contracts=ints(10),
        risk_unit=jnp.float32(settings.risk_unit),
        start_balance=jnp.float32(settings.start_balance),
        trailing=ints(Trailing[settings.trailing.upper()]),
    )
    brackets = BracketParams(
        stop_atr=ints(settings.stop_atr),
        target_multiple=ints(settings.target_multiple),
        trail_atr=ints(settings.trail_atr),
    )
    return EnvParams(
        market=market_data(bars, settings) if market is None else market,
        sessions=session_set(bars, settings),
        contract=contract,
        account=account,
        brackets=brackets,
        reward_weights={name: jnp.float32(weight) for name, weight in settings.reward.items()},
        episode_sessions=ints(settings.episode_sessions),
        max_steps=ints(settings.max_steps),
    )
