"""Reward compositions: what a configuration means, what is compiled, how the sums are logged."""

import inspect
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig, RewardConfig, load_config
from jaxtrade.env import rewards
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.execution import empty_event
from jaxtrade.env.monitor import summarise
from jaxtrade.env.reward_presets import REWARDS, of_one_symbol, resolve_reward
from jaxtrade.env.rewards import StepEvent, weighted_terms
from jaxtrade.env.state import EndReason, ExitReason
from jaxtrade.errors import ConfigError
from jaxtrade.parts import REWARD_TERMS
from tests.env.worlds import i32, make_params, rules, run_random, walk_market

MARKET = walk_market(3, sessions=2, length=80, step=8)
ENV = TradingEnv(EnvConfig())


def params_of(weights):
    params = make_params(MARKET, account=rules(drawdown=500_000))
    return params.replace(
        reward_weights={name: jnp.float32(weight) for name, weight in weights.items()}
    )


def test_a_preset_with_weights_over_it():
    assert resolve_reward(RewardConfig()) == {"equity_change": 1.0}
    changed = load_config(
        None,
        [
            "reward.preset=seed_phase1",
            "reward.weights.forced_flat=0",
            "reward.weights={equity_change: 2}",
        ],
    ).reward
    assert resolve_reward(changed) == REWARDS["seed_phase1"] | {
        "equity_change": 2.0
    }  # the last --set wins
    changed = load_config(
        None, ["reward.preset=seed_phase1", "reward.weights.forced_flat=0"]
    ).reward
    assert resolve_reward(changed) == REWARDS["seed_phase1"] | {"forced_flat": 0.0}
    assert REWARDS["seed_phase1"]["forced_flat"] == -10.0, "the preset itself was changed"


@pytest.mark.parametrize("name", list(REWARDS))
def test_presets_are_made_of_known_terms(name):
    weights = resolve_reward(RewardConfig(preset=name))
    assert set(weights) <= set(REWARD_TERMS.names)
    assert all(weights.values())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"preset": "seed_phase_2"},
            "'seed_phase_2' .*'seed_phase2'",
        ),
        (
            {"weights": {"equity_chnage": 1.0}},
            "'equity_chnage' .*'equity_change'",
        ),
        ({"weights": {"equity_change": 0.0}}, "every term .*weight 0"),
    ],
)
def test_rewards_that_cannot_be(values, text):
    with pytest.raises(ConfigError, match=text):
        resolve_reward(RewardConfig(**values))


def test_the_old_key_of_the_weight_names_its_new_place():
    with pytest.raises(ConfigError, match=r"reward\.equity_change'.*\.weights"):
        load_config(None, ["reward.equity_change=0.5"])


def test_only_the_terms_of_the_composition_are_compiled():
    """The names are part of the program, the weights are not; the default has one term."""

    def program(weights):
        params = params_of(weights)
        state = ENV.reset_at(params, 0, 40)
        return str(jax.make_jaxpr(ENV.step)(jax.random.key(0), state, i32(0), params))

    sizes = [
        len(program(weights))
        for weights in (
            REWARDS["equity_change"],
            REWARDS["seed_phase2"],
            dict.fromkeys(of_one_symbol(), 1.0),
        )
    ]
    assert sizes[0] < sizes[1] < sizes[2]
    assert program({"equity_change": 1.0}) == program({"equity_change": 0.5})


HELD = {"quantity": 1, "balance": -2_080, "equity": -2_080}  # long, marked at its entry
WON = {
    "balance": 20_840,
    "equity": 20_840,
    "trades": 1,
    "wins": 1,
}  # two ticks of $12.50, less two commissions
LOST = {"balance": -29_160, "equity": -29_160, "trades": 1}
RICH = {"quantity": 1, "balance": 0, "equity": 500_001}  # open profit above 1 % of $50,000
LEVELS = {"return_level": -2_080 / 50e6}  # of HELD, in every bar


def terms_of(prev, next, action, illegal, **event):
    """Every term but those that are 0, each with weight 1. One long of one contract, $2.08 a side,
    risk unit $500.
    """
    params = params_of(dict.fromkeys(of_one_symbol(), 1.0))

    def state(
        quantity=0,
        balance=0,
        equity=0,
        trades=0,
        wins=0,
    ):
        new = ENV.reset_at(params, 0, 40)
        return new.replace(
            position=new.position.replace(quantity=i32(quantity)),
            account=new.account.replace(balance=i32(balance), equity=i32(equity)),
            stats=new.stats.replace(trades=i32(trades), wins=i32(wins)),
        )

    happened = empty_event(i32(0)).replace(**{name: i32(value) for name, value in event.items()})
    step = StepEvent(
        i32(action),
        jnp.bool_(illegal),
        happened.replace(breach=happened.breach.astype(bool)),
        tuple(Action.__members__),
    )
    found = weighted_terms(state(**prev), state(**next), step, params)
    return {name: float(value) for name, value in found.items() if value != 0.0}


EXIT = {"exit_quantity": 1, "commission": 2_080}


