"""The same market for both engines: the oracle's `Bars` and settings as `MarketData` and
`EnvParams`.

The columns of small generated markets come from the oracle's own indicators (how the package
computes them from real bars is tested where `jaxtrade.data` builds the market).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.data.device import host_view
from jaxtrade.env.state import (
    Trailing,
)
from jaxtrade.types import MarketData, Quotes, SessionTable, TickValue
from tests.env.worlds import contract, i32, make_params, rules
from tests.oracle.context_indicators import NAMES
from tests.oracle.features import features_of, is_level
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
        TickValue(*(i32(column) for column in zip(*bars.rates, strict=True)))
        if settings.converted
        else None
    )


def ask_arrays(ask):
    """The other side as the environment holds it; None where there is none."""
    if ask is None:
        return None
    return Quotes(i32(ask.open), i32(ask.high), i32(ask.low), i32(ask.close))


def session_table(bars):
    rows = {
        name: i32([getattr(s, name) for s in bars.sessions])
        for name in ("start", "end", "first", "last")
    }
    return SessionTable(
        **rows,
        date=i32([bars.trade_date[s.first] for s in bars.sessions]),
        complete=jnp.asarray([s.complete for s in bars.sessions]),
    )


def view_of(bars, settings, scaling):
    """The table columns in the package's order: base columns, then one per feature (gaps to
    close).
    """
    features = features_of(bars.mid, settings)
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
    values = [*features.columns.T, *(features.context_columns.T if context else ())]
    for name, x in zip((*settings.features, *context), values, strict=True):
        columns.append(x - (features.close if is_level(name) else 0.0))
    table = np.nan_to_num(np.stack(columns, 1)).astype(np.float32)
    return jax.tree.map(
        jnp.asarray, host_view(table, settings.features, scaling, settings.tick_size, context)
    )


def market_data(bars, settings):
    """Everything but the account and the costs."""
    tr_sum = features_of(bars.mid, settings).tr_sum
    closes = np.array(bars.stamps) + bars.bar_seconds
    to_flat = (np.array(bars.flat_time) - closes) // bars.bar_seconds
    return MarketData(
        open=i32(bars.open),
        high=i32(bars.high),
        low=i32(bars.low),
        close=i32(bars.close),
        tr_sum=i32(tr_sum),
        bars_to_flat=i32(to_flat),
        sessions=session_table(bars),
        view=view_of(bars, settings, "relative"),
        fingerprint=jnp.zeros(8, jnp.uint32),
        path=path_arrays(
            bars.open, bars.paths, *((bars.ask.open, bars.ask.paths) if bars.ask else ())
        ),
        ask=ask_arrays(bars.ask),
        tick_value=tick_value(bars, settings),
    )


def env_params(bars, settings, market=None):
    """The traced half of the environment, straight from the oracle's settings."""

    costs = contract(
        settings.commission,
        settings.slippage,
        settings.tick_mills,
        settings.min_stop,
        settings.be_ticks,
    ).replace(tick_size=jnp.float32(settings.tick_size))
    account = rules(
        settings.drawdown,
        settings.daily_loss,
        settings.target,
        settings.floor_cap,
        settings.min_days,
        settings.stop_at_target,
        settings.fail_on_daily_loss,
        max_contracts=10,
        risk_unit=settings.risk_unit,
        trailing=Trailing[settings.trailing.upper()],
    ).replace(start_balance=jnp.float32(settings.start_balance))
    params = make_params(
        market_data(bars, settings) if market is None else market,
        account=account,
        costs=costs,
        brackets=(settings.stop_atr, settings.target_multiple, settings.trail_atr),
        ids=settings.session_slots or None,
        episode_sessions=settings.episode_sessions,
        max_steps=settings.max_steps,
    )
    weights = {name: jnp.float32(weight) for name, weight in settings.reward.items()}
    return params.replace(reward_weights=weights)
