"""The form of a learner's program for a platform: the same mathematics, in the operations that are
fast there.

On a GPU or a TPU the time of an update goes into starting programs, so few and large operations are
fast. On a CPU it goes into the operations themselves, so those that read memory in order are fast.
The forms agree up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import jax


class Form(NamedTuple):
    """pair: policy and value network are computed as a pair (`networks.pair`). columns:
    log-probability and entropy come from one array for each action
    (`distributions.log_prob_and_entropy`). vectors: gradient steps change the parameters and
    moments as vectors (`rl.flat`). gradient_rows: largest number of rows whose gradient is computed
    at once, where `ppo.gradient_rows` is auto. statistics_rows: number of observations that enter
    the statistics at once; on a CPU they stay in its cache. agents: of a population that are
    computed side by side; None: all.
    """

    pair: bool
    columns: bool
    vectors: bool
    gradient_rows: int
    statistics_rows: int
    agents: int | None


CPU = Form(
    pair=False, columns=False, vectors=False, gradient_rows=16384, statistics_rows=512, agents=8
)
DEVICE = Form(
    pair=True, columns=True, vectors=True, gradient_rows=65536, statistics_rows=16384, agents=None
)


def form_of(platform: str | None = None) -> Form:
    """The form for a platform of JAX ("cpu", "gpu", "cuda", "rocm", "tpu"). Default: that of this
    process.
    """
    return CPU if (platform or jax.default_backend()) == "cpu" else DEVICE
