"""A user's own template: its fields are known, it says how to answer, and its version is that of
its text.
"""

import pytest

from jaxtrade.advisor.host.prompts import JSON_FORM, PIPE_FORM, choose, read_template
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs import plan
from tests.advisor.made import made_book, made_config
from tests.advisor.markets import config
from tests.messages import refused

TEXT = "{symbol} at {time} costs {close}.\n{levels}\n{{as it is}}\n{answer_format}\n"


def written(folder, text, name="mine.txt"):
    path = folder / name
    path.write_text(text)
    return path


def test_its_prompt(tmp_path):
    found = made_book(f"advisor.template={written(tmp_path, TEXT)}")
    prompt = found.question(240 + 44).prompt
    assert prompt.startswith("ES at 2013-10-09T10:15:00-04:00 costs 1602.75.\nSession ")
    assert prompt.endswith("\n{as it is}\n" + JSON_FORM)
    assert (found.template.answer, found.template.name) == ("json", "mine")
    assert found.template.slots == ("close",)
    assert found.template.blocks == ("levels",)


@pytest.mark.parametrize(
    ("head", "form", "rest"),
    [("answer: pipe\n", "pipe", PIPE_FORM), ("answer:json\n", "json", JSON_FORM)],
)
def test_the_form_may_be_stated(head, form, rest, tmp_path):
    plain, _ = read_template(written(tmp_path, head + "{close}\n"))
    assert (plain.answer, plain.text) == (form, "{close}\n")
    full = made_book(
        f"advisor.template={written(tmp_path, head + '{close} {answer_format}')}"
    ).question(240)
    assert full.prompt == "1602.25 " + rest.rstrip("\n")


def test_its_version_is_that_of_its_text(tmp_path):
    def version(text, *overrides, name="mine.txt"):
        chosen = made_config(f"advisor.template={written(tmp_path, text, name)}", *overrides)
        return choose(chosen.advisor).template.version

    assert version(TEXT) == version(TEXT)
    assert version(TEXT).startswith("mine:")
    assert version(TEXT, name="my own.md").startswith("my_own:")
    assert version(TEXT.replace("costs", "is at")) != version(TEXT)
    assert version("answer: pipe\n{close}") != version("answer: json\n{close}")
    assert version(TEXT, "advisor.context.opening_minutes=15") != version(TEXT)
    assert version("{close}{answer_format}", "advisor.horizon=6") == version(
        "{close}{answer_format}"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{close}\n{clsoe} {answer_format}",
            "line 2: field 'clsoe': unknown",
        ),
        ("{close}\n", "{answer_format}"),
        ("{answer_format} {symbol}", "shows nothing of"),
        ("answer: xml\n{close}", "line 1: answer: xml"),
        ("{close}{answer_format}\n}", "line 2: Single '}' encountered"),
        ("{close:.2f}{answer_format}", "line 1: field 'close' has"),
        ("{close!r}{answer_format}", "line 1: field 'close' has"),
        ("{close.__class__}{answer_format}", "line 1: field 'close.__class__'"),
        ("{0}{answer_format}", "line 1: field '0': unknown"),
        ("{}{answer_format}", "line 1: field '': unknown"),
        ("{balance}{answer_format}", "line 1: field 'balance': unknown"),
        ("", "says nothing about"),
        ("{close}" * 20_000, "at most 100,000"),
    ],
)
def test_a_wrong_template_is_named(text, words, tmp_path):
    path = written(tmp_path, text)
    with refused(f"{path}: ", words):
        read_template(path)


def test_a_feed_that_it_shows_must_be_given(tmp_path):
    path = written(tmp_path, "{close}\n{news}\n{answer_format}")
    with pytest.raises(ConfigError, match=r"line 2: \{news\} needs"):
        choose(made_config(f"advisor.template={path}").advisor)


def test_it_is_checked_before_the_market_is_read(tmp_path):
    with pytest.raises(DataError, match=r"absent\.txt: cannot be"):
        plan.check_names(config(f"advisor.template={tmp_path / 'absent.txt'}", kind="mock:random"))
    with pytest.raises(ConfigError, match="template 'windw': unknown"):
        plan.check_names(config("advisor.template=windw", kind="mock:random"))
