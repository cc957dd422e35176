"""The advice block of the observation: the advice about the decision bar that the policy may
use.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.advisor.table import AdviceSeen, dropped, look_up
from jaxtrade.env.state import EnvParams, EnvState
from jaxtrade.types import Array

ADVICE_SLOTS = (
    "advice_hold",
    "advice_buy",
    "advice_sell",
    "advice_confidence",
    "advice_risk",
    "advice_valid",
    "advice_age",
)


def advice_seen(state: EnvState, params: EnvParams) -> AdviceSeen | None:
    """The advice that is visible at the bar of `state`. None (static) without an advisor."""
    view = params.advice
    if view is None:
        return None
    return look_up(
        view,
        state.row,
        view.drop_bar is not None and dropped(view, state.seed, state.episode, state.row),
    )


def advice_slots(seen: AdviceSeen | None) -> Array:
    """float32[7], in the order of `ADVICE_SLOTS`: three logits, confidence and risk in [0, 1], a
    flag that is 1 if there is advice, and log(1 + age in bars). Without advice all are 0, which
    favours no direction."""
    if seen is None:
        return jnp.zeros(len(ADVICE_SLOTS), jnp.float32)
    rest = jnp.stack(
        [seen.confidence, seen.risk, seen.valid.astype(jnp.float32), jnp.log1p(seen.age)]
    )
    return jnp.concatenate([seen.logits, rest])
