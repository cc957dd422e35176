"""The section `shared`: what it refuses, and the bounds of the integers behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.config import RunConfig, load_config, make_config
from jaxtrade.config.allocate import largest_move, largest_offset, temporary
from tests.messages import refused

ON = ["shared.on=true", "train.num_seeds=4"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["shared.on=true"], ("train.num_seeds is 1", "2 or more")),
        (["shared.kappa=1"], ("shared.kappa", "shared.on is false")),
        ([*ON, "env.task=advised"], ("env.task is advised", "entry, manage")),
        (
            [*ON, "data.markets=[ES, NQ]"],
            ("data.markets names 2", "set data.market"),
        ),
        ([*ON, "advisor.kind=mock:skilled:0.6", "advisor.fusion=gate"], ("set advisor.kind=off",)),
        ([*ON, "env.fill=close", "env.mark=close"], ("env.fill=next_open",)),
        ([*ON, "stages.forced_start=0.5"], ("set stages.forced_start=0",)),
        ([*ON, "episode.max_steps=9"], ("set episode.max_steps=0",)),
        ([*ON, "shared.decay=0.9995"], ("multiple of 0.001",)),
        ([*ON, "shared.decay=1.5"], ("shared.decay",)),
        ([*ON, "shared.kappa=0.5"], ("shared.kappa",)),
        (
            [*ON, "shared.kappa=250000"],
            (
                "shared.kappa=250000: ",
                "train.num_seeds=4",
                "env.quantity=1",
                "2,001 ticks",
                "at most 2,000",
            ),
        ),
        ([*ON, "shared.eta=1000000"], ("shared.eta=1000000: ", " 2,829 ticks")),
        (
            [*ON, "env.quantity=10000", "account.preset=raw"],
            ("80,000 contracts", "at most 65,536"),
        ),
    ],
)
def test_what_a_shared_market_cannot_be(overrides, said):
    with refused(*said):
        load_config("quickstart", overrides)


def test_both_tasks_and_all_learners_are_accepted():
    for task in ("entry", "manage"):
        for algorithm in ("ppo", "dqn", "pqn"):
            assert load_config(
                "quickstart", [*ON, f"env.task={task}", f"algorithm={algorithm}"]
            ).shared.on


def test_a_configuration_without_the_section_is_off():
    assert not make_config({}).shared.on
    assert largest_move(RunConfig()) == 0


@given(st.integers(0, 1_000_000), st.integers(0, 65_536))
def test_temporary_impact_is_the_root(eta, contracts):
    """x^2 <= q eta^2 < (x + 1)^2, in whole numbers."""
    thousandths = temporary(eta, contracts)
    assert thousandths**2 <= contracts * eta**2 < (thousandths + 1) ** 2


def worst_offset(kappa, decay, agents, flows):
    """The largest offset in ticks over net flows that keep the position within one contract per
    agent.
    """
    offset = position = most = 0
    for wanted in flows:
        flow = max(-agents, min(agents, wanted)) - position
        position += flow
        offset = (abs(offset) * decay // 1000) * (1 if offset > 0 else -1) + kappa * flow
        most = max(most, (abs(offset) + 500) // 1000)
    return most


def test_the_bound_of_the_offset_holds_and_is_nearly_reached():
    config = load_config("quickstart", [*ON, "shared.kappa=3000"])
    bound = largest_offset(config)
    assert bound == 25  # 2 x 4 contracts x 3 ticks, and one of rounding
    waits = [4] * 2000 + [-4]  # long until the offset has decayed, then short at once
    found = [worst_offset(3000, decay, 4, waits) for decay in (0, 500, 990, 999, 1000)]
    assert max(found) == 24
    assert worst_offset(3000, 999, 4, [4, -4] * 500) <= bound
