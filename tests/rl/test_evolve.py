"""Population-based training: who is replaced by whom, what is copied, settings, the file, what is
refused.
"""

import copy
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.config import make_config
from jaxtrade.config.sweep import find_tied_ends
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.rl import evolve
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.evolve import (
    Rules,
    decide,
    event_key,
    exploit_parts,
    parts_of,
    replay,
    row_of,
    winner_of,
    with_parts,
)
from jaxtrade.training.population import Stack
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_same

RULES = Rules(
    {"learning_rate": (1e-4, 1e-2), "gamma": (0.9, 0.999)},
    {"learning_rate_end": ("learning_rate", 0.1)},
    0.25,
    1.2,
    0.25,
)
ENV = Probe((lambda ref, action: ref.cue * action,))
PARAMS = probe_params(length=5)
N = 8


def config_of(algorithm="ppo", **evolving):
    rate = f"{algorithm}.learning_rate"
    return make_config(
        {
            "algorithm": algorithm,
            "seed": 5,
            "rollout": {"num_envs": 8, "num_steps": 4, "num_shards": 2},
            "network": {"hidden": [4]},
            "train": {"num_seeds": N},
            "split": {"validation_sessions": 1},
            "evolve": {"keys": {rate: [1e-4, 1e-2]}, "every": 1} | evolving,
        }
        | (
            {
                "dqn": {
                    "buffer_size": 64,
                    "batch_size": 16,
                    "replay_ratio": 0.5,
                    "learning_starts": 0,
                }
            }
            if algorithm == "dqn"
            else {"ppo": {"num_minibatches": 1}}
        )
    )


@jax.jit
def decided(scores, finite, floats, key):
    return decide(scores, finite, floats, key, RULES)


def floats_of(seed=0):
    random = np.random.default_rng(seed)
    return {
        name: random.uniform(*bounds, N).astype(np.float32) for name, bounds in RULES.ranges.items()
    }


def source_of(scores, finite=None, update=1):
    alive = np.ones(N, bool) if finite is None else np.array(finite)
    return decided(
        np.asarray(scores, np.float32), alive, floats_of(), event_key(0, update)
    ).source.tolist()


# --- who goes on from whom --------------------------------------------------------------------------------------------


def test_ties_are_decided_by_the_index():
    """All scores are equal: agents 0 and 1 count as the best, 6 and 7 as the worst."""
    source = source_of([1.0] * N)
    assert source[:6] == [0, 1, 2, 3, 4, 5]
    assert set(source[6:]) <= {0, 1}


def test_an_agent_that_is_not_finite_is_always_replaced():
    """Agent 4 has the best score and NaN among its parameters, 0, 1 and 2 have no score."""
    finite = [i != 4 for i in range(N)]
    source = source_of([np.nan, np.inf, -np.inf, 4, 9, 5, 6, 2], finite)
    assert {source[i] for i in (0, 1, 2, 4)} <= {6, 5}
    assert [source[i] for i in (3, 5, 6, 7)] == [
        3,
        5,
        6,
        7,
    ]  # the other four are the finite ones: all are kept


def test_a_single_finite_agent_is_copied_by_all_and_without_one_nobody_is_replaced():
    assert source_of([np.nan] * 7 + [-3.0]) == [7] * N
    assert source_of([np.nan] * N) == list(range(N))


@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0, np.nan]), min_size=N, max_size=N),
    update=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_who_is_kept_and_who_is_copied(scores, update):
    """Against a reference in Python: the order by (-score, index), the share at its ends, settings
    in their ranges.
    """
    before = floats_of(update)
    found = jax.device_get(
        decided(np.asarray(scores, np.float32), np.ones(N, bool), before, event_key(3, update))
    )
    alive = [i for i in range(N) if np.isfinite(scores[i])]
    order = sorted(alive, key=lambda i: (-scores[i], i)) + [i for i in range(N) if i not in alive]
    gone = ({*order[-2:]} | ({*range(N)} - {*alive})) if alive else set()
    for i, source in enumerate(found.source.tolist()):
        assert source in ({*order[: min(2, len(alive))]} if i in gone else {i})
        for name, (low, high) in RULES.ranges.items():
            after, own = found.floats[name][i], before[name][i]
            assert after == own if i not in gone else np.float32(low) <= after <= np.float32(high)


