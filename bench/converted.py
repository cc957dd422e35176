"""What it costs that profits arise in another currency, and what several symbols cost.

A step with converted money against one without: the same USDJPY bars and actions, once with the
value of a tick that each bar has, once with a fixed one. And steps of four symbols in one market
against steps of one symbol whose money is converted, with as many bars. Every side runs in a
process that may use one core, and the sides take turns.

Observations: see `stepping`. `written` is what training does; `unseen` leaves the step alone.
    `ns_per_step` is of CPU
time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.market_set import load_markets
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams

from . import harness, stepping
from .catalogue import Options
from .env_step import not_confined, worker_side
from .learning import fixed_sections
from .stepping import UNSEEN, WRITTEN, confined_to_one_core

PAIRS = ("EURUSD", "GBPUSD", "USDJPY", "USDCHF")
ONE = "USDJPY"
MARKETS = ("dollars", "converted", "four symbols")
MODES = (WRITTEN, UNSEEN)
SESSIONS = 80  # of all symbols together
ONE_THREAD = {"NPROC": "1"}  # of XLA, which reads it before Python code could set it
NUM_ENVS, STEPS = 2_048, 1 << 19


def config_of(market: str, sessions: int) -> RunConfig:
    """Synthetic minute bars of one pair, or of four pairs with a quarter of the sessions each."""
    pairs = PAIRS if market == "four symbols" else (ONE,)
    data = {
        "source": "synthetic",
        "markets": list(pairs),
        "synthetic_sessions": sessions // len(pairs),
    }
    return make_config({"data": data, "split": {"test_sessions": 0}, **fixed_sections()})


def world(market: str, sessions: int) -> tuple[TradingEnv, EnvParams]:
    """The environment and its parameters. `dollars` has the bars of `converted`, and a tick of the
    median value.
    """
    config = config_of(market, sessions)
    loaded = load_markets(config)
    params = make_params(loaded, split_sessions(loaded, config.split)["train"], config)
    value = params.market.tick_value
    if market == "dollars":
        assert value is not None
        tick = int(np.median(np.asarray(value.times) / np.asarray(value.over)))
        params = params.replace(
            market=params.market.replace(tick_value=None),
            contract=params.contract.replace(tick_mills=jnp.int32(tick)),
        )
    return TradingEnv(config.env), params


def one_core(
    market: str, sessions: int, num_envs: int, num_steps: int, observations: str
) -> Callable[[], float]:
    """For `Worker`: the loop of one side, in a process that may use one core."""
    confined_to_one_core()
    work = stepping.Loop(*world(market, sessions), num_envs, num_steps, observations)
    return lambda: work().item()


def run(options: Options) -> dict[str, Any]:
    """See `catalogue`."""
    sessions, num_envs, steps = (8, 256, 1 << 14) if options.quick else (SESSIONS, NUM_ENVS, STEPS)
    config = {
        "sessions": sessions,
        "num_envs": num_envs,
        "num_steps": steps // num_envs,
        "repeats": options.repeats,
        "one_market": ONE,
        "four_markets": list(PAIRS),
    }
    names = {f"{market} {mode}": (market, mode) for market in MARKETS for mode in MODES}
    if missing := not_confined():
        return {
            "config": config,
            "sides": {},
            "ratios": {},
            "left_out": dict.fromkeys(names, missing),
        }
    with ExitStack() as stack:
        sides = {
            name: worker_side(
                stack,
                "converted",
                "one_core",
                {
                    "market": market,
                    "sessions": sessions,
                    "num_envs": num_envs,
                    "num_steps": steps // num_envs,
                    "observations": mode,
                },
                steps,
                ONE_THREAD,
            )
            for name, (market, mode) in names.items()
        }
        measured = harness.compare(sides, options.repeats)
    for side in measured.values():
        side["ns_per_step"] = harness.rounded(1e9 / side["steps_per_cpu_second"])
    return {
        "config": config,
        "sides": measured,
        "ratios": {
            f"time of converted/dollars, {mode}": harness.ratio(
                measured, f"dollars {mode}", f"converted {mode}"
            )
            for mode in MODES
        }
        | {
            f"speed of four symbols/one that converts, {mode}": harness.ratio(
                measured, f"four symbols {mode}", f"converted {mode}"
            )
            for mode in MODES
        },
        "left_out": {},
    }
