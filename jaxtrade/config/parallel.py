"""The section `parallel` of a configuration: on which devices a run trains."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Section


class ParallelConfig(Section, frozen=True):
    """On which devices a run trains."""

    devices: Annotated[int, Field(ge=1, le=65536)] | Literal["auto", "all"] = Field(
        default="auto",
        description="devices of all processes together (--devices): agents are spread over them, and "
        "the environments of an agent where there are more devices than agents; on a CPU, as many devices are made; "
        "all: those that JAX sees; auto: one in a run of one process, all in a run of several",
    )
    reduce: Literal["psum", "strict"] = Field(
        default="psum",
        description="how figures over several devices are added: psum, as fast as the devices can, the "
        "same bits on the same devices; strict, by groups of environments, the same bits on any number of devices",
    )


def divided(devices: int, agents: int, groups: int) -> tuple[int, int]:
    """(devices along the agents, devices along the environments of each agent): agents are divided
    over the devices as far as they go, and the environments of each agent over the rest.

    groups: of the environments of an agent. Raises ValueError if they cannot be shared evenly.
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