def test_settings_are_perturbed_or_drawn_anew():
    """Of many replaced agents about a quarter draws anew; half of the others multiplies, half
    divides.
    """
    before = {"learning_rate": np.full(N, 1e-3, np.float32), "gamma": np.full(N, 0.95, np.float32)}
    after = np.concatenate(
        [
            decided(
                np.arange(N, dtype=np.float32), np.ones(N, bool), before, event_key(1, u)
            ).floats["learning_rate"][:2]
            for u in range(300)
        ]
    )
    up, down = np.isclose(after, 1.2e-3, rtol=1e-5), np.isclose(after, 1e-3 / 1.2, rtol=1e-5)
    anew = ~up & ~down
    assert 0.30 < up.mean() < 0.45  # 0.375 +- 4 standard errors of 600 draws
    assert 0.30 < down.mean() < 0.45
    assert 0.18 < anew.mean() < 0.32
    assert (
        0.4 < (after[anew] < 1e-3).mean() < 0.6
    )  # even in the logarithm: half lie below the middle, 1e-3


# --- what is copied ---------------------------------------------------------------------------------------------------


def filled(config):
    """A first state of N agents, of which every array but keys and settings is filled with other
    numbers, as if they had trained."""
    agents, random = Stack.of(N).wrap(make_algorithm(config, ENV, 4)), np.random.default_rng(0)
    state = jax.jit(agents.init)(Stack.of(N).keys(5), PARAMS)

    def other(x):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x
        drawn = (
            random.integers(0, 2, x.shape) if x.dtype == bool else random.uniform(1, 99, x.shape)
        )
        return jnp.asarray(drawn, x.dtype)

    return jax.tree.map(other, state).replace(hparams=state.hparams)


def exploit(state, scores, key, rules):
    """An event of a whole state, as a run computes it."""
    parts, lineage = exploit_parts(parts_of(state), scores, key, rules)
    return with_parts(state, parts), lineage


@pytest.fixture(scope="module", params=["ppo", "dqn"])
def event(request):
    """(state before, state after, lineage) of an event."""
    config = config_of(request.param)
    state = filled(config)
    scores = jnp.array([3.0, 8, 1, 4, 9, 5, 6, 2])
    program = jax.jit(partial(exploit, rules=evolve.rules_of(config)))
    return state, *program(state, scores, event_key(5, 1))


def test_what_was_learnt_is_copied_and_the_rest_stays(event):
    before, after, lineage = event
    source = lineage.decision.source.tolist()
    stack = Stack.of(N)
    assert {source[2], source[7]} <= {4, 1}
    for i, donor in enumerate(source):
        old, new, other = stack.agent(before, i), stack.agent(after, i), stack.agent(before, donor)
        for part in ("params", "opt_state", "normaliser"):
            assert_same(getattr(new, part), getattr(other, part))
        assert_same(new.rewards.stats, other.rewards.stats)
        assert_same(new.rewards.running, old.rewards.running)
        for part in ("env_state", "ref", "first", "episodes", "key", "update", "rollbacks"):
            assert_same(getattr(new, part), getattr(old, part))
        if old.own is not None:
            assert_same(new.own.target, other.own.target)
            assert_same(new.own.replay, old.own.replay)


def test_a_schedule_keeps_its_shape(event):
    before, after, lineage = event
    np.testing.assert_allclose(
        after.hparams.learning_rate_end, after.hparams.learning_rate * np.float32(0.1), rtol=1e-6
    )
    changed = np.asarray(lineage.decision.source) != np.arange(N)
    assert (
        np.asarray(after.hparams.learning_rate != before.hparams.learning_rate) == changed
    ).all()
    np.testing.assert_array_equal(after.hparams.gamma, before.hparams.gamma)


def test_agents_begin_with_settings_of_their_own(event):
    """Even in the logarithm, from the agent's seed: the same agent alone draws the same."""
    before, _, _ = event
    rates = np.asarray(before.hparams.learning_rate)
    assert len(set(rates.tolist())) == N
    assert ((rates >= np.float32(1e-4)) & (rates <= np.float32(1e-2))).all()


