"""The `manage` task as a Gymnasium environment in plain Python, which Stable-Baselines3 trains on.

Exactly the semantics of docs/semantics.md, as the tests' NumPy oracle has them: the rules and the
order of events are the oracle's (letters 5a to 5k), its speed comes from integers in local
variables and from a tape that holds what a bar alone decides: an account's rules as Python's integers,
and every decision bar with its observation made ready. One thing is written
differently: prices of a short are negated while its bar is worked through, so that `entry`, `stop`,
`target`, open, best and worst price are those of a long and each rule stands once.

    env = Twin(make_tape(config.env, params))
    observation, info = env.reset(seed=0)                      # a drawn session and decision bar
    env.reset(options={"slot": 2, "row": 4000})                # or a chosen one: session of the split, market row
    observation, reward, terminated, truncated, info = env.step(action)
    mask = env.action_masks()                                  # bool[7], as MaskablePPO asks for it

The tape is made from an environment's own configuration and parameters, so that both sides of a bench
trade the same market under the same figures. Nothing here needs JAX: a process that only steps the twin
never imports it.

An illegal action is counted in `illegal` and executed as HOLD. `info` is empty, except after a
reset ("row") and at an
end ("end_reason", `EndReason`; "equity", mills): SB3 copies it in every step.
"""

import functools
import pickle
from collections import namedtuple
from operator import index
from pathlib import Path
from struct import Struct

import gymnasium
import numpy as np
import yaml
from gymnasium.error import InvalidAction, ResetNeeded

from jaxtrade.data.features.schema import NOW, FeatureScale, feature_spec, shape_of
from jaxtrade.errors import ConfigError

OFF = 1 << 30  # `jaxtrade.env.state.OFF`: a limit of `AccountParams` that is switched off
FAR = 1 << 62  # past any money
INTRADAY, END_OF_DAY = 2, 1  # `jaxtrade.env.state.Trailing`
POSITION_SLOTS, FLAGS = 5, 3  # behind the window block; can_enter is the first flag
COVERED = yaml.safe_load("""
{task: manage, actions: full, scaling: relative, fill: next_open, mark: extreme,
 intrabar: stop_first}
""")


# worth: mills of one tick of the whole position. fees: mills of its commission on one side.
# Distances from the high-water mark (drawdown), the session's opening equity (daily_loss) and the
# start balance (target); FAR where there is none. cap: the drawdown floor never rises above it
# (-FAR: there is no such floor). live: the high-water mark follows live equity; end_of_day: a
# session's closing equity. max_steps: 0 for none. reward: per mill.
Rules = namedtuple(
    "Rules",
    """worth fees slippage be_ticks drawdown cap daily_loss daily_fails target min_days live
    end_of_day episode_sessions max_steps random_start reward""",
)


# Positions on the tape: decision bars first..flat - 1, then the flat bar. row: market row of `first`.
# complete: False where the data end at the flat bar.
Session = namedtuple("Session", "first flat row complete")
# A bar. Ticks: open, high, low, close; stop and target: distances of a bracket decided on at its
# close; trail: of one ratcheted there. Then may_enter: calendar and warm-up; per_atr: 1 / ticks; seen:
# float32[D], the observation of one who is flat. A plain tuple, which Python unpacks faster than
# a named one.
#
# The tape: the bars of every session of a split, one session after the other. columns: the arrays
# int64[n, 7], bool[n], float64[n], float32[n, D]; bars: what Python reads fastest, tuples of its own
# numbers. About 1.5 kB per bar, most of it `seen`.
Tape = namedtuple("Tape", "rules sessions columns bars")


def make_tape(config, params):
    """Return the tape of an environment.

    Raises ConfigError at a configuration that the twin does not cover.
    """
    check_covered(config, params)
    starts, lasts, complete = (
        np.asarray(getattr(params.market.sessions, name)).tolist()
        for name in ("first", "last", "complete")
    )
    sessions, parts, at = [], [], 0
    for i in np.asarray(params.sessions.ids)[: int(params.sessions.count)].tolist():
        rows = np.arange(starts[i], lasts[i] + 2)
        sessions.append(Session(at, at + len(rows) - 1, starts[i], complete[i]))
        parts.append(session_columns(config, params, rows))
        at += len(rows)
    columns = tuple(map(np.concatenate, zip(*parts, strict=True)))
    return assembled(rules_of(config, params), tuple(sessions), columns)


