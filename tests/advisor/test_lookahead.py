"""No template and no feed shows anything of a bar's future; and each planted leak is found by the
same function.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest

from jaxtrade.advisor import questions
from jaxtrade.advisor.host import blocks
from jaxtrade.advisor.host.prompts import FIELDS
from jaxtrade.advisor.questions import Earlier, Record
from tests.advisor.lookahead import book_in, leaks, question_in, world_at

BAR = 2 * 120 + 43  # 10:14 of the third morning: no longer bar ends here
PLAIN = ("v1", "bar", "no_volume", "anonymous", "pipe")
RISES = "a rise after the close"


def own(folder):
    """A template of the user's that shows every field there is."""
    path = folder / "own.txt"
    path.write_text("".join(f"{name}: {{{name}}}\n" for name in FIELDS))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_a_template_of_one_bar_shows_nothing_of_the_future(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.advisor.lookahead.feed_files", lambda *_: [])  # it shows no feed
    assert leaks(tmp_path, world_at(BAR), BAR, f"advisor.template={name}") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["window", "desk", "own"])
@pytest.mark.parametrize("bar", [120, BAR, BAR + 1, 120 + 118])
def test_a_template_with_context_shows_nothing_of_the_future(name, bar, tmp_path):
    """At the first bar of a session, inside one, where longer bars end, and at its last
    decision.
    """
    template = own(tmp_path) if name == "own" else name
    assert leaks(tmp_path, world_at(bar), bar, f"advisor.template={template}") == []


def test_the_news_that_is_shown(tmp_path):
    prompt = question_in(tmp_path, world_at(BAR), BAR, "advisor.template=window").prompt
    assert [
        text for text in ("early", "before", "at", "after") if f'"text": "{text}"' in prompt
    ] == ["early", "before"]
    assert [name for name in ("Past", "Now", "Next") if f'"name": "{name} figures"' in prompt] == [
        "Past",
        "Now",
        "Next",
    ]
    assert '"value": "0.1"' in prompt
    assert "0.2" not in prompt.partition("EVENTS")[2]
    assert "0.3" not in prompt.partition("EVENTS")[2]


def one_ahead(method):
    """A method of `Earlier` that reads one bar beyond the close."""
    return lambda self, bar, *rest: method(self, bar + 1, *rest)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["window", "completed", "levels"])
@pytest.mark.parametrize("template", ["window", "desk", "own"])
def test_a_block_that_peeks_is_found(name, template, tmp_path, monkeypatch):
    monkeypatch.setattr(Earlier, name, one_ahead(getattr(Earlier, name)))
    template = own(tmp_path) if template == "own" else template
    found = leaks(tmp_path, world_at(BAR), BAR, f"advisor.template={template}")
    assert RISES in found
    assert not {each for each in found if "news" in each or "events" in each}


@pytest.mark.slow
@pytest.mark.parametrize("template", [*PLAIN, "window", "desk"])
def test_a_column_that_peeks_is_found(template, tmp_path, monkeypatch):
    honest = questions.raw_columns
    monkeypatch.setattr(
        questions,
        "raw_columns",
        lambda *args: {
            name: np.append(values[1:], values[-1]) for name, values in honest(*args).items()
        },
    )
    if template in PLAIN:
        monkeypatch.setattr("tests.advisor.lookahead.feed_files", lambda *_: [])
    assert RISES in leaks(tmp_path, world_at(BAR), BAR, f"advisor.template={template}")


@pytest.mark.slow
@pytest.mark.parametrize("template", ["window", "desk", "own"])
def test_an_item_stamped_one_second_after_the_close_is_found(template, tmp_path, monkeypatch):
    monkeypatch.setattr(
        blocks,
        "known_before",
        lambda feed, close, delay: bisect_right(feed.times, close + 1 - delay),
    )
    template = own(tmp_path) if template == "own" else template
    found = leaks(tmp_path, world_at(BAR), BAR, f"advisor.template={template}")
    assert found == ["no news from the close on", "other news from the close on"]


@pytest.mark.slow
@pytest.mark.parametrize("template", ["window", "desk", "own"])
def test_a_value_shown_before_its_time_is_found(template, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "value_at", lambda event, close, delay: event.actual)
    template = own(tmp_path) if template == "own" else template
    found = leaks(tmp_path, world_at(BAR), BAR, f"advisor.template={template}")
    assert found == ["other values of events from the close on"]


@pytest.mark.slow
@pytest.mark.parametrize("template", ["desk", "own"])
def test_an_outcome_that_ends_one_bar_after_the_close_is_found(template, tmp_path, monkeypatch):
    honest = Record.scorable
    monkeypatch.setattr(Record, "scorable", lambda self, bar: honest(self, bar + 1))
    template = own(tmp_path) if template == "own" else template
    assert RISES in leaks(tmp_path, world_at(BAR), BAR, f"advisor.template={template}")


def test_the_record_counts_an_answer_from_the_bar_at_which_its_horizon_ends(tmp_path):
    book = book_in(tmp_path, world_at(BAR), BAR, "advisor.template=desk", "split.test_sessions=1")
    assert book.record is not None
    assert int(book.record.scorable(BAR)[-1]) == BAR - 5
    assert (
        int(book.record.scorable(BAR)[0]) == 240
    )  # the first bar of the test session: another split does not count
