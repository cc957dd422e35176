"""Guards of entries: hand-worked bars, random play against a count of its own, whole evaluations,
and a run that trains, evaluates and goes on.
"""

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jaxtrade
from jaxtrade.config import EnvConfig, RunConfig, changed_config, dump_config, load_config
from jaxtrade.config.market import GuardsConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.tasks.base import EntryTask, register_task
from jaxtrade.env.tasks.guards import task_of
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.challenge import why_not_simulated
from jaxtrade.parts import TASKS
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.train import resume, run
from tests import compiling
from tests.env import worlds
from tests.env.worlds import i32, make_market, make_params
from tests.resuming import cut, final_state
from tests.rl.test_train import assert_same

ROW = 25  # the first decision of the hand-worked bars
HOLD, BUY, SELL, CLOSE = 0, 1, 2, 6


def env_of(guards, task="manage"):
    return TradingEnv(EnvConfig(task=task, guards=GuardsConfig(**guards)))


@functools.partial(jax.jit, static_argnums=0, compiler_options=compiling.fast())
def advance(env, state, action, params):
    moved, outcome = env.advance(state, action, params)
    return moved, outcome, env.mask(moved, params)


def world(*after, sessions=1):
    """Flat bars at 100 up to and with row 25, then `after`, in each session of 40 bars. A tick is a
    dollar, and so is a commission; stops are 12 ticks away, targets 36.
    """
    rest = [(100,) * 4] * (14 - len(after))
    bars = worlds.bars_of(([(100,) * 4] * (ROW + 1) + [*after] + rest) * sessions)
    spans = [worlds.Session(40 * i, 40 * i + 40, 40 * i + 21, 40 * i + 37) for i in range(sessions)]
    return make_params(
        make_market(bars, spans, tr_sum=112),
        costs=worlds.contract(commission=1_000, slippage=0, tick_mills=1_000, min_stop=1),
        episode_sessions=sessions,
    )


def entry_rows(env, params, *actions, count=12):
    """Play the actions from row 25 on, then HOLD -> the rows at which BUY is legal, in order."""
    state, found = env.reset_at(params, 0, ROW), []
    for i in range(count):
        action = actions[i] if i < len(actions) else HOLD
        state, _, mask = advance(env, state, i32(action), params)
        found += [int(state.row)] if mask[BUY] else []
        assert bool(mask[BUY]) == bool(mask[SELL])
        assert bool(mask[HOLD])
    return found


LOSS = (100, 100, 80, 90)  # bought at 100, stopped at 88: $12 and two commissions
WIN = (100, 140, 100, 140)  # target at 136: $36 less two commissions
EVEN, ONE_UP = (102,) * 4, (103,) * 4  # left at the open: $2 pay the commissions, $3 win


@pytest.mark.parametrize(
    ("guards", "bars", "first"),
    [
        ({}, [LOSS], 26),
        ({"cooldown": 3}, [LOSS], 29),
        ({"cooldown": 3}, [WIN], 29),
        ({"cooldown": 1, "cooldown_after_loss": 4}, [LOSS], 30),
        ({"cooldown": 1, "cooldown_after_loss": 4}, [WIN], 27),
        ({"cooldown": 1, "cooldown_after_loss": 4}, [(100,) * 4, EVEN], 31),
        ({"cooldown": 1, "cooldown_after_loss": 4}, [(100,) * 4, ONE_UP], 28),
        ({"daily_stop": 14}, [LOSS], None),
        ({"daily_stop": 14}, [WIN], 26),
        ({"daily_stop": 14.001}, [LOSS], 26),
        ({"daily_goal": 34}, [WIN], None),
        ({"daily_goal": 34.001}, [WIN], 26),
        ({"trades_per_day": 1}, [LOSS], None),
        ({"trades_per_day": 2}, [LOSS], 26),
    ],
)
def test_the_first_entry_after_a_trade_by_hand(guards, bars, first):
    """The trade is decided at 25 and filled at the open of 26. The last entry is that of 36."""
    found = entry_rows(env_of(guards), world(*bars), BUY, CLOSE if len(bars) > 1 else HOLD)
    assert found == ([] if first is None else [*range(first, 37)])


def test_an_entry_that_a_guard_forbids_is_a_hold_and_counted():
    env, params = env_of({"cooldown": 3}), world(LOSS)
    state = env.reset_at(params, 0, ROW)
    for action, illegal in ((BUY, False), (BUY, True), (SELL, True), (HOLD, False), (BUY, False)):
        state, outcome, _ = advance(env, state, i32(action), params)
        assert bool(outcome.info.illegal) is illegal
        assert (int(state.position.quantity) != 0) == (int(state.row) == 30)
    assert int(state.stats.illegal) == 2


