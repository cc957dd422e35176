"""Run agents over a session set in both passes, and collect one result.

It is of one symbol (`evaluate_symbol`), or of each symbol of a set (`evaluate_set`). `write` saves
it as files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import AccountPreset, name_account, resolve_account
from jaxtrade.data.features.schema import NO_VOLUME, absent_features, context_features
from jaxtrade.data.market import Market
from jaxtrade.data.markets import MarketSet
from jaxtrade.data.sources import describe_conversion, dollars_per_tick
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import baselines
from jaxtrade.evaluation.backtest import Lane, begin_lanes, run_passes
from jaxtrade.evaluation.baselines import Agent, FunctionAgent, greedy, make_sampling_agent
from jaxtrade.evaluation.frames import write_frame
from jaxtrade.evaluation.metrics import sessions_of
from jaxtrade.evaluation.optimum import best_profit, share_of
from jaxtrade.evaluation.padding import for_member, members_of
from jaxtrade.evaluation.plots import equity, style
from jaxtrade.evaluation.record import PASSES, DecisionBars, EvaluationSteps, decision_bars, longest
from jaxtrade.evaluation.records import RECORDS, write_records
from jaxtrade.evaluation.result import NOTHING, AgentResult, Also, EvaluationResult, SetResult
from jaxtrade.evaluation.results_table import BEST, write_texts
from jaxtrade.evaluation.trades import (
    BarClock,
    account_metrics,
    assemble_trades,
    coverage,
    metrics_of,
)
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.staging import stage_files
from jaxtrade.types import Learner, PyTree, SessionSet

RULES = (
    "drawdown",
    "daily_loss",
    "profit_target",
    "trailing",
    "freeze",
    "on_target",
    "on_daily_loss",
    "min_days",
)


def rules_of(account: AccountPreset) -> dict[str, Any]:
    """Return the account's rules, as the settings of an evaluation hold them."""
    return {name: getattr(account, name) for name in RULES}


def standard_agents(
    env: TradingEnv,
    market: Market,
    config: RunConfig,
    algorithm: Learner | None = None,
    policy: PyTree = None,
) -> list[Agent]:
    """Make the standard agents: the policy, greedy and sampled (if given), then the baselines.

    The baselines are flat, random, buy-and-hold and SMA cross. If `evaluation.policy_samples` is n
    > 1, the sampled policy runs n times as sampled_1..n, each with its own draws. Raises
    ConfigError if only one of algorithm and policy is given.
    """
    if (algorithm is None) != (policy is None):
        raise ConfigError(
            f"evaluation: {'policy' if algorithm is None else 'algorithm'} is given without "
            f"{'algorithm' if algorithm is None else 'policy'}; give both of them, or neither for the "
            "baselines alone"
        )
    agents = []
    if algorithm is not None:
        count, drawn = config.evaluation.policy_samples, make_sampling_agent(algorithm, policy, env)
        names = ["sampled"] if count == 1 else [f"sampled_{i + 1}" for i in range(count)]
        agents = [greedy(algorithm, policy, env), *(drawn._replace(name=name) for name in names)]
    return [
        *agents,
        baselines.flat(),
        baselines.random_masked(env),
        baselines.buy_and_hold(env),
        baselines.sma_cross(
            env, market.data, config.evaluation.sma_fast, config.evaluation.sma_slow
        ),
    ]


