"""Share splits that a configuration states (`data.splits`)."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator

from jaxtrade.config.base import Section

MOST_SHARES = 1000  # on either side of a ratio: keeps the exact arithmetic of `adjust` inside int64
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SHAPE = "expected the new shares for one old share (4, or 1.5), or NEW:OLD as text (3:2; a reverse split 1:10)"


def _date(text: str) -> str:
    """Raises ValueError, which pydantic expects, unless the text is an ISO date."""
    try:
        fits = date.fromisoformat(text).isoformat() == text
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"'{text}' is not a date; write YYYY-MM-DD")
    return text


def _ratio(value: object) -> str:
    """A ratio in lowest terms as NEW:OLD. Raises ValueError unless it is a positive ratio of small
    numbers, not 1.
    """
    text = str(value).replace(" ", "") if type(value) in (int, float, str) else ""
    if not re.fullmatch(rf"{_NUMBER}(?::{_NUMBER})?", text):
        raise ValueError(f"'{value}' is not a ratio; {_SHAPE}")
    new, _, old = text.partition(":")
    if not Fraction(new) or (old and not Fraction(old)):
        raise ValueError(f"'{value}' has no shares on one side; {_SHAPE}")
    ratio = Fraction(new) / Fraction(old or 1)
    if ratio == 1:
        raise ValueError(f"'{value}' changes nothing; {_SHAPE}")
    if max(ratio.numerator, ratio.denominator) > MOST_SHARES:
        raise ValueError(
            f"'{value}' is {ratio.numerator}:{ratio.denominator} in whole shares, more than "
            f"{MOST_SHARES}; {_SHAPE}"
        )
    return f"{ratio.numerator}:{ratio.denominator}"


class ShareSplit(Section, frozen=True):
    """One split. Prices of trade dates before `date` are divided by the ratio."""

    date: Annotated[str, AfterValidator(_date)] = Field(
        description="the first trade date at the new price"
    )
    ratio: Annotated[str, PlainValidator(_ratio)] = Field(
        description="new shares for old ones: 4, or 3:2"
    )

    @property
    def fraction(self) -> Fraction:
        """New shares for one old share."""
        new, old = self.ratio.split(":")
        return Fraction(int(new), int(old))


def _in_order(splits: tuple[ShareSplit, ...]) -> tuple[ShareSplit, ...]:
    """Raises ValueError unless the dates increase."""
    for before, after in pairwise(splits):
        if after.date <= before.date:
            raise ValueError(f"dates must increase: {after.date} follows {before.date}")
    return splits


Splits = Annotated[tuple[ShareSplit, ...], Field(strict=False), AfterValidator(_in_order)]
