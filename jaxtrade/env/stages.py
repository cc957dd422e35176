"""Stages of a training run: schedules of `EnvParams` over the fraction of the run.

Only the updates of a learner apply them. Evaluation, baselines, replay and the adapters for other
libraries use the parameters that `make_params` returns: full costs, and episodes that start flat.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp

from jaxtrade.config import StageConfig
from jaxtrade.env.state import EnvParams
from jaxtrade.types import Array, Stage


def ramp(start: float, end: float, until: float, fraction: Array) -> Array:
    """float32[]: linear from `start` at fraction 0 to `end` at fraction `until`, then exactly
    `end`.
    """
    x = jnp.minimum(fraction / until, 1.0)
    return jnp.where(fraction < until, start * (1.0 - x) + end * x, end)


def share_of(commission: Array, share: Array) -> Array:
    """int32[] mills: a share (float32[], at most 1) of the commission, rounded half to even; at
    share 1 exactly all.
    """
    part = jnp.round(share * commission.astype(jnp.float32)).astype(jnp.int32)
    return jnp.where(share < 1.0, part, commission)


def make_stages(config: StageConfig) -> Stage | None:
    """Build the function (parameters, fraction of the run) -> (parameters at this fraction,
    metrics).

    The metrics are `commission_share` and `forced_start`. A stage that is off changes nothing, has
    no metric and adds nothing to the compiled program. The result is None if all stages are off.
    """
    if not (config.ramps_commission or config.forces_starts):
        return None

    def stage(params: EnvParams, fraction: Array) -> tuple[EnvParams, dict[str, Array]]:
        logged = {}
        if config.ramps_commission:
            share = logged["commission_share"] = ramp(
                config.commission_start, 1.0, config.commission_until, fraction
            )
            commission = share_of(params.contract.commission, share)
            params = params.replace(contract=params.contract.replace(commission=commission))
        if config.forces_starts:
            logged["forced_start"] = ramp(
                config.forced_start, config.forced_start_end, config.forced_start_until, fraction
            )
            params = params.replace(forced_start=logged["forced_start"])
        return params, logged

    return stage


def describe(config: StageConfig) -> Iterator[str]:
    """One line about each stage that is on."""
    if config.ramps_commission:
        yield (
            f"stage: commission starts at {_percent(config.commission_start)} and is whole after "
            f"{_percent(config.commission_until)} of the run; evaluation charges the whole"
        )
    if config.forces_starts:
        yield (
            f"stage: {_percent(config.forced_start)} of episodes start in a position where one may be opened, "
            f"{_percent(config.forced_start_end)} after {_percent(config.forced_start_until)} of the run; none in "
            "evaluation"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
