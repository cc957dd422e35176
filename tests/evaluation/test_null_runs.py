"""Agents against null markets: one executable, the figures of the evaluator, early stop, resuming,
known answers.
"""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from jaxtrade.config import make_config
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.nulls.market import (
    null_markets,
    sign_flipped,
    sign_flipped_path,
)
from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.data.read.validate import PRICES
from jaxtrade.data.sources import bars_of
from jaxtrade.data.splits import session_set
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.baselines import buy_and_hold, greedy
from jaxtrade.evaluation.evaluators import evaluate
from jaxtrade.evaluation.nulls import (
    NullJournal,
    daily_net,
    pooled_statistic,
    rule_agents,
    rule_nulls,
    run_nulls,
    with_market,
)
from jaxtrade.evaluation.side_by_side import step_all
from jaxtrade.types import IntrabarPath
from tests.paths import path_arrays, random_paths

RULES = ("buy_hold", "sma_cross")
NO_RULES = {"drawdown": "off", "daily_loss": "off", "profit_target": "off"}


def small(seed, kind="martingale", sessions=3):
    return make_config(
        {
            "data": {
                "market": "ES",
                "source": "synthetic",
                "synthetic": kind,
                "synthetic_sessions": sessions,
                "synthetic_seed": seed,
            },
            "env": {"features": ["close"], "window": 1},
            "account": NO_RULES,
            "evaluation": {"sma_fast": 3, "sma_slow": 10},
        }
    )


def parts(config, *ids):
    market = load_market(config)
    sessions = session_set(np.array(ids), market.num_sessions)
    return TradingEnv(config.env), make_params(market, sessions, config), market, sessions


@pytest.mark.slow
def test_all_nulls_pass_through_one_executable():
    """The market is a traced argument: 8 null markets, four kinds of agent, not one compilation
    after the first.
    """
    config = make_config(
        {
            "data": {"market": "NQ", "source": "synthetic", "synthetic_sessions": 14},
            "env": {"features": ["close"], "window": 1},
        }
    )
    env, params, market, sessions = parts(config, 12, 13)
    daily_net(env, params, market, sessions, config, rule_agents(env, config)(market))
    before = step_all._cache_size()  # type: ignore[attr-defined]
    for kind in ("sign", "sessions", "phase", "martingale"):
        results = rule_nulls(env, params, market, sessions, config, NullSpec(kind, 2), 0, stop=None)
        assert list(results) == ["flat", "random", "buy_hold", "sma_cross"]
        assert {each.draws_made for each in results.values()} == {2}
        assert results["flat"].p == 1.0
        assert len(set(results["random"].nulls)) > 1
    assert step_all._cache_size() == before  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_statistics_are_those_of_the_evaluator():
    config = small(1)
    env, params, market, sessions = parts(config, 1, 2)
    result = evaluate(env, params, market, sessions, config)
    nulls = rule_nulls(env, params, market, sessions, config, NullSpec("sign", 3), 5, stop=None)
    null = null_markets(market, config, "sign", 5)(2)
    alone = evaluate(env, make_params(null, sessions, config), null, sessions, config)
    for name, each in nulls.items():
        for mean, own in ((each.real, result), (each.nulls[2], alone)):
            net = own.agent(name).strategy_figures["net_profit"]
            assert mean == pytest.approx(net / 2, abs=1e-9)


def always(policy, carry, ref, params, key, explore):
    """The policy is the action that it takes wherever that is legal."""
    return carry, jnp.where(ref.mask[policy], policy, 0), None


@pytest.mark.slow
@pytest.mark.parametrize("intrabar", ["stop_first", "path"])
def test_with_every_bar_mirrored_a_seller_earns_what_a_buyer_earned(intrabar):
    """Brackets, stops inside bars and costs included: stops keep their distance, and falls inside
    bars change sides.
    """
    config = make_config(
        {
            "data": {"market": "NQ", "source": "synthetic", "synthetic_sessions": 3},
            "env": {"features": ["close"], "window": 1, "intrabar": intrabar},
            "account": NO_RULES,
        }
    )
    bars = bars_of(config)
    found = path_arrays(
        bars.open.tolist(), random_paths(0, *(getattr(bars, name).tolist() for name in PRICES))
    )
    assert found is not None
    path = IntrabarPath(np.asarray(found.falls), np.asarray(found.ambiguous))  # type: ignore[arg-type]
    every, nets = np.ones(len(bars), bool), []
    for prices, falls, action in (
        (bars, path, Action.BUY),
        (sign_flipped(bars, every), sign_flipped_path(path, every), Action.SELL),
    ):
        market = build_market(prices, config, path=falls)
        sessions = session_set(np.arange(market.num_sessions), market.num_sessions)
        env, params = TradingEnv(config.env), make_params(market, sessions, config)
        learner = SimpleNamespace(act=always, carry=())
        agent = greedy(learner, jnp.int32(action), env)
        nets.append(daily_net(env, params, market, sessions, config, [agent])["greedy"])
    np.testing.assert_array_equal(*nets)
    assert len(set(nets[0])) == len(nets[0]) > 1


class Scripted:
    """Statistics of draw 0, 1, ... by name, and the draws that were asked for."""

    def __init__(self, **values):
        self.values, self.asked = values, list[int]()

    def market(self, draw):
        self.asked.append(draw)
        return draw

    def measure(self, market):
        return {name: values[market] for name, values in self.values.items()}


