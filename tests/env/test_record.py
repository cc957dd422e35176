"""The record of trades and the five risk slots: hand-worked bars, streaks, the window of ten, and
whole runs.
"""

import jax
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.episode import account_seen, add_bar, new_record, risk_slots
from jaxtrade.env.execution import empty_event
from jaxtrade.env.state import KEEP_STOP, Order, TradeRecord
from tests import compiling
from tests.env import worlds
from tests.env.worlds import i32, make_market, make_params

ENV = TradingEnv(EnvConfig(task="advised"))
ROW = 25  # the first decision of the hand-worked bars


def world(*after):
    """Flat bars at 100 up to and with row 25, then `after`. A tick is a dollar, and so is a
    commission.
    """
    rest = [(100,) * 4] * (14 - len(after))
    bars = worlds.bars_of([(100,) * 4] * (ROW + 1) + [*after] + rest)
    return make_params(
        make_market(bars, [worlds.Session(0, 40, 21, 37)], tr_sum=112),
        costs=worlds.contract(commission=1_000, slippage=0, tick_mills=1_000, min_stop=1),
    )


def order(quantity, stop=50, target=50):
    return Order(*map(i32, (quantity, stop, target, KEEP_STOP, -1)))


TRANSITION = jax.jit(ENV.transition, compiler_options=compiling.fast())


def play(params, *orders):
    state = ENV.reset_at(params, 0, ROW)
    for wanted in orders:
        state, _ = TRANSITION(state, wanted, params)
    return state


def kept(state):
    record = state.record
    return {name: int(getattr(record, name)) for name in TradeRecord.__dataclass_fields__}


def slots(state, params, scaling):
    seen = account_seen(state)
    return np.asarray(risk_slots(scaling, seen, params.account), np.float64).tolist()


def test_an_open_position_by_hand():
    """Bought at 100: marked at 97..104 and closed at 103, then at 99..106: 3 ticks against, 6 for
    it.
    """
    params = world((100, 104, 97, 103), (103, 106, 99, 105))
    one, two = play(params, order(1)), play(params, order(1), order(1))
    assert kept(one) == {
        "balance": -1_000,
        "peak": 0,
        "losses": 0,
        "recent": 0,
        "closed": 0,
        "adverse": 3,
        "favourable": 4,
    }
    assert kept(two) == kept(one) | {"favourable": 6}
    assert slots(one, params, "seed") == pytest.approx(
        [3.0, 1_000 / 50_000_000, 0.0, 0.5, 3 / 4], rel=1e-6
    )
    assert slots(one, params, "relative") == pytest.approx(
        [0.006, 0.002, 0.0, 0.5, 3 / 7], rel=1e-6
    )
    assert slots(two, params, "seed") == pytest.approx(
        [5.0, 1_000 / 50_000_000, 0.0, 0.5, 3 / 6], rel=1e-6
    )


def test_a_position_that_was_never_ahead():
    """The seed's ratio is then 1, whatever it lost; the other one says that all of it was
    adverse.
    """
    params = world((100, 100, 95, 96))
    state = play(params, order(1))
    assert (kept(state)["adverse"], kept(state)["favourable"]) == (5, 0)
    assert [slots(state, params, scaling)[4] for scaling in ("seed", "relative")] == [1.0, 1.0]


def test_a_win_then_a_loss_in_one_bar():
    """Bought at 100, turned at 110: 10 - 2 dollars; the short is stopped at 115 in the same bar: -5
    - 2 dollars.
    """
    params = world((100, 104, 97, 103), (110, 116, 109, 112))
    state = play(params, order(1), order(-1, stop=5))
    assert kept(state) == {
        "balance": 1_000,
        "peak": 1_000,
        "losses": 1,
        "recent": 0b10,
        "closed": 2,
        "adverse": 0,
        "favourable": 0,
    }
    assert int(state.stats.wins) == 1
    assert slots(state, params, "seed") == [0.0, 0.0, 1.0, 0.5, 1.0]
    assert slots(state, params, "relative") == pytest.approx([0.0, 0.0, 0.1, 0.5, 0.5])


def test_a_position_opened_by_a_flip_starts_its_own_excursion():
    """The long was 6 ticks ahead; the short that follows it at 105 knows nothing of that."""
    params = world((100, 106, 97, 103), (105, 107, 104, 105))
    state = play(params, order(1), order(-1))
    assert (kept(state)["adverse"], kept(state)["favourable"]) == (2, 1)


def test_the_drawdown_is_that_of_the_realised_balance():
    """+8 dollars, then -7: the peak stays; open profit moves neither."""
    params = world(
        (100, 110, 100, 110), (110, 110, 110, 110), (110, 110, 104, 104), (104, 104, 104, 104)
    )
    state = play(params, order(1), order(0), order(1, stop=5), order(0))
    assert (kept(state)["balance"], kept(state)["peak"], kept(state)["losses"]) == (1_000, 8_000, 1)
    assert slots(state, params, "seed")[1] == pytest.approx(7_000 / 50_008_000, rel=1e-6)
    assert slots(state, params, "relative")[1] == pytest.approx(7_000 / 500_000, rel=1e-6)


def test_streaks_and_the_window_of_ten():
    """Thirty trades one after the other against a list of their results; a win must pay both
    commissions.
    """
    results = [1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, *[0] * 14, 1, 0, 0]
    params = world()
    state = ENV.reset_at(params, 0, ROW)
    held = state.replace(position=state.position.replace(quantity=i32(1), entry=i32(100)))
    add = jax.jit(lambda record, event: add_bar(record, held, state, event, params.contract))
    record = new_record()
    for count, won in enumerate(results, 1):
        price = 103 if won else 102  # 2 dollars of profit go into two commissions
        record = add(
            record, empty_event(i32(100)).replace(exit_quantity=i32(1), exit_price=i32(price))
        )
        past = results[:count]
        losses = next((i for i, x in enumerate(reversed(past)) if x), count)
        assert int(record.losses) == losses
        assert int(record.closed) == min(count, 10)
        seen = account_seen(state.replace(record=record))
        assert int(seen.won) == sum(past[-10:])
        relative = np.asarray(risk_slots("relative", seen, params.account))
        assert relative[2:4].tolist() == pytest.approx(
            [min(losses, 10) / 10, sum(past[-10:]) / min(count, 10)]
        )


def test_only_advised_keeps_a_record():
    """Its reference is 51 bytes, of 96 allowed; the other tasks' state and reference have no part
    of it.
    """
    params = world()
    for task, size in (("entry", 25), ("manage", 25), ("advised", 51)):
        env = TradingEnv(EnvConfig(task=task))  # type: ignore[arg-type]
        state, ref = env.reset(jax.random.key(0), params)
        assert (state.record is None) == (task != "advised")
        assert sum(np.asarray(x).nbytes for x in jax.tree.leaves(ref)) == size
