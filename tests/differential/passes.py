"""Passes over a market: settings that vary brackets, costs and seeds."""

from dataclasses import asdict, dataclass

import jax.numpy as jnp

from tests.differential.compare import Tally, compare_random


@dataclass(frozen=True)
class Setting:
    """What a pass changes of a market's parameters: ticks, thousandths of ATR, commission in cents
    per side.
    """

    stop_atr: int = 1500
    target_multiple: int = 3
    trail_atr: int = 1000
    be_ticks: int = 1
    min_stop: int = 1
    slippage: int = 0
    commission: int = 208

    def apply(self, params):
        values = {name: jnp.int32(value) for name, value in asdict(self).items()}
        brackets = params.brackets.replace(
            **{k: values[k] for k in ("stop_atr", "target_multiple", "trail_atr")}
        )
        contract = params.contract.replace(
            be_ticks=values["be_ticks"],
            min_stop=values["min_stop"],
            slippage=values["slippage"],
            commission=10 * values["commission"],
        )
        return params.replace(brackets=brackets, contract=contract)


HEADLINE = Setting()
TIGHT = Setting(stop_atr=900, target_multiple=2, trail_atr=400, be_ticks=0, commission=0)
SLIPPED = Setting(
    stop_atr=1000, target_multiple=2, slippage=2, be_ticks=3, min_stop=4, commission=52
)
WIDE = Setting(stop_atr=3100, target_multiple=2, trail_atr=2300, min_stop=20, slippage=1)


def run_passes(
    config,
    params,
    settings,
    first_seed,
    fine=None,
):
    """Every setting once with the task's actions and once with reversals, each with a seed of its
    own.
    """
    total = Tally()
    for number, setting in enumerate(settings):
        for reversals in (False, True):
            seed = first_seed + 2 * number + reversals
            total.add(compare_random(config, setting.apply(params), seed, reversals, fine))
    return total
