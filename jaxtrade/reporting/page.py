"""The pages: templates filled with the content of a report, and the data of their scripts.

Also the Content-Security-Policy, which lets nothing else in.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from jaxtrade import formatting
from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.evaluation.statistics import LEAST_SEEDS, LEVEL
from jaxtrade.reporting import schema, svg, words
from jaxtrade.reporting.bars import PlacedTrade
from jaxtrade.reporting.studies import chosen_on, trained_on
from jaxtrade.text import join_reasons, several
from jaxtrade.version import __version__
from jaxtrade.web import assets

FILTERS = (
    words.format_key,
    words.times,
    words.ordinal,
    words.capital,
    words.sentence,
    words.clock_of,
    words.flat,
    several,
    join_reasons,
    formatting.name_agent,
)
FUNCTIONS = (
    words.kinds,
    words.reasons,
    schema.command,
    schema.report_command,
    svg.axis,
    svg.bounds,
    svg.pieces,
    svg.ticks,
    svg.step_marks,
    svg.some_of,
    accumulate,
)


@functools.cache
def environment() -> Environment:
    """Return the environment of the templates, with what they may call."""
    found = assets.environment("jaxtrade.reporting")
    found.filters.update({each.__name__: each for each in FILTERS})
    found.filters["format_number"] = functools.partial(
        formatting.format_number, minus=formatting.MINUS
    )
    found.globals.update({each.__name__: each for each in FUNCTIONS})
    found.globals.update(
        minus=formatting.MINUS,
        splits=schema.SPLITS,
        least_sessions=MIN_SESSIONS,
        least_seeds=LEAST_SEEDS,
        level=f"{100 * LEVEL:.0f} %",
        version=__version__,
    )
    return found


def page(
    data: schema.Figures, trades: Sequence[PlacedTrade], first: int, live: Mapping[str, Any]
) -> str:
    """Render the whole HTML document.

    Args:
        trades: those of the table.
        first: the number of the first of them, from 1.
        live: what the scripts draw; JSON values.
    """
    split, labels = data["title"]["split"], data["labels"]
    chosen = chosen_on(labels)
    held_out = 0 if chosen or trained_on(split, labels) else data["settings"]["sessions"]
    return document(
        "report.html",
        assets.SCRIPTS,
        data=data,
        trades=trades,
        first=first,
        live=Markup(json_of(live)),
        chosen=chosen,
        held_out=held_out,
    )


def document(template: str, scripts: Sequence[str], **values: Any) -> str:
    """Render a whole HTML document: the template filled with the values.

    scripts: files of `jaxtrade/web/`.
    """
    styles = "\n".join(assets.text(name) for name in assets.STYLES)
    sources = [assets.text(name) for name in scripts]
    return (
        environment()
        .get_template(template)
        .render(
            values,
            styles=Markup(styles),
            scripts=[Markup(each) for each in sources],
            policy=content_security_policy([styles], sources),
        )
    )


def content_security_policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy.

    It allows these style sheets and scripts by their hashes, and nothing else from anywhere.
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
    """Serialise to JSON that can stand in an element.

    It has no `<`, so that nothing in it can end the element or begin another.
    """
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
