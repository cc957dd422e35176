"""HTML and SVG as strings that are safe by construction: text is escaped unless it is `Markup`
already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


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
