"""A replayed session, line by line, against the hand-worked market."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.episode import RISK_SLOTS
from jaxtrade.env.observation import MANAGE_SLOTS, POSITION_SLOTS
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.replay import _seen_slots, replay_lines
from jaxtrade.types import Learner
from tests.evaluation.tiny import TinyMarket, hand_market, setup

HEADERS = 4  # lines before the first decision


@dataclasses.dataclass(frozen=True)
class DatedMarket(TinyMarket):
    trade_dates: np.ndarray = dataclasses.field(
        default_factory=lambda: np.array(["2024-01-02"], "datetime64[D]")
    )


def buys(policy, memory, ref, params, key, explore):
    """BUY where it may, else HOLD."""
    return memory, jnp.where(ref.mask[Action.BUY], Action.BUY, Action.HOLD), ()


def replayed(**sections):
    market = DatedMarket(**vars(hand_market(1)))
    env, params, _ = setup(market, market.sessions(0), **sections)
    algorithm = Learner(None, None, buys, None, None)
    return env, params, list(replay_lines(env, params, market, algorithm, (), "2024-01-02"))


def parts(line):
    return [part.split() for part in line.split(" | ")]


@pytest.mark.slow
def test_before_and_after_by_hand():
    _, _, lines = replayed()
    before, _, decision, after = parts(lines[HEADERS])
    assert before == ["09:31:00", "2000.00", "0", "-", "-"]
    assert decision == ["HBS....", "BUY"]
    # Filled at 8001 + 1 ticks; marked at 8004: 2 ticks of $12.50 less $2.08. High-water mark at
    # 8006: 4 ticks less $2.08; the floor is $2,500 below it.
    assert after == ["22.92", "-2452.08", "1", "opened", "+1", "@", "2000.50"]
    before, seen, _, after = parts(lines[HEADERS + 1])
    assert before == [
        "09:32:00",
        "2001.00",
        "1",
        "1996.50",
        "2011.50",
    ]  # 15 and 45 ticks from the open, 8001
    # long, 2 ticks up on an ATR column of 1, 18 and 42 ticks to stop and target, one bar of 390; no
    # entry, held, held
    assert seen[-6:] == ["1.00", "2.00", "18.00", "42.00", "0.00", "011"]
    assert after[:3] == ["85.42", "-2402.08", "1"]  # high-water mark at 8010: 8 ticks less $2.08
    last = parts(lines[-1])[3]
    assert last == ["45.84", "-2389.58", "0", "flat", "+1", "@", "2001.50"]
    assert len(lines) == HEADERS + 5
    groups = [group.split()[0] for group in lines[2].split(" | ")]
    assert groups == ["before", "seen:", "decision", "after"]
    ends = [[i for i, char in enumerate(line) if char == "|"] for line in lines[2:]]
    assert all(columns == ends[0] for columns in ends), "columns line up"


@pytest.mark.slow
def test_slots_are_those_that_the_policy_saw():
    env, params, lines = replayed()
    names = lines[1].split(": ")[1].split()
    state = env.reset_at(params, jnp.int32(0), params.market.sessions.first[0])
    observation = np.asarray(env.observe(env.ref(state, params), params))
    expected = [observation[env.spec.names.index(name)] for name in names]
    *numbers, flags = parts(lines[HEADERS])[1]
    assert [float(value) for value in [*numbers, *flags]] == pytest.approx(expected, abs=0.006)
    assert names[0] == "close[t-1]"
    assert names[len(env.config.features) :] == list(env.spec.names[-8:])


def test_the_context_of_advised_is_left_out_of_its_lines():
    env = TradingEnv(EnvConfig(task="advised"))
    names, indices = _seen_slots(env)
    assert names == [
        *(f"{name}[t-1]" for name in env.config.features),
        *POSITION_SLOTS,
        *RISK_SLOTS,
        *MANAGE_SLOTS,
    ]
    assert [env.spec.names[k] for k in indices] == names


def test_no_floor_is_na():
    _, _, lines = replayed(account={"preset": "rules_off_50k"})
    assert {parts(line)[3][1] for line in lines[HEADERS:]} == {"n/a"}
    assert parts(lines[HEADERS])[3][0] == "22.92"


def test_a_date_without_a_session_is_refused():
    market = DatedMarket(**vars(hand_market(1)))
    env, params, _ = setup(market, market.sessions(0))
    with pytest.raises(ConfigError, match="2024-01-03"):
        replay_lines(env, params, market, Learner(None, None, buys, None, None), (), "2024-01-03")
