"""Bars on weekends show shifted stamps where every weekday still looks right."""

import shutil
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from jaxtrade.data.calendar.schedule import file_schedule, schedule_for
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.describe import check_text
from jaxtrade.data.findings import require_stated
from jaxtrade.data.read.bars import load_bars, load_bundled
from jaxtrade.data.read.stamps import OWN_OFFSET
from tests.data.conftest import findings_of, set_to, table_of
from tests.messages import missing

EURUSD = get_contract("EURUSD")
HOUR = 3600


@pytest.fixture(scope="module")
def fx():
    """Five weeks of hours in winter."""
    return load_bundled(EURUSD, start="2014-01-06", end="2014-02-07")


def moved(bars, hours):
    return replace(bars, time=bars.time + int(hours * HOUR), places=None)


@pytest.mark.slow
@pytest.mark.parametrize("hours", [9, 7, 5, 2, -2, -5, -8, -12, 12, 24])
def test_shifted_weeks_are_named_with_their_shift(fx, hours):
    (one,) = findings_of(moved(fx, hours))
    assert one.kind == "zone"
    assert not missing(one.size, f"{5 * abs(hours)} bars", "weekends", "5 of 5")
    assert one.size.endswith(f"all bars look {abs(hours)} h {'late' if hours > 0 else 'early'}")
    assert one.bars == 5 * abs(hours)
    assert one.cause == "a wrong data.time_zone"
    assert f"{abs(hours)} h {'ahead of' if hours > 0 else 'behind'} " in one.fix
    likely = {
        2: "America/New_York+7h",
        -5: "America/New_York or Etc/GMT+5",
    }  # winter does not tell these two apart
    likely |= {each: f"Etc/GMT{-each:+d}" for each in (9, 7, 5, -2, -8, -12, 12)}
    assert one.fix.endswith(
        f"(perhaps {likely[hours]}, if that was UTC)" if hours in likely else "read with"
    )


def test_the_first_row_is_named(fx):
    (one,) = findings_of(moved(fx, 9))
    assert one.where.endswith("bar 2014-01-10T22:00:00Z")  # Friday, 17:00 in New York
    text = check_text(moved(fx, 9), set_to("data.market=EURUSD"))
    assert "read as EURUSD, 1 warning" in text
    assert "2014-01-10T22:00:00Z: 45 bars" in text


@pytest.mark.parametrize("hours", [1, -1])
def test_a_shift_by_one_bar_may_be_the_stamp_side(fx, hours):
    (one,) = findings_of(moved(fx, hours))
    assert not missing(one.cause, "data.time_zone", "data.stamp")


@pytest.mark.parametrize("hours", [9, -8])
def test_one_week_suffices(fx, hours):
    (one,) = findings_of(moved(fx.between("2014-01-06", "2014-01-10"), hours))
    assert f"all bars look {abs(hours)} h" in one.size


def with_rows(bars, stamps):
    """The bars and further ones at these UTC stamps, each a copy of the bar before it."""
    time = np.concatenate([bars.time, stamps.astype("datetime64[s]").astype(np.int64)])
    place = np.argsort(time, kind="stable")
    copied = np.searchsorted(bars.time, time[place], side="right") - 1
    return replace(bars.rows(copied), time=time[place], places=None)


def read_as(tmp_path, symbol, zone):
    """The finding of the bundled hours of a broker, which stand on New York plus seven hours, read
    in another zone.
    """
    with resources.as_file(
        resources.files("jaxtrade.data.bundled") / f"{symbol.lower()}_hour.csv.gz"
    ) as packed:
        file = tmp_path / f"{symbol}.csv.gz"
        shutil.copy(packed, file)
    bars = load_bars(
        file,
        get_contract(symbol),
        stamp="open",
        time_zone=zone,
        price_scale={"GBPUSD": 1e-5, "USDJPY": 1e-3}[symbol],
        columns={"time": "Date", "volume": "tick_volume"},
    )
    (one,) = findings_of(bars, zone=zone)
    return one


@pytest.mark.parametrize(
    ("symbol", "zone", "hours"),
    [
        ("GBPUSD", "UTC", "2 to 3"),
        ("USDJPY", "UTC", "2 to 3"),
        ("GBPUSD", "Etc/GMT+5", "7 to 8"),
        ("GBPUSD", "America/New_York", "7"),
        ("GBPUSD", "Europe/London", "2"),
    ],
)
def test_the_server_time_of_a_broker_is_found_whatever_it_was_read_as(
    tmp_path, symbol, zone, hours
):
    """Years of real hours: summer shifts by an hour more than winter, and some Fridays lack their
    last hour.
    """
    one = read_as(tmp_path, symbol, zone)
    assert f"{symbol}.csv.gz:" in one.where
    assert "of 486 weekends" in one.size
    assert one.size.endswith(f"all bars look {hours} h late")
    assert not missing(
        one.fix,
        "=America/New_York+7h",
        f"it is {zone} now",
        f"data.per_market.{symbol}.time_zone",
    )


@pytest.mark.parametrize(
    ("notes", "fix"),
    [
        ((), "=America/New_York+7h (it"),
        ((f"{OWN_OFFSET}; data.time_zone=UTC",), "file's stamps, 2 h"),
    ],
)
def test_a_zone_without_effect_is_not_named(fx, notes, fix):
    bars = replace(moved(fx, 2), notes=(*fx.notes, *notes))
    data = set_to("data.market=EURUSD data.time_zone=UTC").data
    (text,) = require_stated(bars, table_of(bars), data)
    assert fix in text.partition("Fix: ")[2]


FRIDAYS = ("2014-01-10", "2014-01-17", "2014-01-24", "2014-01-31", "2014-02-07")


@pytest.mark.parametrize(("later", "hour", "weeks"), [(0, 22, 5), (2, 21, 4)])
def test_closing_prints_and_early_openings_are_no_shift(fx, later, hour, weeks):
    """Fridays at 22:00, Sundays at 21:00."""
    days = np.array(FRIDAYS[:weeks], "datetime64[h]") + np.timedelta64(24 * later + hour, "h")
    assert findings_of(with_rows(fx, days)) == ()


def test_one_weekend_among_five_is_no_shift(fx):
    hours = np.arange("2014-01-18T09", "2014-01-18T17", dtype="datetime64[h]")
    assert findings_of(with_rows(fx, hours)) == ()


def test_weekends_full_of_quotes_are_another_cause(fx):
    saturdays = np.array(FRIDAYS, "datetime64[h]") + np.timedelta64(24, "h")
    (one,) = findings_of(
        with_rows(fx, np.ravel(saturdays[:, None] + np.arange(2, 14, dtype="timedelta64[h]")))
    )
    assert not missing(one.cause, "quotes outside", "data.time_zone")
    assert one.bars == 60


def test_a_calendar_with_weekends_has_none(fx, tmp_path):
    """A market that trades every day has no weekend."""
    path = tmp_path / "always.csv"
    days = np.arange(np.datetime64("2013-12-28"), np.datetime64("2014-02-15"))
    path.write_text("date,open,close\n" + "".join(f"{day},17:00,17:00\n" for day in days))
    assert findings_of(moved(fx, 9), file_schedule(str(path), EURUSD)) == ()


def test_hours_that_were_inferred_are_not_judged(fx):
    bars = moved(fx, 9)
    inferred = schedule_for("infer", bars.contract, bars.time, bars.bar_seconds)
    assert findings_of(bars, inferred) == ()


def test_a_future_that_is_a_day_late(es_bars):
    (one,) = findings_of(moved(es_bars, 24))
    assert (one.kind, one.bars) == ("zone", 1373)
