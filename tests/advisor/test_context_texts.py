"""The templates `window` and `desk`, worked out by hand on the made market
(tests/advisor/made.py).
"""

import hashlib

import numpy as np
import pytest

from jaxtrade.advisor.compose import ask_service
from jaxtrade.advisor.host import prompts
from jaxtrade.advisor.host.blocks import (
    AccountRules,
    ScoredAnswer,
    account_block,
    record_block,
)
from jaxtrade.advisor.host.prompts import TEMPLATES
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Advice
from jaxtrade.config.service import ServiceOptions
from jaxtrade.errors import ConfigError
from tests.advisor.made import made_book, made_config
from tests.advisor.markets import book, config, market

BAR = (
    2 * 120 + 44
)  # closes at 10:15 of the third morning; it opens at 6400 + 8 + 44 % 7 = 6410 ticks = 1602.50
SHORT = ("advisor.context.bars=3", "advisor.context.higher_bars=2", "advisor.context.higher=[5,15]")
# Last bars: minutes 42 to 44 of the day, i % 7 = 0, 1, 2. The 5-minute bar 10:10 to 10:15: minutes
# 40 to 44, i % 7 = 5, 6, 0, 1, 2: it opens at 6413, reaches 6416 and 6407, trades 140 + ... + 144 =
# 710. The day before: opens of 6404 to 6410.
CONTEXT = """\
Session since 09:30: open 1602.00, high 1604.00, low 1601.75
Opening range (first 30 minutes): high 1604.00, low 1601.75
Prior day: high 1603.00, low 1600.75, close 1601.25
Time to the session's close: 420 minutes
Last 3 bars of 1 minute, oldest first: time of the close (month-day hour:minute), then prices and volume:
time,open,high,low,close,volume
10-09 10:13,1602.00,1602.50,1601.75,1602.25,142
10-09 10:14,1602.25,1602.75,1602.00,1602.50,143
10-09 10:15,1602.50,1603.00,1602.25,1602.75,144
Last completed bars of 5 minutes, oldest first:
time,open,high,low,close,volume
10-09 10:10,1602.00,1603.50,1601.75,1603.25,685
10-09 10:15,1603.25,1604.00,1601.75,1602.75,710
Last completed bars of 15 minutes, oldest first:
time,open,high,low,close,volume
10-09 10:00,1602.25,1604.00,1601.75,1602.50,1830
10-09 10:15,1602.50,1604.00,1601.75,1602.75,2055
"""
# The flat time is 16:59. A round turn: 2 x $2.08 = a third of a tick of $12.50, rounded up to 1,
# and 2 of slippage.
RULES = """\
Rules of every account: start balance $50,000.00; drawdown limit $2,500.00 below the highest equity so far; daily loss \
limit none; profit target $3,000.00
A round turn with one contract: commission $4.16, slippage 25.00 USD (2 ticks); together 3 ticks, rounded up
Tick: 0.25 points, 12.50 USD per contract
Positions are closed in: 404 minutes
"""
# Horizon 5, cost 3 ticks: from the open of minute t + 1 to the close of t + 5. (t + 1) % 7 = 1 and
# (t + 5) % 7 = 5 for t % 7 = 0: from 1 to 5 + 1, up 5 ticks. For t % 7 = 2: from 3 to 0 + 1, within
# the cost.
RECORD = """\
Your own record: your answers about earlier bars whose next 5 bars have passed. Up and down mean a move by more than \
the cost of a round turn, undecided anything else.
Hits by stated confidence: 0.00 to 0.20: none yet; 0.20 to 0.40: 0 of 1; 0.40 to 0.60: none yet; 0.60 to 0.80: 1 of 1; \
0.80 to 1.00: none yet
Last 3 answers, oldest first: time of the bar's close, direction, confidence, what followed:
10-09 10:06,long,0.70,up
10-09 10:07,short,0.30,up
10-09 10:08,long,0.90,undecided
"""


def said(direction, confidence):
    return Advice(0.0, float(direction), float(-direction), confidence, 0.1, 5)


def after_price(prompt):
    """What follows the lines that `v1` has too."""
    return "Session" + prompt.partition("price)\nSession")[2]


def test_the_window_by_hand():
    prompt = made_book("advisor.template=window", *SHORT).question(BAR).prompt
    assert after_price(prompt) == CONTEXT
    plain = made_book("advisor.template=bar").question(BAR).prompt
    assert prompt.partition("Market: ES\n")[2].startswith(plain.partition("Market: ES\n")[2])


