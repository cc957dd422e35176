"""Scores of the policies in training, on the validation sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.validation import total_rewards
from jaxtrade.runs.setup import Setup
from jaxtrade.runs.symbols import policy_for, steps_of
from jaxtrade.storage.compiling import Programs
from jaxtrade.types import PyTree


def scores_by_agent(setup: Setup, shown: Mapping[str, EnvParams], policies: Sequence[PyTree], programs: Programs
                    ) -> np.ndarray:
    """Mean reward per validation session of each greedy policy, float64[agents]; every symbol has equal weight.

    shown: by symbol, the parameters with the advice that is known on the validation sessions.
    """
    steps = steps_of(setup, "validation")
    scores = [total_rewards(own.env, shown[symbol], own.splits["validation"], own.algorithm,
                            [policy_for(setup, policy, symbol) for policy in policies], programs, steps)
              / int(own.splits["validation"].count) for symbol, own in setup.symbols.items()]
    return np.mean(scores, axis=0)
