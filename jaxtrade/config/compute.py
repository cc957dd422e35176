"""How a run computes: the precision of matrix products, same bits on a GPU, and threads on a
CPU.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Section

Precision = Literal["float32", "tf32", "bfloat16"]


class ComputeConfig(Section, frozen=True):
    """How a run computes."""

    precision: Precision = Field(
        default="float32",
        description="operands of matrix products in training; everything "
        "else, evaluation and export are float32. A device without such products rounds their "
        "operands, which is slower than float32",
    )
    deterministic: bool = Field(
        default=True,
        description="on a GPU, XLA is asked for programs that repeat a run to "
        "the same bits; false: the fastest programs, which XLA picks by timing them",
    )
    eager: bool = Field(
        default=False,
        description="compile nothing: every operation of training runs by itself, which "
        "is very slow; to find a fault (train --eager)",
    )
    threads: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = Field(
        default="auto",
        description="compute threads on a CPU; auto: one if minibatches are small, otherwise all "
        "cores; eight with parallel.reduce=strict; the variable NPROC overrides both",
    )