def test_the_desk_by_hand():
    """Minute 40 ends one bar too late, minute 110 lies in another split, and the first answer about
    a bar counts."""
    found = made_book("advisor.template=desk", *SHORT)
    assert found.question(BAR).prompt.endswith("own record: none yet\n")
    found = found.fresh()
    answers = ((-10, 1, 0.7), (35, 1, 0.7), (36, -1, 0.3), (36, 1, 0.9), (37, 1, 0.9), (40, 1, 0.7))
    for minute, direction, confidence in answers:
        found.note_answer(240 + minute, said(direction, confidence))
    assert after_price(found.question(BAR).prompt) == CONTEXT + RULES + RECORD


def test_the_version_that_belongs_to_these_texts(tmp_path):
    """Another text has another version. If a hash of a text changes here and its version does not,
    raise
    `prompts.FORMAT`; then pin both again. Every cached answer is asked for anew."""
    news, events = tmp_path / "news.jsonl", tmp_path / "events.csv"
    news.write_text(
        '{"time": "2013-10-09T10:00:00-04:00", "source": "wire", "text": "Rates unchanged"}\n'
    )
    events.write_text("time,name,importance,actual\n2013-10-09T10:00:00-04:00,Jobs,high,148K\n")
    found = made_book(
        "advisor.template=desk",
        f"advisor.context.news={news}",
        f"advisor.context.calendar={events}",
    )
    found.note_answer(254, said(1, 0.7))
    question = found.question(BAR)
    assert (question.prompt_version, hashlib.sha256(question.prompt.encode()).hexdigest()[:16]) == (
        "desk:ebcecedcac2a8c06",
        "150c4cec776f2d9d",
    )


def test_a_session_s_first_bar_has_no_opening_range_and_a_market_s_first_day_no_day_before():
    found, none = (
        made_book("advisor.template=window"),
        "Opening range (first 30 minutes): none yet\n",
    )
    assert "Session since 09:30: open 1602.00, high 1602.50" in found.question(240).prompt
    # Minute 28 closes at 09:59, minute 29 at 10:00.
    shown = [none in found.question(240 + minute).prompt for minute in (0, 28, 29)]
    assert shown == [True, True, False]
    assert "Prior day: none yet\n" in found.question(110).prompt


def test_a_longer_bar_is_shown_once_it_is_complete():
    found = made_book(
        "advisor.template=window", "advisor.context.higher=60", "advisor.context.higher_bars=3"
    )
    assert "\n10-09 11:00,1602.50," not in found.question(2 * 120 + 88).prompt  # closes at 10:59
    hour = found.question(2 * 120 + 89).prompt.partition("60 minutes, oldest first:\n")[2]
    # Minutes 30 to 89 (i % 7 = 2 first, 5 last): volume 60 * (130 + 189) / 2.
    assert hour.splitlines()[1:] == [
        "10-08 11:30,1602.50,1603.00,1600.75,1601.25,6135",
        "10-09 10:00,1602.00,1604.00,1601.75,1602.50,3435",
        "10-09 11:00,1602.50,1604.00,1601.75,1603.50,9570",
    ]


@pytest.mark.slow
def test_bars_without_volume_have_neither_vwap_nor_a_volume_column():
    overrides = ("data.market=EURUSD", "advisor.template=window")
    found, bars = book(*overrides), market(*overrides).bars
    bar = int(found.askable.argmax())
    prompt = found.question(bar).prompt
    assert found.template.version.startswith("window_no_volume:")
    assert not {"VWAP", "volume"} & set(prompt.split())
    assert "time,open,high,low,close\n" in prompt
    middle = (int(bars.close[bar]) + int(bars.ask.close[bar])) // 2 * 0.00001
    assert f",{middle:.5f}\n" in prompt  # two sides count by their mid


def test_every_key_and_word_that_is_shown_is_part_of_the_version(monkeypatch):
    """And nothing that is not shown."""

    def version(*overrides, template="desk"):
        chosen = made_config(f"advisor.template={template}", *overrides)
        return prompts.choose(chosen.advisor).template.version

    desk, shown = version(), prompts.BLOCKS
    keys = ("bars=21", "higher=[5,15]", "higher_bars=5", "opening_minutes=15", "record=9")
    for change in (*(f"context.{key}" for key in keys), "horizon=6", "bins=4"):
        assert version(f"advisor.{change}") != desk, change
    for name in ("v1", "no_volume", "anonymous", "pipe"):
        assert version("advisor.horizon=6", template=name) == TEMPLATES[name].version
    for name in prompts.choose(made_config("advisor.template=desk").advisor).template.blocks:
        for word in shown[name].layout:
            changed = shown[name]._replace(layout={**shown[name].layout, word: "other"})
            monkeypatch.setattr(prompts, "BLOCKS", {**shown, name: changed})
            assert version() != desk, (name, word)


