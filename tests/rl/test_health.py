"""Warnings on rows made by hand: each is seen where it should be, and a healthy run gives none."""

import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.env.state import EndReason
from jaxtrade.networks.accelerators import CPU
from jaxtrade.rl import info
from jaxtrade.rl.info import PPO_LEARNS, PPO_REMEDIES, PPO_WARNINGS
from jaxtrade.training import health
from jaxtrade.training.health import WINDOW, Watch
from jaxtrade.training.population import Stack
from tests.messages import missing

NAN = float("nan")
NAMES = {"action_share": ["HOLD", "BUY", "SELL"]}


def warnings(rows, names=health.UNNAMED):
    """As of a PPO run."""
    return health.warnings(rows, names, PPO_WARNINGS, PPO_REMEDIES)


def ends(**shares):
    return [shares.get(reason.name, 0.0) for reason in EndReason]


HEALTHY = {
    "finite": True,
    "learning_rate": 3e-4,
    "approx_kl": 0.004,
    "explained_variance": 0.3,
    "episodes": 4,
    "episode_trades": 2.0,
    "action_share": [0.9, 0.06, 0.04],
    "end_share": ends(SESSION_END=0.75, BUST=0.25),
}


def rows(count=WINDOW, **changes):
    return [{"update": update + 1} | HEALTHY | changes for update in range(count)]


SICK = {
    "no_trades": (
        {"episode_trades": 0.0},
        ["no trade in 80 episodes of 20 updates", "costs", "ppo.ent_coef"],
    ),
    "one_action": (
        {"action_share": [0.001, 0.0, 0.999], "episode_trades": 0.5},
        ["action SELL is 99.9 % of the choices", "collapsed", "ppo.ent_coef"],
    ),
    "learning_rate": (
        {"learning_rate": 0.0},
        ["the learning rate is 0.0e+00 at update 20", "schedule", "ppo.learning_rate_end"],
    ),
    "frozen": (
        {"approx_kl": 0.0},
        ["KL has been at most 0.0e+00 for 20 updates", "does not move", "ppo.learning_rate"],
    ),
    "jumping": (
        {"approx_kl": 2e5},
        ["KL is 2.0e+05", "one update leaves little", "ppo.learning_rate"],
    ),
    "all_breach": (
        {"end_share": ends(BUST=0.75, DAILY_LOSS=0.25)},
        [
            "all 80 episodes of 20 updates ended by a breach (BUST 75 %, DAILY_LOSS 25 %)",
            "too small",
            "env.quantity",
        ],
    ),
    "explained_variance": (
        {"explained_variance": -1.5},
        ["explained variance is below -1 in 20 updates (now -1.5)", "reward.weights"],
    ),
}


AT_ONCE = ("learning_rate", "jumping")


def test_a_healthy_run_is_left_alone():
    assert warnings(rows(), NAMES) == {}
    assert warnings([], NAMES) == {}


@pytest.mark.parametrize("kind", SICK)
def test_each_fault_is_seen_named_and_explained(kind):
    changes, parts = SICK[kind]
    found = warnings(rows(**changes), NAMES)
    assert list(found) == [kind]
    for part in parts:
        assert part in found[kind]
    assert "\n" not in found[kind]
    # It must last, unless one row says it all; older rows do not matter.
    short = rows(WINDOW - 1, **changes)
    for history in (short, [*rows(1), *short]):
        assert (kind in warnings(history, NAMES)) == (kind in AT_ONCE)
    assert kind in warnings([*rows(5), *rows(WINDOW, **changes)], NAMES)


LEARNT = {  # a row of a learner that learns
    "ppo": (
        info.ppo(make_config({}), CPU).health,
        HEALTHY | {"param_delta": 1e-3, "entropy": 0.9, "value_loss": 0.2, "ratio_error": 1e-6},
    ),
    "q": (
        info.q_learner(make_config({"algorithm": "pqn"}), CPU).health,
        {
            "learning_rate": 3e-4,
            "q_change": 0.1,
            "param_delta": 1e-3,
            "td_loss": 0.1,
            "q_max": 2.0,
            "q_error": 1e-6,
        },
    ),
}
COLLAPSED = [  # learner, its check, what one row of the run says, whether it is healthy
    ("ppo", "approx_kl", {"approx_kl": 2e5}, False),
    ("ppo", "approx_kl", {"approx_kl": NAN}, False),
    ("ppo", "approx_kl", {"approx_kl": 0.9}, True),
    ("ppo", "value_loss", {"value_loss": 1e9}, False),
    ("ppo", "ratio_error", {"ratio_error": 0.3}, False),
    ("q", "q_max", {"q_max": 1e6}, False),
    ("q", "q_change", {"q_change": 1e6}, False),
    ("q", "loss", {"td_loss": 1e9}, False),
    ("q", "q_error", {"q_error": 0.3}, False),
]


