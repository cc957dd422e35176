"""Transfer by names: nothing is lost, closed actions change nothing, and everything that can move
moves.
"""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxtrade.config import NetworkConfig, TransferConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks import distributions
from jaxtrade.networks.normalize import init_stats, merge, normalise
from jaxtrade.rl import transfer
from jaxtrade.rl import transfer as coverage_report
from jaxtrade.rl.actor_critic import make_network
from jaxtrade.rl.advice import GATE, GATE_SLOTS
from jaxtrade.rl.optim import optimiser
from jaxtrade.rl.state import lock_actions, unlock_actions, unlock_at
from jaxtrade.rl.transfer import PolicyLabels
from tests.messages import missing
from tests.rl.test_train import assert_close, assert_same

CONFIG = NetworkConfig(hidden=(8, 6), rnn_width=5)
GRU = CONFIG.model_copy(update={"kind": "gru"})
OLD_SLOTS, OLD_ACTIONS = ("a", "b", "c"), ("HOLD", "BUY", "SELL")
SLOTS, ACTIONS = ("a", "x", "b", "c", "y"), ("HOLD", "BUY", "SELL", "MOVE", "CLOSE")
SMALL, LARGE = (
    PolicyLabels(OLD_SLOTS, OLD_ACTIONS, "relative", CONFIG),
    PolicyLabels(SLOTS, ACTIONS, "relative", CONFIG),
)


class Fresh:
    """As much of a `TrainState` as a transfer reads."""

    def __init__(self, layout, seed=0):
        network = make_network(layout.config, len(layout.actions))
        draw = np.random.default_rng(seed)

        def build(key):
            return network.init(key, network.first_carry(), jnp.zeros(len(layout.slots)))["params"]

        # No weight is 0, so that nothing can be lost unseen.
        self.params = jax.tree.map(
            lambda x: jnp.asarray(draw.normal(0, 0.3, x.shape), jnp.float32),
            jax.eval_shape(build, jax.random.key(0)),
        )
        self.opt_state = optimiser().init(self.params)
        seen = jnp.asarray(
            draw.normal(1, 3, (20 + seed, len(layout.slots))), jnp.float32
        )  # each its own count
        self.normaliser = MERGE(init_stats(len(layout.slots)), seen)


MERGE = jax.jit(merge)


def carry_over(mine, theirs, moments=False, seed=1):
    before = Fresh(mine, seed)
    opt_state = jax.tree.map(lambda x: x + 1, before.opt_state) if moments else None
    transfer.check_labels(mine, theirs)
    return before, transfer.transfer(
        before.params, before.normaliser, opt_state, mine, Fresh(theirs), theirs
    )


def judged(layout, params, stats, carry, observation):
    network = make_network(layout.config, len(layout.actions))
    return network.apply({"params": params}, carry, normalise(stats, observation))


def with_config(layout, config):
    return layout._replace(config=config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "seed"),
    [(CONFIG.model_copy(update={"hidden": (16,), "activation": "relu"}), 3), (GRU, 4)],
)
def test_closed_policy_is_the_source(config, seed):
    """Over a thousand random observations, masks and memories."""
    mine, theirs = with_config(SMALL, config), with_config(LARGE, config)
    before, carried = carry_over(mine, theirs, seed=seed)
    plan = transfer.plan_unlock(carried.coverage, theirs, TransferConfig())

    @jax.jit
    @jax.vmap
    def both(key):
        key_seen, key_memory, key_mask = jax.random.split(key, 3)
        wide = 5 * jax.random.normal(key_seen, (len(SLOTS),))
        narrow = wide[jnp.array([SLOTS.index(name) for name in OLD_SLOTS])]
        memory = (
            jax.random.normal(key_memory, (config.rnn_width,)) if config.kind == "gru" else None
        )
        mask = jax.random.bernoulli(key_mask, 0.7, (len(ACTIONS),)).at[0].set(True)
        old_carry, old_logits, old_value = judged(
            mine, before.params, before.normaliser, memory, narrow
        )
        carry, logits, value = judged(theirs, carried.params, carried.normaliser, memory, wide)
        logits, legal = unlock_actions(lock_actions(unlock_at(plan, jnp.float32(0))), logits, mask)
        return (
            (distributions.probs(old_logits, mask[:3]), old_value, old_carry),
            (distributions.probs(logits, legal)[:3], value, carry),
            legal,
        )

    expected, found, legal = both(jax.random.split(jax.random.key(0), 1000))
    assert not legal[:, 3:].any()
    assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, GRU], ids=["mlp", "gru"])
