"""Holm's adjusted p-values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jaxtrade.evaluation.statistics import holm

ps = arrays(np.float64, st.integers(0, 12), elements=st.floats(0, 1))


def test_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.5. The third must not be
    below the second.
    """
    assert holm(np.array([0.03, 0.5, 0.01, 0.02])).tolist() == pytest.approx(
        [0.06, 0.5, 0.04, 0.06]
    )
    assert holm(np.array([0.4, 0.9])).tolist() == pytest.approx([0.8, 0.9])
    assert holm(np.array([0.7, 0.8])).tolist() == [1.0, 1.0]


@given(ps)
def test_between_the_plain_p_and_bonferroni(p):
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1, p * len(p))).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("p", [[0.1, 1.2], [0.1, float("nan")], [[0.1]]])
def test_what_is_no_p_is_refused(p):
    with pytest.raises(ValueError, match="from 0 to 1"):
        holm(np.array(p))
