"""Markets in one shape, so that one compiled program serves all of them."""

import jax
import numpy as np
import pytest

from jaxtrade.env.params import make_params
from jaxtrade.errors import DataError
from jaxtrade.evaluation.padding import in_one_shape
from jaxtrade.evaluation.record import EvaluationSteps, decision_bars
from jaxtrade.types import Quotes
from tests.evaluation.tiny import setup, tiny_market, walk


@pytest.fixture(scope="module")
def alone():
    """Parameters of two markets of other lengths, of which the second is two-sided."""
    markets = [tiny_market(walk(lengths), lengths) for lengths in ([60, 60, 40], [50, 30])]
    _, params, config = setup(markets[0], markets[0].every)
    other = make_params(markets[1], markets[1].every, config)
    data = other.market
    ask = Quotes(data.open + 2, data.high + 3, data.low + 1, data.close + 2)
    return [params, other.replace(market=data.replace(ask=ask))]


def test_markets_have_one_shape_and_their_sessions_keep_their_order(alone):
    one, other = in_one_shape(alone)
    shapes = [jax.tree.map(np.shape, each.market) for each in (one, other)]
    assert shapes[0] == shapes[1]
    assert np.asarray(other.sessions.ids)[:2].tolist() == [0, 1]
    assert in_one_shape(alone[:1])[0] is alone[0]


def test_a_program_with_too_few_steps_is_refused(alone):
    params = alone[0]
    with pytest.raises(DataError, match=r"bars=157, longest=59, sessions=3"):
        decision_bars(params.market, params.sessions, EvaluationSteps(3, 60, 9))


def test_markets_of_other_features_are_refused(alone):
    one, other = alone
    changed = other.replace(
        market=other.market.replace(view=other.market.view.replace(scaling="seed"))
    )
    with pytest.raises(ValueError, match="one configuration"):
        in_one_shape([one, changed])
