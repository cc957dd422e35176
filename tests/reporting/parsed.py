"""Reads a report's HTML: its elements, tables and data."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser

import numpy as np

VOID = {"meta", "input", "br", "col"}


@dataclass
class Table:
    """A table. section: id of the section that holds it."""

    section: str
    id: str | None
    caption: str = ""
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def about(self, words):
        """The other cells of the row whose first has the words."""
        [found] = [row[1:] for row in self.rows if words in row[0]]
        return found


@dataclass
class Parsed:
    """elements: (name, attributes, section id) of each start tag. inline: (name, attributes,
    content) of scripts and styles."""

    elements: list[tuple[str, dict[str, str | None], str]] = field(default_factory=list)
    inline: list[tuple[str, dict[str, str | None], str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    text: str = ""

    @property
    def live(self):
        """The data of the scripts."""
        return next(
            json.loads(content)
            for _, attributes, content in self.inline
            if attributes.get("id") == "live"
        )

    def table(self, caption):
        """The one whose caption begins so."""
        [found] = [table for table in self.tables if table.caption.startswith(caption)]
        return found


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.open, self.section = Parsed(), [], ""

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "section":
            self.section = attributes["id"] or ""
        self.found.elements.append((tag, attributes, self.section))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            self.found.inline.append((tag, attributes, ""))
        if tag == "table":
            self.found.tables.append(Table(self.section, attributes.get("id")))
        if tag == "tr" and "tbody" in self.open:
            self.found.tables[-1].rows.append([])
        if tag in ("th", "td"):
            (
                self.found.tables[-1].rows[-1]
                if "tbody" in self.open
                else self.found.tables[-1].head
            ).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        if tag == "section":
            self.section = ""

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            name, attributes, content = self.found.inline[-1]
            self.found.inline[-1] = name, attributes, content + data
            return
        self.found.text += data
        if "caption" in self.open:
            self.found.tables[-1].caption += data
        elif "td" in self.open or "th" in self.open:
            table = self.found.tables[-1]
            cells = table.rows[-1] if "tbody" in self.open else table.head
            cells[-1] += data


def parsed(html):
    """The content of a page. Fails if elements are not properly nested."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader.found


def unpacked(bundle):
    """The columns of `packed`, int64[N] each: what the browser does."""
    raw, found, at = zlib.decompress(base64.b64decode(bundle["data"]), -15), {}, 0
    for each in bundle["columns"]:
        kind = np.dtype(f"<{each['type']}")
        deltas = np.frombuffer(raw, kind, bundle["rows"], at).astype(np.int64)
        at += bundle["rows"] * kind.itemsize
        found[each["name"]] = (
            each["first"] + np.cumsum(deltas)
            if each["above"] is None
            else found[each["above"]] + deltas
        )
    return found