@pytest.mark.parametrize(
    ("prev", "next", "action", "illegal", "event", "expected"),
    [
        # a win of two ticks: equity moves by 22,920 mills from a mark at the entry
        (
            HELD,
            WON,
            Action.HOLD,
            False,
            EXIT,
            {
                "equity_change": 22_920 / 500_000,
                "net_return": 22_920 / 50e6,
                "closed_profit": 20.84,
                "win": 1,
                "profit_level": 20.84,
                "return_level": 20_840 / 50e6,
            },
        ),
        # a loss of two ticks in the flat bar, in which the floor was reached
        (
            HELD,
            LOST,
            Action.HOLD,
            False,
            EXIT | {"exit_reason": ExitReason.FLAT, "breach": 1},
            {
                "equity_change": -27_080 / 500_000,
                "net_return": -27_080 / 50e6,
                "closed_profit": -29.16,
                "loss": 1,
                "forced_flat": 1,
                "floor_reached": 1,
                "return_level": -29_160 / 50e6,
            },
        ),
        # a bar in which the open position gains a tick: equity moves, the balance does not
        (
            HELD,
            HELD | {"equity": 10_420},
            Action.HOLD,
            False,
            {},
            {
                "equity_change": 12_500 / 500_000,
                "net_return": 12_500 / 50e6,
                "in_position": 1,
                "profit_level": 10.42,
                "return_level": 10_420 / 50e6,
            },
        ),
        ({}, {}, Action.HOLD, False, {}, {"flat": 1}),
        (
            {},
            {},
            Action.MOVE_STOP_TO_BREAKEVEN,
            True,
            {},
            {"flat": 1, "illegal": 1, "illegal_management": 1},
        ),
        (HELD, HELD, Action.BUY, True, {}, LEVELS | {"in_position": 1, "illegal": 1}),
        (
            HELD,
            HELD,
            Action.MOVE_STOP_TO_BREAKEVEN,
            False,
            {},
            LEVELS | {"in_position": 1, "breakeven_moved": 1},
        ),
        (
            HELD,
            HELD,
            Action.MOVE_STOP_TO_BREAKEVEN,
            True,
            {},
            LEVELS | {"in_position": 1, "illegal": 1, "illegal_management": 1},
        ),
        (
            HELD,
            HELD,
            Action.ENABLE_TRAIL,
            False,
            {},
            LEVELS | {"in_position": 1, "trail_enabled": 1, "trail_enabled_in_profit": -1},
        ),
        (
            RICH,
            RICH,
            Action.ENABLE_TRAIL,
            False,
            {},
            {
                "in_position": 1,
                "trail_enabled": 1,
                "trail_enabled_in_profit": 1,
                "profit_level": 500.001,
                "return_level": 500_001 / 50e6,
            },
        ),
        (
            HELD,
            HELD,
            Action.ENABLE_TRAIL,
            True,
            {},
            LEVELS | {"in_position": 1, "illegal": 1, "illegal_management": 1},
        ),
    ],
)
def test_terms_by_hand(prev, next, action, illegal, event, expected):
    assert terms_of(prev, next, action, illegal, **event) == pytest.approx(expected, rel=1e-6)


def figures_of(info):
    """`info` of T steps in N environments, collected step by step."""
    steps = jax.vmap(lambda info: summarise.collect(SimpleNamespace(info=info)))(info)  # type: ignore[arg-type]
    return summarise.figures(jax.tree.map(lambda x: x.sum(axis=(0, 1)), steps), info.end.size)


@pytest.mark.slow
def test_what_a_rollout_tells_of_trading():
    """Each figure against plain NumPy over all steps at once; a term's sum is the mean over ended
    episodes, and there is nothing to add where the reward is one term."""
    terms = REWARDS["seed_phase2"]
    trace = jax.tree.map(np.asarray, run_random(ENV, params_of(terms), 1, 16, 120))
    info, reported = trace.outcome.info, jax.tree.map(np.asarray, figures_of(trace.outcome.info))
    ended = info.end != EndReason.NONE
    trades = info.stats.trades[ended]
    assert ended.sum() > 10
    assert trades.sum() > 10
    expected = {
        "episode_profit": info.equity[ended].mean() / 1000,
        "episode_trades": trades.mean(),
        "win_rate": info.stats.wins[ended].sum() / trades.sum(),
        "illegal_executed": info.illegal.sum(),
        "breaches": 1000 * info.event.breach.mean(),
        "end_share": np.bincount(info.end[ended], minlength=len(EndReason)) / ended.sum(),
    }
    expected |= {f"reward_{name}": info.stats.terms[name][ended].mean() for name in terms}
    assert reported.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(reported[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
    assert reported["reward_win"] > 0 > reported["reward_loss"]
    np.testing.assert_allclose(trace.outcome.reward, sum(info.terms.values()), rtol=1e-5, atol=1e-6)
    only = info.replace(stats=info.stats.replace(terms={"win": info.stats.terms["win"]}))
    assert not [name for name in figures_of(only) if name.startswith("reward_")]


def test_every_row_of_the_table_is_a_term():
    """... and every term of the module has a row."""
    terms = [REWARD_TERMS[name] for name in REWARD_TERMS.names]
    assert [term.__name__ for term in terms] == list(REWARD_TERMS.names)
    written = {
        name
        for name, value in vars(rewards).items()
        if inspect.isfunction(value)
        and list(inspect.signature(value).parameters) == ["prev", "next", "step", "params"]
    }
    assert written - {"weighted_terms"} == {
        term.__name__ for term in terms if term.__module__ == rewards.__name__
    }
