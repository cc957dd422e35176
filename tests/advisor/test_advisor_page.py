"""docs/advisor.md is true: its tables are those of the code, its commands parse, its figures are
the defaults.
"""

import json
import re
import shlex
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.advisor.host.blocks import read_events, read_news
from jaxtrade.advisor.host.prompts import (
    BLOCKS,
    CONTEXT_NAMES,
    FIELDS,
    RAW_SLOTS,
    TEMPLATES,
    read_template,
)
from jaxtrade.advisor.host.registry import MOCKS, takes
from jaxtrade.advisor.host.types import parse_advice
from jaxtrade.cli import build_parser
from jaxtrade.config import AdvisorConfig, load_config
from jaxtrade.config.base import read_descriptions
from jaxtrade.config.service import ContextConfig, ServiceOptions
from tests.advisor.markets import book
from tests.test_docs_tables import rows

PAGE = (Path(__file__).parents[2] / "docs" / "advisor.md").read_text(encoding="utf-8")
COMMANDS = sorted(
    set(
        re.findall(
            r"^jaxtrade ((?:train|advise) [^\n#]+?) *(?:#.*)?$",
            PAGE.replace("\\\n", " "),
            re.MULTILINE,
        )
    )
)


def shown(value):
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


@pytest.mark.parametrize(
    ("header", "prefix", "model"),
    [
        ("key", "advisor", AdvisorConfig),
        ("key of the context", "advisor.context", ContextConfig),
        ("key of the service", "advisor.service", ServiceOptions),
    ],
)
def test_keys(header, prefix, model):
    table, values = rows("advisor.md", header), model()
    names = [name for name in model.model_fields if name not in ("service", "context")]
    assert list(table) == [f"{prefix}.{name}" for name in names]
    for name in names:
        default, meaning = table[f"{prefix}.{name}"]
        assert default == shown(getattr(values, name)), name
        assert meaning == read_descriptions(model).get(name, meaning), name


def test_mocks():
    table = rows("advisor.md", "mock")
    assert list(table) == list(MOCKS)
    assert [name for name, cells in table.items() if cells[1]] == [
        name for name, kind in MOCKS.items() if kind.number
    ]


def test_options_and_templates():
    chosen = {"max_tokens", "answer"}  # the run's own: service.completion_tokens and the template
    assert {name for name in takes("https://h/v1") - chosen if f"`{name}`" not in PAGE} == set()
    assert all(f"`{name}`" in PAGE for name in (*TEMPLATES, *CONTEXT_NAMES))


def test_fields_of_templates():
    known = {f"{{{name}}}": part.about for name, part in [*RAW_SLOTS.items(), *BLOCKS.items()]}
    table = rows("advisor.md", "field")
    assert list(table) == [f"{{{name}}}" for name in FIELDS]
    assert {name: table[name][0] for name in known} == known


def test_the_end_of_a_prompt_that_it_shows_is_one():
    found = book(
        "advisor.template=window",
        "advisor.context.bars=5",
        "advisor.context.higher=[15,60]",
        "advisor.context.higher_bars=2",
    )
    bar = int(
        np.searchsorted(
            found.closes, datetime.fromisoformat("2013-10-08T12:18:00-04:00").timestamp()
        )
    )
    prompt = found.question(bar).prompt
    assert f"```\n{prompt[prompt.index('Session since') :]}```" in PAGE


def test_the_feeds_and_the_template_that_it_shows_are_read(tmp_path):
    news, events, own = (tmp_path / name for name in ("news.jsonl", "events.csv", "own.txt"))
    blocks = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    news.write_text(next(text for text in blocks if text.startswith('{"time"')))
    events.write_text(next(text for text in blocks if text.startswith("time,name")))
    own.write_text(next(text for text in blocks if text.endswith("{answer_format}\n")))
    assert [item.symbol for item in read_news(news).items] == ["ES"]
    assert [event.actual for event in read_events(events).items] == ["-38.8B", None]
    assert read_template(own)[0].answer == "json"


def test_the_answer_that_it_shows_is_one():
    [example] = re.findall(r'`(\{"v": 1.*?\})`', PAGE, re.DOTALL)
    assert parse_advice(json.dumps(json.loads(example))).advice is not None


def test_commands_were_found():
    assert len(COMMANDS) >= 10


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_parses(command):
    build_parser().parse_args(shlex.split(command))


def test_the_shipped_configuration_trains_with_nobody():
    config = load_config("advised")
    assert (config.advisor.kind, config.env.task, config.env.advice) == ("none", "advised", True)
    assert config.advisor.on