def assembled(rules, sessions, columns):
    """Return the tape of these bars."""
    ticks, may_enter, per_atr, seen = columns
    rest = zip(ticks.tolist(), may_enter.tolist(), per_atr.tolist(), seen, strict=True)
    bars = tuple((*row, *others) for row, *others in rest)
    return Tape(rules, sessions, columns, bars)


def check_covered(config, params):
    """Raise ConfigError naming everything that the twin does not play."""
    faults = [
        f"env.{key} = {getattr(config, key)} (only {value})"
        for key, value in COVERED.items()
        if getattr(config, key) != value
    ]
    market, terms = params.market, sorted(params.reward_weights)
    others = {
        "two-sided bars (only one-sided)": market.ask is not None,
        "converted profits (only contracts in the account's currency)": market.tick_value
        is not None,
        f"reward terms {', '.join(terms)} (only equity_change)": terms != ["equity_change"],
        "a split without sessions": not int(params.sessions.count),
    }
    if faults := [*faults, *(fault for fault, holds in others.items() if holds)]:
        raise ConfigError(
            f"the NumPy twin does not cover {'; '.join(faults)}. Use the package's own classes for it "
            "(jaxtrade.to_gymnasium)"
        )


def rules_of(config, params):
    """Return the traced figures as Python's own numbers."""
    contract, account = params.contract, params.account
    size = min(config.quantity, int(account.max_contracts))
    drawdown, daily_loss, target = map(int, (account.drawdown, account.daily_loss, account.target))
    ends_at_target = target < OFF and bool(account.stop_at_target)
    return Rules(
        worth=size * int(contract.tick_mills),
        fees=size * int(contract.commission),
        slippage=int(contract.slippage),
        be_ticks=int(contract.be_ticks),
        drawdown=drawdown,
        cap=int(account.floor_cap) if drawdown < OFF else -FAR,
        daily_loss=daily_loss if daily_loss < OFF else FAR,
        daily_fails=bool(account.fail_on_daily_loss),
        target=target if ends_at_target else FAR,
        min_days=int(account.min_days),
        live=int(account.trailing) == INTRADAY,
        end_of_day=int(account.trailing) == END_OF_DAY,
        episode_sessions=int(params.episode_sessions),
        max_steps=int(params.max_steps),
        random_start=config.random_start,
        reward=float(params.reward_weights["equity_change"]) / float(account.risk_unit),
    )


