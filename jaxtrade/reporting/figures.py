"""Figures as text. A figure that is undefined is `n/a`, never 0; losses are as visible as gains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtrade.reporting.markup import Markup, joined, tag

MINUS, PLUS, NONE = "\u2212", "+", "n/a"


def plain_money(value: float | None, digits: int = 2, plus: bool = False) -> str:
    """`$1,234.50`, `-$3.00` with a true minus sign; with `plus` also `+$3.00`."""
    if value is None:
        return NONE
    rounded = round(value, digits)
    sign = MINUS if rounded < 0 else PLUS if plus and rounded > 0 else ""
    return f"{sign}${abs(rounded):,.{digits}f}"


def plain_number(value: float | None, digits: int = 2) -> str:
    """`1,234.50`, with a true minus sign."""
    if value is None:
        return NONE
    rounded = round(value, digits)
    return f"{MINUS if rounded < 0 else ''}{abs(rounded):,.{digits}f}"


def plain_share(value: float | None, digits: int = 1) -> str:
    """A share 0..1 as `31.6 %`."""
    return NONE if value is None else f"{plain_number(100 * value, digits)} %"


def money(value: float | None, digits: int = 2) -> Markup:
    """Dollars of a cost or a level, without a colour."""
    return tag("span", plain_money(value, digits), class_="na" if value is None else None)


def signed(value: float | None) -> Markup:
    """Dollars won or lost: a sign and a colour both ways."""
    return _coloured(value, plain_money(value, plus=True))


def number(value: float | None, digits: int = 2) -> Markup:
    """A figure without a unit; a negative one is coloured as a loss."""
    return _coloured(value, plain_number(value, digits), gains=False)


def share(value: float | None, digits: int = 1) -> Markup:
    """A share as per cent."""
    return tag("span", plain_share(value, digits), class_="na" if value is None else None)


def count(value: float | None) -> Markup:
    """A whole number."""
    return tag(
        "span", NONE if value is None else f"{value:,.0f}", class_="na" if value is None else None
    )


def _coloured(value: float | None, text: str, gains: bool = True) -> Markup:
    if value is None:
        return tag("span", text, class_="na")
    kind = "loss" if text.startswith(MINUS) else "gain" if gains and value > 0 else None
    return tag("span", text, class_=kind)


FORMS: dict[str, Any] = {
    "money": plain_money,
    "signed": lambda value, digits=2: plain_money(value, digits, plus=True),
    "number": plain_number,
    "share": plain_share,
}


def interval(estimate: Mapping[str, Any] | None, form: str = "number", digits: int = 2) -> Markup:
    """An `Estimate`: the figure, its interval in brackets, or why one of them is absent. form: a
    key of `FORMS`.
    """
    if estimate is None:
        return tag("span", NONE, class_="na")
    show, value = FORMS[form], estimate["value"]
    figure = tag(
        "span",
        show(value, digits),
        class_="na"
        if value is None
        else "loss"
        if form == "signed" and value < 0
        else "gain"
        if form == "signed" and value > 0
        else None,
    )
    low, high, why = estimate.get("low"), estimate.get("high"), estimate.get("why")
    if low is not None and high is not None:
        return joined(
            [figure, " ", tag("span", f"[{show(low, digits)}, {show(high, digits)}]", class_="ci")]
        )
    return joined([figure, " ", tag("span", f"({why})", class_="ci why")]) if why else figure


def bare(estimate: Mapping[str, Any] | None, form: str = "number", digits: int = 2) -> Markup:
    """`interval` without the reason where one is absent, for a table whose notes have the
    `reasons`. Empty without an estimate."""
    return Markup("") if estimate is None else interval({**estimate, "why": None}, form, digits)


def reasons(what: str, estimates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Why figures or intervals are absent: one line for each reason, with the names that it holds
    for.
    """
    by_reason: dict[str, list[str]] = {}
    for name, each in estimates.items():
        if each.get("why"):
            by_reason.setdefault(each["why"], []).append(name)
    return [f"{what} ({', '.join(names)}): {why}" for why, names in by_reason.items()]
