"""The time axis of `.plot()`: full hours in one session, dates in several."""

import pandas as pd

from jaxtrade.evaluation.plots.result import draw_equity
from tests.messages import missing


def equity(*days, bars=433):
    """Minutes from 09:32 on each day, equity constant."""
    index = pd.DatetimeIndex(
        [
            time
            for day in days
            for time in pd.date_range(
                f"{day} 09:32", periods=bars, freq="min", tz="America/New_York"
            )
        ]
    )
    return pd.DataFrame(
        {"strategy_equity": 50_000.0, "session": index.tz_localize(None).normalize()}, index=index
    )


def marks(frame):
    lower = draw_equity(frame, "title").axes[1]
    return [
        (at, label.get_text())
        for at, label in zip(lower.get_xticks(), lower.get_xticklabels(), strict=True)
    ]


def test_one_session_is_marked_at_full_hours():
    label = draw_equity(equity("2013-10-11"), "t").axes[1].get_xlabel()
    assert not missing(label, "Fri 11 Oct 2013", "America/New_York")
    assert marks(equity("2013-10-11")) == [(28 + 60 * k, f"{10 + k}:00") for k in range(7)]


def test_sessions_are_marked_by_their_dates():
    assert marks(equity("2013-10-10", "2013-10-11", bars=100)) == [
        (0, "Thu 10 Oct 2013"),
        (100, "Fri 11 Oct"),
    ]
