"""No profit crosses a splice: a jump of 100 points between two contracts changes no figure of any
agent.
"""

import jax
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.data.splits import session_set
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.evaluation.trades import coverage
from tests.data.lifted import lifted_bars

CONFIG = make_config({})
ENV = TradingEnv(CONFIG.env)
DECISIONS = 433  # a session: 09:30 to 16:57 without the halt


def record_of(market):
    """(record of random legal actions with the account rules off, coverage)."""
    sessions = session_set(np.arange(market.num_sessions), market.num_sessions)
    decisions = decision_bars(market.data, sessions)
    record = backtest(
        ENV,
        baselines.random_masked(ENV),
        make_params(market, sessions, CONFIG),
        decisions,
        "strategy",
        jax.random.key(0),
    )
    return record, coverage(record, decisions)


@pytest.mark.slow
def test_a_jump_between_contracts_earns_nothing():
    """Positions, brackets and marks are those of the week as one contract, to the mill."""
    record, covered = record_of(build_market(load_bundled(get_contract("ES")), CONFIG))
    spliced, covered_too = record_of(build_market(lifted_bars(), CONFIG))
    assert covered == covered_too == 1
    assert len(record.equity) == 5 * DECISIONS
    assert len(np.unique(record.equity)) > 100
    np.testing.assert_array_equal(spliced.equity, record.equity)
