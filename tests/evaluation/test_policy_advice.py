"""A loaded policy takes advice as an argument, and then acts as the run's own evaluation does with
that advice.
"""

import functools
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import sections_of
from jaxtrade.advisor.table import AdviceTable, make_view, session_starts
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import make_sampling_agent
from jaxtrade.evaluation.loaded_policy import panel_seen
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.networks import distributions
from jaxtrade.rl.advice import GATE, Trust, make_fusion
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.storage import checkpoint
from tests.evaluation.test_policy import PPO
from tests.evaluation.tiny import TWO_DAYS as MARKET
from tests.evaluation.tiny import lively, observed, setup

pytestmark = pytest.mark.slow


TRUST = Trust(jnp.array([1.5, -2.0, 0.0, 0.7, 2.0]))


# N decisions of an evaluation: what the policy saw, what was held and advised, and its own
# probabilities.
Decisions = namedtuple("Decisions", "observations masks sides advice given own actions")


def view():
    """Random advice about two of three bars, one bar late."""
    rng, size = np.random.default_rng(3), MARKET.data.close.shape[0]
    rows = rng.uniform(0.0, 1.0, (size, 6)).astype(np.float32)
    rows[:, :3] = np.eye(3, dtype=np.float32)[rng.integers(0, 3, size)] * 2
    version = (rng.random(size) < 2 / 3).astype(np.int32)
    table = AdviceTable(
        jnp.asarray(np.where(version[:, None] > 0, rows, 0)), jnp.asarray(version), jnp.int32(1)
    )
    sessions = MARKET.data.sessions
    return make_view(table, session_starts(sessions.first, sessions.last, size), (1,), 0, 30)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`make`, once for each fusion and its keys."""
    return functools.cache(
        lambda fusion, **keys: make(tmp_path_factory.mktemp("policy"), fusion, **keys)
    )


def make(folder, fusion, **keys):
    """An untrained policy with lively outputs, saved as a run would; and an evaluation of it with
    advice.
    """
    sections = sections_of(PPO) | {"advisor": {"kind": "none", "fusion": fusion, **keys}}
    env, params, config = setup(MARKET, MARKET.every, **sections)
    params = params.replace(advice=view())
    made = make_fusion(config.advisor, config.env)
    algorithm, policy = make_ppo(config, env, 1, fusion=made), lively(config, env, 30, made)
    if GATE in policy.parameters:
        gate = jax.tree.map(lambda x: 5 * x, policy.parameters[GATE])
        policy = policy.replace(parameters=policy.parameters | {GATE: gate})
    policy = policy.replace(fusion=TRUST)
    save_policy_bundle(folder / "policy", policy, env, MARKET, config)
    record = backtest(
        env,
        make_sampling_agent(algorithm, policy, env),
        params,
        decision_bars(MARKET.data, MARKET.every),
        "strategy",
        jax.random.key(2),
    )
    act = jax.jit(algorithm.act, static_argnums=5)
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], record.ref) for i in range(59)]
    extras = [act(policy, None, ref, params, None, False)[2] for ref in each]
    seen = jax.tree.map(lambda leaf: np.asarray(leaf[:59]), record.ref.aux)
    names = ("direction", "confidence", "risk", "age")
    return folder, Decisions(
        observed(env, record, params)[:59],
        record.mask[:59],
        np.sign(np.asarray(record.ref.legs)[:59, 0, 0]),
        {name: getattr(seen, name) for name in names},
        seen.valid,
        np.stack([distributions.probs(one.logits, one.mask) for one in extras]),
        [
            int(act(policy, None, ref, params, jax.random.key(i), True)[1])
            for i, ref in enumerate(each)
        ],
    )


@pytest.mark.parametrize("fusion", ["trust", "gate", "rules"])
def test_with_the_same_advice_it_has_the_probabilities_of_the_evaluation(made, fusion):
    path, found = made(fusion)
    loaded = load_policy(path)
    assert loaded.listens
    assert 20 < found.given.sum() < 59
    assert set(found.sides) == {-1, 0, 1}
    for i, given in enumerate(found.given):
        advice = {name: float(values[i]) for name, values in found.advice.items()}
        told = {"advice": advice, "side": int(found.sides[i])} if given else {}
        seen = found.observations[i], found.masks[i]
        mine = loaded.probabilities(*seen, **told)
        np.testing.assert_allclose(mine, found.own[i], rtol=1e-5, atol=1e-7)
        assert loaded.act(*seen, True, jax.random.key(i), **told) == found.actions[i]


def test_advice_matters_and_a_batch_is_its_rows(made):
    path, found = made("trust")
    loaded, rows = load_policy(path), np.flatnonzero(found.given)
    seen = found.observations[rows], found.masks[rows]
    told = {
        "advice": {name: values[rows] for name, values in found.advice.items()},
        "side": found.sides[rows],
    }
    batch = loaded.probabilities(*seen, **told)
    np.testing.assert_allclose(batch, found.own[rows], rtol=1e-5, atol=1e-7)
    assert np.abs(loaded.probabilities(*seen) - batch).max() > 0.05
    assert np.asarray(loaded.act(*seen, **told)).tolist() == batch.argmax(axis=1).tolist()
    drawn = loaded.act(*seen, True, jax.random.key(0), **told)
    assert found.masks[rows, drawn].all()


def test_the_veto_acts_in_a_loaded_policy(made):
    path, found = made("none", veto=0.5)
    loaded = load_policy(path)
    flat = int(np.flatnonzero(found.masks[:, 1])[0])
    seen = found.observations[flat], found.masks[flat]
    risky = {"direction": 1, "confidence": 0.9, "risk": 0.6}
    assert loaded.probabilities(*seen)[1] > 0
    assert loaded.probabilities(*seen, advice=risky, side=0)[1:3].max() == 0


@pytest.fixture(scope="module")
def trusting(made):
    return load_policy(made("trust")[0])


GOOD = {"direction": 1, "confidence": 0.7}


@pytest.mark.parametrize(
    ("advice", "side", "message"),
    [
        (GOOD, None, "side is missing"),
        ({"direction": 1}, 0, "confidence is missing"),
        ({"confidence": 0.5}, 0, "direction is missing"),
        (
            {**GOOD, "horizon": 3},
            0,
            "'horizon', .*confidence, risk, age",
        ),
        (
            {**GOOD, "direction": "long"},
            0,
            r"'long', .* -1 to 1 ",
        ),
        ({**GOOD, "direction": 0.5}, 0, "direction is 0.5, .* -1 to 1"),
        ({**GOOD, "confidence": 1.5}, 0, "confidence is 1.5, .* 0 to 1"),
        ({**GOOD, "risk": float("nan")}, 0, "risk is nan, .* 0 to 1"),
        ({**GOOD, "age": -1}, 0, "age is -1, .* 0 to inf"),
        (
            {**GOOD, "confidence": [0.5, 0.6]},
            0,
            r"confidence has shape \(2,\)",
        ),
        (GOOD, 2, "side is 2, .* -1 to 1"),
        ([GOOD, None], 0, "advice is a list"),
    ],
)
def test_wrong_advice_is_refused(trusting, advice, side, message):
    size, actions = len(trusting.observation_names), len(trusting.action_names)
    with pytest.raises(ValueError, match=message):
        trusting.act(np.zeros(size), np.ones(actions, bool), advice=advice, side=side)


def test_advice_of_a_panel_is_a_list_with_every_member():
    seen = panel_seen([GOOD, None, {"direction": [-1, 1], "confidence": 0.5}], 3, (2,))
    assert seen.each is not None
    assert seen.each.version.tolist() == [[1, 0, 1]] * 2
    assert seen.each.direction.tolist() == [[1, 0, -1], [1, 0, 1]]
    np.testing.assert_allclose(
        seen.confidence, [0.1, 0.6], rtol=1e-5
    )  # |0.7 - 0.5| / 2, (0.7 + 0.5) / 2
    assert seen.direction.tolist() == [1, 1]
    for wrong, found in ((GOOD, "one mapping"), ([GOOD], "1 entries")):
        with pytest.raises(ValueError, match=f"advice holds {found}; .* a list of 3 entries"):
            panel_seen(wrong, 3, ())


def test_a_bundle_from_before_advisors_acts_as_before(tmp_path, trusting):
    """It names no advisor and holds no trust."""
    schema = {name: part for name, part in trusting.schema.items() if name != "advisor"}
    checkpoint.save_policy(tmp_path / "policy", trusting.policy.replace(fusion=None), schema)
    old = load_policy(tmp_path)
    assert not old.listens
    seen = np.ones(len(old.observation_names)), np.ones(7, bool)
    np.testing.assert_array_equal(old.probabilities(*seen), trusting.probabilities(*seen))
    with pytest.raises(ValueError, match=r"no advice beside"):
        old.act(*seen, advice=GOOD, side=0)