def test_report_accounts_for_every_number(config):
    mine, theirs = with_config(SMALL, config), with_config(LARGE, config)
    before, carried = carry_over(mine, theirs, moments=True)
    coverage = carried.coverage
    arrays = len(jax.tree.leaves(before.params))
    assert coverage.complete
    assert (coverage.share, coverage_report.percent(coverage)) == (1.0, "100 %")
    assert (
        len(coverage.parts) == 3 * arrays + 3
    )  # parameters, two moments of each, three figures of the normaliser
    assert sum(part.size for part in coverage.parts[:arrays]) == sum(
        x.size for x in jax.tree.leaves(before.params)
    )
    assert (coverage.new_slots, coverage.new_actions) == (("x", "y"), ("MOVE", "CLOSE"))
    assert "transfer coverage 100 %" in coverage_report.coverage_lines(coverage)[-1]
    outcomes = {part.name: part.outcome for part in coverage.parts}
    assert outcomes["policy_torso/Dense_0/kernel"] == outcomes["policy_head/bias"] == "widened"
    assert outcomes["value_head/kernel"] == "copied"
    # Nothing of the source is missing: the numbers that are not zero are the source's, as a
    # multiset.
    for name, old in transfer._flat(before.params).items():
        new = np.asarray(transfer._flat(carried.params)[name])
        np.testing.assert_array_equal(
            np.sort(new[new != 0.0]), np.sort(np.asarray(old).ravel()), err_msg=name
        )


def test_statistics_of_shared_slots_are_the_sources_and_new_slots_start_their_own():
    before, carried = carry_over(SMALL, LARGE)
    own = Fresh(LARGE).normaliser
    for figure in ("count", "mean", "variance"):
        theirs, fresh, found = (
            np.asarray(getattr(stats, figure)[0])
            for stats in (before.normaliser, own, carried.normaliser)
        )
        assert not np.isin(theirs, fresh).any()  # or this test could not tell them apart
        expected = [
            theirs[OLD_SLOTS.index(name)] if name in OLD_SLOTS else fresh[i]
            for i, name in enumerate(SLOTS)
        ]
        np.testing.assert_array_equal(found, expected)


def test_numbers_move_by_name_in_whatever_order_the_target_has_them():
    source, fill = jnp.arange(6.0).reshape(3, 2), np.full((4, 2), 9.0, np.float32)
    moved = transfer.widen(
        source, fill, (("a", "b", "c"), ("p", "q")), (("c", "new", "a", "b"), ("q", "p"))
    )
    np.testing.assert_array_equal(moved, [[5, 4], [9, 9], [1, 0], [3, 2]])


class State(struct.PyTreeNode):
    """As much of a `TrainState` as `begin` replaces."""

    params: Any
    opt_state: Any
    normaliser: Any
    opening: Any
    update: jax.Array


@pytest.mark.parametrize("moments", [True, False])
def test_a_run_begins_with_all_that_was_carried_over(moments):
    _, carried = carry_over(SMALL, LARGE, moments)
    own = Fresh(LARGE)
    fresh = State(own.params, own.opt_state, own.normaliser, None, jnp.int32(0))
    state = transfer.begin(
        fresh, carried, transfer.plan_unlock(carried.coverage, LARGE, TransferConfig())
    )
    assert state.params is carried.params
    assert state.normaliser is carried.normaliser
    assert state.opt_state is (carried.opt_state if moments else own.opt_state)
    assert state.opening.new.tolist() == [False, False, False, True, True]


