"""The templates `window` and `desk`: a bar's indicators with what came before it; `desk` adds rules
and the record.
"""

from __future__ import annotations

from jaxtrade.advisor.host.prompts import INDICES, JSON_FORM, NO_VWAP, PLACE, RULES, VALUES

_SIGHT = "You see one bar's indicators, nothing\nabout any account or position, and you answer for the market alone."
_SEES = {
    "window": "You see one bar's indicators\nand what came before it, nothing about any account or position, and you "
    "answer for the market alone.",
    "desk": "You see one bar's indicators,\nwhat came before it, the rules that every account shares, and how your "
    "earlier answers turned out. You see no\nposition, and you answer for the market alone.",
}
_PARTS = {
    "window": "{levels}\n{window}\n{higher}\n",
    "desk": "{levels}\n{window}\n{higher}\n{account}\n{record}\n",
}


def context_text(name: str, volume: bool, news: bool, calendar: bool) -> str:
    """The text of `window` or `desk`.

    volume: whether the bars have volume; without it there is no VWAP. news, calendar: whether there
        is such a file.
    """
    rules, values = (RULES, VALUES) if volume else (NO_VWAP, INDICES)
    feeds = ("{news}\n" if news else "") + ("{calendar}\n" if calendar else "")
    return rules.replace(_SIGHT, _SEES[name]) + JSON_FORM + PLACE + values + _PARTS[name] + feeds
