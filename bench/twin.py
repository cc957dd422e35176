"""The `manage` task as a Gymnasium environment in plain Python: what Stable-Baselines3 steps and
trains on here.

Exactly the semantics of docs/semantics.md, as the tests' NumPy oracle has them: the rules and the
order of events are the oracle's (letters 5a to 5k), its speed comes from integers in local
variables and from a tape that holds what a bar alone decides (`bench.tape`). One thing is written
differently: prices of a short are negated while its bar is worked through, so that `entry`, `stop`,
`target`, open, best and worst price are those of a long and each rule stands once.

    env = Twin(make_tape(config.env, params))
    observation, info = env.reset(seed=0)                      # a drawn session and decision bar
    env.reset(options={"slot": 2, "row": 4000})                # or a chosen one: session of the split, market row
    observation, reward, terminated, truncated, info = env.step(action)
    mask = env.action_masks()                                  # bool[7], as MaskablePPO asks for it

An illegal action is counted in `illegal` and executed as HOLD. `info` is empty, except after a
reset ("row") and at an
end ("end_reason", `EndReason`; "equity", mills): SB3 copies it in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import index
from struct import Struct
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded

from jaxtrade.errors import ConfigError

from .tape import FLAGS, POSITION_SLOTS, Tape

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
_write: Callable[..., None] = Struct(f"{POSITION_SLOTS + FLAGS}f").pack_into


class Choice(NamedTuple):
    """What may be done: action ids, and the same as bool[7] (read-only; None after an end)."""

    legal: frozenset[int]
    mask: np.ndarray | None


def _choice(*legal: int) -> Choice:
    mask = np.zeros(NUM_ACTIONS, bool)
    mask[list(legal)] = True
    mask.flags.writeable = False
    return Choice(frozenset(legal), mask)


OVER = Choice(frozenset(), None)
WAITING, FREE = _choice(HOLD), _choice(HOLD, BUY, SELL)
# In position: [break-even legal][0 nothing about the trail, 1 ENABLE_TRAIL, 2 DISABLE_TRAIL legal]
HELD = tuple(
    tuple(
        _choice(HOLD, CLOSE, *breakeven, *trail)
        for trail in ((), (ENABLE_TRAIL,), (DISABLE_TRAIL,))
    )
    for breakeven in ((), (MOVE_STOP_TO_BREAKEVEN,))
)


class Twin(gymnasium.Env[np.ndarray, np.int64]):
    """One environment on a tape. Observation float32[D]; see the module."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as the base class declares it)
    __slots__ = (
        "_at",
        "_bars",
        "_choice",
        "_days",
        "_entry",
        "_flat",
        "_kind",
        "_locked",
        "_offset",
        "_opened",
        "_rules",
        "_session_floor",
        "_sessions_left",
        "_side",
        "_slot",
        "_stop",
        "_tape",
        "_target",
        "_time",
        "_traded",
        "_trailing",
        "balance",
        "equity",
        "exit_reason",
        "high_water",
        "illegal",
    )

    def __init__(self, tape: Tape) -> None:
        self.observation_space = gymnasium.spaces.Box(-LIMIT, LIMIT, (tape.size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self._tape, self._bars, self._rules = tape, tape.bars, tape.rules
        self._offset = 4 * (tape.size - POSITION_SLOTS - FLAGS)
        self._choice = OVER

    # ------------------------------------------------------------------ reset
    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
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
        self._choice = FREE if bar.may_enter else WAITING
        return bar.seen.copy(), {"row": self.row}

    def _drawn(self) -> tuple[int, int]:
        """(slot, position on the tape): a session, then one of its decision bars, each drawn
        uniformly.
        """
        slot = int(self.np_random.integers(len(self._tape.sessions)))
        session = self._tape.sessions[slot]
        return slot, int(
            self.np_random.integers(session.first, session.flat)
        ) if self._rules.random_start else (session.first)

    def _place(self, options: Mapping[str, Any]) -> tuple[int, int]:
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
    def row(self) -> int:
        """Market row of the bar last seen."""
        session = self._tape.sessions[self._slot]
        return session.row + self._at - session.first

    # ------------------------------------------------------------------- step
    def action_masks(self) -> np.ndarray:
        """bool[7] of the observation last given. Raises ResetNeeded where there is none to act
        on.
        """
        mask = self._choice.mask
        if mask is None:
            raise ResetNeeded(
                "action_masks before reset, or after the episode's end: call reset() first"
            )
        return mask

    def _refused(self, action: int) -> int:
        """HOLD, counted, for an action that is not legal now."""
        if self._choice is OVER:
            raise ResetNeeded("step before reset, or after the episode's end: call reset() first")
        if not 0 <= action < NUM_ACTIONS:
            raise InvalidAction(f"action {action}: expected an integer in 0 .. {NUM_ACTIONS - 1}")
        self.illegal += 1
        return HOLD

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One bar -> (observation, reward, terminated, truncated, info). Raises ResetNeeded,
        InvalidAction.
        """
        action = index(action)
        if action not in self._choice[0]:
            action = self._refused(action)
        (
            worth,
            fees,
            slippage,
            be_ticks,
            drawdown,
            cap,
            _,
            daily_fails,
            profit_target,
            min_days,
            live,
            _,
            _,
            max_steps,
            _,
            reward_scale,
        ) = self._rules
        decided = self._at
        self._at = at = decided + 1
        open_, high, low, close, _, _, trail, may_enter, per_atr, seen = self._bars[at]
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
        elif action:  # 5c: legal, so nothing forbids it
            side, filled = (1 if action == BUY else -1), True
            bracket = self._bars[decided]
            entry, stop, target = open_ + slippage, open_ - bracket[4], open_ + bracket[5]
            balance -= fees
            self._kind, self._trailing, self._opened = INITIAL, False, at

        floor = high_water - drawdown
        if floor > cap:
            floor = cap
        session_floor = self._session_floor
        equity = balance
        if side:
            highest = floor if floor > session_floor else session_floor
            level = entry + (highest + fees - balance) // worth  # liquidation: a second stop
            nearest = level if level >= stop else stop
            out = None
            if open_ <= nearest:  # 5e
                out, reason = (
                    open_ - slippage,
                    BY_LIQUIDATION if level >= stop else BY_STOP + self._kind,
                )
            elif open_ >= target:
                out, reason = open_, BY_TARGET
            else:  # 5f
                touched = high >= target
                if live:
                    marked = balance + ((target if touched else high) - entry) * worth
                    if marked > high_water:
                        high_water = marked
                        floor = high_water - drawdown
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
                out = close - slippage
                reason = BY_FLAT if self._tape.sessions[self._slot].complete else BY_END_OF_DATA
            if out is None:
                equity = balance + (close - entry) * worth  # 5h
                if self._trailing:  # 5k, live from the next bar
                    level = close - trail
                    if level > stop:
                        stop, self._kind = level, TRAIL
            else:
                balance += (out - entry) * worth - fees
                equity, side, filled = balance, 0, True
        reward = (equity - self.equity) * reward_scale
        self.balance, self.equity, self.high_water, self.exit_reason = (
            balance,
            equity,
            high_water,
            reason,
        )
        self._side, self._entry, self._stop, self._target = side, entry, stop, target

        if filled and not self._traded:
            self._traded = True
            self._days += 1
        end = GOES_ON
        if equity <= session_floor:  # 5i
            self._locked = True
            if daily_fails:
                end = DAILY_LOSS
        if equity <= floor:
            end = BUST
        elif not end and balance >= profit_target and not side and self._days >= min_days:  # 5j
            end = TARGET
        self._time += 1
        if not end and (at == self._flat or self._time == max_steps):
            end = self._over(at)
            at = self._at
            _, _, _, _, _, _, _, may_enter, _, seen = self._bars[at]

        observation = seen.copy()
        if side:
            gain = close - entry
            trailing = self._trailing
            _write(
                observation,
                self._offset,
                side,
                gain * per_atr,
                abs(stop - close) * per_atr,
                abs(target - close) * per_atr,
                (at - self._opened + 1) / BARS_PER_DAY,
                0,
                1,
                1,
            )
            self._choice = HELD[stop < entry + be_ticks < close][
                2 if trailing else stop >= entry and gain > 0
            ]
        elif self._locked:
            observation[-FLAGS] = 0
            self._choice = WAITING
        else:
            self._choice = FREE if may_enter else WAITING
        if not end:
            return observation, reward, False, False, {}
        self._choice = OVER
        truncated = end >= STEP_LIMIT
        return observation, reward, not truncated, truncated, {"end_reason": end, "equity": equity}

    def _over(self, at: int) -> int:
        """The end at a session's flat bar or at the step limit; GOES_ON at the first bar of the
        next session.
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
