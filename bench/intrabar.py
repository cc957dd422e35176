"""Throughput under each intrabar order: environment steps with observations consumed, and whole PPO
updates.

The same bars and actions for every order. The path is given by four prices a minute and by sixty;
`falls_per_bar` of the result says how many falls that makes. Beside steps per second, the time of
each order relative to `stop_first`, by both clocks (medians over medians).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxtrade import (
    Bars,
    TradingEnv,
    build_market,
    make_params,
    make_ppo,
    split_sessions,
    synthetic_bars,
)
from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.env.state import EnvParams

from . import harness, programs
from .catalogue import Options
from .learning import FIXED, learning_of, sections_of

# side: its intrabar order, and how many prices of each minute the market knows
ORDERS = {
    "stop_first": ("stop_first", 4),
    "nearer_extreme": ("nearer_extreme", 4),
    "path": ("path", 4),
    "path of 60": ("path", 60),
}
LEVELS = ("env", "ppo")
SESSIONS = 20
PPO = {"num_envs": 2048, "num_steps": 128}
QUICK_PPO = {"num_envs": 64, "num_steps": 16}


def with_seconds(sessions: int, count: int) -> tuple[Bars, Bars]:
    """Synthetic minutes, and `count` >= 4 prices of each: its extremes in an order drawn at random,
    and between its four prices steps of a random walk that ends at the next one, inside the
    minute's range."""
    bars = synthetic_bars(get_contract("NQ"), sessions, 0)
    rng = np.random.default_rng(0)
    high_first = rng.random(len(bars)) < 0.5
    second, third = (
        np.where(high_first, bars.high, bars.low),
        np.where(high_first, bars.low, bars.high),
    )
    at = np.linspace(0, count - 1, 4).round().astype(int)
    prices = np.empty((len(bars), count), np.int32)
    anchors = [bars.open, second, third, bars.close]
    for begin, end, here, there in zip(at, at[1:], anchors, anchors[1:], strict=False):
        share = np.arange(end - begin) / (end - begin)
        walk = rng.normal(size=(len(bars), end - begin)).cumsum(axis=1)
        bridge = walk - walk[:, :1] - share * (walk[:, -1:] - walk[:, :1])
        noise = bridge * ((bars.high - bars.low) / count**0.5)[:, None]
        prices[:, begin:end] = np.clip(
            (here[:, None] + share * (there - here)[:, None] + noise).round(),
            bars.low[:, None],
            bars.high[:, None],
        )
        prices[:, begin] = here
    prices[:, -1] = bars.close
    apart = 60 // count
    times = (bars.time[:, None] + apart * np.arange(count)).reshape(-1)
    flat = prices.reshape(-1)
    return bars, Bars(
        times,
        flat,
        flat,
        flat,
        flat,
        np.zeros(len(flat)),
        apart,
        bars.contract,
        f"{count} a minute",
    )


def config_of(mode: str, ppo: dict[str, int]) -> RunConfig:
    return make_config(
        {"data": {"market": "NQ"}, "env": {"intrabar": mode}, **sections_of({**FIXED, **ppo})}
    )


def level_side(level: str, config: RunConfig, params: EnvParams) -> harness.Side:
    """`env`: `num_steps` fused steps of `num_envs` environments. `ppo`: one update from one
    state.
    """
    env, steps = (
        TradingEnv(config.env),
        learning_of(config).num_envs * learning_of(config).num_steps,
    )
    if level == "env":
        key = jax.random.key(1)
        stepping = programs.stepping(
            env, learning_of(config).num_envs, learning_of(config).num_steps
        )
        steps_program = programs.compiled(stepping, params, key).program
        return harness.side(lambda: steps_program(params, key), steps)
    algorithm = make_ppo(config, env, 100)
    state = jax.jit(algorithm.init)(jax.random.key(0), params)
    update = programs.compiled(
        lambda state, params: algorithm.update(state, params, None), state, params
    ).program
    return harness.side(lambda: update(state, params), steps)


def run(options: Options) -> dict[str, Any]:
    ppo, sessions = (QUICK_PPO, 4) if options.quick else (PPO, SESSIONS)
    configs = {name: config_of(order, ppo) for name, (order, _) in ORDERS.items()}
    params: dict[str, EnvParams] = {}
    falls: dict[str, int] = {}
    for name, (_, count) in ORDERS.items():
        bars, seconds = with_seconds(sessions, count)
        market = build_market(bars, config_of("path", ppo), seconds)
        params[name] = make_params(
            market, split_sessions(market, configs[name].split)["train"], configs[name]
        )
        assert market.data.path is not None
        falls[name] = market.data.path.falls.shape[-1]
    measured: dict[str, dict[str, Any]] = {}
    for level in LEVELS:
        measured |= harness.compare(
            {f"{level} {name}": level_side(level, configs[name], params[name]) for name in ORDERS},
            options.repeats,
        )
    return {
        "config": ppo
        | {
            "sessions": sessions,
            "repeats": options.repeats,
            "threads": harness.cores(),
            "falls_per_bar": {
                name: falls[name] for name, (order, _) in ORDERS.items() if order == "path"
            },
        },
        "sides": measured,
        "ratios": {
            f"time of {level} {name}/stop_first": harness.ratio(
                measured, f"{level} stop_first", f"{level} {name}"
            )
            for level in LEVELS
            for name in ORDERS
        },
    }