def test_the_next_session_begins_with_new_counts():
    """A session that a stop, a cap and a cooldown have closed; the account is carried over."""
    env = env_of({"trades_per_day": 1, "cooldown": 300, "daily_stop": 14})
    params = world(LOSS, sessions=2)
    found = entry_rows(env, params, BUY, count=20)
    assert found == [61, 62, 63, 64, 65, 66, 67, 68]  # all rows of the second one that were played
    again = [BUY] + [HOLD] * 16 + [BUY]  # decided at 65, filled at 66, and stopped there
    assert entry_rows(env, params, *again, count=24) == [61, 62, 63, 64, 65]


@dataclass(frozen=True)
class Reversing(EntryTask):
    """HOLD, BUY and SELL, always legal: a side in a position of the other one turns it round."""

    def mask(self, config, state, params):
        return jnp.ones(3, bool)


@pytest.mark.parametrize(
    ("guards", "reverses"),
    [
        ({"trades_per_day": 2}, True),
        ({"trades_per_day": 1}, False),
        ({"cooldown": 1}, False),
        ({"cooldown_after_loss": 1}, False),
        ({"daily_goal": 10}, False),  # open profit counts
        ({"daily_goal": 11}, True),
    ],
)
def test_a_reversal_is_an_entry(guards, reverses):
    register_task("reversing", Reversing())
    env, params = env_of(guards, "reversing"), world((100, 111, 100, 111), *[(111,) * 4] * 3)
    state, _, mask = advance(env, env.reset_at(params, 0, ROW), i32(BUY), params)
    assert int(state.account.equity) == 10_000
    assert mask.tolist() == [True, True, reverses]  # BUY opens nothing in a long position


PLAYED = {
    "trades_per_day": 5,
    "cooldown": 2,
    "cooldown_after_loss": 6,
    "daily_stop": 300,
    "daily_goal": 250,
}


class Counts:
    """The guards of one session, counted in Python from the trades alone: (entry row, exit row,
    net profit in mills).
    """

    def __init__(self):
        self.trades, self.opened = [], 0

    def forbidding(self, guards, row):
        """The names of the rules that forbid an entry decided at the close of `row`."""
        profit = sum(net for *_, net in self.trades)
        _, ended, net = self.trades[-1] if self.trades else (0, -(10**6), 0)
        bars = row - ended
        found = {
            "trades_per_day": self.opened >= guards.get("trades_per_day", 10**9),
            "cooldown": bars < guards.get("cooldown", 0),
            "cooldown_after_loss": net <= 0 and bars < guards.get("cooldown_after_loss", 0),
            "daily_stop": profit <= -1000 * guards.get("daily_stop", 10**9),
            "daily_goal": profit >= 1000 * guards.get("daily_goal", 10**9),
        }
        return {name for name, holds in found.items() if holds}


def check(env, plain, guards, params, trace):
    """The mask of every decision, by the trades before it -> rule -> entries that it forbade."""
    masks = np.asarray(trace.ref.mask)
    without = jax.jit(jax.vmap(jax.vmap(plain.mask, (0, None)), (0, None)))
    base = np.asarray(without(trace.state.replace(record=None), params))
    state, event = jax.tree.map(np.asarray, (trace.state, trace.outcome.info.event))
    bound = Counter()
    for n in range(masks.shape[1]):
        sessions, entry = defaultdict(Counts), 0
        for t in range(len(masks)):
            row = int(state.row[t, n])
            counts = sessions[int(state.episode[t, n]), int(state.slot[t, n])]
            rules = counts.forbidding(guards, row)
            wanted = base[t, n].copy()
            wanted[[BUY, SELL]] &= not rules
            np.testing.assert_array_equal(masks[t, n], wanted)
            bound.update(rules if base[t, n][BUY] else ())
            for quantity, price in (
                (event.order_exit_quantity, event.order_exit_price),
                (event.exit_quantity, event.exit_price),
            ):
                if price is event.exit_price and event.entry_quantity[t, n]:
                    counts.opened, entry = counts.opened + 1, int(event.entry_price[t, n])
                if held := int(quantity[t, n]):
                    gain = (int(price[t, n]) - entry) * held * worlds.TICK_MILLS
                    counts.trades.append((0, row + 1, gain - 2 * abs(held) * worlds.COMMISSION))
    return bound


def test_random_play_keeps_the_rules():
    """In every environment of a batch, over two sessions of an account and over resets."""
    env, plain, total = env_of(PLAYED), env_of({}), Counter()
    params = make_params(worlds.walk_market(sessions=4, length=120), episode_sessions=2)
    for seed in (1, 2, 3):  # the same ones always: each rule has to forbid something
        trace = worlds.run_random(env, params, seed, 12, 150)
        total.update(check(env, plain, PLAYED, params, trace))
    assert total.keys() == PLAYED.keys()  # every rule has forbidden an entry


