"""One evaluation account after the other, mark by mark, in plain Python: what the simulation has to
equal.
"""

import numpy as np

from jaxtrade.env.state import OFF, EndReason, Trailing


def slow_ends(paths, rules, order):
    """(EndReason, whether the target was reached before the end) in each session of `order`.

    After an end, a new account opens at the next session.
    """
    drawdown, cap, target = int(rules.drawdown), int(rules.floor_cap), int(rules.target)
    found = []
    balance = high = days = 0
    for session in order:
        end, reached = EndReason.NONE, False
        pairs, flats = (
            np.flatnonzero(paths.session == session),
            np.flatnonzero(paths.flat_session == session),
        )
        flat_at = {int(paths.flat_bar[i]): int(paths.balance[i]) for i in flats}
        for bar in sorted({int(paths.bar[i]) for i in pairs} | set(flat_at)):
            bust = False
            for i in pairs[paths.bar[pairs] == bar]:
                if int(rules.trailing) == Trailing.INTRADAY:
                    high = max(high, balance + int(paths.high[i]))
                bust |= drawdown < OFF and balance + int(paths.low[i]) <= min(high - drawdown, cap)
            if bust:
                end = EndReason.BUST
            elif bool(rules.fail_on_daily_loss) and paths.daily_bar[session] == bar:
                end = EndReason.DAILY_LOSS
            elif (
                target < OFF
                and bar in flat_at
                and balance + flat_at[bar] >= target
                and (days + 1 >= int(rules.min_days))
            ):
                reached = True
                end = EndReason.TARGET if bool(rules.stop_at_target) else EndReason.NONE
            if end != EndReason.NONE:
                break
        found.append((int(end), reached))
        if end != EndReason.NONE:
            balance = high = days = 0
            continue
        balance, days = balance + int(paths.result[session]), days + int(paths.traded[session])
        if int(rules.trailing) == Trailing.END_OF_DAY:
            high = max(high, balance)
    return found
