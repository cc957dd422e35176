"""No template and no feed shows anything of a bar's future; and each planted leak is found by the
same function.
"""

import re
from bisect import bisect_right

import numpy as np
import pytest

from jaxtrade.advisor import questions
from jaxtrade.advisor.host import blocks
from jaxtrade.advisor.host.prompts import FIELDS
from jaxtrade.advisor.questions import AnswerRecord, MarketHistory
from tests.advisor.lookahead import book_in, leaks, question_in, world_at

BAR = 2 * 120 + 43  # 10:14 of the third morning: no longer bar ends here
PLAIN = ("v1", "bar", "no_volume", "anonymous", "pipe")
RISES = "a rise after the close"
NEWS = ["no news from the close on", "other news from the close on"]
VALUES = ["other values of events from the close on"]


@pytest.fixture
def template(request, tmp_path):
    """The override that chooses a template; `own` is the user's, and shows every field there is."""
    if request.param == "own":
        path = tmp_path / "own.txt"
        path.write_text("".join(f"{name}: {{{name}}}\n" for name in FIELDS))
        return f"advisor.template={path}"
    return f"advisor.template={request.param}"


def of(*names):
    return pytest.mark.parametrize("template", names, indirect=True)


@pytest.fixture
def plain(monkeypatch):
    """Templates of one bar show no feed."""
    monkeypatch.setattr("tests.advisor.lookahead.feed_files", lambda *_: [])


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
@of(*PLAIN)
def test_a_template_of_one_bar_shows_nothing_of_the_future(template, tmp_path):
    assert leaks(tmp_path, world_at(BAR), BAR, template) == []


@pytest.mark.slow
@of("window", "desk", "own")
@pytest.mark.parametrize("bar", [120, BAR + 1, 120 + 118])
def test_a_template_with_context_shows_nothing_of_the_future(template, bar, tmp_path):
    """At the first bar of a session, where longer bars end, and at its last decision."""
    assert leaks(tmp_path, world_at(bar), bar, template) == []


def test_the_news_that_is_shown(tmp_path):
    prompt = question_in(tmp_path, world_at(BAR), BAR, "advisor.template=window").prompt
    shown = re.findall('"(?:text|name)": "(\\w+)', prompt)
    assert shown == ["early", "before", "Past", "Now", "Next"]
    assert re.findall('"value": "(.*?)"', prompt) == ["0.1"]


def one_ahead(method):
    """A method of `MarketHistory` that reads one bar beyond the close."""
    return lambda self, bar, *rest: method(self, bar + 1, *rest)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["window", "find_completed", "levels"])
@of("desk")
def test_a_block_that_peeks_is_found(name, template, tmp_path, monkeypatch):
    monkeypatch.setattr(MarketHistory, name, one_ahead(getattr(MarketHistory, name)))
    found = leaks(tmp_path, world_at(BAR), BAR, template)
    assert RISES in found
    assert not {each for each in found if "news" in each or "events" in each}


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
@of(*PLAIN)
def test_a_column_that_peeks_is_found(template, tmp_path, monkeypatch):
    honest = questions.raw_columns

    def peeking(*args):
        columns = honest(*args)
        return {name: np.append(values[1:], values[-1]) for name, values in columns.items()}

    monkeypatch.setattr(questions, "raw_columns", peeking)
    assert RISES in leaks(tmp_path, world_at(BAR), BAR, template)


@pytest.mark.slow
@of("window", "own")
def test_an_item_stamped_one_second_after_the_close_is_found(template, tmp_path, monkeypatch):
    def late(feed, close, delay):
        return bisect_right(feed.items, close + 1 - delay, key=lambda item: item.time)

    monkeypatch.setattr(blocks, "known_before", late)
    assert leaks(tmp_path, world_at(BAR), BAR, template) == NEWS


@pytest.mark.slow
@of("window", "own")
def test_a_value_shown_before_its_time_is_found(template, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "value_at", lambda event, close, delay: event.actual)
    assert leaks(tmp_path, world_at(BAR), BAR, template) == VALUES


@pytest.mark.slow
@of("desk", "own")
def test_an_outcome_that_ends_one_bar_after_the_close_is_found(template, tmp_path, monkeypatch):
    monkeypatch.setattr(AnswerRecord, "scorable", one_ahead(AnswerRecord.scorable))
    assert RISES in leaks(tmp_path, world_at(BAR), BAR, template)


def test_the_record_counts_an_answer_from_the_bar_at_which_its_horizon_ends(tmp_path):
    """Bar 240 is the first of the test session: another split does not count."""
    book = book_in(tmp_path, world_at(BAR), BAR, "advisor.template=desk", "split.test_sessions=1")
    assert book.record.scorable(BAR)[[0, -1]].tolist() == [240, BAR - 5]
