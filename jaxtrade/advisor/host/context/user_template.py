"""A user's own template: a text file whose {fields} are names of slots and blocks.

The first line may say `answer: json` or `answer: pipe`, and is not part of the prompt. Without it,
the text must hold {answer_format}, which becomes the built-in words that ask for JSON. {{ and }}
are a brace itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import NamedTuple

from jaxtrade.advisor.host.context.blocks import BLOCKS
from jaxtrade.advisor.host.context.stamps import text_of
from jaxtrade.advisor.host.names import nearest
from jaxtrade.advisor.host.prompts import JSON_FORM, PIPE_FORM
from jaxtrade.advisor.host.slots import RAW_SLOTS
from jaxtrade.errors import ConfigError

SUFFIXES = (".txt", ".md")
FORM = "answer_format"
FORMS = {"json": JSON_FORM, "pipe": PIPE_FORM}
FIELDS = ("symbol", "time", *RAW_SLOTS, *BLOCKS, FORM)
KEY = "advisor.template"
MOST = 100_000  # characters
_ANSWER = re.compile(r"answer:\s*(\S*)\s*")


class UserTemplate(NamedTuple):
    """A template file: its name, its text with the answer's format filled in, the format, and the
    line of each field's first use."""

    name: str
    text: str
    answer: str
    lines: dict[str, int]


def is_file(template: str) -> bool:
    """Whether `advisor.template` names a file."""
    return template.endswith(SUFFIXES)


def read_template(path: Path) -> UserTemplate:
    """Read a user's template.

    Raises ConfigError naming file, line, field and the nearest known field; DataError where the
    file cannot be read.
    """
    text = text_of(path, KEY)
    if len(text) > MOST:
        raise ConfigError(
            f"{path}: {len(text):,} characters; a template has at most {MOST:,} ({KEY})"
        )
    lines = text.splitlines(keepends=True)
    stated = _ANSWER.fullmatch(lines[0].strip()) if lines else None
    if stated is not None and stated[1] not in FORMS:
        raise ConfigError(
            f"{path}: line 1: answer: {ascii(stated[1])[1:40]}; expected answer: json or answer: pipe"
        )
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if stated is None or number > 1:
            for name in _fields(line, f"{path}: line {number}"):
                found.setdefault(name, number)
    if stated is None and FORM not in found:
        raise ConfigError(
            f"{path}: says nothing about the form of answers; put {{{FORM}}} where the model is told to "
            "answer in JSON, or begin the file with the line answer: json or answer: pipe"
        )
    if not set(found) - {FORM, "symbol", "time"}:
        raise ConfigError(
            f"{path}: shows nothing of the market; use fields such as {{close}} or {{window}} (jaxtrade "
            "list templates)"
        )
    answer = "json" if stated is None else stated[1]
    body = "".join(lines[0 if stated is None else 1 :])
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:40]
    return UserTemplate(name, _filled(body, FORMS[answer].rstrip("\n")), answer, found)


def _filled(body: str, form: str) -> str:
    """The text with {answer_format} replaced by the words for it. Other fields and doubled braces
    stay.
    """
    parts = []
    for literal, name, _, _ in Formatter().parse(body):
        parts.append(_escaped(literal))
        if name is not None:
            parts.append(_escaped(form) if name == FORM else f"{{{name}}}")
    return "".join(parts)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _fields(line: str, where: str) -> Iterator[str]:
    try:
        parts = list(Formatter().parse(line))
    except ValueError as error:
        raise ConfigError(
            f"{where}: {error}; a field is {{name}}, a brace itself is {{{{ or }}}}"
        ) from None
    for _, name, layout, conversion in parts:
        if name is None:
            continue
        if layout or conversion:
            raise ConfigError(
                f"{where}: field {ascii(name)[:60]} has a format of its own; write {{NAME}} alone, its "
                "decimals are fixed; for a brace of the text, as in JSON, write {{{{ or }}}}"
            )
        if name not in FIELDS:
            raise ConfigError(f"{where}: field {ascii(name)[:60]}: unknown{nearest(name, FIELDS)}")
        yield name


def digest_of(path: Path) -> str:
    """SHA-256 (hex) of a template's text."""
    return hashlib.sha256(text_of(path, KEY).encode()).hexdigest()
