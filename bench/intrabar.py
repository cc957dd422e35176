"""Throughput under each intrabar order: environment steps with observations consumed, and whole PPO updates.

The same market and actions for every order: synthetic bars with four seconds each, which the path knows. Beside steps
per second, the time of each order relative to `stop_first`, by both clocks (medians over medians).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxtrade import Bars, TradingEnv, build_market, make_params, make_ppo, split_sessions, synthetic_bars
from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.env.state import EnvParams

from . import harness, programs
from .catalogue import Options

MODES = ("stop_first", "nearer_extreme", "path")
LEVELS = ("env", "ppo")
SESSIONS = 20
PPO = {"num_envs": 2048, "num_steps": 128}
QUICK_PPO = {"num_envs": 64, "num_steps": 16}


def with_seconds(sessions: int) -> tuple[Bars, Bars]:
    """Synthetic minutes and the four prices of each in an order drawn at random."""
    bars = synthetic_bars(get_contract("NQ"), sessions, 0)
    high_first = np.random.default_rng(0).random(len(bars)) < 0.5
    second, third = np.where(high_first, bars.high, bars.low), np.where(high_first, bars.low, bars.high)
    prices = np.stack([bars.open, second, third, bars.close], axis=1).reshape(-1)
    times = (bars.time[:, None] + np.array([0, 15, 30, 45])).reshape(-1)
    return bars, Bars(times, prices, prices, prices, prices, np.zeros(len(prices)), 15, bars.contract, "quarters")


def config_of(mode: str, ppo: dict[str, int]) -> RunConfig:
    return make_config({"data": {"market": "NQ"}, "env": {"intrabar": mode}, "ppo": ppo})


def level_side(level: str, config: RunConfig, params: EnvParams) -> harness.Side:
    """`env`: `num_steps` fused steps of `num_envs` environments. `ppo`: one update from one state."""
    env, steps = TradingEnv(config.env), config.ppo.num_envs * config.ppo.num_steps
    if level == "env":
        key = jax.random.key(1)
        stepping = programs.stepping(env, config.ppo.num_envs, config.ppo.num_steps)
        steps_program = programs.compiled(stepping, params, key).program
        return harness.side(lambda: steps_program(params, key), steps)
    algorithm = make_ppo(config.ppo, env, 100)
    state = jax.jit(algorithm.init)(jax.random.key(0), params)
    update = programs.compiled(lambda state, params: algorithm.update(state, params, ()), state, params).program
    return harness.side(lambda: update(state, params), steps)


def run(options: Options) -> dict[str, Any]:
    ppo, sessions = (QUICK_PPO, 4) if options.quick else (PPO, SESSIONS)
    bars, seconds = with_seconds(sessions)
    market = build_market(bars, config_of("path", ppo), seconds)
    train = split_sessions(market, config_of("path", ppo).split)["train"]
    configs = {mode: config_of(mode, ppo) for mode in MODES}
    measured: dict[str, dict[str, Any]] = {}
    for level in LEVELS:
        measured |= harness.compare({f"{level} {mode}": level_side(level, config, make_params(market, train, config))
                                     for mode, config in configs.items()}, options.repeats)
    return {
        "config": ppo | {"sessions": sessions, "repeats": options.repeats, "threads": harness.cores()},
        "sides": measured,
        "ratios": {f"time of {level} {mode}/stop_first":
                   harness.ratio(measured, f"{level} stop_first", f"{level} {mode}") for level in LEVELS
                   for mode in MODES},
    }
