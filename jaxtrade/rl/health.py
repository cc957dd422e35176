"""Is a run learning? Checks over the whole run, and warnings while it goes wrong. Pure functions of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtrade.env.state import EndReason
from jaxtrade.metrics import EACH, UNNAMED, Names, per_episode
from jaxtrade.rl.population import Stack, agent_rows

Row = Mapping[str, Any]

WINDOW = 20  # updates that a figure must be wrong for, unless a single one says it all
LEAST_EPISODES = 10  # ended in the window, before their ends say anything
ONE_ACTION = 0.995
LEAST_RATE = 1e-8  # below it, steps are lost in the rounding of float32 weights
LEAST_KL = 1e-10  # float32 noise of a policy that does not move; one that learns is above 1e-6
LEAST_EXPLAINED = -1.0


def learning_health(history: Sequence[Row], recompiles: int) -> dict[str, tuple[bool, float]]:
    """Did the run learn at all? check -> (passed, measured value).

    learning_rate: smallest of all updates, > 0. approx_kl: largest, > 0. param_delta: smallest, > 0.
    illegal: sampled illegal actions, by the mask that the learner acted on and by the environment's own account
    (`illegal_executed`, where it keeps one), 0. recompiles: programs compiled while chunks ran, 0.
    """
    learning_rate = min(row["learning_rate"] for row in history)
    approx_kl = max(row["approx_kl"] for row in history)
    param_delta = min(row["param_delta"] for row in history)
    illegal = sum(row["illegal"] + row.get("illegal_executed", 0) for row in history)
    return {
        "learning_rate": (learning_rate > 0, learning_rate),
        "approx_kl": (approx_kl > 0, approx_kl),
        "param_delta": (param_delta > 0, param_delta),
        "illegal": (illegal == 0, illegal),
        "recompiles": (recompiles == 0, recompiles),
    }


def population_health(history: Sequence[Row], recompiles: int, stack: Stack) -> dict[str, tuple[bool, float]]:
    """`learning_health` of every agent: passed where all have, with the worst value among them."""
    agents = [learning_health(rows, recompiles) for rows in stack.histories(history)]
    worst = {"illegal": max, "recompiles": max}
    return {name: (all(health[name][0] for health in agents),
                   worst.get(name, min)(health[name][1] for health in agents)) for name in agents[0]}


# --- warnings: what was seen, its likely cause, what to try -----------------------------------------------------------


def _episodes(rows: Sequence[Row]) -> int:
    return sum(row.get("episodes", 0) for row in rows)


def _no_trades(rows: Sequence[Row], names: Names) -> str:
    del names
    if "episode_trades" not in rows[-1] or not _episodes(rows) or per_episode(
            rows, lambda row: row["episode_trades"]) > 0:
        return ""
    return (f"no trade in {_episodes(rows)} episodes of {len(rows)} updates: staying out is all that the policy does, "
            "because trades lose more than they earn (costs, reward terms against trading) or because exploration died "
            "early; look at `jaxtrade data describe` (costs against stops) and at reward.weights, raise ppo.ent_coef")


def _one_action(rows: Sequence[Row], names: Names) -> str:
    """Not where round turns are made all the same: who trades once in a session of 400 bars mostly holds."""
    if "action_share" not in rows[-1] or (
            "episode_trades" in rows[-1] and per_episode(rows, lambda row: row["episode_trades"]) >= 1):
        return ""
    shares = [sum(each) / len(rows) for each in zip(*(row["action_share"] for row in rows), strict=True)]
    share = max(shares)
    if share <= ONE_ACTION:
        return ""
    which = shares.index(share)
    name = names["action_share"][which] if "action_share" in names else f"number {which}"
    return (f"action {name} is {100 * share:.1f} % of the choices in {len(rows)} updates: the policy has collapsed, "
            "because the entropy bonus is too small, the learning rate too large or the reward pays for one thing; "
            "raise ppo.ent_coef, lower ppo.learning_rate, look at the reward's terms")


def _learning_rate(rows: Sequence[Row], names: Names) -> str:
    del names
    rate, update = rows[-1]["learning_rate"], rows[-1].get("update")
    if rate >= LEAST_RATE:
        return ""
    at = "" if update is None else f" at update {update}"
    return (f"the learning rate is {rate:.1e}{at}: nothing is learnt from here on, because its schedule ends too low "
            "or something set it to 0; raise ppo.learning_rate and ppo.learning_rate_end")


def _frozen(rows: Sequence[Row], names: Names) -> str:
    del names
    largest = max(row["approx_kl"] for row in rows)
    if largest > LEAST_KL:
        return ""
    return (f"KL has been at most {largest:.1e} for {len(rows)} updates: the policy does not move, because its "
            "gradient is zero (one legal action, equal rewards), clipped away (ppo.max_grad_norm), or the learning "
            "rate is too small; look at ppo.learning_rate and at the rewards")


def _all_breach(rows: Sequence[Row], names: Names) -> str:
    del names
    if len(rows[-1].get("end_share", ())) != len(EndReason) or _episodes(rows) < LEAST_EPISODES:
        return ""
    shares = {reason: per_episode(rows, lambda row, i=reason: row["end_share"][i])
              for reason in (EndReason.BUST, EndReason.DAILY_LOSS)}
    if sum(shares.values()) < 1 - 1e-6:
        return ""
    told = ", ".join(f"{reason.name} {100 * share:.0f} %" for reason, share in shares.items() if share > 0)
    return (f"all {_episodes(rows)} episodes of {len(rows)} updates ended by a breach ({told}): the account is too "
            "small for its positions, or losing costs the policy too little; lower env.quantity or brackets.stop_atr, "
            "choose a larger account (account.preset, account.drawdown), or look at the reward's terms")


def _explained(rows: Sequence[Row], names: Names) -> str:
    del names
    values = [row["explained_variance"] for row in rows]
    if not any(math.isfinite(value) for value in values):
        return (f"explained variance is undefined in {len(rows)} updates: the returns do not vary, because all rewards "
                "are equal (nothing is traded, or the reward has no term that trading changes); look at reward.preset "
                "and reward.weights")
    if all(value < LEAST_EXPLAINED for value in values):
        return (f"explained variance is below {LEAST_EXPLAINED:g} in {len(rows)} updates (now {values[-1]:.1f}): the "
                "value estimates are worse than a constant, because the rewards are very large or very small or the "
                "learning rate is too large; bring the rewards to about 1 (reward.weights), lower ppo.learning_rate "
                "or raise ppo.vf_coef")
    return ""


LOOKS: dict[str, Callable[[Sequence[Row], Names], str]] = {
    "no_trades": _no_trades, "one_action": _one_action, "learning_rate": _learning_rate, "frozen": _frozen,
    "all_breach": _all_breach, "explained_variance": _explained}
AT_ONCE = {"learning_rate"}  # one row says it all


def warnings(rows: Sequence[Row], names: Names = UNNAMED) -> dict[str, str]:
    """kind -> one line, of what looks wrong now: what was seen, its likely cause and what to try.

    Args:
        rows: the newest updates; all but a dead learning rate need at least WINDOW of them, and see the last WINDOW.
            Of several agents each is looked at alone, and named.
        names: of the entries of `action_share`.
    """
    if not rows:
        return {}
    window = list(rows[-WINDOW:])
    agents = len(window[-1].get("learning_rate" + EACH, ()))
    if agents:
        return {f"{kind} of agent {i}": f"agent {i}: {text}" for i in range(agents)
                for kind, text in warnings(agent_rows(window, i), names).items()}
    found = {kind: look(window, names) for kind, look in LOOKS.items() if len(window) == WINDOW or kind in AT_ONCE}
    return {kind: text for kind, text in found.items() if text}


class Watch:
    """A sink that tells each warning when it begins, and again only once it had ended. told: all of them, in order."""

    def __init__(self, tell: Callable[[str], None], names: Names = UNNAMED) -> None:
        self.told: list[str] = []
        self._tell, self._names = tell, names
        self._rows: list[Row] = []
        self._active: set[str] = set()

    def write(self, rows: Sequence[Row]) -> None:
        self._rows = [*self._rows, *rows][-WINDOW:]
        now = warnings(self._rows, self._names)
        begun = [text for kind, text in now.items() if kind not in self._active]
        self._active = set(now)
        self.told += begun
        for text in begun:
            self._tell(f"warning: {text}")

    def message(self, text: str) -> None:
        """Messages are not figures."""

    def rewind(self, update: int, steps: int) -> None:
        del steps
        self._rows = [row for row in self._rows if row["update"] <= update]

    def close(self) -> None:
        """Nothing to release."""