def test_a_gate_behind_an_adapter_still_reads_the_observation():
    """Its rows go by the target's slots, in which two are new, and not by what the adapter makes of
    them.
    """
    gate_rows = len(OLD_SLOTS) + len(GATE_SLOTS)
    own = {
        GATE: {
            "Dense_0": {
                "kernel": jnp.arange(2.0 * gate_rows).reshape(gate_rows, 2) + 1,
                "bias": jnp.ones(2),
            }
        }
    }
    adapted = with_config(LARGE, CONFIG.model_copy(update={"adapter": 3}))
    before, fresh = Fresh(SMALL, 1), Fresh(adapted)
    fresh.params = fresh.params | {
        GATE: {"Dense_0": {"kernel": jnp.zeros((gate_rows + 2, 2)), "bias": jnp.zeros(2)}}
    }
    carried = transfer.transfer(before.params | own, before.normaliser, None, SMALL, fresh, adapted)
    assert carried.coverage.complete
    rows = [SLOTS.index(name) for name in OLD_SLOTS] + [
        len(SLOTS) + i for i in range(len(GATE_SLOTS))
    ]
    kernel = np.asarray(carried.params[GATE]["Dense_0"]["kernel"])
    np.testing.assert_array_equal(kernel[rows], own[GATE]["Dense_0"]["kernel"])
    np.testing.assert_array_equal(np.delete(kernel, rows, axis=0), np.zeros((2, 2)))


def test_moments_move_with_their_parameters():
    _, carried = carry_over(SMALL, LARGE, moments=True)
    adam = carried.opt_state[1]
    assert int(adam.count) == 1
    np.testing.assert_array_equal(
        adam.mu["policy_torso"]["Dense_0"]["kernel"][:, 0], [1, 0, 1, 1, 0]
    )
    np.testing.assert_array_equal(adam.nu["policy_head"]["bias"], [1, 1, 1, 0, 0])
    assert jax.tree.structure(carried.opt_state) == jax.tree.structure(
        optimiser().init(carried.params)
    )
    _, alone = carry_over(SMALL, LARGE)
    assert alone.opt_state is None


def test_a_population_is_widened_agent_by_agent():
    before = [Fresh(SMALL, seed) for seed in (1, 2)]
    fresh = [Fresh(LARGE, seed) for seed in (3, 4)]

    def moved(old, new):
        return transfer.transfer(old.params, old.normaliser, None, SMALL, new, LARGE)

    def stacked(parts):
        both = copy.copy(parts[0])
        for name in ("params", "normaliser"):
            each = (getattr(part, name) for part in parts)
            setattr(both, name, jax.tree.map(lambda *x: jnp.stack(x), *each))
        return both

    carried = moved(stacked(before), stacked(fresh))
    assert carried.coverage.complete
    for i in (0, 1):
        own = jax.tree.map(lambda x, i=i: x[i], carried.params)
        assert_same(own, moved(before[i], fresh[i]).params)


def test_what_finds_no_place_is_an_error():
    _, carried = carry_over(LARGE, SMALL)
    assert not carried.coverage.complete
    assert coverage_report.percent(carried.coverage) != "100 %"
    with pytest.raises(ConfigError, match=r" \d+\.\d+ %") as caught:
        coverage_report.require_complete(carried.coverage, allowed=False)
    assert not missing(str(caught.value), "policy_head/bias", "MOVE, CLOSE", "allow_dropped")
    coverage_report.require_complete(carried.coverage, allowed=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scaling": "seed"}, r"scaling=seed: .*relative"),
        (
            {"config": CONFIG.model_copy(update={"hidden": (8, 8)})},
            r"hidden=\(8, 8\): .*\(8, 6\)",
        ),
        ({"config": GRU}, r"network\.kind=gru: .*mlp"),
        (
            {"config": CONFIG.model_copy(update={"normalise_observations": False})},
            r"network\.normalise_observations=False",
        ),
        ({"slots": ("q", "r")}, "share no observation slot"),
        ({"actions": ("FLAT", "LONG")}, r"\(HOLD, FLAT\)"),
    ],
)
def test_incompatible_layouts_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        transfer.check_labels(SMALL, LARGE._replace(**change))


