"""Health of a run: checks over the whole run, and warnings during it.

They are pure functions of the metric rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from jaxtrade.storage.sinks import EACH, UNDONE, UNNAMED, MetricSink, Names, per_episode
from jaxtrade.training.population import Stack, agent_rows
from jaxtrade.types import EndReason, HealthCheck, Remedies, Row, Warn

WINDOW = 20  # updates that a warning looks at, unless a single one is enough for it
LEAST_EPISODES = 10  # fewer ended episodes in the window are too few for a warning about their ends
ONE_ACTION = 0.995  # share of one action above which the policy counts as collapsed
NOTHING_TO_TRY = Remedies()
LABELS = {
    "illegal": "illegal actions",
    "recompiles": "recompiles",
}  # the checks that apply to every learner


def learning_health(
    history: Sequence[Row], recompiles: int, checks: Sequence[HealthCheck] = ()
) -> dict[str, tuple[bool, float]]:
    """Check whether the run learned at all -> {check: (passed, measured value)}.

    Two checks apply to every learner. `illegal`: no sampled action was illegal, by the mask that
    the policy used (metric `illegal`) and by the environment (`illegal_executed`), if these metrics
    exist. `recompiles`: no program was compiled while chunks ran.

    checks: the learner's own (`LearnerInfo.health`).
    """
    measured = [(check, check.measure(history)) for check in checks]
    illegal = sum(row.get("illegal", 0) + row.get("illegal_executed", 0) for row in history)
    return {check.name: (check.passed(value), value) for check, value in measured} | {
        "illegal": (illegal == 0, illegal),
        "recompiles": (recompiles == 0, recompiles),
    }


def population_health(
    history: Sequence[Row], recompiles: int, stack: Stack, checks: Sequence[HealthCheck] = ()
) -> dict[str, tuple[bool, float]]:
    """Check the `learning_health` of all agents: a check passes if it passes for every agent.

    The value is the worst one. What an agent did in a chunk that was taken back (`replacement`)
    does not count. An agent of which nothing is left has not learned: the learner's own checks
    fail, with the worst value of the others, or NaN if there are none.
    """
    kept = [[row for row in rows if not row.get(UNDONE)] for rows in stack.histories(history)]
    agents = [learning_health(rows, recompiles, checks) for rows in kept if rows]
    if not agents:
        return {check.name: (False, math.nan) for check in checks} | learning_health((), recompiles)
    worst = {check.name: check.worst for check in checks}
    found = dict[str, tuple[bool, float]]()
    for name in agents[0]:
        values = [health[name][1] for health in agents]
        undefined = any(math.isnan(value) for value in values)  # the worst of all
        found[name] = (
            all(health[name][0] for health in agents) and (all(kept) or name not in worst),
            math.nan if undefined else worst.get(name, max)(values),
        )
    return found


def health_labels(checks: Sequence[HealthCheck]) -> dict[str, str]:
    """Describe the checks for reports, by name."""
    return {check.name: check.label for check in checks} | LABELS


# --- warnings: what was seen, its likely cause, what to try -----------------------------------------------------------


def _episodes(rows: Sequence[Row]) -> int:
    return sum(row.get("episodes", 0) for row in rows)


def _no_trades(rows: Sequence[Row], names: Names) -> str:
    del names
    if (
        "episode_trades" not in rows[-1]
        or not _episodes(rows)
        or per_episode(rows, lambda row: row["episode_trades"]) > 0
    ):
        return ""
    return (
        f"no trade in {_episodes(rows)} episodes of {len(rows)} updates: staying out is all that the policy does, "
        "because trades lose more than they earn (costs, reward terms against trading) or because exploration died "
        "early; look at `jaxtrade data describe` (costs against stops) and at reward.weights"
    )


def _one_action(rows: Sequence[Row], names: Names) -> str:
    """Warn about a policy that always takes the same action.

    A policy that trades at least once per episode gets no warning. With one trade in a session of
    400 bars, HOLD is the right action in almost all of them.
    """
    if "action_share" not in rows[-1] or (
        "episode_trades" in rows[-1] and per_episode(rows, lambda row: row["episode_trades"]) >= 1
    ):
        return ""
    shares = [
        sum(each) / len(rows) for each in zip(*(row["action_share"] for row in rows), strict=True)
    ]
    share = max(shares)
    if share <= ONE_ACTION:
        return ""
    which = shares.index(share)
    name = names["action_share"][which] if "action_share" in names else f"number {which}"
    return (
        f"action {name} is {100 * share:.1f} % of the choices in {len(rows)} updates: the policy has collapsed, "
        "because exploration is too weak, the step size too large or the reward pays for one thing; look at "
        "the reward's terms"
    )


def _all_breach(rows: Sequence[Row], names: Names) -> str:
    del names
    if len(rows[-1].get("end_share", ())) != len(EndReason) or _episodes(rows) < LEAST_EPISODES:
        return ""
    shares = {
        reason: per_episode(rows, lambda row, i=reason: row["end_share"][i])
        for reason in (EndReason.BUST, EndReason.DAILY_LOSS)
    }
    if sum(shares.values()) < 1 - 1e-6:
        return ""
    found = ", ".join(
        f"{reason.name} {100 * share:.0f} %" for reason, share in shares.items() if share > 0
    )
    return (
        f"all {_episodes(rows)} episodes of {len(rows)} updates ended by a breach ({found}): the account is too "
        "small for its positions, or losing costs the policy too little; lower env.quantity or brackets.stop_atr, "
        "choose a larger account (account.preset, account.drawdown), or look at the reward's terms"
    )


LOOKS: dict[str, Callable[[Sequence[Row], Names], str]] = {
    "no_trades": _no_trades,
    "one_action": _one_action,
    "all_breach": _all_breach,
}  # apply to every learner


def warnings(
    rows: Sequence[Row],
    names: Names = UNNAMED,
    own: Sequence[Warn] = (),
    remedies: Remedies = NOTHING_TO_TRY,
) -> dict[str, str]:
    """Return current warnings, kind -> one line: the observation, its likely cause and what to try.

    Args:
        rows: the newest updates. A warning looks at the last WINDOW of them and needs that many,
            unless one row is enough for it (`Warn.at_once`). With several agents, each agent is
            checked alone and the text names it.
        names: names of the entries of `action_share`.
        own, remedies: `LearnerInfo.warnings` and `LearnerInfo.remedies` of the learner.
    """
    if not rows:
        return {}
    window = list(rows[-WINDOW:])
    agents = len(window[-1].get("finite" + EACH, ()))
    if agents:
        return {
            f"{kind} of agent {i}": f"agent {i}: {text}"
            for i in range(agents)
            for kind, text in warnings(agent_rows(window, i), names, own, remedies).items()
        }
    full = len(window) == WINDOW
    found = {kind: look(window, names) for kind, look in LOOKS.items() if full}
    found = {
        kind: f"{text}, {remedy}" if text and (remedy := getattr(remedies, kind, "")) else text
        for kind, text in found.items()
    }
    found |= {warn.kind: warn.look(window) for warn in own if full or warn.at_once}
    return {kind: text for kind, text in found.items() if text}


class Watch(MetricSink):
    """A sink that reports each warning when it begins.

    It reports a warning again only after it has ended in between.

    seen: all reported warnings, in order.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        names: Names = UNNAMED,
        own: Sequence[Warn] = (),
        remedies: Remedies = NOTHING_TO_TRY,
    ) -> None:
        """log: receives one line per warning. names, own, remedies: as for `warnings`."""
        self.seen: list[str] = []
        self._log = log
        self._look = lambda rows: warnings(rows, names, own, remedies)
        self._rows: list[Row] = []
        self._active: set[str] = set()

    def write(self, rows: Sequence[Row]) -> None:
        self._rows = [*self._rows, *rows][-WINDOW:]
        now = self._look(self._rows)
        begun = [text for kind, text in now.items() if kind not in self._active]
        self._active = set(now)
        self.seen += begun
        for text in begun:
            self._log(f"warning: {text}")

    def rewind(self, update: int, steps: int) -> None:
        del steps
        self._rows = [row for row in self._rows if row["update"] <= update]
