"""The page: sections in their order, the data of its scripts, and the policy that lets nothing else
in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtrade.reporting.bars import PlacedTrade
from jaxtrade.reporting.markup import SPLITS, Markup, joined, spoken, tag
from jaxtrade.reporting.schema import ReportData
from jaxtrade.reporting.sections import results, studies, trust
from jaxtrade.text import several
from jaxtrade.version import __version__
from jaxtrade.web import assets

BEFORE = {  # name -> (title, section)
    "honesty": ("How far to believe this", trust.honesty),
    "sample": ("Out of sample and in sample", trust.sample),
    "baselines": ("Baselines", results.baselines),
    "equity": ("Equity and drawdown", results.equity),
    "account": ("Account floor and pass probability", results.account),
    "grids": ("Other assumptions", studies.grids),
    "breakdown": ("Breakdown", studies.breakdown),
    "attribution": ("What the policy looks at", studies.attribution),
    "training": ("Training", trust.training),
}


def page(
    data: ReportData, trades: Sequence[PlacedTrade], first: int, live: Mapping[str, Any]
) -> str:
    """The whole HTML document.

    Args:
        trades: those of the table; first: the number of the first of them, from 1.
        live: what the scripts draw; JSON values.
    """
    title = title_of(data)
    parts = {name: (title, section(data)) for name, (title, section) in BEFORE.items()}
    parts["explorer"] = ("Trade explorer", studies.explorer(data, trades, first))
    parts["provenance"] = ("Provenance", trust.provenance(data))
    return document(title, _header(data, title), parts, data["title"]["run"], assets.SCRIPTS, live)


def document(
    title: str,
    header: Markup,
    parts: Mapping[str, tuple[str, Markup]],
    run: str,
    scripts: Sequence[str],
    live: Mapping[str, Any] | None = None,
) -> str:
    """A whole HTML document.

    Args:
        parts: name -> (title, content) of the sections, in their order.
        run: name of the run that it is made from.
        scripts: files of `jaxtrade/web/`.
        live: what the scripts draw; None if they draw nothing.
    """
    styles = "\n".join(assets.text(name) for name in assets.STYLES)
    sources = [assets.text(name) for name in scripts]
    drawn = (
        []
        if live is None
        else [tag("script", Markup(json_of(live)), type="application/json", id="live")]
    )
    body = tag(
        "body",
        tag("a", "Skip to the figures", class_="skip", href="#figures"),
        header,
        tag(
            "div",
            _contents(parts),
            tag("main", *(_section(name, *each) for name, each in parts.items()), id="figures"),
            class_="columns",
        ),
        tag(
            "footer",
            tag(
                "p",
                f"Made by jaxtrade {__version__} from {run}. This file needs nothing from a "
                "network.",
            ),
        ),
        *drawn,
        *(tag("script", Markup(each)) for each in sources),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy([styles], sources)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(styles)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def title_of(data: ReportData) -> str:
    return f"{data['title']['market']}, {SPLITS[data['title']['split']]}"


def policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """The Content-Security-Policy: these style sheets and scripts by their hashes, and nothing else
    from anywhere.
    """
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {' '.join(map(assets.source_hash, styles))}",
            f"script-src {' '.join(map(assets.source_hash, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def json_of(values: Any) -> str:
    """JSON that can stand in an element: no `<`, so that nothing in it can end the element or begin
    another.
    """
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _header(data: ReportData, title: str) -> Markup:
    about = data["title"]
    span = about["first"] if about["sessions"] == 1 else f"{about['first']} to {about['last']}"
    which = f" of {spoken(about['number'])}" if about["number"] else ""
    facts = (
        several(about["sessions"], "session"),
        span,
        f"agent {about['agent']}{which}",
        f"run {about['run']}",
    )
    return header("Evaluation report", title, facts)


def header(kind: str, title: str, facts: Sequence[str]) -> Markup:
    """The head of a page. kind: of report. facts: what it is about, in a few words each."""
    return tag(
        "header",
        tag("p", kind, class_="over"),
        tag("h1", title),
        tag("p", " · ".join(facts), class_="about"),
        tag("button", "Dark colours", type="button", id="theme", hidden=True),
    )


def _contents(parts: Mapping[str, tuple[str, Markup]]) -> Markup:
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, (title, _) in parts.items()]
    return tag("nav", tag("ol", *links), aria_label="Sections of the report")


def _section(name: str, title: str, content: Markup) -> Markup:
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        joined([content]),
        id=name,
        aria_labelledby=f"{name}-title",
    )
