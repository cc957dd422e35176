"""Read the files of a page, and the hashes by which its Content-Security-Policy names them."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

# Templates of pages: the files `templates/*.html` of a package.


@functools.cache
def environment(package: str) -> Environment:
    """Return the templates of a package.

    All text is escaped; a name that is not there is an error.
    """
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )


UPLOT = "vendor/uplot/"
# In the order in which they are loaded: a file may use those before it.
STYLES = (UPLOT + "uPlot.min.css", "theme.css", "page.css", "explorer.css", "print.css")
SCRIPTS = (
    UPLOT + "uPlot.iife.min.js",
    "theme.js",
    "bundle.js",
    "chart.js",
    "ohlc.js",
    "equity.js",
    "trades.js",
    "explorer.js",
    "report.js",
)

# Of the live page beside those above; `watching.server` serves them by name.
LIVE = ("watch.css", "curves.js", "session.js", "labels.js", "result.js", "watch.js")


def text(name: str) -> str:
    """Read a file below `jaxtrade/web/`, with Unix line ends."""
    found = resources.files("jaxtrade.web").joinpath(*name.split("/")).read_text(encoding="utf-8")
    return found.replace("\r\n", "\n")


def source_hash(content: str) -> str:
    """Return `'sha256-...'`, a source expression of CSP for one inline element.

    The element has exactly this content (W3C CSP 3).
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"
