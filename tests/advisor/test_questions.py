"""Questions show raw values that the market's own table agrees with, and nothing of what comes
after their bar.
"""

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.advisor.host.prompts import RAW_SLOTS
from jaxtrade.advisor.questions import in_sessions, make_book, raw_columns
from jaxtrade.data.market import build_market
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import stamp
from tests.advisor.markets import EURUSD, book, config, market

FEATURES = (
    "close",
    "vwap",
    "atr",
    "adx",
    "plus_di",
    "minus_di",
    "rsi",
    "roc",
    "price_to_vwap",
    "efficiency_ratio",
    "price_change_60min",
    "volume_ratio_20min",
)


def test_values_are_those_of_the_market_s_own_table():
    """Undoing what the table stores (float32; levels less the close, in ticks) gives the raw
    columns, bar by bar.
    """
    chosen = config(f"env.features=[{', '.join(FEATURES)}]")
    made = build_market(market().bars, chosen)
    columns = raw_columns(made, chosen, FEATURES)
    table = {
        name: made.table[:, made.columns.index(f"feature.{name}")].astype(np.float64)
        for name in FEATURES
    }
    tick, close = 0.25, made.bars.close.astype(np.float64)
    undone = {
        "close": (table["close"] + close) * tick,
        "vwap": (table["vwap"] + close) * tick,
        "atr": table["atr"] * tick,
    }
    compared = in_sessions(made)
    assert compared.sum() == 2165
    for name in FEATURES:
        assert name in RAW_SLOTS
        ours, theirs = columns[name][compared], undone.get(name, table[name])[compared]
        known = np.isfinite(ours)
        np.testing.assert_allclose(ours[known], theirs[known], rtol=2e-6, atol=2e-7)
        assert known.mean() > 0.99


def test_a_question_by_hand():
    """The first decision bar of the bundled ES bars opens at 09:30 in New York, hence closes at
    09:31.
    """
    found, bars = book(), market().bars
    bar = int(found.askable.argmax())
    question = found.question(bar)
    assert question[:3] == (bar, "ES", "2013-10-07T09:31:00-04:00")
    assert question.slots["close"] == bars.close[bar] * 0.25
    assert question.slots["roc"] == pytest.approx(bars.close[bar] / bars.close[bar - 10] - 1)
    last, before = slice(bar - 13, bar + 1), bars.close[bar - 14 : bar]
    ranges = np.maximum(bars.high[last], before) - np.minimum(bars.low[last], before)
    assert question.slots["atr"] == pytest.approx(ranges.mean() * 0.25)
    assert f"Price: {question.slots['close']}\n" in question.prompt


def test_what_is_askable():
    """Decision bars with every value; the flat bar of a session is none of them, nor is a bar of
    the warm-up."""
    found, sessions = book(), market().data.sessions
    assert not found.askable[np.asarray(sessions.last) + 1].any()
    finite = np.isfinite(list(found.columns.values())).all(axis=0)
    np.testing.assert_array_equal(found.askable, in_sessions(market()) & finite)
    bars = (0, len(found.askable), int(found.askable.argmax()))
    assert [bool(found.question_or_none(bar)) for bar in bars] == [False, False, True]
    with pytest.raises(DataError, match="warm-up"):
        found.question(0)


def test_what_was_cut_off_changes_no_question():
    """The same where the future is not there at all."""
    bar = int(np.flatnonzero(book().askable)[1200])
    cut = build_market(market().bars.rows(slice(0, bar + 3)), config())
    assert make_book(cut, config()).question(bar) == book().question(bar)


def test_bars_without_volume():
    """They have no VWAP: a template that shows one is refused with those that work."""
    with pytest.raises(ConfigError, match=r"to_vwap.*=no_volume"):
        make_book(market(*EURUSD), config("data.market=EURUSD"))
    found, bars = book(*EURUSD), market(*EURUSD).bars
    bar = int(found.askable.argmax())
    question = found.question(bar)
    assert "VWAP" not in question.prompt
    middle = (int(bars.close[bar]) + int(bars.ask.close[bar])) // 2  # two sides count by their mid
    assert question.slots["close"] == pytest.approx(middle * 0.00001)


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [
        (1_381_152_660, "2013-10-07T09:31:00-04:00"),  # summer time
        (1_386_340_260, "2013-12-06T09:31:00-05:00"),  # winter time
        (1_383_456_600, "2013-11-03T01:30:00-04:00"),  # the hour that comes twice ...
        (1_383_460_200, "2013-11-03T01:30:00-05:00"),  # ... is told apart by its offset
    ],
)
def test_stamps_carry_their_offset(seconds, reported):
    assert stamp(seconds, "America/New_York") == reported


def test_a_symbol_that_no_prompt_may_hold_is_refused_before_anything_is_asked():
    odd = replace(market(), contract=replace(market().contract, symbol="ES; DROP"))
    with pytest.raises(DataError, match="symbol 'ES; DROP'"):
        make_book(odd, config())