REAL = {"good": 5.0, "bad": 0.0}


def test_it_stops_when_every_agent_is_decided():
    script = Scripted(good=[6.0, *[1.0] * 8, *[7.0] * 90], bad=[1.0] * 99)
    results = run_nulls(script.measure, script.market, REAL, NullSpec("sign", 99), 0)
    assert (results["bad"].p, results["bad"].draws_made) == (1.0, 10)
    assert (results["good"].p, results["good"].draws_made) == (10 / 18, 18)
    assert script.asked == list(range(18))


def test_a_test_that_was_killed_goes_on(tmp_path):
    """Killed after each number of draws: the same results, and no draw twice."""
    values = np.random.default_rng(0).normal(size=(2, 19)).tolist()

    def tested(name, count=19, real=REAL):
        script = Scripted(good=values[0][:count], bad=values[1][:count])
        journal = NullJournal(tmp_path / name, {"kind": "sign"})
        run = run_nulls, script.measure, script.market, real, NullSpec("sign", 19), 0, journal
        return script, lambda: run[0](*run[1:])

    script, whole = tested("whole")
    expected, made = whole(), len(script.asked)
    for after in range(made):
        with pytest.raises(IndexError):  # there is no further draw
            tested(str(after), after)[1]()
        again, rest = tested(str(after))
        assert rest() == expected
        assert again.asked == list(range(after, made))
        assert (tmp_path / str(after)).read_bytes() == (tmp_path / "whole").read_bytes()
    with pytest.raises(ConfigError, match=r"bad, good, .* other"):
        tested("whole", real={"other": 1.0})[1]()


@pytest.mark.slow
def test_money_is_checked_for_each_null():
    """The real chain stays between two levels, its nulls wander: 100 contracts fit into int32 there
    and not here.
    """
    account = {"drawdown": 50_000.0, "profit_target": 50_000.0, "max_contracts": 1_000}
    account["daily_loss"] = "off"
    values = small(3, "mean_reversion").model_dump(mode="json", exclude={"account"})
    config = make_config(values | {"account": account, "env": values["env"] | {"quantity": 100}})
    env, params, market, sessions = parts(config, 2)
    spec = NullSpec("sign", 2)
    with pytest.raises(DataError, match=r"market 0 .*\(seed 0\).*quantity = 100.*int32"):
        rule_nulls(
            env, params, market, sessions, config, spec, 0, agents=lambda _: [buy_and_hold(env)]
        )
    one = config.model_copy(update={"env": config.env.model_copy(update={"quantity": 1})})
    null = null_markets(market, one, "sign", 0)(0)
    own, shown = (
        int(each.account.max_contracts)
        for each in (params, with_market(params, null, sessions, one))
    )
    assert shown < own, "larger orders are cut to what can be held on the null"


@pytest.mark.slow
def test_an_order_that_a_null_market_cuts_is_refused():
    """Agents of the package order `env.quantity`, which every null holds or refuses; one from
    Python may order more.
    """
    config = small(4)
    env, params, market, sessions = parts(config, 1, 2)
    params = params.replace(account=params.account.replace(max_contracts=jnp.int32(8)))
    rule = buy_and_hold(env)

    def tested(cap):
        """A buyer of 6 contracts. cap: of the null market; 8 are allowed on the real one."""
        account = config.account.model_copy(update={"max_contracts": cap})
        parts = env, params, market, sessions, config.model_copy(update={"account": account})
        act = replace(rule.act, config=env.config.model_copy(update={"quantity": 6}))
        buyer = rule._replace(act=act)
        return rule_nulls(*parts, NullSpec("sign", 1), 0, agents=lambda _: [buyer])

    assert list(tested(6)) == ["buy_hold"]
    with pytest.raises(DataError, match=r"market 0 .*hold.* 5 .* 8;.*max_contracts"):
        tested(5)


def trend(bars):
    """Ticks that a follower of the last bar's move earns."""
    moves = np.diff(bars.close).astype(np.int64)
    return float((np.sign(moves[:-1]) * moves[1:]).sum())


@pytest.mark.slow
def test_p_is_uniform_on_martingales():
    """200 martingales, 19 nulls each: p is uniform on 1/20, 2/20, ..., 1. A uniform draw from the
    step below it makes it continuous, as the test of Kolmogorov and Smirnov needs.
    """
    p = []
    for seed in range(200):
        config = small(seed, sessions=2)
        market = load_market(config)
        nulls = null_markets(market, config, "sign", seed)
        draws = [trend(nulls.bars(draw)[0]) for draw in range(19)]
        p.append((1 + sum(draw >= trend(market.bars) for draw in draws)) / 20)
    below = np.random.default_rng(0).random(200) / 20
    assert kstest(np.array(p) - below, "uniform").pvalue > 0.01
    assert (np.array(p) <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


@pytest.mark.slow
def test_the_policies_of_several_seeds_are_pooled():
    config = small(4)
    env, params, market, sessions = parts(config, 1, 2)
    made = rule_agents(env, config)
    nets = daily_net(env, params, market, sessions, config, made(market))
    results = rule_nulls(
        env,
        params,
        market,
        sessions,
        config,
        NullSpec("sign", 2),
        0,
        agents=made,
        pool=lambda name: name if name == "flat" else "all",
    )
    assert list(results) == ["flat", "all"]
    others = np.stack([net for name, net in nets.items() if name != "flat"])
    assert results["all"].real == pooled_statistic(others)
