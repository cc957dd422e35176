"""HTML of results, for notebooks. It needs nothing from the network and takes the colours of the
page.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

CELL = "text-align:right;padding:1px 8px;white-space:nowrap"
WORD = "text-align:left;padding:1px 8px;white-space:nowrap"
HEAD = "text-align:left;padding:6px 8px 1px;font-weight:bold"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table. The first row has the names of the columns.

    A row with fewer cells than the first one is a heading, or a remark that spans the other
    columns.
    """
    width = len(rows[0])
    head = "".join(f'<th style="{CELL}">{escape(cell)}</th>' for cell in rows[0])
    body = "".join(_row(row, width) for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: Sequence[str], width: int) -> str:
    first, *rest = (escape(cell.strip()) for cell in row)
    if not rest:
        return f'<tr><td colspan="{width}" style="{HEAD}">{first}</td></tr>'
    span = f' colspan="{width - 1}"' if len(row) < width else ""
    cells = "".join(f'<td{span} style="{CELL}">{cell}</td>' for cell in rest)
    return f'<tr><td style="{WORD}">{first}</td>{cells}</tr>'


def paragraphs(lines: Sequence[str]) -> str:
    """One small paragraph for each line."""
    return "".join(f'<p style="margin:2px 0;font-size:90%">{escape(line)}</p>' for line in lines)


def picture(png: bytes, alt: str) -> str:
    """A PNG inside the page."""
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{escape(alt, quote=True)}" style="max-width:100%" src="data:image/png;base64,{data}"/>'


def block(title: str, *parts: str) -> str:
    """A title and parts of HTML in one element."""
    return (
        f'<div><p style="margin:2px 0;font-weight:bold">{escape(title)}</p>{"".join(parts)}</div>'
    )
