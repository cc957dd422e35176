"""How advice meets the policy: probabilities by hand, the old rules by brute force, masks that only
shrink.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.advisor.table import AdviceSeen
from jaxtrade.config import AdvisorConfig, EnvConfig
from jaxtrade.env.actions import Action
from jaxtrade.env.state import ObservationRef, bits_of
from jaxtrade.networks import distributions
from jaxtrade.rl.advice import (
    GATE,
    Trust,
    advised_action,
    exposure,
    make_fusion,
    rule_mixture,
    side_after,
)

ENV = EnvConfig()
FLAT = jnp.array([True, True, True, False, False, False, False])
LONG = jnp.array([True, False, False, True, True, False, True])
LOGITS = jnp.array([0.3, -0.2, 0.1, 0.5, -0.4, 0.0, 0.2])
SIDES = {"buy": [0.0, 2.0, 0.0], "sell": [0.0, 0.0, 2.0], "hold": [2.0, 0.0, 0.0]}


def ref_of(side, advice, confidence=0.7, risk=0.2):
    mask = LONG if side else FLAT
    given = advice is not None
    seen = AdviceSeen(
        jnp.array([*SIDES[advice], confidence, risk, 1.0] if advice else [0.0] * 6, jnp.float32),
        jnp.int32(given),
    )
    return ObservationRef(
        jnp.array([5]), jnp.array([[side, 0, 0, 0, 0]]), None, bits_of(mask), seen, 7
    )


def fusion_of(kind, **more):
    made = make_fusion(AdvisorConfig.model_validate({"kind": "none", "fusion": kind, **more}), ENV)
    assert made is not None
    return made


def terms_of(fusion, ref, odds):
    return fusion.terms(Trust(jnp.full(5, odds)), ref)


def fused(kind, ref, odds=0.8, **more):
    fusion = fusion_of(kind, **more)
    parameters = fusion.init(jax.random.key(0), 4)
    made = fusion.fuse(terms_of(fusion, ref, odds), parameters, jnp.ones(4), ref, LOGITS, ref.mask)
    return np.asarray(distributions.probs(made.logits, made.mask)), np.asarray(made.mask)


def test_off_compiles_nothing():
    assert make_fusion(AdvisorConfig(), ENV) is None


def test_exposure_is_the_side_held_after_the_action():
    assert exposure(ENV, jnp.int32(0)).tolist() == [0, 1, -1, 0, 0, 0, 0]
    assert side_after(ENV, jnp.arange(7), jnp.int32(-1)).tolist() == [-1, 1, -1, -1, -1, -1, 0]
    assert len(exposure(EnvConfig(task="entry"), jnp.int32(0))) == 3


@pytest.mark.parametrize("odds", [0.8, -0.8])
def test_trust_multiplies_the_odds_of_long_against_short(odds):
    """An advisor that is mostly wrong is turned round."""
    plain, before = (np.asarray(distributions.probs(LOGITS, mask)) for mask in (FLAT, LONG))
    for advice, sign in (("buy", 1), ("sell", -1), ("hold", 0), (None, 0)):
        p, mask = fused("trust", ref_of(0, advice), odds=odds)
        held, _ = fused("trust", ref_of(1, advice), odds=odds)
        factors = [p[1] / p[2], p[1] / p[0], held[6] / held[0]]
        unmoved = [plain[1] / plain[2], plain[1] / plain[0], before[6] / before[0]]
        moved = np.exp(odds * sign * np.array([1, 0.5, -0.5]))
        np.testing.assert_allclose(factors, unmoved * moved, rtol=1e-5)
        assert mask.tolist() == FLAT.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trust", "gate", "rules", "slots", "none"])
def test_absent_advice_changes_no_bit(kind):
    """Nor does advice where no trust was measured, nor an environment that shows none."""
    fusion = fusion_of(kind)
    parameters = fusion.init(jax.random.key(0), 4)
    nobody = ref_of(0, None).replace(aux=None)
    cases = [(ref, terms_of(fusion, ref, 2.0)) for ref in (ref_of(0, None), ref_of(1, None))]
    cases.append((nobody, fusion.terms(None, nobody)))
    if kind == "trust":
        cases.append((ref_of(0, "buy"), fusion.terms(None, ref_of(0, "buy"))))
    for ref, terms in cases:
        made = fusion.fuse(terms, parameters, jnp.ones(4), ref, LOGITS, ref.mask)
        np.testing.assert_array_equal(made.logits, LOGITS)
        np.testing.assert_array_equal(made.mask, ref.mask)
        assert float(made.cost) == 0.0


@pytest.mark.slow
def test_the_gate_listens_to_a_share_and_pays_for_it():
    ref, fusion = ref_of(0, "buy"), fusion_of("gate", gate_cost=0.01)
    parameters = fusion.init(jax.random.key(0), 4)
    assert set(parameters) == {GATE}
    terms = terms_of(fusion, ref, 0.8)

    def moved(parameters):
        made = fusion.fuse(terms, parameters, jnp.ones(4), ref, LOGITS, FLAT)
        return made.logits[1] - LOGITS[1], made.cost / 0.01

    (logit, share), grads = jax.value_and_grad(moved, has_aux=True)(parameters)
    assert 0.3 < float(share) < 0.7
    assert float(logit) == pytest.approx(0.4 * float(share), rel=1e-4)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("kind", ["trust", "gate", "rules", "slots", "none"])
def test_a_risk_at_the_veto_forbids_entries_and_nothing_else(kind):
    p, mask = fused(kind, ref_of(0, "buy", risk=0.9), veto=0.9)
    assert mask.tolist() == [True] + [False] * 6
    assert p[0] == pytest.approx(1.0)
    assert fused(kind, ref_of(0, "buy", risk=0.89), veto=0.9)[1].tolist() == FLAT.tolist()
    assert fused(kind, ref_of(1, "sell", risk=0.9), veto=0.9)[1].tolist() == LONG.tolist()
    assert (
        fused(kind, ref_of(0, None, risk=0.9), veto=0.0)[1].tolist() == FLAT.tolist()
    )  # absent advice vetoes nothing


def old_rules(p, sampled, advised, c, w):
    """One choice of the old system, as its code reads."""
    if sampled == advised:
        return sampled
    if p[sampled] > 0.9 and c <= 0.6:
        return sampled
    if c > 0.9 and p[sampled] <= 0.6:
        return advised
    if p[sampled] < 0.5 and c < 0.5:
        return int(Action.HOLD)
    return advised if c * w > p[sampled] * (1 - w) else sampled


def mixture(mask, scale, *rest):
    """What the old rules make of each action, weighted by its probability."""
    p = np.asarray(distributions.probs(LOGITS * scale, mask), np.float64)
    expected = 0.01 * p
    for sampled in np.flatnonzero(p):
        expected[old_rules(p, int(sampled), *rest)] += 0.99 * p[sampled]
    return expected


@pytest.mark.slow
@pytest.mark.parametrize("side", [0, 1])
def test_the_rules_are_the_mixture_of_what_they_make_of_each_action(side):
    mask = LONG if side else FLAT
    advised = int(advised_action(ENV, jnp.int32(-1), jnp.int32(side)))
    assert advised == (Action.CLOSE if side else Action.SELL)
    mix = jax.jit(rule_mixture, static_argnums=4)
    for confidence, weight, scale in itertools.product([0.2, 0.55, 0.95], [0.15, 0.5], [8.0, 1.0]):
        expected = mixture(mask, scale, advised, confidence, weight)
        mixed = mix(LOGITS * scale, mask, jnp.int32(advised), jnp.float32(confidence), weight)
        found = np.asarray(distributions.probs(mixed, mask))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-8)
    found, _ = fused("rules", ref_of(side, "sell", confidence), weight=weight)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-8)


def test_the_old_failing_advisor_froze_the_agent_and_an_absent_one_does_not():
    """HOLD with confidence 0, as the old system gave for every error: the rules make HOLD of
    everything below 0.5.
    """
    frozen, _ = fused("rules", ref_of(0, "hold", confidence=0.0))
    assert frozen[0] > 0.99
    free, _ = fused("rules", ref_of(0, None))
    np.testing.assert_allclose(free, np.asarray(distributions.probs(LOGITS, FLAT)), rtol=1e-6)
