"""Throughput under each intrabar order: environment steps with observations consumed, and whole PPO updates.

    python bench/intrabar.py [--out bench/results/intrabar.json] [--repeats 15] [--num-envs 2048] [--num-steps 128]

The same market and actions for every order: synthetic bars with four seconds each, which the path knows. Programs are
compiled ahead of time and run once before the first measurement; the orders take turns, so that whatever else the
machine does falls on all of them; medians are reported, of process CPU seconds (little disturbed by other processes)
and of wall seconds. Every result is blocked on. Prints one JSON line and writes it to --out.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxtrade
from jaxtrade import Bars, TradingEnv, build_market, make_params, make_ppo, split_sessions, synthetic_bars
from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.env.state import EnvParams

MODES = ("stop_first", "nearer_extreme", "path")
RESULTS = Path(__file__).parent / "results" / "intrabar.json"


def with_seconds(sessions: int) -> tuple[Bars, Bars]:
    """Synthetic minutes and the four prices of each in an order drawn at random."""
    bars = synthetic_bars(get_contract("NQ"), sessions, 0)
    high_first = np.random.default_rng(0).random(len(bars)) < 0.5
    second, third = np.where(high_first, bars.high, bars.low), np.where(high_first, bars.low, bars.high)
    prices = np.stack([bars.open, second, third, bars.close], axis=1).reshape(-1)
    times = (bars.time[:, None] + np.array([0, 15, 30, 45])).reshape(-1)
    return bars, Bars(times, prices, prices, prices, prices, np.zeros(len(prices)), 15, bars.contract, "quarters")


def config_of(mode: str, args: argparse.Namespace) -> RunConfig:
    return make_config({"data": {"market": "NQ"}, "env": {"intrabar": mode},
                        "ppo": {"num_envs": args.num_envs, "num_steps": args.num_steps}})


def env_program(config: RunConfig, params: EnvParams, args: argparse.Namespace) -> Callable[[], Any]:
    """`num_steps` fused steps of `num_envs` environments; every observation enters the sum that comes out."""
    env = TradingEnv(config.env)

    def run(params: EnvParams, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        states, refs = jax.vmap(env.reset, (0, None))(jax.random.split(key, args.num_envs), params)

        def body(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            states, refs = carry
            seen = jnp.sum(jax.vmap(env.observe, (0, None))(refs, params))
            chances = jax.random.uniform(key, (args.num_envs, env.num_actions))
            actions = jnp.argmax(jnp.where(refs.mask, chances, -1.0), axis=1).astype(jnp.int32)
            states, refs, outcome = jax.vmap(env.step, (None, 0, 0, None))(key, states, actions, params)
            return (states, refs), seen + jnp.sum(outcome.reward)

        (states, _), sums = jax.lax.scan(body, (states, refs), jax.random.split(key, args.num_steps))
        return jnp.sum(sums), jnp.sum(states.account.equity)

    program, key = jax.jit(run).lower(params, jax.random.key(0)).compile(), jax.random.key(1)
    return lambda: program(params, key)


def ppo_program(config: RunConfig, params: EnvParams, args: argparse.Namespace) -> Callable[[], Any]:
    """One PPO update (rollout and learning) from the same state."""
    algorithm = make_ppo(config.ppo, TradingEnv(config.env), 100)
    state = jax.jit(algorithm.init)(jax.random.key(0), params)
    program = jax.jit(algorithm.update).lower(state, params).compile()
    return lambda: program(state, params)


def measure(programs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of each program, taking turns (the order of turns alternates)."""
    seconds: dict[str, dict[str, list[float]]] = {name: {"cpu": [], "wall": []} for name in programs}
    for run in programs.values():
        jax.block_until_ready(run())
    for repeat in range(repeats):
        for name in list(programs)[:: 1 if repeat % 2 else -1]:
            cpu, wall = time.process_time(), time.perf_counter()
            jax.block_until_ready(programs[name]())
            seconds[name]["cpu"].append(time.process_time() - cpu)
            seconds[name]["wall"].append(time.perf_counter() - wall)
    return {name: {clock: statistics.median(values) for clock, values in clocks.items()}
            for name, clocks in seconds.items()}


def figures(medians: dict[str, dict[str, float]], steps: int) -> dict[str, dict[str, float]]:
    """Steps per second and the time of each order relative to stop_first, by clock."""
    base = medians["stop_first"]
    return {name: {f"steps_per_{clock}_second": round(steps / value) for clock, value in clocks.items()}
            | {f"{clock}_time_of_stop_first": round(value / base[clock], 4) for clock, value in clocks.items()}
            for name, clocks in medians.items()}


def commit() -> str:
    """The commit of the source, `+` where it has changes; "unknown" outside a checkout."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True,
                              check=True).stdout.strip()
    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor() -> str:
    """The device's kind; on a CPU the name that Linux gives it, where there is one."""
    device, info = jax.devices()[0], Path("/proc/cpuinfo")
    if device.platform == "cpu" and info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        return names[0] if names else platform.processor()
    return device.device_kind


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--num-envs", type=int, default=2_048)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--levels", nargs="+", choices=("env", "ppo"), default=["env", "ppo"])
    args = parser.parse_args()
    bars, seconds = with_seconds(args.sessions)
    market = build_market(bars, config_of("path", args), seconds)
    sessions = split_sessions(market, config_of("path", args).split)["train"]
    steps = args.num_envs * args.num_steps
    result: dict[str, Any] = {"commit": commit(), "command": " ".join(["python", *sys.argv]),
                              "device": processor(), "platform": jax.devices()[0].platform,
                              "versions": {"python": platform.python_version(), "jax": jax.__version__,
                                           "jaxtrade": jaxtrade.__version__},
                              "config": {k: getattr(args, k) for k in ("repeats", "num_envs", "num_steps", "sessions")}}
    for level in args.levels:
        make = env_program if level == "env" else ppo_program
        programs = {}
        for mode in MODES:
            config = config_of(mode, args)
            programs[mode] = make(config, make_params(market, sessions, config), args)
        result[level] = figures(measure(programs, args.repeats), steps)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
