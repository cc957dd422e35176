"""Trailing stops, observations and the normaliser do not depend on later bars."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig, make_config
from jaxtrade.data.market import build_market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.record import AccountSeen
from jaxtrade.env.reference import ObservationRef, bits_of
from jaxtrade.env.state import NO_LEVEL, Position
from jaxtrade.networks.normalize import init_stats, merge, normalise
from tests.env import worlds
from tests.env.test_lookahead import (
    ALL_FEATURES,
    HAND_BARS,
    SESSIONS,
    STEPS,
    LeakyTrailEnv,
    LeakyWindowEnv,
    changed_after,
    config_for,
    cuts_of,
    hand_cuts,
    hand_params,
    perturbed,
    real_bars,
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


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["relative", "seed"])
@pytest.mark.parametrize("task", ["manage", "advised"])
def test_observations_of_real_bars_do_not_depend_on_later_bars(task, scaling):
    """From bars through features to the observation, over the bundled ES week."""
    bars = real_bars("ES")
    features = {"features": list(ALL_FEATURES)} if task == "manage" else {}
    config = make_config({"env": {"task": task, "scaling": scaling, **features}})
    env = TradingEnv(config.env)
    full = build_market(bars, config)
    observe = jax.jit(jax.vmap(env.observe, (0, None)))
    sessions = full.data.sessions
    decisions = np.concatenate(
        [
            np.arange(a, b + 1)
            for a, b in zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True)
        ]
    )
    for cut in cuts_of("ES", 6, seed=1):
        rows = decisions[decisions <= cut][-200:]
        other = build_market(perturbed(bars, cut), config)
        leg = jnp.tile(
            i32([1, int(bars.close[rows[0]]), int(bars.close[rows[0]]) - 30, 1 << 29, 3]),
            (200, 1, 1),
        )
        rows = np.resize(rows, 200)
        ref = ObservationRef(
            i32(rows)[:, None],
            leg,
            nothing_seen(task, 200),
            bits_of(jnp.ones((200, env.num_actions), bool)),
            (),
            env.num_actions,
        )
        seen = [observe(ref, make_params(market.data)) for market in (full, other)]
        assert np.isfinite(np.asarray(seen[0])).all()
        assert leaves_differ(*seen) == []


@pytest.mark.slow
@pytest.mark.parametrize("market", ["ES", "ES-roll", "EURUSD", "NQ"])
def test_every_decision_has_its_whole_window_in_the_past(market):
    """`observe` slices [t - window, t]: a decision nearer the start of the data than that would be
    shifted forward.
    """
    built = build_market(real_bars(market), config_for(market))
    assert int(np.asarray(built.data.sessions.first).min()) >= EnvConfig().window


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


# ---- the normaliser


def running(observations, batch=10):
    """Each batch normalised with the statistics of the batches up to and with it, as a learner
    does.
    """
    stats, out = init_stats(observations.shape[1]), []
    for part in observations.reshape(-1, batch, observations.shape[1]):
        stats = merge(stats, jnp.asarray(part))
        out.append(np.asarray(normalise(stats, jnp.asarray(part))))
    return np.concatenate(out)


def running_over_everything(observations):
    """The planted leak: statistics of the whole series, later rows included."""
    stats = merge(init_stats(observations.shape[1]), jnp.asarray(observations))
    return np.asarray(normalise(stats, jnp.asarray(observations)))


@functools.cache
def training_statistics():
    env = TradingEnv(EnvConfig())
    params = hand_params(worlds.random_bars(77, 640))
    start = env.reset_at(params, 0, int(params.market.sessions.first[0]))
    seen = walk(env, params, start, jax.random.uniform(jax.random.key(9), (STEPS,)))["observation"]
    return merge(init_stats(env.observation_size), seen)


def frozen(observations):
    """Evaluation: the statistics of training, whatever is observed now."""
    return np.asarray(normalise(training_statistics(), jnp.asarray(observations)))


@functools.cache
def observed(cut):
    """What a run over the hand-made market sees, with other bars after `cut`."""
    other = HAND_BARS if cut is None else worlds.random_bars(500 + cut, 640, price=20_200, step=12)
    env, params = (
        TradingEnv(EnvConfig()),
        hand_params(worlds.replace_after(HAND_BARS, cut or 0, other)),
    )
    run = walk(
        env,
        params,
        env.reset_at(params, 1, int(SESSIONS[1].first)),
        jax.random.uniform(jax.random.key(4), (STEPS,)),
    )
    return np.asarray(run["observation"])


def normalised_prefix_differs(apply, cut, batch=10):
    first = int(SESSIONS[1].first)
    seen = [apply(observed(None)), apply(observed(cut))]
    known = (
        (cut - first + 1) // batch * batch
    )  # whole batches of rows <= cut: the last one may not be full yet
    assert known > 0
    assert not np.array_equal(seen[0], seen[1]), "the perturbation changed nothing at all"
    return seen[0][:known].tobytes() != seen[1][:known].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("apply", [running, frozen])
def test_normalised_observations_do_not_depend_on_later_bars(
    apply,
):
    first = SESSIONS[1].first
    assert not any(
        normalised_prefix_differs(apply, first + offset) for offset in (15, 28, 44, 61, 90)
    )


def test_a_normaliser_fitted_on_later_rows_is_found():
    first = SESSIONS[1].first
    assert all(
        normalised_prefix_differs(running_over_everything, first + offset)
        for offset in (15, 44, 90)
    )
