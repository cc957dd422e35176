"""Our side: random masked actions through the compiled environment, and its events as round
turns.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env import actions
from jaxtrade.env.actions import Action
from jaxtrade.env.dynamics import TradingEnv, next_session
from jaxtrade.env.execution import select
from jaxtrade.env.state import ExitReason
from tests.differential.reference import REVERSE, Fill, Log, Terms

# Odds of each legal action. Mostly HOLD, so that stops, targets and the flat bar get their share of
# exits.
ODDS = {
    Action.HOLD: 1.0,
    Action.BUY: 0.25,
    Action.SELL: 0.25,
    Action.MOVE_STOP_TO_BREAKEVEN: 0.5,
    Action.ENABLE_TRAIL: 2.0,
    Action.DISABLE_TRAIL: 0.1,
    Action.CLOSE: 0.04,
    REVERSE: 0.04,
}


def decision_rows(params):
    """Every decision bar of the split, in time order."""
    table = params.market.sessions
    ids = np.asarray(params.sessions.ids)[: int(params.sessions.count)]
    first, last = np.asarray(table.first), np.asarray(table.last)
    return np.concatenate([np.arange(first[i], last[i] + 1) for i in ids])


def choices_of(config):
    """The columns of logits: the task's actions, and REVERSE."""
    return (*range(TradingEnv(config).num_actions), REVERSE)


def random_logits(config, params, seed, reversals):
    """float32[steps, A + 1]: log odds plus Gumbel noise, so the best legal column is a draw from the
    legal odds.
    """
    choices = choices_of(config)
    odds = np.log(np.array([ODDS[choice] for choice in choices]))
    odds[-1] = odds[-1] if reversals else -np.inf
    noise = np.random.default_rng(seed).gumbel(size=(len(decision_rows(params)), len(choices)))
    return (odds + noise).astype(np.float32)


@partial(jax.jit, static_argnums=0)
def _rollout(env, params, logits):
    """The whole split in one episode, by Orders: the task's actions and, in the last column, REVERSE.
    logits: float32[steps, A + 1], noise included.
    """
    start = env.reset_at(params, 0, params.market.sessions.first[params.sessions.ids[0]])

    def body(state, row_logits):
        can_reverse = (state.position.quantity != 0) & (params.market.bars_to_flat[state.row] >= 2)
        legal = jnp.append(env.mask(state, params), can_reverse)
        action = jnp.argmax(jnp.where(legal, row_logits, -jnp.inf))
        reverse = action == env.num_actions
        flip = actions.bracket(state, -state.position.quantity, params)
        order = select(reverse, flip, env.decode(action, state, params))
        after, event = env.transition(state, order, params)
        over = after.row > params.market.sessions.last[params.sessions.ids[state.slot]]
        seen = (
            state.row,
            jnp.where(reverse, REVERSE, action),
            event,
            after.account.equity,
        )
        return select(over, next_session(after, params), after), seen

    return jax.lax.scan(body, start, logits)[1]


def play(config, params, logits, fine=None):
    """Steps the whole split once.

    `fine` is for the log alone.
    -> (decision log, our round turns with slipped prices, equity mills at each row, int64[T]). Equity outside the
    stepped bars is the last one known (the account is flat there).
    """
    env = TradingEnv(config)
    rows = decision_rows(params)
    everything = params.replace(episode_sessions=params.sessions.count)
    seen = jax.tree.map(np.asarray, _rollout(env, everything, jnp.asarray(logits)))
    row, action, event, equity = seen
    assert np.array_equal(row, rows), "not every decision bar was visited once"

    market = jax.tree.map(np.asarray, params.market)
    bars = ohlc(market)
    taken = np.full(len(bars), -1)
    taken[rows] = action
    flat_reason = np.zeros(len(bars), int)
    for i in np.asarray(params.sessions.ids)[: int(params.sessions.count)]:
        reason = ExitReason.FLAT if market.sessions.complete[i] else ExitReason.END_OF_DATA
        flat_reason[market.sessions.last[i] + 1] = reason
    known = np.full(len(bars), -1)
    known[rows + 1] = np.arange(len(rows))
    known = np.maximum.accumulate(known)
    series = np.where(known >= 0, equity[known], 0).astype(np.int64)
    log = Log(bars, taken, flat_reason, fine)
    return log, round_turns(row + 1, event, int(params.contract.commission) // 10), series


def ohlc(prices):
    """int64[T, 4] open, high, low, close in ticks."""
    return np.stack(
        [np.asarray(x, np.int64) for x in (prices.open, prices.high, prices.low, prices.close)],
        axis=1,
    )


def round_turns(rows, event, commission_cents):
    """Events, one per row, as round turns. Fails where an exit has no entry or another size."""
    turns = []
    held = None  # quantity, row, price

    def leave(row, quantity, price, reason):
        assert held is not None, "an exit that matches no entry"
        assert held[0] == quantity, "an exit of another size"
        turns.append(
            Fill(
                int(np.sign(quantity)),
                abs(quantity),
                held[1],
                held[2],
                row,
                price,
                reason,
                2 * abs(quantity) * commission_cents,
            )
        )

    columns = [
        getattr(event, name).tolist()
        for name in (
            "order_exit_quantity",
            "order_exit_price",
            "entry_quantity",
            "entry_price",
            "exit_quantity",
            "exit_price",
            "exit_reason",
        )
    ]
    for row, ordered, ordered_price, entered, entry_price, left, price, reason in zip(
        rows.tolist(), *columns, strict=True
    ):
        if ordered:
            leave(row, ordered, ordered_price, int(ExitReason.ORDER))
            held = None
        if entered:
            assert held is None, "a second position"
            held = (entered, row, entry_price)
        if left:
            leave(row, left, price, reason)
            held = None
    assert held is None, "a position left open at the end"
    return turns


def reference_terms(params, contracts):
    """The same figures in the reference engine's units. Fails where they are not whole cents."""
    tick, commission = int(params.contract.tick_mills), int(params.contract.commission)
    assert tick % 10 == 0, "the comparison is in whole cents"
    assert commission % 10 == 0, "the comparison is in whole cents"
    return Terms(
        contracts=contracts,
        tick_cents=tick // 10,
        commission_cents=commission // 10,
        slippage=int(params.contract.slippage),
        min_stop=int(params.contract.min_stop),
        be_ticks=int(params.contract.be_ticks),
        stop_atr=int(params.brackets.stop_atr),
        target_multiple=int(params.brackets.target_multiple),
        trail_atr=int(params.brackets.trail_atr),
    )
