"""Schedules over the environment's parameters: where they stand when, how they round, what they
leave alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.config import StageConfig
from jaxtrade.env.params import describe, make_stages, ramp, share_of
from tests.env.worlds import contract, leaves_differ, make_params, walk_market
from tests.messages import missing

COMMISSION = StageConfig(commission_start=0.1, commission_until=0.5)
FORCED = StageConfig(forced_start=0.7, forced_start_end=0.1, forced_start_until=0.8)
BOTH = StageConfig(
    **(COMMISSION.model_dump(exclude_defaults=True) | FORCED.model_dump(exclude_defaults=True))
)
PARAMS = make_params(walk_market(0, sessions=2), costs=contract(commission=2_080))


def at(config, fraction, params=PARAMS):
    stage = make_stages(config)
    assert stage is not None
    return stage(params, jnp.float32(fraction))


@pytest.mark.parametrize(
    ("fraction", "share", "mills"),
    [
        (0.0, 0.1, 208),
        (0.25, 0.55, 1_144),
        (0.5, 1.0, 2_080),
        (0.75, 1.0, 2_080),
        (1.0, 1.0, 2_080),
    ],
)
def test_commission_rises_in_a_line_and_is_whole_from_there_on(fraction, share, mills):
    staged, reported = at(COMMISSION, fraction)
    assert reported.keys() == {"commission_share"}
    assert float(reported["commission_share"]) == pytest.approx(share, abs=1e-7)
    assert int(staged.contract.commission) == mills
    assert staged.contract.commission.dtype == jnp.int32
    assert staged.forced_start is None
    whole = staged.replace(contract=staged.contract.replace(commission=PARAMS.contract.commission))
    assert leaves_differ(whole, PARAMS) == []


@pytest.mark.parametrize(
    ("fraction", "probability"),
    [(0.0, 0.7), (0.2, 0.55), (0.4, 0.4), (0.8, 0.1), (0.9, 0.1), (1.0, 0.1)],
)
def test_forced_starts_fade_in_a_line_to_their_end(fraction, probability):
    staged, reported = at(FORCED, fraction)
    assert reported.keys() == {"forced_start"}
    assert float(reported["forced_start"]) == pytest.approx(probability, abs=1e-7)
    assert staged.forced_start is reported["forced_start"]
    assert staged.forced_start.dtype == jnp.float32
    assert leaves_differ(staged.replace(forced_start=None), PARAMS) == []


def test_both_at_once_and_none():
    staged, reported = at(BOTH, 0.0)
    assert reported.keys() == {"commission_share", "forced_start"}
    assert (int(staged.contract.commission), float(staged.forced_start)) == (
        208,
        float(np.float32(0.7)),
    )
    assert make_stages(StageConfig()) is None
    assert PARAMS.forced_start is None


@pytest.mark.parametrize(
    ("commission", "half"), [(0, 0), (1, 0), (3, 2), (5, 2), (7, 4), (2_080, 1_040)]
)
def test_half_a_mill_goes_to_the_even_one(commission, half):
    assert int(share_of(jnp.int32(commission), jnp.float32(0.5))) == half


def test_the_whole_of_a_commission_that_no_float_holds():
    assert int(share_of(jnp.int32(2**24 + 1), jnp.float32(1))) == 2**24 + 1


RAMP, SHARE_OF = jax.jit(ramp), jax.jit(share_of)
SHARE = st.floats(0, 1, width=32, allow_subnormal=False)


@given(start=SHARE, end=SHARE, until=st.floats(2**-10, 1, width=32))
def test_a_ramp_stays_between_its_ends_and_never_turns(start, end, until):
    fractions = np.sort(np.append(np.linspace(0, 1, 41, dtype=np.float32), np.float32(until)))
    values = np.asarray(RAMP(start, end, until, fractions))
    assert values.dtype == np.float32
    assert values[0] == np.float32(start)
    assert values[-1] == np.float32(end)
    assert (values >= min(start, end) - 1e-6).all()
    assert (values <= max(start, end) + 1e-6).all()
    assert (np.diff(values) * np.sign(end - start) >= -1e-6).all()
    assert (values[fractions >= until] == np.float32(end)).all()


@given(commission=st.integers(0, 2**20), share=SHARE)
def test_a_share_of_a_commission_is_within_half_a_mill(commission, share):
    part = int(SHARE_OF(np.int32(commission), np.float32(share)))
    assert 0 <= part <= commission
    assert abs(part - share * commission) <= 0.5 + 2**-23 * commission


def test_a_run_says_which_stages_are_on():
    assert list(describe(StageConfig())) == []
    commission, forced = describe(BOTH)
    assert not missing(commission, "10 %", "50 %")
    assert "70 % of episodes" in forced
    assert "10 % after 80 % of the run" in forced
    assert "evaluation" in commission
    assert "evaluation" in forced
