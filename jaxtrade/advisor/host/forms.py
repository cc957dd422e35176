"""The form that requests ask for (`response_format`), and the next weaker one where a server
rejects it.

json_schema, json_object, none: a server that answers a form with an error never accepts it later,
    so a run falls back
and stays there. Nothing else changes: every answer is checked in the same way, with or without a
form. The backend's identity, and so every cache key, keeps the form that was configured; a server
that rejects it does so for every question.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

FORMS = ("json_schema", "json_object", "none")
MOST_FALLBACKS = len(FORMS) - 1  # of one question
_STATUSES = frozenset((400, 422, 500, 501))
# llama.cpp, vLLM, OpenAI, Ollama, LM Studio, Groq and DeepSeek all use some of these words.
_WORDS = re.compile(
    r"response[ _.-]?format|json[ _-]?(schema|object)|structured[ _-]output|guided[ _-]|grammar"
    r"|invalid format",
    re.IGNORECASE,
)
_ECHOES = frozenset(
    ("input", "body", "ctx", "url", "messages", "request")
)  # parts of an error that repeat the request
_MOST_DEPTH, _MOST_ITEMS, _MOST_TEXT = 5, 20, 1000


def complains(status: int, error: object) -> bool:
    """Whether an error response is about the form of the answer. error: the body, as JSON value or
    as text.
    """
    return status in _STATUSES and any(_WORDS.search(text) for text in _texts(error, _MOST_DEPTH))


def _texts(value: object, depth: int) -> Iterator[str]:
    """The texts of an error, without those in which servers repeat the request."""
    if isinstance(value, str):
        yield value[:_MOST_TEXT]
    elif isinstance(value, dict | list) and depth:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(items)[:_MOST_ITEMS]:
            if key not in _ECHOES:
                yield from _texts(item, depth - 1)


class Forms:
    """The form in use. Many threads may use it. first: the one that is configured."""

    def __init__(self, first: str) -> None:
        self._first = self._now = first
        self._line = ""
        self._lock = threading.Lock()

    @property
    def now(self) -> str:
        """The form that the next request asks for: one of `FORMS`."""
        return self._now

    def rejected(self, form: str, words: str) -> str:
        """Note that the server rejects `form`. Returns a line about the form in use. words: the
        server's.

        Requests that were in flight during a fall-back are rejected later, and get the same line.
        """
        with self._lock:
            if form == self._now and form != FORMS[-1]:
                self._now = FORMS[FORMS.index(form) + 1]
                given_up = FORMS[FORMS.index(self._first) : FORMS.index(self._now)]
                asked = "no response_format" if self._now == FORMS[-1] else self._now
                self._line = (
                    f"the server rejects response_format {' and '.join(given_up)} ({words[:100]}); from here "
                    f"on it is asked for {asked}, and answers are checked as before"
                )
            return self._line