@pytest.mark.parametrize(("learner", "name", "changes", "passes"), COLLAPSED)
def test_health_has_an_upper_side(learner, name, changes, passes):
    """One update is enough, first or last, and other checks do not see it."""
    checks, row = LEARNT[learner]
    fine = [row | {"update": i, "td_loss": 0.1 + 0.01 * i} for i in range(3)]
    assert all(passed for passed, _ in health.learning_health(fine, 0, checks).values())
    for history in ([fine[0] | changes, *fine[1:]], [*fine[:-1], fine[-1] | changes]):
        found = health.learning_health(history, 0, checks)
        assert [check for check, (passed, _) in found.items() if not passed] == (
            [] if passes else [name]
        )
        assert found[name][1] == pytest.approx(next(iter(changes.values())), nan_ok=True)


@pytest.mark.parametrize("metric", ["value_loss", "learning_rate", "entropy"])
@pytest.mark.parametrize("values", [(0.5, NAN), (NAN, 0.5)])
def test_an_undefined_value_fails_wherever_it_stands(metric, values):
    """Of one agent in two updates, and of two agents in one."""
    checks, row = LEARNT["ppo"]
    one = health.learning_health([row | {metric: value} for value in values], 0, checks)
    assert not one[metric][0]
    assert np.isnan(one[metric][1])
    both = [
        {f"{key}/each": [value, value] for key, value in row.items()}
        | {f"{metric}/each": list(values)}
    ]
    two = health.population_health(both, 0, Stack.of(2), checks)
    assert not two[metric][0]
    assert np.isnan(two[metric][1])


def test_a_policy_without_a_choice_left_has_collapsed():
    checks, row = LEARNT["ppo"]
    for entropies, passes in (
        ([0.5] + [0.0] * 20, False),
        ([0.0] * 20 + [0.5], True),
        ([0.5] * 2 + [0.0] * 19, True),
    ):
        history = [row | {"entropy": entropy} for entropy in entropies]
        assert health.learning_health(history, 0, checks)["entropy"][0] == passes


def test_of_several_agents_the_one_that_fails_is_shown():
    check = next(check for check in PPO_LEARNS if check.name == "approx_kl")
    assert check.worst([0.1, 2e5, 0.3]) == 2e5
    assert check.worst([0.1, 0.0, 0.3]) == 0.0


def test_undefined_figures():
    found = warnings(rows(explained_variance=NAN), NAMES)
    assert "in 20 updates" in found["explained_variance"]
    assert warnings([*rows(1), *rows(WINDOW - 1, explained_variance=NAN)], NAMES) == {}
    unended = {"episodes": 0, "episode_trades": NAN, "end_share": [NAN] * len(EndReason)}
    assert warnings(rows(**unended), NAMES) == {}  # no episode has ended: nothing is known of them
    assert list(warnings(rows(**unended, action_share=[1.0, 0.0, 0.0]), NAMES)) == ["one_action"]


def test_holding_most_of_the_time_is_no_fault_of_who_trades():
    """One round turn in a session of 400 bars: HOLD in 399 of them."""
    assert warnings(rows(action_share=[0.9975, 0.0025, 0.0], episode_trades=1.0), NAMES) == {}


def test_few_episodes_say_nothing_about_their_ends():
    broke = ends(BUST=1.0)
    none = rows(WINDOW - 9, episodes=0, end_share=[NAN] * len(EndReason), episode_trades=NAN)
    few = [*none, *rows(9, episodes=1, end_share=broke)]
    assert warnings(few, NAMES) == {}
    assert list(warnings([*few[1:], *rows(1, episodes=1, end_share=broke)], NAMES)) == [
        "all_breach"
    ]


def test_rows_of_another_environment_lack_figures():
    """CartPole knows no trades, and no names."""
    known = ("learning_rate", "approx_kl", "explained_variance", "action_share", "episodes")
    bare = [{name: row[name] for name in known} for row in rows(action_share=[0.0, 1.0])]
    found = warnings(bare)
    assert list(found) == ["one_action"]
    assert "action number 1 is 100.0 %" in found["one_action"]


def test_each_agent_is_looked_at_alone():
    """Their mean would look healthy."""
    both = [
        row
        | {
            f"{name}/each": [value, 0.0 if name in ("approx_kl", "episode_trades") else value]
            for name, value in HEALTHY.items()
        }
        for row in rows()
    ]
    found = warnings(both, NAMES)
    assert list(found) == ["no_trades of agent 1", "frozen of agent 1"]
    assert found["frozen of agent 1"].startswith("agent 1: KL has been")


def test_a_warning_is_reported_when_it_begins():
    reported = []
    watch = Watch(reported.append, NAMES, PPO_WARNINGS, PPO_REMEDIES)
    watch.write(rows(WINDOW - 1, approx_kl=0.0))
    assert reported == []
    for _ in range(3):
        watch.write(rows(2, approx_kl=0.0))
    assert len(reported) == 1
    assert not missing(reported[0], "warning: KL", "0.0e+00 for 20 updates")
    watch.write(rows(1))
    watch.write(rows(WINDOW, approx_kl=0.0))  # it had ended, and begins again
    assert len(reported) == 2
    assert [f"warning: {text}" for text in watch.seen] == reported


def test_what_a_rollback_undid_is_forgotten():
    reported = []
    watch = Watch(reported.append, NAMES, PPO_WARNINGS, PPO_REMEDIES)
    watch.write(rows(WINDOW - 1, approx_kl=0.0))
    watch.rewind(4, 4000)
    watch.write(rows(1, approx_kl=0.0))
    assert reported == []
