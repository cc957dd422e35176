"""Simulated evaluation accounts: against a slow reference and a formula, and what is said where
nothing is known.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.cli import main
from jaxtrade.env import actions
from jaxtrade.env.state import EndReason
from jaxtrade.evaluation import baselines, challenge
from jaxtrade.evaluation.account_draws import AccountDraws
from jaxtrade.evaluation.baselines import Agent
from jaxtrade.evaluation.challenge import FATES, account_odds, pass_probability, why_not_simulated
from jaxtrade.evaluation.challenge_accounts import (
    Challenge,
    SessionPaths,
    ends_in_order,
    play_accounts,
)
from jaxtrade.evaluation.statistics.resampling import day_blocks
from tests.evaluation.challenge_reference import slow_ends
from tests.evaluation.test_challenge_paths import MARKET, account
from tests.evaluation.tiny import evaluated, hand_market, setup
from tests.messages import missing

FEW = AccountDraws(horizon=10, draws=100, accounts=50)


def paths_of(bars, daily=None):
    """Sessions of bars (high, low, balance if flat at its end, else None), in mills. daily: whose
    last bar reached the daily limit."""
    every = [
        (session, high, low, 0 if balance is None else balance, balance is not None)
        for session, each in enumerate(bars)
        for high, low, balance in each
    ]
    session, high, low, balance, flat = np.array(every, np.int64).reshape(-1, 5).T
    flat, traded = np.flatnonzero(flat), np.array([bool(each) for each in bars])
    ends = np.cumsum([len(each) for each in bars]) - 1
    return SessionPaths(
        session,
        np.arange(len(session)),
        high,
        low,
        session[flat],
        flat,
        balance[flat],
        np.array([each[-1][2] if each else 0 for each in bars], np.int64),
        traded,
        np.where(traded & np.array(daily or [False] * len(bars)), ends, -1),
    )


def rules(**keys):
    """Rules with money in mills instead of dollars."""
    money = {"drawdown", "target", "floor_cap"}
    base = account(drawdown=1000.0, profit_target=1000.0, freeze="never")
    return base.replace(
        **{
            name: np.int32(value) if name in money else np.asarray(value)
            for name, value in keys.items()
        }
    )


moves = st.integers(-6, 6)


@st.composite
def sessions(draw):
    count = draw(st.integers(0, 5))
    found = []
    for i in range(count):
        low = draw(moves)
        flat = i == count - 1 or draw(st.booleans())
        found.append((low + draw(st.integers(0, 4)), low, low if flat else None))
    return found


@pytest.mark.slow
@given(st.lists(sessions(), min_size=1, max_size=5), st.data())
def test_accounts_end_as_one_after_the_other(bars, data):
    daily = data.draw(st.lists(st.booleans(), min_size=len(bars), max_size=len(bars)))
    off = 1 << 30
    chosen = rules(
        drawdown=data.draw(st.sampled_from([3, 5, 8, off])),
        target=data.draw(st.sampled_from([2, 4, 7, off])),
        floor_cap=data.draw(st.sampled_from([-2, 0, 3, off])),
        min_days=data.draw(st.integers(0, 3)),
        trailing=data.draw(st.integers(0, 2)),
        stop_at_target=data.draw(st.booleans()),
        fail_on_daily_loss=data.draw(st.booleans()),
        daily_loss=np.int32(4),
    )
    order = data.draw(st.lists(st.integers(0, len(bars) - 1), min_size=1, max_size=8))
    paths = paths_of(bars, daily)
    challenge = Challenge(paths, chosen)
    found = slow_ends(paths, chosen, order)
    assert ends_in_order(challenge, np.array([order]))[0].tolist() == [end for end, _ in found]
    one = play_accounts(challenge, np.array([order]))
    ended = next((i for i, (end, _) in enumerate(found) if end), len(found) - 1)
    first = next((i + 1 for i, (_, reached) in enumerate(found[: ended + 1]) if reached), 0)
    assert one.passed.tolist() == [first]
    assert one.bust.tolist() == [ended + 1 if found[ended][0] == EndReason.BUST else 0]
    assert one.daily.tolist() == [ended + 1 if found[ended][0] == EndReason.DAILY_LOSS else 0]


def test_the_favourable_mark_comes_first():
    """One bar up by 4 and down to -2: an intraday floor rises to -1 first, and is met; a static one
    stays at -5.
    """
    paths = paths_of([[(4, -2, 0)]])
    order = np.array([[0]])
    assert ends_in_order(Challenge(paths, rules(drawdown=5)), order).tolist() == [[EndReason.BUST]]
    assert ends_in_order(Challenge(paths, rules(drawdown=5, trailing=0)), order).tolist() == [
        [EndReason.NONE]
    ]


def test_an_account_ends_inside_a_session_and_the_next_one_opens_at_the_next():
    """Session 0 earns 3 and then falls by 9: an account that needs 3 has passed by then, and a new
    one starts at 0.
    """
    paths = paths_of([[(3, 3, 3), (3, -6, -6)], [(2, 0, 2)]])
    found = ends_in_order(Challenge(paths, rules(drawdown=5, target=3)), np.array([[0, 1, 1, 1]]))
    assert found.tolist() == [[EndReason.TARGET, EndReason.NONE, EndReason.TARGET, EndReason.NONE]]
    kept = play_accounts(
        Challenge(paths, rules(drawdown=5, target=3, stop_at_target=False)), np.array([[0, 1]])
    )
    assert (kept.passed.tolist(), kept.bust.tolist()) == (
        [1],
        [1],
    )  # passed, and lost later in the same session


def fair_walk(count, steps, step, seed):
    """Sessions of a walk of +-step mills, flat at each step. Each comes with its mirror image: no
    drift in the pool.
    """
    moved = np.random.default_rng(seed).choice([-step, step], (count // 2, steps))
    equity = np.cumsum(np.concatenate([moved, -moved]), axis=1)
    session, bar = np.repeat(np.arange(count), steps), np.arange(count * steps)
    return SessionPaths(
        session,
        bar,
        equity.ravel(),
        equity.ravel(),
        session,
        bar,
        equity.ravel(),
        equity[:, -1],
        np.ones(count, bool),
        np.full(count, -1),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("freeze", "expected"),
    [
        ("never", math.exp(-3000 / 2500)),
        # Up to 2,600 the floor follows; from there the walk is between 100 and 3,000.
        ("at_start_plus_100", math.exp(-2600 / 2500) * 2500 / 2900),
    ],
)
def test_a_fair_walk_passes_as_often_as_the_formula_says(freeze, expected):
    """P(a fair walk gains 3,000 before it falls 2,500 from its highest) = exp(-1.2): its rises
    above the record before a fall of d are exponential with mean d."""
    assert round(expected, 4) == {"never": 0.3012, "at_start_plus_100": 0.3047}[freeze]
    challenge = Challenge(
        fair_walk(4000, 300, 20_000, seed=1),
        account(profit_target=3000.0, drawdown=2500.0, freeze=freeze),
    )
    found = play_accounts(challenge, np.random.default_rng(3).integers(0, 4000, (10_000, 1000)))
    assert abs(np.mean(found.passed > 0) - expected) < 0.016
    assert np.all((found.passed > 0) | (found.bust > 0))  # none is out of time


def test_blocks_are_consecutive_days_in_a_circle():
    drawn = day_blocks(np.random.default_rng(0), 1000, 7, 10, 3)
    assert drawn.shape == (1000, 7)
    inside = [0, 1, 3, 4]  # pairs of one block
    assert np.all((drawn[:, 1:] - drawn[:, :-1])[:, inside] % 10 == 1)
    assert np.all(np.abs(np.bincount(drawn.ravel()) / drawn.size - 0.1) < 0.01)


def test_both_errors():
    """The Monte Carlo error is that of a share of 4,000 accounts. Days that differ more spread the
    draws more.
    """
    rng = np.random.default_rng(7)
    few, many = (
        Challenge(
            fair_walk(days, 60, 150_000, seed=int(rng.integers(99))),
            account(profit_target=3000.0, drawdown=2500.0),
        )
        for days in (20, 600)
    )
    odds = [
        account_odds(each, AccountDraws(horizon=60, draws=100, accounts=100))
        for each in (few, many)
    ]
    for each in odds:
        value = {fate: each[fate]["value"] for fate in FATES}
        passed, p = each["passed"], value["passed"]
        assert passed["monte_carlo"] == each["monte_carlo"] == math.sqrt(p * (1 - p) / 1000)
        assert passed["low"] < p < passed["high"]
        assert p + value["bust"] + value["time_out"] == pytest.approx(1)
        assert (value["daily_loss"], value["lost_after"]) == (None, None)
    assert odds[0]["day_error"] > 2 * odds[1]["day_error"]


@pytest.mark.parametrize(("min_days", "days"), [(0, 5.0), (8, 8.0)])
def test_equal_days_leave_no_error_of_the_days(min_days, days):
    """Every day is a gain of $600: each account passes on its fifth day, and no draw of the days
    differs.
    """
    paths = paths_of([[(600_000, 600_000, 600_000)]] * 12)
    rules = account(profit_target=3000.0, drawdown=2500.0, min_days=min_days)
    odds = account_odds(Challenge(paths, rules), FEW)
    passed = odds["passed"]
    assert (passed["value"], passed["low"], odds["days_to_pass"]) == (1.0, None, days)
    assert "every draw" in passed["why"]


def wary(env):
    """It stops to trade while its account is below the start: the strategy pass cannot tell what it
    does.
    """
    held = baselines.buy_and_hold(env)

    def act(carry, state, ref, params, key):
        carry, order, action = held.act(carry, state, ref, params, key)
        bold = (state.account.balance >= 0) | (params.account.drawdown >= 1 << 30)
        return carry, actions.hold(state).replace(quantity=order.quantity * bold), action * bold

    return Agent("wary", act, None, "sees its account")


@pytest.mark.slow
def test_what_is_reported_of_an_evaluation():
    """An agent that sees its account has no odds."""
    rules = {"account": {"drawdown": 1000.0, "profit_target": 800.0, "freeze": "never"}}
    result = evaluated(MARKET, baselines.buy_and_hold, lambda _: baselines.flat(), wary, **rules)
    env, params, _ = setup(MARKET, MARKET.every, **rules)
    found = pass_probability(result, env, params, FEW)
    document = json.loads(json.dumps(found, allow_nan=False))
    counts = [document[name] for name in ("days", "block", "accounts", "resamples")]
    assert counts == [8, 2, 50, 100]
    flat, held = document["agents"]["flat"], document["agents"]["buy_hold"]
    assert (flat["time_out"]["value"], flat["days_to_pass"]) == (1.0, None)
    assert held["passed"]["low"] <= held["passed"]["value"] <= held["passed"]["high"]
    assert "no daily loss" in flat["daily_loss"].pop("why")
    names = ("value", "low", "high", "monte_carlo", "days")
    assert flat["daily_loss"] == dict.fromkeys(names)
    wary_odds = found["agents"]["wary"]
    assert {wary_odds[fate]["value"] for fate in FATES} == {None}
    assert "outlives a session" in wary_odds["time_out"]["why"]
    text = challenge.table(found)
    assert not missing(text, "apex_like_50k_2025", "$800", "$1,000", "intraday", "freeze never")
    assert not missing(text, "daily loss off", "500 accounts", "8 sessions", "blocks of 2")

    assert pass_probability(result, env, params, FEW) == found


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"env": {"task": "advised"}, "episode": {"sessions": 2}}, "record over 2 sessions"),
        ({"env": {"task": "advised"}}, ""),  # the record begins anew each day
        ({"account": {"preset": "rules_off_50k"}}, "neither target nor drawdown"),
        ({"account": {"preset": "apex_like_50k_funded_2025"}}, ""),
    ],
)
def test_refusals(sections, why):
    market = hand_market(2)
    env, params, _ = setup(market, market.every, **sections)
    found = why_not_simulated(env, params)
    assert why in found if why else found == ""


def test_an_account_without_target_only_survives_or_not():
    odds = account_odds(
        Challenge(fair_walk(20, 60, 150_000, seed=3), account(preset="apex_like_50k_funded_2025")),
        FEW,
    )
    assert (odds["passed"]["value"], odds["days_to_pass"]) == (None, None)
    assert odds["bust"]["value"] + odds["time_out"]["value"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        (["--horizon", "5"], ("--horizon", "--pass-probability")),
        (["--breakdown", "--accounts", "60"], ("--accounts", "--pass-probability")),
        (["--pass-probability", "--draws", "9"], ("draws = 9", "--draws", "100")),
        (["--pass-probability", "--cost-grid"], ("one by one",)),
    ],
)
def test_flags_that_do_not_go_together(flags, facts, tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), *flags]) == 2
    assert not missing(capsys.readouterr().err, *facts)


@pytest.mark.slow
def test_the_command_on_a_run_of_bundled_es(tmp_path, capsys):
    run = tmp_path / "es"
    keys = (
        "rollout.num_envs=8",
        "rollout.num_steps=16",
        "ppo.num_minibatches=2",
        "network.hidden=[8]",
        "train.total_timesteps=256",
        "train.tensorboard=false",
        "split.test_sessions=4",
    )
    changes = [word for key in keys for word in ("--set", key)]
    assert main(["train", "--run-dir", str(run), *changes]) == 0
    capsys.readouterr()
    written = {path.name for path in run.rglob("*")}
    flags = "--pass-probability --breakdown --horizon 30 --draws 100 --accounts 50 --json"
    assert main(["evaluate", str(run), *flags.split()]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"pass_probability", "breakdown", "notes"}
    odds = document["pass_probability"]
    assert (odds["horizon"], odds["days"]) == (30, 4)
    assert "4 days" in odds["agents"]["buy_hold"]["passed"]["why"]
    agents = json.loads((run / "evaluation/test/evaluation.json").read_text())["agents"]
    whole = document["breakdown"]["whole"]
    assert whole["count"] == agents["greedy"]["strategy"]["trades"]
    assert whole["total"] == pytest.approx(agents["greedy"]["strategy"]["net_profit"])
    assert {path.name for path in run.rglob("*")} - written == {"challenge.json", "breakdown.json"}
    kept = json.loads((run / "evaluation/test/challenge.json").read_text())
    assert len(kept.pop("policy_sha256")) == 64, "of which policy it is; a report asks"
    assert kept == odds
