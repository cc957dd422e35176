"""A bridge as the training loop's hook, without a market."""

import numpy as np

from jaxtrade.advisor.table import empty_table, make_view
from jaxtrade.config import AdvisorConfig
from jaxtrade.rl.listening import AdviceExchange, start_advice


def hook_of(bridge):
    nothing = np.zeros(bridge.bars, np.int8)
    view = make_view(empty_table(bridge.bars), nothing.astype(np.int32))
    start = start_advice(
        view, nothing, nothing.astype(bool), AdvisorConfig(kind="none", bins=1, memory=10)
    )
    return AdviceExchange(AdvisorConfig(kind="none"), start, bridge)
