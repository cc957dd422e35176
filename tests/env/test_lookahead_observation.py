"""Trailing stops and observations do not depend on later bars."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.episode import AccountSeen
from jaxtrade.env.state import NO_LEVEL, ObservationRef, Position, bits_of
from tests.env import worlds
from tests.env.test_lookahead import (
    STEPS,
    LeakyTrailEnv,
    LeakyWindowEnv,
    changed_after,
    hand_cuts,
    walk,
)
from tests.env.worlds import i32, leaves_differ, make_params


def trailing_position(env, params, row, side):
    """At the close of `row` in a position whose stop trails, and has not moved yet: the next bar
    tightens it.
    """
    entry = int(params.market.close[row])
    state = env.reset_at(params, 1, row)
    return state.replace(
        position=Position(*map(i32, (side, entry, -side * NO_LEVEL, side * NO_LEVEL, 0, 1, row)))
    )


def trails_differ(env, cut, side, before):
    """Does a stop that trails from `before` bars before `cut` on depend on bars after it? Nothing
    else is decided.
    """
    full, changed = changed_after(cut, env, two_sided=False)
    start = trailing_position(env, full, cut - before, side)
    runs = [walk(env, params, start, jnp.zeros(STEPS))["state"] for params in (full, changed)]
    assert int(runs[0].position.trailing[1]) == 1, (
        "the stop was hit at once: this cut shows nothing"
    )
    return (
        leaves_differ(*(jax.tree.map(lambda x: np.asarray(x)[: before + 1], run) for run in runs))
        != []
    )


@pytest.mark.parametrize("side", [1, -1])
def test_a_trailing_stop_does_not_depend_on_later_bars(side):
    """Held from one or two bars before each cut, so that the last known bar moves the stop, or
    may.
    """
    env = TradingEnv(EnvConfig())
    assert not any(
        trails_differ(env, cut, side, before) for cut in hand_cuts(12) for before in (1, 2)
    )
    assert sum(trails_differ(LeakyTrailEnv(env.config), cut, side, 1) for cut in hand_cuts(12)) >= 6


def nothing_seen(task, *shape):
    """An account's part of references that show a new account."""
    return AccountSeen(*[jnp.zeros(shape, jnp.int32)] * 8) if task == "advised" else None


# ---- the Jacobian of the observation


def jacobian_rows(env, row):
    """bool[T]: rows of the float view on which the observation at `row` depends, by automatic
    differentiation.
    """
    bars = worlds.random_bars(5, 64)
    task = env.config.task
    params = make_params(
        worlds.make_market(
            bars,
            [worlds.Session(0, 64, 30, 60)],
            scaling=env.config.scaling,
            context=task == "advised",
        )
    )
    close = int(bars.close[row])
    leg = i32([[1, close - 7, close - 20, close + 33, 4]])
    ref = ObservationRef(
        i32([row]),
        leg,
        nothing_seen(task),
        bits_of(jnp.ones(env.num_actions, bool)),
        None,
        env.num_actions,
    )

    def observe(view):
        return env.observe(ref, params.replace(market=params.market.replace(view=view)))

    parts = [
        np.asarray(part)
        for part in jax.tree.leaves(jax.jit(jax.jacrev(observe))(params.market.view))
    ]
    assert all(part.shape[:2] == (env.observation_size, len(bars.close)) for part in parts)
    assert all(np.isfinite(part).all() for part in parts)
    return np.any([(part != 0).any(axis=(0, 2)) for part in parts], axis=0)


@pytest.mark.parametrize("scaling", ["relative", "seed"])
@pytest.mark.parametrize("task", ["entry", "manage", "advised"])
def test_jacobian_is_zero_after_the_decision_bar(task, scaling):
    env = TradingEnv(EnvConfig(task=task, scaling=scaling))  # type: ignore[arg-type]
    for row in (30, 41, 60):
        depends = jacobian_rows(env, row)
        assert depends[row - 20 : row + 1].all(), "a bar of the window is not seen at all"
        assert not depends[row + 1 :].any()
        assert not depends[: row - 20].any()


@pytest.mark.parametrize("scaling", ["relative", "seed"])
def test_the_jacobian_finds_a_planted_leak(scaling):
    depends = jacobian_rows(LeakyWindowEnv(EnvConfig(scaling=scaling)), 41)  # type: ignore[arg-type]
    assert depends[42]
    assert not depends[43:].any()
