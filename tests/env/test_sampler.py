"""Samplers: which symbol and session an episode starts in. Counts against what each rule says, by
chi-square.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxtrade.env.episode import below, draw, start_drawn
from jaxtrade.env.sampler import balanced, prioritised, register_sampler, round_robin, uniform
from jaxtrade.errors import ConfigError
from jaxtrade.parts import SAMPLERS
from jaxtrade.types import SessionSet
from tests.env import worlds
from tests.env.sets import synthetic, world

COUNTS = (50, 5, 20, 1)  # sessions of four symbols, of unequal history
OFFSETS = np.concatenate([[0], np.cumsum(COUNTS)])
TOTAL = int(OFFSETS[-1])
ENVS, EPISODES = 512, 64
SMALLEST = 1e-4  # of a p-value; the draws are fixed, so the tests cannot fail by chance later


def sessions(several=True):
    return SessionSet(
        jnp.arange(TOTAL, dtype=jnp.int32),
        jnp.int32(TOTAL),
        jnp.asarray(OFFSETS, jnp.int32) if several else None,
    )


def slots(sampler, weights=None, split=None):
    """int[ENVS, EPISODES]: the slots of the first episodes of some environments."""
    split = sessions() if split is None else split
    seeds = jax.random.bits(jax.random.key(0), (ENVS,))

    def one(seed, episode):
        return sampler(weights, seed, episode, split)

    grid = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
    return np.asarray(grid(seeds, jnp.arange(EPISODES, dtype=jnp.int32)))


def symbols_of(found):
    return np.searchsorted(OFFSETS, found, side="right") - 1


def p_value(found, shares):
    counts = np.bincount(found.reshape(-1), minlength=len(shares))
    return stats.chisquare(counts, shares / shares.sum() * counts.sum()).pvalue


def assert_even_within_symbols(found):
    for number, count in enumerate(COUNTS[:3]):
        own = found[symbols_of(found) == number] - OFFSETS[number]
        assert p_value(own, np.ones(count)) > SMALLEST


def test_uniform_draws_every_session_equally_often_with_the_words_of_before():
    found = slots(uniform)
    assert p_value(found, np.ones(TOTAL)) > SMALLEST
    seed, episode = jax.random.bits(jax.random.key(0), (ENVS,))[7], jnp.int32(5)
    assert found[7, 5] == int(below(draw(seed, episode, 1), jnp.int32(TOTAL)))


def test_balanced_draws_every_symbol_and_every_session_of_it_equally_often():
    found = slots(balanced)
    assert p_value(symbols_of(found), np.ones(4)) > SMALLEST
    assert_even_within_symbols(found)
    assert set(found.reshape(-1)) == set(range(TOTAL))  # every session is drawn


def test_round_robin_takes_the_symbols_in_turn_from_a_start_of_each_environment():
    drawn = slots(round_robin)
    found = symbols_of(drawn)
    assert (np.diff(found, axis=1) % 4 == 1).all()
    assert p_value(found[:, 0], np.ones(4)) > SMALLEST
    assert_even_within_symbols(drawn)


@pytest.mark.parametrize(
    "weights", [(1, 1, 1, 1), (8, 4, 2, 1), (0, 3, 0, 1), (1, 0, 0, 0), (2, 5, 1, 0)]
)
def test_prioritised_draws_symbols_by_their_weights(weights):
    found = symbols_of(slots(prioritised, jnp.float32(weights)))
    wanted = np.array(weights, float)
    assert not np.isin(found, np.flatnonzero(wanted == 0)).any()
    drawn = wanted > 0
    if drawn.sum() > 1:
        places = np.cumsum(drawn) - 1
        assert p_value(places[found], wanted[drawn]) > SMALLEST


def test_prioritised_without_weights_is_balanced():
    np.testing.assert_array_equal(slots(prioritised), slots(balanced))


@pytest.mark.parametrize("sampler", [balanced, round_robin, prioritised])
def test_with_one_symbol_every_sampler_is_uniform(sampler):
    np.testing.assert_array_equal(
        slots(sampler, split=sessions(False)), slots(uniform, split=sessions(False))
    )


def test_with_one_symbol_no_sampler_adds_an_operation():
    """The text of a step is the same, whatever the sampler."""
    params = world(synthetic(("NQ",))).params
    texts = {
        jax.jit(lambda seed, kind=kind: start_drawn(params, seed, jnp.int32(0), True, kind))
        .lower(jnp.uint32(0))
        .as_text()
        for kind in ("uniform", "balanced", "round_robin", "prioritised")
    }
    assert len(texts) == 1


def test_episodes_start_in_the_session_that_the_sampler_draws():
    """Two environments of one set: rows, sessions and symbols agree, in the order of a round."""
    both = world(synthetic(("NQ", "USDJPY")))
    params = both.params
    starts = jax.jit(
        jax.vmap(lambda episode: start_drawn(params, jnp.uint32(3), episode, True, "round_robin"))
    )(jnp.arange(6, dtype=jnp.int32))
    rows, table = np.asarray(starts.row), params.market.sessions
    symbols = np.asarray(params.market.symbol)[rows]
    assert (np.diff(symbols.astype(int)) != 0).all()
    ids = np.asarray(params.sessions.ids)[np.asarray(starts.slot)]
    assert ((rows >= np.asarray(table.first)[ids]) & (rows <= np.asarray(table.last)[ids])).all()


def test_a_sampler_of_ones_own_is_chosen_by_name():
    @register_sampler
    def always_the_last(weights, seed, episode, sessions):
        return sessions.count - 1

    config = synthetic(("NQ",), sampler={"kind": "always_the_last"})
    params = world(config).params
    state = start_drawn(params, jnp.uint32(0), jnp.int32(0), False, config.sampler.kind)
    assert int(state.slot) == int(params.sessions.count) - 1
    register_sampler(always_the_last)  # the same one again
    with pytest.raises(ConfigError, match="sampler 'uniform' exists already"):
        SAMPLERS.register("uniform", always_the_last)


def test_a_result_of_another_type_is_named(monkeypatch):
    monkeypatch.setattr(
        SAMPLERS, "_added", {"halves": lambda weights, seed, episode, sessions: jnp.float32(0.5)}
    )
    with pytest.raises(AssertionError, match="sampler 'halves'"):
        start_drawn(
            worlds.make_params(worlds.walk_market(sessions=2)),
            jnp.uint32(0),
            jnp.int32(0),
            True,
            "halves",
        )
