"""HTML and SVG as strings that are safe by construction: text is escaped unless it is `Markup`
already.

Also the names that several sections show in the same way, and the JSON files that they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jaxtrade.evaluation.metrics import CHOSEN_HERE
from jaxtrade.storage import digests


class Markup(str):
    """Text that is HTML already. Everything else is escaped when it becomes part of an element."""

    __slots__ = ()


Child = str | Markup
WIDE = 5  # columns; a table with more may be wider than its frame, which the keyboard must then be able to scroll
VOID = frozenset({"meta", "input", "br", "col"})  # elements without an end tag


def tag(element: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element. children: `Markup` stands as it is, other text is escaped.

    attributes: a trailing `_` is dropped and `_` becomes `-` (`class_`, `aria_label`,
        `stroke_width`). None and False
    leave an attribute out, True writes it without a value. Raises ValueError for `style`, which the
    page's policy refuses, and for handlers (`on...`).
    """
    words = [element]
    for key, value in attributes.items():
        if key.startswith("on") or key == "style":
            raise ValueError(f"attribute {key}: the page's Content-Security-Policy refuses it")
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        words.append(label if value is True else f'{label}="{escape(_plain(value), quote=True)}"')
    if element in VOID:
        return Markup(f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{joined(children)}</{element}>")


def joined(children: Iterable[Child]) -> Markup:
    """The children one after the other, escaped where they are no `Markup`."""
    return Markup(
        "".join(
            each if isinstance(each, Markup) else escape(each, quote=False) for each in children
        )
    )


def _plain(value: str | float | bool) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def paragraph(text: Child, kind: str | None = None) -> Markup:
    """A paragraph. kind: its class."""
    return tag("p", text, class_=kind)


def table(
    caption: str,
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    words: Sequence[int] = (),
    tall: bool = False,
    marked: Sequence[int] = (),
    id_: str | None = None,
) -> Markup:
    """A table in a frame that scrolls by itself. The first cell of a row is its heading.

    Args:
        caption: says what the table shows; screen readers announce it.
        words: columns of words, aligned to the left; the others are figures.
        tall: many rows: the frame is as high as a part of the screen, and scrolls.
        marked: rows that are emphasised.
        id_: of the table element.
    """

    def cell(i: int, content: Child) -> Markup:
        return tag("td", content, class_=None if i in words else "n")

    names = [
        tag("th", each, scope="col", class_=None if i == 0 or i in words else "n")
        for i, each in enumerate(head)
    ]
    lines = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(cell(i, each) for i, each in enumerate(row[1:], 1)),
            class_="own" if number in marked else None,
        )
        for number, row in enumerate(rows)
    ]
    inner = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *names)),
        tag("tbody", *lines),
        id=id_,
    )
    scrolls = tall or len(head) > WIDE
    return tag(
        "div",
        inner,
        class_="scroll tall" if tall else "scroll",
        role="region" if scrolls else None,
        aria_label=caption if scrolls else None,
        tabindex="0" if scrolls else None,
    )


def missing(command: str, what: str = "Not computed") -> Markup:
    """The paragraph in place of figures that a run does not have."""
    return tag("p", f"{what}: run ", tag("code", command), class_="missing")


def notes(lines: Sequence[str]) -> Markup:
    """Notes below a table, one line each; nothing without any."""
    return tag("ul", *(tag("li", line) for line in lines), class_="notes") if lines else Markup("")


OWN = "s0"
_KINDS = {"sampled": "s1", "flat": "s2", "random": "s3", "buy_hold": "s4", "sma_cross": "s5"}
SPLITS = {
    "test": "held-out test sessions",
    "validation": "validation sessions",
    "train": "training sessions",
    "all": "all sessions",
}


def kinds(agents: Iterable[str]) -> dict[str, str]:
    """Agent -> class of its colour. The first agent is the one that the report is about."""
    found = {}
    for i, name in enumerate(agents):
        found[name] = (
            OWN if i == 0 else _KINDS.get(name.rstrip("_0123456789"), f"s{1 + (i - 1) % 5}")
        )
    return found


def trained_on(split: str, labels: Sequence[str]) -> bool:
    """Whether the policy was trained on some of the sessions. labels: of the evaluation."""
    return split not in ("test", "validation") or any(
        label.startswith("in sample") for label in labels
    )


def chosen_on(labels: Sequence[str]) -> bool:
    """Whether the policy was chosen by its scores on the sessions. labels: of the evaluation."""
    return any(CHOSEN_HERE in label for label in labels)


def spoken(key: str) -> str:
    """A key as words: `daily_loss` -> `daily loss`."""
    return key.replace("_", " ")


def times(number: int) -> str:
    """`once`, `twice`, `7 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`, `23rd`."""
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number:,}{ending}"


def capital(text: str) -> str:
    """The text with a capital letter at its start."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(reason: str) -> str:
    """A reason as a sentence of its own: a capital letter and a full stop."""
    return f"{capital(reason)}{'' if reason.endswith('.') else '.'}"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file as it was written. Raises DataError if it cannot be read, or has changed
    since.
    """
    return digests.read_json(path, "evaluate the run again: jaxtrade evaluate RUN")
