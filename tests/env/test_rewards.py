"""Reward compositions: what a configuration means, what is compiled, how the sums are logged."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig, RewardConfig, load_config
from jaxtrade.env import rewards
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.reward_presets import REWARDS, resolve_reward
from jaxtrade.env.state import EndReason, EnvParams, StepInfo
from jaxtrade.env.summary import summarise
from jaxtrade.errors import ConfigError
from jaxtrade.parts import REWARD_TERMS
from tests.env.worlds import i32, make_params, rules, run_random, walk_market

MARKET = walk_market(3, sessions=2, length=80, step=8)
ENV = TradingEnv(EnvConfig())


def params_of(weights: dict[str, float]) -> EnvParams:
    params = make_params(MARKET, account=rules(drawdown=500_000))
    return params.replace(reward_weights={name: jnp.float32(weight) for name, weight in weights.items()})


def test_a_preset_with_weights_over_it() -> None:
    assert resolve_reward(RewardConfig()) == {"equity_change": 1.0}
    changed = load_config(None, ["reward.preset=seed_phase1", "reward.weights.forced_flat=0",
                                 "reward.weights={equity_change: 2}"]).reward
    assert resolve_reward(changed) == REWARDS["seed_phase1"] | {"equity_change": 2.0}  # the last --set wins
    changed = load_config(None, ["reward.preset=seed_phase1", "reward.weights.forced_flat=0"]).reward
    assert resolve_reward(changed) == REWARDS["seed_phase1"] | {"forced_flat": 0.0}
    assert REWARDS["seed_phase1"]["forced_flat"] == -10.0, "the preset itself was changed"


@pytest.mark.parametrize("name", list(REWARDS))
def test_presets_are_made_of_known_terms(name: str) -> None:
    weights = resolve_reward(RewardConfig(preset=name))
    assert set(weights) <= set(REWARD_TERMS.names)
    assert all(weights.values())


@pytest.mark.parametrize(("values", "text"), [
    ({"preset": "seed_phase_2"}, "reward.preset: unknown preset 'seed_phase_2' .*did you mean 'seed_phase2'"),
    ({"weights": {"equity_chnage": 1.0}}, "reward.weights: no reward term is called 'equity_chnage' .*'equity_change'"),
    ({"weights": {"equity_change": 0.0}}, "every term of the reward has weight 0"),
])
def test_rewards_that_cannot_be(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        resolve_reward(RewardConfig(**values))


def test_the_old_key_of_the_weight_names_its_new_place() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'reward.equity_change'.*reward.preset, reward.weights"):
        load_config(None, ["reward.equity_change=0.5"])


def test_only_the_terms_of_the_composition_are_compiled() -> None:
    """The names are part of the program, the weights are not; the default has one term."""
    def program(weights: dict[str, float]) -> str:
        params = params_of(weights)
        state = ENV.reset_at(params, 0, 40)
        return str(jax.make_jaxpr(ENV.step)(jax.random.key(0), state, i32(0), params))

    sizes = [len(program(weights)) for weights in (REWARDS["equity_change"], REWARDS["seed_phase2"],
                                                   dict.fromkeys(REWARD_TERMS.names, 1.0))]
    assert sizes[0] < sizes[1] < sizes[2]
    assert program({"equity_change": 1.0}) == program({"equity_change": 0.5})


def figures_of(info: StepInfo) -> Any:
    """`info` of T steps in N environments, told step by step."""
    return summarise.figures(jax.vmap(lambda info: summarise.tell(SimpleNamespace(info=info)))(info))  # type: ignore[arg-type]


def test_each_terms_sum_is_logged() -> None:
    """Sums over ended episodes, mean per episode; nothing to add where the reward is one term."""
    trace = jax.tree.map(np.asarray, run_random(ENV, params_of(REWARDS["seed_phase2"]), 1, 16, 120))
    info, ended = trace.outcome.info, trace.outcome.info.end != EndReason.NONE
    told = jax.tree.map(float, {name: value for name, value in figures_of(info).items()
                                if name.startswith("reward_")})
    assert set(told) == {f"reward_{name}" for name in REWARDS["seed_phase2"]}
    for name in REWARDS["seed_phase2"]:
        sums = np.zeros(16)
        per_episode = []
        for t in range(120):
            sums += info.terms[name][t]
            per_episode += sums[ended[t]].tolist()
            sums[ended[t]] = 0.0
        assert told[f"reward_{name}"] == pytest.approx(np.mean(per_episode), rel=1e-5, abs=1e-7), name
    assert len(per_episode) > 10
    assert told["reward_win"] > 0 > told["reward_loss"]
    np.testing.assert_allclose(trace.outcome.reward, sum(info.terms.values()), rtol=1e-5, atol=1e-6)
    only = info.replace(stats=info.stats.replace(terms={"win": info.stats.terms["win"]}))
    assert not [name for name in figures_of(only) if name.startswith("reward_")]


def test_what_a_rollout_tells_of_trading() -> None:
    """Each figure against plain NumPy over all steps at once."""
    trace = jax.tree.map(np.asarray, run_random(ENV, params_of({"equity_change": 1.0}), 2, 16, 120))
    info, told = trace.outcome.info, jax.tree.map(np.asarray, figures_of(trace.outcome.info))
    ended = info.end != EndReason.NONE
    trades = info.stats.trades[ended]
    assert ended.sum() > 10
    assert trades.sum() > 10
    expected = {
        "episode_profit": info.equity[ended].mean() / 1000, "episode_trades": trades.mean(),
        "win_rate": info.stats.wins[ended].sum() / trades.sum(), "illegal_executed": info.illegal.sum(),
        "breaches": 1000 * info.event.breach.mean(),
        "end_share": np.bincount(info.end[ended], minlength=len(EndReason)) / ended.sum(),
    }
    assert told.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(told[name], value, rtol=1e-5, err_msg=name)


def test_every_row_of_the_table_is_a_term() -> None:
    """... and every term of the module has a row."""
    terms = [REWARD_TERMS[name] for name in REWARD_TERMS.names]
    assert [term.__name__ for term in terms] == list(REWARD_TERMS.names)
    written = {name for name, value in vars(rewards).items() if inspect.isfunction(value)
               and list(inspect.signature(value).parameters) == ["prev", "next", "step", "params"]}
    assert written - {"weighted_terms"} == {term.__name__ for term in terms if term.__module__ == rewards.__name__}