@pytest.mark.parametrize("task", ["entry", "manage", "advised"])
def test_without_guards_a_task_is_itself(task):
    env = env_of({}, task)
    assert env.task is task_of(env.config) is TASKS[task]
    assert env_of({"cooldown": 1}, task).task.shows_record is (task == "advised")


def test_advised_sees_its_account_as_without_guards():
    env, params = env_of({"cooldown": 3}, "advised"), world(LOSS)
    _, outcome, mask = advance(env, env.reset_at(params, 0, ROW), i32(BUY), params)
    seen = outcome.final_ref.account
    assert [int(seen.losses), int(seen.drawdown), int(seen.closed)] == [1, 14_000, 1]
    assert not mask[BUY]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["entry", "advised"])
def test_guards_that_never_bind_change_nothing(task):
    """Nor does what a policy sees of the account change."""
    params = make_params(worlds.walk_market(sessions=3, context=True), episode_sessions=2)
    free, bound = (
        worlds.run_random(env_of(guards, task), params, 1, 6, 200)
        for guards in ({}, {"trades_per_day": 1000, "daily_stop": 500_000})
    )
    for part in ("ref", "action", "outcome"):
        assert worlds.leaves_differ(getattr(free, part), getattr(bound, part)) == []
    assert bound.ref.account is None or (np.asarray(bound.ref.account.losses) > 0).any()


def test_a_configuration_without_guards_is_that_of_before():
    """No key of them is in its file, nor in its digest; each can be set, alone or in a section."""
    assert "guards" not in dump_config(RunConfig())
    config = load_config(None, ["env.guards.cooldown=5"])
    assert config.env.guards == GuardsConfig(cooldown=5)
    assert changed_config(config, ["env.guards.cooldown=0"]).digest() == RunConfig().digest()
    assert load_config(None, env={"guards": {"cooldown": 5}}).digest() == config.digest()
    with pytest.raises(ConfigError, match=r"env\.guards"):
        load_config("fx_allocate", ["env.guards.cooldown=5"])


def test_accounts_can_be_drawn_from_sessions_with_guards():
    params = make_params(
        worlds.walk_market(), account=worlds.rules(drawdown=10**6), episode_sessions=3
    )
    assert why_not_simulated(env_of({"cooldown": 5}), params) == ""


GUARDS = {"trades_per_day": 3, "cooldown": 4, "cooldown_after_loss": 15, "daily_stop": 400}
TINY = [
    "env.task=entry",
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=768",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    *(f"env.guards.{name}={value}" for name, value in GUARDS.items()),
]


def broken(trades, guards):
    """The rules that a table of trades breaks, each of its rows an entry of a session."""
    found = set()
    for _, session in trades.groupby("session"):
        counts = Counts()
        for trade in session.itertuples():
            decided, left = (
                int(np.datetime64(text[:19]).astype("datetime64[m]").astype(int))
                for text in (str(trade.decision_time), str(trade.exit_time))
            )
            # A decision has the stamp of its bar's close, an exit that of its bar's open.
            found |= counts.forbidding(guards, decided - 1)
            counts.opened += 1
            counts.trades.append((0, left, round(1000 * trade.net_pnl)))
    return found


def baselines(config):
    """Their trades over all sessions of the bundled week."""
    market = jaxtrade.load_market(config)
    every = jaxtrade.split_sessions(market, config.split.replace(test_sessions=0))["train"]
    params = jaxtrade.make_params(market, every, config)
    result = jaxtrade.evaluate(jaxtrade.make_env(config), params, market, every, config)
    return {agent.name: result.trades_of(agent.name) for agent in result.agents}


@pytest.mark.slow
def test_baselines_keep_the_rules():
    """Those too that give orders without a mask; without guards they break the rules."""
    averages = ["evaluation.sma_fast=3", "evaluation.sma_slow=10"]
    config = load_config("quickstart", [*TINY, *averages])
    bound, free = baselines(config), baselines(config.replace(env={"guards": GuardsConfig()}))
    for name in ("random", "buy_hold", "sma_cross"):
        assert len(bound[name]) >= 5
        assert broken(bound[name], GUARDS) == set()
    assert broken(free["random"], GUARDS) == GUARDS.keys()
    assert broken(free["sma_cross"], GUARDS) >= {"trades_per_day", "cooldown"}


@pytest.mark.slow
def test_a_run_trains_evaluates_and_goes_on_with_guards(tmp_path):
    """A run that was cut goes on to the same bits."""
    path = tmp_path / "run"
    assert run(load_config("quickstart", TINY), path).exit_code == 0
    assert broken(pd.read_csv(path / "evaluation/test/trades.csv"), GUARDS) == set()
    assert all(row["illegal"] == 0 for row in history(path))
    again = cut(path, tmp_path / "again", 2)
    assert resume(again).exit_code == 0
    assert_same(final_state(path), final_state(again))
