"""Evaluation of a set of real pairs: two- and one-sided bars, dollars and converted profits,
unequal histories.
"""

import json

import jax
import numpy as np
import pytest

import jaxtrade as jt
from jaxtrade.config import load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_params
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import metrics, results_table
from jaxtrade.evaluation.evaluate import standard_agents, write
from jaxtrade.evaluation.evaluators import evaluate
from jaxtrade.evaluation.padding import for_member, member_sessions, members_of
from jaxtrade.evaluation.result import total_equity
from jaxtrade.evaluation.side_by_side import step_all
from jaxtrade.evaluation.trades import Trades
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.stored_run import StoredEvaluation
from tests.messages import missing
from tests.rl.test_train import assert_same

SYMBOLS = ("EURUSD", "GBPUSD", "USDJPY")
SMALL = (
    "data.source=bundled",
    f"data.markets={','.join(SYMBOLS)}",
    "data.start=2016-04-01",
    "data.end=2016-06-10",
    "data.per_market={GBPUSD: {start: 2016-05-02}}",
    "split.test_sessions=3",
    "split.validation_sessions=2",
    "env.window=4",
    "env.features=[close,atr]",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "account.preset=rules_off_50k",
)


@pytest.fixture(scope="module")
def setup():
    return prepare(load_config("quickstart", SMALL))


@pytest.fixture(scope="module")
def policy(setup):
    """An untrained policy whose statistics differ between the symbols, with outputs lively enough
    to trade.
    """
    state = jax.jit(setup.algorithm.init)(jax.random.key(0), setup.params)
    policy = setup.algorithm.policy(state)
    head = policy.parameters["policy_head"]
    return policy.replace(
        parameters={**policy.parameters, "policy_head": {**head, "kernel": 200 * head["kernel"]}}
    )


@pytest.fixture(scope="module")
def result(setup, policy):
    return jt.evaluate(
        setup.env,
        setup.params,
        setup.market,
        setup.splits["test"],
        setup.config,
        algorithm=setup.algorithm,
        policy=policy,
        trained_on=setup.splits["train"],
        provenance={"split": "test"},
    )


@pytest.mark.slow
def test_every_symbol_is_evaluated_on_the_same_dates(policy, result):
    assert len(np.unique(np.asarray(policy.normaliser.mean), axis=0)) == 3
    assert tuple(result.symbols) == SYMBOLS
    for symbol, each in result.symbols.items():
        assert each.settings["market"] == symbol
        np.testing.assert_array_equal(each.decisions.date, result.symbols["EURUSD"].decisions.date)
        assert len(each.agent("sampled").trades) > 3
    assert len(result.symbols["GBPUSD"].clock.time) < len(result.symbols["USDJPY"].clock.time)
    assert [each.settings["two_sided"] for each in result.symbols.values()] == [True, False, False]
    assert not any("in sample" in label for label in result.labels)


def parts_of(found):
    return vars(found) if isinstance(found, Trades) else found


@pytest.mark.slow
@pytest.mark.parametrize("symbol", SYMBOLS)
def test_each_symbol_has_the_bits_of_its_own_evaluation(setup, policy, result, symbol):
    """The same weights and dates on the symbol's own market, unpadded: one- or two-sided,
    converting or not.
    """
    number = SYMBOLS.index(symbol)
    config = members_of(setup.market, setup.splits, setup.config)[symbol].config
    market, padded = load_market(config), result.symbols[symbol]
    dates = padded.decisions.date
    sessions = session_set(np.flatnonzero(np.isin(market.trade_dates, dates)), market.num_sessions)
    own = evaluate(
        setup.env,
        make_params(market, sessions, config),
        market,
        sessions,
        config,
        algorithm=setup.algorithm,
        policy=for_member(policy, number),
    )
    for one, other in zip(own.agents, padded.agents, strict=True):
        for which in ("strategy", "account", "trades"):
            assert_same(*(parts_of(getattr(each, which)) for each in (one, other)))
        assert one.strategy_figures == other.strategy_figures
        assert one.account_figures == other.account_figures
    same = set(own.settings) - {"config_sha256"}
    assert {key: own.settings[key] for key in same} == {key: padded.settings[key] for key in same}


@pytest.mark.slow
def test_pooled_figures_are_sums_over_the_symbols(result):
    for agent in result.agents:
        own = [each.agent(agent.name) for each in result.symbols.values()]
        for key in ("net_profit", "commission", "slippage", "trades", "illegal_actions"):
            total = sum(each.strategy_figures[key] for each in own)
            assert agent.strategy_figures[key] == pytest.approx(total, abs=1e-6)
        for key in ("net_profit", "accounts", "bust", "trades"):
            total = sum(each.account_figures[key] for each in own)
            assert agent.account_figures[key] == pytest.approx(total, abs=1e-6)
        assert agent.strategy_figures["return_pct"] == pytest.approx(
            agent.strategy_figures["net_profit"] / 1_500
        )
        parts = list(result.symbols.values())
        total = total_equity(parts, [each.strategy.equity for each in own])
        deepest = metrics.max_drawdown(total) / 1000
        assert agent.strategy_figures["max_drawdown"] == deepest
        nets = np.concatenate([each.trades.net for each in own])
        assert agent.strategy_figures["win_rate"] == metrics.win_rate(nets)
        assert len(agent.trades) == len(nets)
        assert set(agent.strategy_figures) == set(own[0].strategy_figures)
        assert set(agent.account_figures) == set(own[0].account_figures)


