"""The section `parallel` of a configuration: on which devices a run trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Section


class ParallelConfig(Section, frozen=True):
    """On which devices a run trains."""

    devices: Annotated[int, Field(ge=1, le=65536)] | Literal["all"] = Field(
        default=1, description="devices of all processes together (--devices): agents are spread over them, and the "
        "environments of an agent where there are more devices than agents; all: those that JAX sees. On a CPU, as "
        "many devices are made")
    reduce: Literal["psum", "strict"] = Field(
        default="psum", description="how figures over several devices are added: psum, as fast as the devices can, the "
        "same bits on the same devices; strict, by groups of environments, the same bits on any number of devices")