def test_a_memory_begins_anew_and_older_policies_are_copied():
    values = config_of().model_dump(mode="json")
    values["network"] |= {"kind": "gru", "rnn_width": 4}
    values["actor"] |= {"delay": 1}
    config = make_config(values)
    state = filled(config)
    program = jax.jit(partial(exploit, rules=evolve.rules_of(config)))
    after, lineage = program(state, jnp.arange(N, dtype=jnp.float32), event_key(5, 1))
    assert np.abs(state.carry).max(axis=(1, 2)).min() > 0
    assert (np.asarray(after.carry[:2]) == 0).all()
    np.testing.assert_array_equal(after.carry[2:], state.carry[2:])
    source = np.asarray(lineage.decision.source)
    jax.tree.map(
        lambda new, old: np.testing.assert_array_equal(new, np.asarray(old)[source]),
        after.actor,
        state.actor,
    )


# --- the file ---------------------------------------------------------------------------------------------------------


def rows_of(config, events=3):
    random, rules = np.random.default_rng(0), evolve.rules_of(config)
    before: dict[str, Any] = {"learning_rate": random.uniform(1e-4, 1e-2, N).astype(np.float32)}
    rows = []
    for update in range(1, events + 1):
        scores, finite = random.normal(size=N).astype(np.float32), jnp.ones(N, bool)
        decision = decide(
            jnp.asarray(scores), finite, before, event_key(config.seed, update), rules
        )
        rows.append(
            row_of(update, scores, jax.device_get(evolve.Lineage(finite, before, decision)))
        )
        before = {name: np.asarray(value) for name, value in decision.floats.items()}
    last = [0.5, None, 2.0, 2.0, -1.0, 0, 0, 0]
    return [*rows, {"update": events + 1, "event": "final", "scores": last, "winner": 2}]


@pytest.mark.slow
def test_the_file_gives_the_same_decisions_and_the_winner():
    """A file that was changed is found out."""
    config = config_of()
    rows = rows_of(config)
    assert replay(rows, config) == 2
    with pytest.raises(DataError, match="'final'"):
        replay(rows[:-1], config)
    worst = int(np.argmin(rows[1]["scores"]))
    for fault in ("source", "after", "scores"):
        changed = copy.deepcopy(rows)
        if fault == "after":
            changed[1]["after"]["learning_rate"][worst] *= 1.01
        elif fault == "source":
            changed[1]["source"][worst] = worst
        else:
            changed[1]["scores"] = [-score for score in rows[1]["scores"]]
        with pytest.raises(DataError, match="update 2"):
            replay(changed, config)


def test_without_a_score_there_is_no_winner():
    assert winner_of([None, float("nan")]) is None


# --- configuration ----------------------------------------------------------------------------------------------------


def test_both_ends_of_a_schedule_may_evolve_on_their_own():
    keys = {"ppo.learning_rate": [1e-4, 1e-2], "ppo.ent_coef": [1e-3, 0.1]}
    assert find_tied_ends(config_of(keys=keys)) == {
        "learning_rate_end": ("learning_rate", pytest.approx(0.1)),
        "ent_coef_end": ("ent_coef", 1.0),
    }  # no end: it stays constant
    assert find_tied_ends(
        config_of(keys=keys | {"ppo.learning_rate_end": [1e-5, 1e-3]})
    ).keys() == {"ent_coef_end"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"evolve": {"every": 2}}, r"evolve\.every=2: .*evolve\.keys"),
        (
            {"evolve": {"keys": {"ppo.num_epochs": [1, 2]}}},
            "num_epochs .*adapter_freeze, ",
        ),
        (
            {"evolve": {"keys": {"dqn.gamma": [0.9, 0.99]}}},
            r"dqn\.gamma .*algorithm=ppo",
        ),
        (
            {"evolve": {"keys": {"ppo.gamma": [0.9, 1.5]}}},
            r"ppo\.gamma=1\.5: .*equal to 1",
        ),
        (
            {"evolve": {"keys": {"ppo.ent_coef": [0, 0.1]}}},
            r"\[0, 0\.1\]: .*low <= high",
        ),
        (
            {"evolve": {"keys": {"ppo.gamma": [0.9, 0.99]}, "every": 1}},
            r"train\.num_seeds .*--population",
        ),
        (
            {"evolve": {"keys": {"ppo.gamma": [0.9, 0.99]}, "every": 1}, "train": {"num_seeds": 4}},
            r"split\.validation_sessions=1",
        ),
        (
            {"algorithm": "dqn", "evolve": {"keys": {"dqn.tau": [0.1, 0.2]}}},
            "with dqn.tau=0",
        ),
    ],
)
def test_what_cannot_evolve_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        make_config(values)