def evaluate_symbol(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent | FunctionAgent] | None = None,
    *,
    algorithm: Learner | None = None,
    policy: PyTree = None,
    provenance: Mapping[str, Any] | None = None,
    trained_on: SessionSet | None = None,
    notes: Sequence[str] = (),
    programs: Programs | None = None,
    begun: Callable[[str], None] = lambda which: None,
    steps: EvaluationSteps | None = None,
) -> EvaluationResult:
    """Run every agent over all decision bars of `sessions`, with account rules on and off.

    Args:
        params: as from `make_params`. `sessions` replaces its session set.
        config: configuration of the run. Its account preset, seed and data labels go into
            the report.
        agents: as from `baselines.agent` and `standard_agents`. Default: the latter, with
            `algorithm` and `policy`.
        provenance: copied to the JSON report unchanged (versions, device, digests).
        trained_on: sessions on which the policy was trained. The result is labelled "in sample" if
            it contains any.
        notes: further labels for the reader of the report.
        programs: holds the programs that `begin_evaluation` has begun.
        begun: called before each pass, with its name.
        steps: of the compiled programs, if it is shared with other sessions or markets
            (see `DecisionBars`).

    Raises:
        DataError: the session set is empty.
        ConfigError: agent names repeat, both agents and a policy are given, only one of algorithm
            and policy is, or equity comes near the int32 limit.
    """
    if agents is None:
        agents = standard_agents(env, market, config, algorithm, policy)
    elif algorithm is not None or policy is not None:
        raise ConfigError(
            "evaluation: give either agents, or algorithm and policy (for the standard agents)"
        )
    agents = [each.on(env) if isinstance(each, FunctionAgent) else each for each in agents]
    names = [agent.name for agent in agents]
    if not names or len(set(names)) != len(names):
        raise ConfigError(
            "evaluation: give at least one agent, with names that differ; found "
            + (", ".join(names) or "none")
        )
    start_balance = resolve_account(config.account).start_balance
    lanes = lanes_of(agents, params, market, sessions, config, steps)
    decisions, records = lanes[0].decisions, run_passes(env, lanes, False, programs, begun)
    best, results = best_profit(config, market, params, decisions), []
    for agent, account, strategy in zip(
        agents, records["account"], records["strategy"], strict=True
    ):
        trades = assemble_trades(strategy, decisions, params)
        if int(trades.net.sum()) != int(strategy.equity[-1]):
            sums = f"{trades.net.sum()} mills, equity is {strategy.equity[-1]}"
            raise RuntimeError(f"{agent.name}: trades sum to {sums}")
        results.append(
            AgentResult(
                agent.name,
                agent.about,
                strategy,
                account,
                trades,
                metrics_of(strategy, trades, decisions, start_balance)
                | share_of(int(strategy.equity[-1]) / 1000, best),
                account_metrics(account, decisions),
            )
        )
    contract, mid = market.contract, market.bars.mid
    return EvaluationResult(
        agents=tuple(results),
        decisions=decisions,
        clock=BarClock(
            market.bars.time,
            market.bars.bar_seconds,
            contract.tick_size,
            contract.decimals,
            contract.zone,
        ),
        open=np.asarray(mid.open),
        high=np.asarray(mid.high),
        low=np.asarray(mid.low),
        close=np.asarray(mid.close),
        start_balance=start_balance,
        settings=_settings(env, params, market, decisions, config, results)
        | ({} if best is None else {BEST: best}),
        labels=(
            *_labels(env, market, decisions, trained_on),
            *([ALONE] if config.shared.on else []),
            *notes,
        ),
        provenance=dict(provenance or {}),
        actions=tuple(env.actions),
    )


def begin_evaluation(
    programs: Programs,
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    algorithm: Learner,
    policy: PyTree,
    steps: EvaluationSteps | None = None,
) -> None:
    """Begin to compile the programs of `evaluate` for the standard agents.

    Also begins to load the library that draws plots. Raises as `evaluate`.

    policy: may be abstract.
    steps: as there.
    """
    agents = standard_agents(env, market, config, algorithm, policy)
    lanes = lanes_of(agents, params, market, sessions, config, steps)
    for which in PASSES:
        begin_lanes(programs, env, lanes, which)
    programs.run_after(
        lambda: agent_key(jax.random.key(config.seed), "any")
    )  # compiles what `evaluate` needs for it
    programs.run_after(style.load)


