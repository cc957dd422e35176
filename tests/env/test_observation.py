"""What a rollout stores instead of observations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.env.observation import ObservationRef, bits_of


@pytest.mark.parametrize("actions", [1, 5, 7, 8, 9, 17])
def test_a_reference_keeps_the_mask_in_bits(actions: int) -> None:
    mask = np.random.default_rng(actions).random((3, 4, actions)) < 0.5
    bits = bits_of(jnp.asarray(mask))
    assert bits.dtype == jnp.uint8
    assert bits.shape == (3, 4, -(-actions // 8))
    empty = jnp.zeros((3, 4, 1), jnp.int32)
    ref = ObservationRef(empty, empty[..., None], (), bits, (), actions)
    np.testing.assert_array_equal(ref.mask, mask)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(lambda ref: ref.mask))(ref), mask)
    np.testing.assert_array_equal(ref.with_mask(~ref.mask).mask, ~mask)