def test_an_account_with_other_rules():
    rules = AccountRules(
        100_000.0, None, "intraday", 1000.0, None, 6.0, 0, 9, "0.001", 100.0, "JPY", True
    )
    assert account_block(rules, None) == (
        "Rules of every account: start balance $100,000.00; drawdown limit none; daily loss limit $1,000.00; profit "
        "target none\n"
        "A round turn with one contract: commission $6.00, slippage 0.00 JPY (0 ticks); together 9 ticks, rounded up. "
        "Fills pay the spread between bid and ask besides\nTick: 0.001 points, 100.00 JPY per contract\n"
        "Positions are closed in: none yet"
    )


# --- the record ------------------------------------------------------------------------------------------------------


def test_a_look_at_a_question_does_not_ask_it():
    """A plan of costs looks at every question before any is answered. It counts the longest
    record. A question once built stays the same.
    """
    found = made_book("advisor.template=desk")
    preview, before = found.preview(BAR), found.fresh().question(BAR)
    for bar in range(240, BAR):
        found.note_answer(bar, said(-1, 0.999))
    question = found.question(BAR)
    assert "short,1.00" in question.prompt
    assert len(preview.prompt) >= len(question.prompt) > len(before.prompt)
    found.note_answer(BAR, said(1, 0.5))
    assert found.question(BAR) == question


def test_the_record_by_hand():
    text = record_block([(0, 0), (3, 5)], [], 30)
    assert text.endswith(": 0.00 to 0.50: none yet; 0.50 to 1.00: 3 of 5")
    hold = record_block([(0, 0)], [ScoredAnswer("10-09 10:05", 0, 0.5, -1)], 30)
    assert hold.endswith("10-09 10:05,flat,0.50,down")


def test_a_service_s_answers_reach_the_record_while_it_is_asked():
    found = made_book("advisor.template=desk")
    options = ServiceOptions(
        workers=1, queue_size=2
    )  # so that a question is built when most answers have come
    with AdviceService(make_backend("mock:random", {"seed": 3}), options) as service:
        bars, _, _ = ask_service(service, found, range(240, BAR + 1))
    assert len(bars) == BAR + 1 - 240
    assert "Last 8 answers" in found.question(BAR).prompt  # as it was asked
    assert "record: none yet" in found.question(240).prompt


def test_the_rows_of_a_journal_make_the_same_record():
    """A resumed run hears its journal's rows, which are float32, and shows what the answers
    themselves would show.
    """
    told, resumed = made_book("advisor.template=desk"), made_book("advisor.template=desk")
    for bar, confidence in ((254, 0.6), (255, 0.7), (256, 0.8)):
        told.note_answer(bar, said(1, confidence))
        resumed.note_answer(bar, said(1, float(np.float32(confidence))))
    assert resumed.question(BAR) == told.question(BAR)
    assert "long,0.60,up" in told.question(BAR).prompt


def test_another_advisor_has_a_record_of_its_own():
    one = made_book("advisor.template=desk")
    other = one.fresh()
    one.note_answer(254, said(1, 0.7))
    other.note_answer(254, said(-1, 0.7))
    assert "long,0.70" in one.question(BAR).prompt
    assert "short,0.70" in other.question(BAR).prompt


# --- what a configuration may ask for --------------------------------------------------------------------------------


def test_a_feed_that_the_template_does_not_show_is_refused(tmp_path):
    chosen = config("advisor.template=pipe", f"advisor.context.news={tmp_path / 'n.jsonl'}")
    with pytest.raises(ConfigError, match=r"context\.news = .*pipe .*window"):
        prompts.choose(chosen.advisor)


@pytest.mark.parametrize(
    ("template", "key"),
    [("v1", "bars"), ("window", "record"), ("desk", "news_hours"), ("pipe", "higher")],
)
def test_a_key_without_effect_is_refused(template, key):
    value = "[5]" if key == "higher" else "3"
    chosen = made_config(f"advisor.template={template}", f"advisor.context.{key}={value}")
    with pytest.raises(ConfigError, match=rf"advisor\.context\.{key} = .*template {template} "):
        prompts.choose(chosen.advisor)
