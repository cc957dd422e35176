"""The program of a walk-forward: folds share keys and market, each as trained alone, in the memory
of its share.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.runs.setup import prepare
from tests.rl.test_train import assert_same
from tests.test_walkforward import configured


@pytest.fixture(scope="module")
def setup():
    return prepare(configured())


def compiled(algorithm, keys, params):
    """(first state, the compiled update)."""
    state = jax.jit(algorithm.init)(keys, params)
    return state, jax.jit(algorithm.update).lower(state, params, None).compile()


def test_folds_share_keys_and_market(setup):
    stack = setup.stack
    assert stack.axes is not None
    keys = jax.random.key_data(stack.keys(3))
    np.testing.assert_array_equal(keys[:2], keys[2:])
    np.testing.assert_array_equal(
        keys[:2], jax.random.key_data(jnp.stack([jax.random.key(3), jax.random.key(4)]))
    )
    axes = stack.axes[0].params
    assert axes.sessions.ids == 0
    assert jax.tree.leaves(axes.replace(sessions=None)) == []  # all other leaves are shared
    assert [row.tolist() for row in np.asarray(setup.agents.params.sessions.ids)[:, :2]] == [
        [0, 1],
        [0, 1],
        [1, 2],
        [1, 2],
    ]


@pytest.mark.slow
def test_a_fold_is_that_fold_trained_alone_in_the_memory_of_its_share():
    """After one update: integers exactly, floats within 1e-6. Temporaries are at most 1.05 times
    those of one agent for each, and no array of the program has both an axis of agents and one of
    the market's bars.

    Anchored folds differ in the number of their sessions too.
    """
    setup = prepare(configured("walk.mode=anchored"))
    stack, algorithm = setup.stack, setup.algorithm
    assert setup.agents.axes.sessions.count == 0
    first, program = compiled(
        stack.wrap(algorithm._replace(info=algorithm.info._replace(together=None))),
        stack.keys(3),
        setup.agents.params,
    )
    together = program(first, setup.agents.params, None)[0]
    _, single = compiled(algorithm, jax.random.key(3), setup.agents.rules[0])
    for number in (0, 3):
        rules = setup.agents.rules[number]
        alone = single(jax.jit(algorithm.init)(jax.random.key(3 + number % 2), rules), rules, None)[
            0
        ]
        found = stack.agent(together, number)
        for (path, a), b in zip(
            jax.tree_util.tree_flatten_with_path(found)[0], jax.tree.leaves(alone), strict=True
        ):
            if jnp.issubdtype(b.dtype, jnp.floating):
                np.testing.assert_allclose(
                    a, b, rtol=1e-6, atol=1e-6, err_msg=jax.tree_util.keystr(path)
                )
            else:
                assert_same(a, b)
    one, all_of_them = (each.memory_analysis().temp_size_in_bytes for each in (single, program))
    assert all_of_them <= 1.05 * stack.count * one
    of_bars = {setup.market.num_bars, stack.count * setup.market.num_bars}
    assert shapes_of(program, of_bars) <= shapes_of(single, of_bars)


def shapes_of(program, sizes):
    """The shapes in a compiled program that have an axis of one of these sizes."""
    return {
        dims
        for dims in re.findall(r"\[([0-9,]+)\]", program.as_text())
        if sizes & {int(size) for size in dims.split(",")}
    }