@pytest.mark.slow
def test_the_table_shows_each_symbol_and_all_together(result):
    lines = result.table().splitlines()
    verdict, _, head, *_ = lines
    assert verdict == result.verdict()
    assert not missing(head, "3 symbols", "EURUSD, GBPUSD, USDJPY", "3 trade dates", "2016-06-")
    titles = [*(f"{symbol} (3 sessions" for symbol in SYMBOLS), "All 3 symbols, strategy"]
    at = [next(i for i, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert at == sorted(at)
    for place, of in ((at[2], result.symbols["USDJPY"]), (at[3], result)):
        assert f"{of.agent('greedy').strategy_figures['net_profit']:,.2f}" in lines[place + 1]
    assert any(line.startswith("NOTE: GBPUSD, USDJPY: ") for line in lines)
    assert any(line.startswith("NOTE: no overnight swap") for line in lines)
    brief = result.table(brief=True).splitlines()
    assert len(brief) < len(lines)
    assert brief[0] == verdict
    assert not any(line.startswith("NOTE: GBPUSD, USDJPY: ") for line in brief)


@pytest.mark.slow
def test_accounts_without_limits_show_one_pass(result):
    document = json.loads(json.dumps(result.to_json()))
    free = results_table.to_html(document)
    document["settings"]["rules"]["daily_loss"] = 1_000.0
    limited = results_table.to_html(document)
    for words in ("account rules off", "rules on", "accounts opened"):
        assert words not in free
        assert words in limited
    assert "accounts have no limits" in free


@pytest.mark.slow
def test_the_document_holds_all_of_it(result, setup):
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["settings"]["symbols"] == list(SYMBOLS)
    assert document["settings"]["config_sha256"] == setup.config.digest()
    assert list(document["symbols"]) == list(SYMBOLS)
    assert document["symbols"]["USDJPY"] == json.loads(
        json.dumps(result.symbols["USDJPY"].to_json())
    )
    assert list(document["agents"]) == [agent.name for agent in result.agents]
    assert document["verdict"] == result.table().splitlines()[0]


@pytest.mark.slow
def test_frames_have_a_column_symbol(result):
    trades, equity = result.trades_of("random"), result.equity_of("random")
    for frame, count in (
        (trades, lambda each: len(each.agent("random").trades)),
        (equity, lambda each: len(each.decisions.rows)),
    ):
        assert frame.columns[0] == "symbol"
        assert list(frame["symbol"].cat.categories) == list(SYMBOLS)
        expected = {symbol: count(each) for symbol, each in result.symbols.items()}
        assert frame["symbol"].value_counts().to_dict() == expected
    assert trades["net_pnl"].sum() == pytest.approx(
        result.agent("random").strategy_figures["net_profit"]
    )
    assert result.plot("random").axes[0].lines[0].get_ydata()[-1] == pytest.approx(
        150_000 + result.agent("random").strategy_figures["net_profit"]
    )
    assert "SetResult(EURUSD, GBPUSD" in repr(result)
    assert result._repr_html_().count("<tr>") > 25


@pytest.mark.slow
def test_what_is_written_is_read_again(result, tmp_path):
    write(result, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*SYMBOLS, "digests.json", "evaluation.json", "evaluation.txt", "records.npz"]
    )
    assert (tmp_path / "USDJPY" / "day.png").is_file()
    stored = StoredEvaluation(
        tmp_path, json.loads((tmp_path / "evaluation.json").read_text()), "America/New_York"
    )
    assert stored.table == result.table()
    assert stored.trades.equals(result.trades)
    assert stored.equity.equals(result.equity)
    assert stored.symbols["GBPUSD"].figures.equals(result.symbols["GBPUSD"].figures)
    assert stored.figures.equals(result.figures)


def test_sessions_of_a_symbol_are_rows_of_its_own_table(setup):
    for number, member in enumerate(setup.market.members):
        own = member_sessions(setup.market, setup.splits["test"], number)
        dates = member.trade_dates[np.asarray(own.ids)[: int(own.count)]]
        assert (len(dates), str(dates[-1])) == (3, "2016-06-10")


def test_agents_for_one_symbol_are_refused_for_a_set(setup):
    agents = standard_agents(setup.env, setup.market.members[0], setup.config)
    with pytest.raises(ConfigError, match="for one symbol"):
        jt.evaluate(
            setup.env, setup.params, setup.market, setup.splits["test"], setup.config, agents
        )


def test_parameters_that_a_set_would_not_read_are_refused(setup):
    other = setup.params.replace(episode_sessions=setup.params.episode_sessions + 1)
    with pytest.raises(ConfigError, match=r"params .*\.episode_sessions"):
        jt.evaluate(setup.env, other, setup.market, setup.splits["test"], setup.config)


@pytest.mark.parametrize("given", ["algorithm", "policy"])
def test_a_policy_without_its_algorithm_is_refused_and_not_dropped(setup, given):
    one = {given: setup.algorithm}
    with pytest.raises(ConfigError, match=f"{given} is given without"):
        jt.evaluate(
            setup.env, setup.params, setup.market, setup.splits["test"], setup.config, **one
        )
    with pytest.raises(ConfigError, match=f"{given} is given without"):
        standard_agents(setup.env, setup.market.members[0], setup.config, **one)


def test_what_works_on_one_symbol_says_so(setup):
    with pytest.raises(ConfigError, match=r"3 \(EURUSD, GBPUSD, USDJPY\)"):
        _ = setup.single
    with pytest.raises(ConfigError, match=r"data\.markets names 3 symbols"):
        load_market(setup.config)


@pytest.mark.slow
def test_one_program_of_each_pass_serves_every_symbol(setup, policy):
    """On other sessions than those of `result`, so that the first symbol does compile."""
    before = step_all._cache_size()
    jt.evaluate(
        setup.env,
        setup.params,
        setup.market,
        setup.splits["validation"],
        setup.config,
        algorithm=setup.algorithm,
        policy=policy,
    )
    assert step_all._cache_size() == before + 2