def session_columns(config, params, rows):
    """Bars at the market rows `rows` (int[n])."""
    market, brackets = params.market, params.brackets
    sides = market.open, market.high, market.low, market.close, market.tr_sum
    *prices, ranges = (np.asarray(side, np.int64)[rows] for side in sides)
    # smallest integers that are not below `atr * ranges / 14_000`
    stop, trail = (-(-int(x) * ranges // 14_000) for x in (brackets.stop_atr, brackets.trail_atr))
    stop = np.maximum(int(params.contract.min_stop), stop)
    target = int(brackets.target_multiple) * stop
    ticks = np.stack([*prices, stop, target, np.maximum(1, trail)], axis=1)
    may_enter = (np.asarray(market.bars_to_flat)[rows] >= 2) & (ranges >= 0)
    behind = np.zeros((len(rows), POSITION_SLOTS + FLAGS))
    behind[:, -FLAGS] = may_enter
    seen = np.hstack([windows(config, market.view, rows), behind]).astype(np.float32)
    per_atr = np.asarray(market.view.now, np.float64)[rows, NOW.index("per_atr")]
    return ticks, may_enter, per_atr, seen


def windows(config, view, rows):
    """Return the windows before each row: float64[n, window * (F + 3)].

    They are bars t - window .. t - 1 of each row t, oldest first, features then times; by the
    formula of `jaxtrade.data.device`.
    """
    past = rows[:, None] + np.arange(-config.window, 0)
    now = dict(zip(NOW, np.asarray(view.now, np.float64)[rows].T[..., None, None], strict=True))
    shapes = [shape_of(feature_spec(name).unit, "relative") for name in config.features]
    shapes += [FeatureScale()] * 3
    level, per_atr, log_per_atr, log_per_volume = np.array(shapes, np.float64).T
    x = np.asarray(view.value, np.float64)[past]
    if view.level is not None:
        x += np.asarray(view.level, np.float64)[past] - level * now["close"]
    x *= np.where(per_atr, now["per_atr"], 1.0)
    x += log_per_atr * now["log_per_atr"] + log_per_volume * now["log_per_volume"]
    return x.reshape(len(rows), -1)


def save(tape, path):
    """For other processes, see `load`."""
    path.write_bytes(pickle.dumps((tape.rules, tape.sessions, tape.columns)))


@functools.lru_cache(maxsize=2)
def load(path):
    """Return a tape that `save` wrote, once per process: its environments share it."""
    return assembled(*pickle.loads(Path(path).read_bytes()))


# -------------------------------------------------------------------------------------- the twin
# The ids of jaxtrade.env: Action, ExitReason, EndReason, StopKind. Those modules import JAX.
HOLD, BUY, SELL, MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL, DISABLE_TRAIL, CLOSE = range(7)
(
    NO_EXIT,
    BY_ORDER,
    BY_STOP,
    BY_BREAKEVEN,
    BY_TRAIL,
    BY_TARGET,
    BY_LIQUIDATION,
    BY_FLAT,
    BY_END_OF_DATA,
) = range(9)
GOES_ON, BUST, DAILY_LOSS, TARGET, SESSION_END, STEP_LIMIT, END_OF_DATA = range(7)
INITIAL, BREAKEVEN, TRAIL = range(3)
NUM_ACTIONS = 7
BARS_PER_DAY = 390
LIMIT = 1e30  # of the observation space, as in the package's gymnasium and gymnax classes
# Into the end of an observation: quicker than assigning a slice.
_write = Struct(f"{POSITION_SLOTS + FLAGS}f").pack_into


# What may be done: action ids, and the same as bool[7] (read-only; None after an end).
def _choice(*legal):
    mask = np.zeros(NUM_ACTIONS, bool)
    mask[list(legal)] = True
    mask.flags.writeable = False
    return frozenset(legal), mask


OVER = frozenset(), None
WAITING, FREE = _choice(HOLD), _choice(HOLD, BUY, SELL)
# In position: [break-even legal][0 nothing about the trail, 1 ENABLE_TRAIL, 2 DISABLE_TRAIL legal]
HELD = tuple(
    tuple(
        _choice(HOLD, CLOSE, *breakeven, *trail)
        for trail in ((), (ENABLE_TRAIL,), (DISABLE_TRAIL,))
    )
    for breakeven in ((), (MOVE_STOP_TO_BREAKEVEN,))
)


SLOTS = """
_at _bars _be_ticks _choice _days _entry _figures _flat _kind _locked _max_steps _offset
_opened _rules _session_floor _sessions_left _side _slot _stop _tape _target _time
_traded _trailing balance equity exit_reason high_water illegal
"""


class Twin(gymnasium.Env):
    """One environment on a tape. Observation float32[D]; see the module."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as the base class declares it)
    __slots__ = SLOTS.split()

    def __init__(self, tape):
        size = tape.columns[-1].shape[1]
        self.observation_space = gymnasium.spaces.Box(-LIMIT, LIMIT, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self._tape, self._bars, self._rules = tape, tape.bars, tape.rules
        self._offset = 4 * (size - POSITION_SLOTS - FLAGS)
        rules = tape.rules
        self._be_ticks, self._max_steps = rules.be_ticks, rules.max_steps
        self._figures = (
            *(rules.worth, rules.fees, rules.slippage, rules.be_ticks),
            *(rules.drawdown, rules.cap, rules.live, rules.reward),
        )
        self._choice = OVER

    # ------------------------------------------------------------------ reset
    def reset(self, *, seed=None, options=None):
        """-> (observation, {"row"}). Raises ConfigError at options that name no decision bar."""
        super().reset(seed=seed)
        self._slot, self._at = self._place(options) if options else self._drawn()
        self._flat = self._tape.sessions[self._slot].flat
        self._sessions_left = self._rules.episode_sessions - 1
        self._side = self._entry = self._stop = self._target = self._kind = self._opened = 0
        self.balance = self.equity = self.high_water = 0
        self._trailing = self._locked = self._traded = False
        self._days = self._time = self.illegal = 0
        self._session_floor = -self._rules.daily_loss
        self.exit_reason = NO_EXIT
        bar = self._bars[self._at]
        self._choice = FREE if bar[7] else WAITING
        return bar[9].copy(), {"row": self.row}

    def _drawn(self):
        """Draw (slot, position on the tape): a session, then a decision bar of it, uniformly."""
        slot = int(self.np_random.integers(len(self._tape.sessions)))
        session = self._tape.sessions[slot]
        if not self._rules.random_start:
            return slot, session.first
        return slot, int(self.np_random.integers(session.first, session.flat))

    def _place(self, options):
        sessions = self._tape.sessions
        if set(options) != {"slot", "row"}:
            raise ConfigError(f"reset options {sorted(options)}: expected slot and row, or none")
        slot, row = int(options["slot"]), int(options["row"])
        if not 0 <= slot < len(sessions):
            raise ConfigError(
                f"reset option slot = {slot}: there are sessions 0 .. {len(sessions) - 1}"
            )
        first, flat, first_row, _ = sessions[slot]
        if not first_row <= row < first_row + flat - first:
            raise ConfigError(
                f"reset option row = {row}: session {slot} has decision bars {first_row} .. "
                f"{first_row + flat - first - 1}"
            )
        return slot, first + row - first_row

    @property
    def row(self):
        """Market row of the bar last seen."""
        session = self._tape.sessions[self._slot]
        return session.row + self._at - session.first

    # ------------------------------------------------------------------- step
    def action_masks(self):
        """Return bool[7] of the observation last given.

        Raises ResetNeeded where there is none to act on.
        """
        mask = self._choice[1]
        if mask is None:
            raise ResetNeeded(
                "action_masks before reset, or after the episode's end: call reset() first"
            )
        return mask

    def _refused(self, action):
        """HOLD, counted, for an action that is not legal now."""
        if self._choice is OVER:
            raise ResetNeeded("step before reset, or after the episode's end: call reset() first")
        if not 0 <= action < NUM_ACTIONS:
            raise InvalidAction(f"action {action}: expected an integer in 0 .. {NUM_ACTIONS - 1}")
        self.illegal += 1
        return HOLD

    def step(self, action):
        """Step one bar -> (observation, reward, terminated, truncated, info).

        Raises ResetNeeded, InvalidAction.
        """
        action = index(action)
        if action not in self._choice[0]:
            action = self._refused(action)
        self._at = at = self._at + 1
        bar = self._bars[at]
        if self._side or action:
            reward, end = self._traded_bar(action, at, bar)
        else:  # nothing happens to an account that has no position and no order
            reward, end, self.exit_reason = 0.0, GOES_ON, NO_EXIT
        self._time = time = self._time + 1
        if not end and (at == self._flat or time == self._max_steps):
            end = self._over(at)
            bar = self._bars[self._at]

        observation, side = bar[9].copy(), self._side
        if side:
            close, per_atr = bar[3] * side, bar[8]
            entry, stop, trailing = self._entry, self._stop, self._trailing
            gain, held = close - entry, (at - self._opened + 1) / BARS_PER_DAY
            risk, room = abs(stop - close) * per_atr, abs(self._target - close) * per_atr
            _write(observation, self._offset, side, gain * per_atr, risk, room, held, 0, 1, 1)
            self._choice = HELD[stop < entry + self._be_ticks < close][
                2 if trailing else stop >= entry and gain > 0
            ]
        elif self._locked:
            observation[-FLAGS] = 0
            self._choice = WAITING
        else:
            self._choice = FREE if bar[7] else WAITING
        if not end:
            return observation, reward, False, False, {}
        self._choice = OVER
        truncated = end >= STEP_LIMIT
        info = {"end_reason": end, "equity": self.equity}
        return observation, reward, not truncated, truncated, info

    def _traded_bar(self, action, at, bar):
        """Step a bar of an account with a position or an order -> (reward, end)."""
        worth, fees, slippage, be_ticks, drawdown, cap, live, scale = self._figures
        open_, high, low, close, _, _, trail, _, _, _ = bar
        side, balance, high_water = self._side, self.balance, self.high_water
        filled, reason = False, NO_EXIT
        entry, stop, target = self._entry, self._stop, self._target
        if side < 0 or action == SELL:
            open_, high, low, close = -open_, -low, -high, -close

        if side:
            if live:  # 5a
                marked = balance + (open_ - entry) * worth
                if marked > high_water:
                    high_water = marked
            if action == CLOSE:  # 5b
                balance += (open_ - slippage - entry) * worth - fees
                side, filled, reason = 0, True, BY_ORDER
            elif action == MOVE_STOP_TO_BREAKEVEN:  # 5d
                stop, self._kind = entry + be_ticks, BREAKEVEN
            elif action:
                self._trailing = action == ENABLE_TRAIL
        else:  # 5c: legal, so nothing forbids it
            side, filled = (1 if action == BUY else -1), True
            bracket = self._bars[at - 1]
            entry, stop, target = open_ + slippage, open_ - bracket[4], open_ + bracket[5]
            balance -= fees
            self._kind, self._trailing, self._opened = INITIAL, False, at

        floor, session_floor = high_water - drawdown, self._session_floor
        if floor > cap:
            floor = cap
        equity = balance
        if side:
            highest = floor if floor > session_floor else session_floor
            level = entry + (highest + fees - balance) // worth  # liquidation: a second stop
            nearest, out = (level if level >= stop else stop), None
            if open_ <= nearest:  # 5e
                out = open_ - slippage
                reason = BY_LIQUIDATION if level >= stop else BY_STOP + self._kind
            elif open_ >= target:
                out, reason = open_, BY_TARGET
            else:  # 5f
                touched = high >= target
                if live:
                    marked = balance + ((target if touched else high) - entry) * worth
                    if marked > high_water:
                        high_water, floor = marked, marked - drawdown
                        if floor > cap:
                            floor = cap
                        highest = floor if floor > session_floor else session_floor
                        level = entry + (highest + fees - balance) // worth
                        nearest = level if level >= stop else stop
                if low <= nearest:
                    out = (nearest if nearest < open_ else open_) - slippage
                    reason = BY_LIQUIDATION if level >= stop else BY_STOP + self._kind
                elif touched:
                    out, reason = target, BY_TARGET
            if out is None and at == self._flat:  # 5g
                out, reason = close - slippage, self._by_flat()
            if out is None:
                equity = balance + (close - entry) * worth  # 5h
                if self._trailing and close - trail > stop:  # 5k, live from the next bar
                    stop, self._kind = close - trail, TRAIL
            else:
                balance += (out - entry) * worth - fees
                equity, side, filled = balance, 0, True
        reward = (equity - self.equity) * scale
        self.balance, self.equity, self.high_water = balance, equity, high_water
        self._side, self._entry, self._stop, self._target = side, entry, stop, target
        self.exit_reason = reason
        if filled or equity <= floor or equity <= session_floor:
            return reward, self._ended(filled, floor)
        return reward, GOES_ON

    def _by_flat(self):
        complete = self._tape.sessions[self._slot].complete
        return BY_FLAT if complete else BY_END_OF_DATA

    def _ended(self, filled, floor):
        """Return the end by an account's rules after a fill or at a limit.

        `floor`: that of the equity.
        """
        rules, end = self._rules, GOES_ON
        if filled and not self._traded:
            self._traded = True
            self._days += 1
        if self.equity <= self._session_floor:  # 5i
            self._locked = True
            if rules.daily_fails:
                end = DAILY_LOSS
        if self.equity <= floor:
            return BUST
        flat = not self._side and self._days >= rules.min_days
        return TARGET if not end and flat and self.balance >= rules.target else end  # 5j

    def _over(self, at):
        """Return the end at a session's flat bar or at the step limit.

        GOES_ON at the first bar of the next session.
        """
        slot, sessions, rules = self._slot, self._tape.sessions, self._rules
        if at == self._flat:
            if not sessions[slot].complete:
                return END_OF_DATA
            if not self._sessions_left or slot + 1 == len(sessions):
                return SESSION_END
        if self._time == rules.max_steps:
            return STEP_LIMIT
        self._slot, self._sessions_left = slot + 1, self._sessions_left - 1
        self._at, self._flat = sessions[slot + 1].first, sessions[slot + 1].flat
        self._locked = self._traded = False
        self._session_floor = self.equity - rules.daily_loss
        if rules.end_of_day:
            self.high_water = max(self.high_water, self.equity)
        return GOES_ON
