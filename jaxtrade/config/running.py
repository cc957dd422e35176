"""How a run computes.

Precision of matrix products, bit-identical results on a GPU, threads of a CPU; devices; the delay
of the policy that acts; where episodes start; the monitor of episodes.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from jaxtrade.config.base import Count, Part, Positive, Section, Share, declare_bounds, name_in
from jaxtrade.parts import SAMPLERS

Precision = Literal["float32", "tf32", "bfloat16"]


class ComputeConfig(Section, frozen=True):
    """How a run computes."""

    precision: Precision = "float32"
    """operands of matrix products in training; everything else, evaluation and export are float32.
    A device without such products rounds their operands, which is slower than float32
    """
    deterministic: bool = True
    """on a GPU, XLA is asked for programs that repeat a run to the same bits; false: the fastest
    programs, which XLA picks by timing them
    """
    eager: bool = False
    """compile nothing: every operation of training runs by itself, which is very slow; to find a
    fault (train --eager)
    """
    threads: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = "auto"
    """compute threads on a CPU; auto: one if minibatches are small, otherwise all cores; eight with
    parallel.reduce=strict; the variable NPROC overrides both
    """


# --- The section `parallel` of a configuration: on which devices a run trains


class ParallelConfig(Section, frozen=True):
    """On which devices a run trains."""

    devices: Annotated[int, Field(ge=1, le=65536)] | Literal["auto", "all"] = "auto"
    """devices of all processes together (--devices): agents are spread over them, and the
    environments of an agent where there are more devices than agents; on a CPU, as many devices are
    made; all: those that JAX sees; auto: one in a run of one process, all in a run of several
    """
    reduce: Literal["psum", "strict"] = "psum"
    """how figures over several devices are added: psum, as fast as the devices can, the same bits
    on the same devices; strict, by groups of environments, the same bits on any number of devices
    """


def divide_devices(devices: int, agents: int, groups: int) -> tuple[int, int]:
    """Return (devices along the agents, devices along the environments of each agent).

    Agents are divided over the devices as far as they go, and the environments of each agent over
    the rest.

    groups: of the environments of an agent.
    Raises ValueError if they cannot be shared evenly.
    """
    along = math.gcd(devices, agents)
    envs = devices // along
    if groups % envs:
        fits = [
            n for n in range(1, groups * agents + 1) if groups % (n // math.gcd(n, agents)) == 0
        ]
        near = [max(n for n in fits if n < devices), *[n for n in fits if n > devices][:1]]
        raise ValueError(
            f"parallel.devices={devices}: {envs} devices would share the environments of an agent, and these form "
            f"{groups} groups (rollout.num_shards): use {' or '.join(map(str, near))}, or choose rollout.num_envs and "
            f"rollout.num_shards that {envs} divides"
        )
    return along, envs


# --- The section `actor` of a configuration, and what must hold between it and the others


DELAYED = ("ppo", "dqn")  # the learners that can learn from an older policy's rollouts


class ActorConfig(Section, frozen=True):
    """Which policy acts: the one that learns, or an older one.

    A delay is an experiment about old data. It makes no run faster.
    """

    delay: int = declare_bounds(0, 0, 256)
    """updates by which the policy that acts is older than the one that learns; 0: it is the same
    one. Each takes the memory of one more policy
    """
    rho_clip: Positive = 1.0
    """ppo with a delay: largest weight of a step in V-trace (rho-bar)"""
    c_clip: Positive = 1.0
    """ppo with a delay: largest factor by which V-trace passes a later error on to earlier steps
    (c-bar)
    """


def check_actor(config: Any) -> None:
    """Check what must hold between `actor` and the learner.

    config: a `RunConfig`, which imports this module.
    Raises ValueError, which pydantic expects.
    """
    actor, algorithm = config.actor, config.algorithm
    if actor.delay and algorithm == "pqn":
        raise ValueError(
            f"actor.delay={actor.delay} with algorithm=pqn: its targets, Q(lambda) in Peng's form, take "
            "every action as one of the present policy, and nothing corrects those of an older one: set "
            "actor.delay=0, or algorithm=ppo or dqn"
        )
    if actor.delay and algorithm not in DELAYED:
        raise ValueError(
            f"actor.delay={actor.delay} with algorithm={algorithm}: only {' and '.join(DELAYED)} can act "
            "with an older policy: set actor.delay=0"
        )
    changed = [
        f"actor.{name}={getattr(actor, name):g}"
        for name in actor.list_changed("rho_clip", "c_clip")
    ]
    if changed and not (actor.delay and algorithm == "ppo"):
        raise ValueError(
            f"{', '.join(changed)}: no effect without V-trace, which algorithm=ppo uses with "
            f"actor.delay above 0 (found algorithm={algorithm}, actor.delay={actor.delay}): leave "
            f"{'it' if len(changed) == 1 else 'them'} out"
        )


# --- The section `sampler` of a configuration


class SamplerConfig(Section, frozen=True):
    """How the symbol of an episode is chosen, in training on several symbols."""

    kind: Annotated[str, name_in(SAMPLERS)] = "uniform"
    """uniform: every session equally often; balanced: every symbol equally often; round_robin: the
    symbols in turn; prioritised: a symbol as often as the policy's errors on it are large
    """
    rate: Part = 0.1
    """prioritised: weight of the newest update in the average error of a symbol"""
    even_share: Share = 0.2
    """prioritised: share of episodes that all symbols get equally, so that none is forgotten"""


# --- The section `monitor` of a configuration


class MonitorConfig(Section, frozen=True):
    """Statistics of every finished training episode, in `monitor.csv` and TensorBoard."""

    on: bool = True
    """count drawdown, turnover and Sharpe ratio of each training episode, and report their means;
    the policy learns the same either way
    """
    csv: bool = True
    """write a row for each episode to monitor.csv, which Stable-Baselines3 can read"""
    rows: Literal["auto"] | Annotated[Count, Field(ge=1, le=1 << 22)] = "auto"
    """episodes of one update and agent that monitor.csv has room for; more are counted
    (monitor/lost) and miss their rows; auto: rollout.num_envs times an eighth of rollout.num_steps,
    at least 2
    """