def agent_key(key: jax.Array, name: str) -> jax.Array:
    """Derive the random key of an agent. Its draws do not depend on the other agents."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def lanes_of(
    agents: Sequence[Agent],
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    steps: EvaluationSteps | None = None,
) -> list[Lane]:
    """Make the lanes of agents on `sessions`, each with the key of its name.

    steps: as in `evaluate_symbol`.
    """
    decisions, params = (
        decision_bars(market.data, sessions, steps),
        params.replace(sessions=sessions),
    )
    key = jax.random.key(config.seed)
    return [Lane(agent, params, decisions, agent_key(key, agent.name)) for agent in agents]


def _settings(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    decisions: DecisionBars,
    config: RunConfig,
    results: Sequence[AgentResult],
) -> dict[str, Any]:
    preset = resolve_account(config.account)
    records = [record for result in results for record in (result.account, result.strategy)]
    return {
        "market": market.contract.symbol,
        **sessions_of(decisions.date),
        "decision_bars": len(decisions.rows),
        "coverage": min(coverage(record, decisions) for record in records),
        "task": env.config.task,
        "contracts_per_entry": env.config.quantity,
        "intrabar": env.config.intrabar,
        "fill": env.config.fill,
        "mark": env.config.mark,
        "two_sided": market.bars.ask is not None,
        "commission_per_side": float(Decimal(int(params.contract.commission)) / 1000),
        "slippage_ticks": int(params.contract.slippage),
        "tick_value": dollars_per_tick(market.contract, params.market.tick_value, decisions.rows),
        "currency": market.contract.currency,
        "start_balance": preset.start_balance,
        "account": name_account(config.account),
        "rules": rules_of(preset),
        "seed": config.seed,
        "config_sha256": config.digest(),
        "data_sha256": market.fingerprint,
    }


ALONE = (
    "alone: trained in a shared market, evaluated by itself on the historical bars, without any "
    "impact"
)  # the label of a policy that was trained in a shared market


def data_labels(market: Any, decisions: DecisionBars, trained_on: SessionSet | None) -> list[str]:
    """Label evaluations on days that were trained on, and on generated bars.

    market: a `Market` or `Portfolio`.
    """
    labels = []
    if trained_on:
        seen = np.isin(decisions.ids, np.asarray(trained_on.ids)[: int(trained_on.count)]).sum()
        if seen:
            labels.append(
                f"in sample: the policy was trained on {seen} of these {len(decisions.ids)} sessions"
            )
    if market.synthetic:
        labels.append("synthetic: these bars were generated, no market ever traded them")
    return labels


def _labels(
    env: TradingEnv, market: Market, decisions: DecisionBars, trained_on: SessionSet | None
) -> tuple[str, ...]:
    """Label anything that limits what the metrics mean, for the reader of the report."""
    labels = data_labels(market, decisions, trained_on)
    if env.config.optimistic:
        labels.append(
            f"optimistic: fill={env.config.fill}, mark={env.config.mark} is kinder than a market would be"
        )
    if market.bars.ask is not None:
        labels.append(
            "two-sided bars: buys at the ask, sells at the bid; prices shown without a side are the mid"
        )
    if market.contract.kind == "fx":
        if market.bars.ask is None:
            labels.append("one-sided bars: the spread is charged as slippage")
        labels.append("no overnight swap is charged (positions never stay overnight)")
    rule = describe_conversion(market.contract)
    if rule:
        labels.append(rule)
    if not market.has_volume and absent_features(
        (*env.config.features, *context_features(env.config.task))
    ):
        labels.append(NO_VOLUME)
    return tuple(labels)


def write(
    result: EvaluationResult | SetResult,
    directory: Path,
    agent: str | None = None,
    also: Also = NOTHING,
) -> None:
    """Write the files of a result to a folder.

    They are `evaluation.json`, `evaluation.txt` and `records.npz`; of one account, for one agent,
    `trades.csv`, `equity.csv` and `equity.png` too, and `day.png` of one symbol. Of a set each
    symbol has them in a folder of its name.

    Args:
        agent: its name; default: the first agent.
        also: further entries of the records' `meta`.
    """
    if isinstance(result, SetResult):
        for symbol, own in result.symbols.items():
            write(own, directory / symbol, agent)
    with stage_files(directory) as new:
        write_texts(new, "evaluation", result.to_json(), result.table())
        shown = result.agent(agent) if agent else result.agents[0]
        if isinstance(result, EvaluationResult):
            decimals = result.clock.decimals
            write_frame(result.trades_of(shown.name), new / "trades.csv", decimals)
            write_frame(result.equity_of(shown.name), new / "equity.csv", decimals)
            for each in result.pictures:
                name, draw = equity.PICTURES[each]
                style.write(draw(result, shown), new / name)
        write_records(new / RECORDS, result.to_records(shown, also))


def evaluate_set(
    env: TradingEnv,
    market: MarketSet,
    sessions: SessionSet,
    config: RunConfig,
    *,
    policy: PyTree = None,
    provenance: Mapping[str, Any] | None = None,
    trained_on: SessionSet | None = None,
    **given: Any,
) -> SetResult:
    """Evaluate a policy of a set, and the baselines, on every symbol.

    Each symbol has an account of its own, costs of its own, and the observation statistics that the
    policy has for it.

    Args:
        market, sessions: the set and some of its sessions (`split_sessions`).
        config: of the run.
        policy, provenance, trained_on, given: as in `evaluate`.

    Raises:
        DataError: a symbol has no session among these.
        ConfigError: as `evaluate`, for any symbol.
    """
    sets = {"evaluated": sessions} | ({"trained": trained_on} if trained_on else {})
    members = members_of(market, sets, config)
    steps = longest(
        [decision_bars(each.market.data, each.sessions["evaluated"]) for each in members.values()]
    )
    found = {}
    for number, (symbol, each) in enumerate(members.items()):
        found[symbol] = evaluate_symbol(
            env,
            jax.device_put(each.params),
            each.market,
            each.sessions["evaluated"],
            each.config,
            policy=None if policy is None else for_member(policy, number),
            provenance=provenance,
            trained_on=each.sessions.get("trained"),
            steps=steps,
            **given,
        )
    digests = {"config_sha256": config.digest(), "data_sha256": market.fingerprint}
    return SetResult(found, dict(provenance or {}), digests)
