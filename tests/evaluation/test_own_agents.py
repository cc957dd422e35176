"""An agent of any function of the observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrade
from jaxtrade.env.tasks.base import HOLD
from tests.evaluation.tiny import TWO_DAYS, evaluated, setup
from tests.messages import refused


@pytest.fixture(scope="module")
def bar():
    """The environment, and what `act` is given at the first decision bar."""
    env, params, _ = setup(TWO_DAYS, TWO_DAYS.every)
    state = env.reset_at(params, jnp.int32(0), TWO_DAYS.data.sessions.first[0])
    return env, (state, env.ref(state, params), params, jax.random.key(3))


def chosen(bar, function, **how):
    env, given = bar
    _, order, action = jaxtrade.agent(function, **how).on(env).act(None, *given)
    return int(action), int(order.quantity)


def test_it_is_given_what_it_asks_for(bar):
    env, (_, ref, params, key) = bar
    seen = {}

    def function(what, key, mask):
        seen.update(what=what, key=key, mask=mask)
        return 1

    assert chosen(bar, function) == (1, env.config.quantity)
    np.testing.assert_array_equal(seen["what"], env.observe(ref, params))
    np.testing.assert_array_equal(seen["mask"], ref.mask)
    assert (seen["key"] == key).all()


def test_an_illegal_action_holds(bar):
    env, _ = bar
    close = env.actions.index("CLOSE")
    assert chosen(bar, lambda seen: close) == (close, 0)
    illegal = int(np.argmin(bar[1][1].mask))  # any other number counts as an illegal action
    assert chosen(bar, lambda seen: 99) == (illegal, 0)
    assert chosen(bar, lambda seen: -1) == (illegal, 0)
    assert HOLD == 0


def rising(seen):
    return jnp.where(seen[0] > seen[11], 2, 1)


def on_host(seen):
    assert isinstance(seen, np.ndarray)
    return 2 if seen[0] > seen[11] else 1


def test_a_function_on_the_host_is_called_for_each_bar(bar):
    env, (state, ref, params, _) = bar
    act = jaxtrade.agent(lambda seen, key: int(key[-1]) % 7, name="host", host=True).on(env).act
    keys = jax.random.split(jax.random.key(0), 5)
    made = jax.jit(jax.vmap(lambda key: act(None, state, ref, params, key)[2]))(keys)
    assert made.tolist() == [int(words[-1]) % 7 for words in jax.random.key_data(keys)]


@pytest.mark.slow
def test_a_function_on_the_host_trades_as_a_compiled_one():
    result = evaluated(
        TWO_DAYS,
        lambda env: jaxtrade.agent(rising),
        lambda env: jaxtrade.agent(on_host, name="slow", host=True),
    )
    figures = result.figures
    assert figures.loc[("strategy", "trades"), "rising"] > 0
    assert figures["rising"].equals(figures["slow"])


@pytest.mark.parametrize(
    "function",
    [
        lambda seen: np.sign(np.asarray(seen)[0]),
        lambda seen: 2 if seen[0] > 0 else 1,
        lambda seen: int(seen[0]),
    ],
)
def test_a_function_that_needs_numbers_is_told_of_the_host(bar, function):
    env, given = bar
    act = jaxtrade.agent(function, name="mine").on(env).act
    with refused("'mine'", "host=True", "jnp.where"):
        jax.jit(lambda *given: act(None, *given)[2])(*given)


@pytest.mark.parametrize(
    ("answer", "found"), [(0.5, "float"), (jnp.zeros(7), "[7]"), (True, "bool")]
)
def test_anything_but_one_whole_number_is_refused(bar, answer, found):
    with refused("'<lambda>'", "CLOSE", found):
        chosen(bar, lambda seen: answer)


def test_unknown_parameters_are_refused():
    with refused("(seen, memory)", "`mask`", "`key`"):
        jaxtrade.agent(lambda seen, memory: 0)
    with refused("'nothing'"):
        jaxtrade.agent(lambda: 0, name="nothing")
