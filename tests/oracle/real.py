"""Real bars for the oracle: its own calendar of ordinary days, trade dates and windows, from stamps
alone.

Only the bars are taken from the package's market; sessions, flat times and windows are worked out
again here, for dates whose few exceptions the caller writes down.
"""

import datetime as dt

from tests.oracle.events import NEW_YORK, eastern
from tests.oracle.model import Ask, Bars, Session

EPOCH = dt.date(1970, 1, 1)


def oracle_bars(
    market,
    warm_up,
    *,
    fx=False,
    overnight=False,
    shares=False,
    restarts=(),
    flat_times=None,
):
    """The market's bars with sessions found again.

    warm_up: rows of the feature window before a row that may be decided on. restarts: trade dates
        before which more
    than one session is missing, or on which another contract begins. flat_times: (hour, minute)
    where a date does not end at 16:59 (shares: 15:59).
    """
    source, turn, usual_flat = (
        market.bars,
        (17 if fx else 24 if shares else 18),
        ((15, 59) if shares else (16, 59)),
    )
    stamps = [int(s) for s in source.time]
    local = [dt.datetime.fromtimestamp(s, NEW_YORK) for s in stamps]
    days = [(moment + dt.timedelta(hours=24 - turn)).date() for moment in local]
    first_rows = {day: days.index(day) for day in sorted(set(days))}
    window_starts = [0, *(first_rows[day] for day in restarts)]

    def opening(day):
        return (
            eastern(day - dt.timedelta(days=1), turn, 0) if fx or overnight else eastern(day, 9, 30)
        )

    opens = {day: opening(day) for day in first_rows}
    length = (
        389 if shares else {(False, False): 449, (False, True): 1379}.get((fx, overnight), 1439)
    )
    flats = {day: eastern(day, *(flat_times or {}).get(day, usual_flat)) for day in first_rows}
    sessions = []
    for day, start in first_rows.items():
        rows = [i for i in range(start, len(days)) if days[i] == day]
        age = start - max(w for w in window_starts if w <= start)
        decide = [i for i in rows if stamps[i] >= opens[day] and age + i - start >= warm_up]
        in_time = [i for i in rows if stamps[i] + source.bar_seconds <= flats[day]]
        if decide and in_time and decide[0] < in_time[-1]:
            sessions.append(Session(start, rows[-1] + 1, decide[0], in_time[-1] - 1))
    has_volume = bool(source.volume.any())
    ask = None if source.ask is None else Ask(*(prices.tolist() for prices in source.ask))
    return Bars(
        *(getattr(source, each).tolist() for each in ("open", "high", "low", "close", "volume")),
        stamps,
        source.bar_seconds,
        [opens[d] for d in days],
        [flats[d] for d in days],
        length,
        [(d - EPOCH).days for d in days],
        tuple(sessions),
        tuple(window_starts),
        has_volume,
        ask=ask,
    )