@pytest.mark.parametrize("config", [CONFIG, pytest.param(GRU, marks=pytest.mark.slow)])
def test_adapter_hands_the_old_slots_on(config):
    mine = with_config(SMALL, config)
    theirs = with_config(
        LARGE, config.model_copy(update={"adapter": transfer.adapter_width(mine, "adapter")})
    )
    assert theirs.config.adapter == 3
    before, carried = carry_over(mine, theirs)
    assert carried.coverage.complete
    kernel = carried.params["adapter"]["kernel"]
    np.testing.assert_array_equal(kernel, [[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    wide = jnp.array([1.0, 7.0, -2.0, 0.5, -9.0])
    memory = jnp.ones(config.rnn_width) if config.kind == "gru" else None
    old = judged(mine, before.params, before.normaliser, memory, wide[jnp.array([0, 2, 3])])
    new = judged(theirs, carried.params, carried.normaliser, memory, wide)
    np.testing.assert_allclose(new[1][:3], old[1], atol=1e-5)
    np.testing.assert_allclose(new[2], old[2], atol=1e-5)


def test_an_adapter_is_widened_again():
    adapted = with_config(LARGE, CONFIG.model_copy(update={"adapter": 3}))
    wider = adapted._replace(slots=(*SLOTS, "z"))
    assert transfer.adapter_width(adapted, "adapter") == 3
    before, carried = carry_over(adapted, wider)
    assert carried.coverage.complete
    np.testing.assert_array_equal(
        carried.params["adapter"]["kernel"][:5], before.params["adapter"]["kernel"]
    )
    np.testing.assert_array_equal(carried.params["adapter"]["kernel"][5], 0.0)
    with pytest.raises(ConfigError, match="source has an adapter"):
        transfer.check_labels(adapted, LARGE)


def test_movement_names_what_stood_still_and_why():
    fresh = Fresh(LARGE)
    stats = fresh.normaliser.replace(variance=fresh.normaliser.variance.at[0, 1].set(0.0))
    moved = jax.tree.map(lambda x: x + 1.0, fresh.params)
    kernel = moved["policy_torso"]["Dense_0"]["kernel"]
    for torso in (
        "policy_torso",
        "value_torso",
    ):  # x never varied; b varied and stood still all the same
        old = fresh.params[torso]["Dense_0"]["kernel"]
        moved[torso]["Dense_0"]["kernel"] = kernel.at[1].set(old[1]).at[2].set(old[2])
    found = transfer.list_moved_groups(fresh.params, moved, LARGE, stats)
    assert (found["constant"], found["still"]) == (["x"], ["b"])
    assert {"a", "c", "y", "CLOSE", "value_head/kernel"} <= set(found["moved"])


def of_symbols(layout, *groups):
    """The layout with groups, and statistics that differ between them."""
    stats = init_stats(len(layout.slots), len(groups))
    rows = jnp.arange(len(groups), dtype=jnp.float32)[:, None]
    return layout._replace(groups=groups), jax.tree.map(lambda x: x + 10 * (rows + 1), stats)


def test_statistics_move_by_the_names_of_symbols():
    """From two symbols to three, in another order: each takes its own figures along, a new one
    starts afresh.
    """
    mine, stats = of_symbols(SMALL, "EURUSD", "USDJPY")
    theirs, own = of_symbols(LARGE, "USDJPY", "GBPUSD", "EURUSD")
    before, fresh = Fresh(mine, 1), Fresh(theirs)
    fresh.normaliser = own
    carried = transfer.transfer(before.params, stats, None, mine, fresh, theirs)
    assert carried.coverage.complete
    shared = jnp.array([0, 2, 3])  # the places of a, b and c
    np.testing.assert_array_equal(
        carried.normaliser.mean[:, shared],
        jnp.stack([stats.mean[1], own.mean[1, shared], stats.mean[0]]),
    )
    np.testing.assert_array_equal(carried.normaliser.mean[:, 1], own.mean[:, 1])


def test_statistics_of_a_dropped_symbol_are_reported():
    mine, stats = of_symbols(SMALL, "EURUSD", "USDJPY")
    theirs, own = of_symbols(SMALL, "EURUSD")
    fresh = Fresh(theirs)
    fresh.normaliser = own
    carried = transfer.transfer(Fresh(mine, 1).params, stats, None, mine, fresh, theirs)
    found = next(part for part in carried.coverage.parts if part.name == "normaliser/mean")
    assert (found.outcome, found.carried, found.size) == ("dropped", 3, 6)
    assert "no USDJPY" in found.why
