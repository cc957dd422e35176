"""Hooks of the documentation site.

Pages link to files outside of `docs`, such as `../bench/results/ratios.svg`. Such a file is copied into the site under
the path that it has in the repository, and the link follows it. Two pages have more on the site than in the repository
(`reference`). Cells of tables know the heads of their columns: a phone shows each row as a list.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[2]))  # the parser of this checkout
import reference

MORE = {"cli.md": reference.add_commands, "api.md": reference.add_docstrings}
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)")  # [text](../outside/of/docs)
CHOICE = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")  # `a\|b`, code in a table
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD = re.compile(r"<th\b.*?</th>", re.DOTALL)
CELLS = re.compile(r"<tr>\s*<td.*?</tr>", re.DOTALL)


def inside(page: str, link: str) -> str | None:
    """Return the path in the repository of a link that leaves `docs`; None if it stays inside.

    page: its path in `docs`.
    """
    target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if target.startswith("docs/") else target


def written_out(code: re.Match[str]) -> str:
    r"""Write code with `\|` as HTML: GitHub shows it as `|`, Python-Markdown with the backslash."""
    plain = code[1].replace("\\|", "|")
    return f"<code>{''.join(c if c.isalnum() else f'&#{ord(c)};' for c in plain)}</code>"


def on_files(files: Files, *, config: Any) -> Files:
    """Add the files outside of `docs` to which pages link. A missing one is left to the check of links."""
    root = Path(config.config_file_path).parent
    for page in list(files.documentation_pages()):
        if not page.src_uri.endswith(".md"):
            continue
        for link in LINK.findall(page.content_string):
            target = inside(page.src_uri, link)
            if (
                target is not None
                and (root / target).is_file()
                and files.get_file_from_path(target) is None
            ):
                files.append(File.generated(config, target, abs_src_path=str(root / target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links that leave `docs` point to the copies, and add what the page has only here."""
    if add := MORE.get(page.file.src_uri):
        markdown = add(markdown)
    markdown = CHOICE.sub(written_out, markdown)
    here = posixpath.dirname(page.file.src_uri) or "."

    def moved(match: re.Match[str]) -> str:
        target = inside(page.file.src_uri, match[1])
        return match[0] if target is None else f"]({posixpath.relpath(target, here)}"

    return LINK.sub(moved, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Let each cell of a table of three columns or more name its column."""

    def named(match: re.Match[str]) -> str:
        heads = [
            re.sub(r"<.*?>", "", head).strip().replace('"', "&quot;")
            for head in HEAD.findall(match[0])
        ]
        if len(heads) < 3:
            return match[0]

        def row(cells: re.Match[str]) -> str:
            names = iter(heads)
            return re.sub("<td", lambda _: f'<td data-name="{next(names, "")}"', cells[0])

        return CELLS.sub(row, match[0])

    return TABLE.sub(named, html)
