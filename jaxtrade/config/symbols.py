"""What the keys of a symbol set (`data.markets`, `data.folder`, `data.per_market`) may say
together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from jaxtrade.config.base import Section
from jaxtrade.config.meant import suggest

MOST = 127  # symbols are numbered in int8
# Keys that name the files or the contract of one symbol. With several symbols they stand in
# `data.per_market`.
OF_ONE = ("contract", "file", "seconds", "quotes", "conversion")
EXAMPLE = "data.per_market: {USDJPY: {price_scale: 0.001}}"
OF_THE_SET = ("market", "markets", "folder", "per_market")


def capitals(symbols: tuple[str, ...]) -> tuple[str, ...]:
    """The symbols in capitals, as contracts are named."""
    return tuple(symbol.upper() for symbol in symbols)


def capital_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with its symbols in capitals."""
    return {symbol.upper(): values for symbol, values in given.items()}


def of_symbols(given: Any) -> Any:
    """`data.per_market` as given. Raises ValueError, which pydantic expects, if its first keys are
    no symbols.
    """
    if not isinstance(given, Mapping):
        return given
    for name, values in given.items():
        if str(name).lower() in OF_THE_SET:
            raise ValueError(
                f"'{name}' is no symbol; the symbols stand in data.per_market directly, without "
                f"'{name}' around them, e.g. {EXAMPLE}"
            )
        if not isinstance(values, Mapping):
            raise ValueError(
                f"'{name}' stands where a symbol is expected, and its value is no section of keys; write "
                f"symbol, key and value, e.g. {EXAMPLE}"
            )
    return given


def check_set(data: Any) -> None:
    """Check the keys of a symbol set in a `DataConfig`, which imports this module.

    Raises ValueError, which pydantic expects, if they contradict each other or other keys.
    """
    if not data.markets:
        for key in ("folder", "per_market"):
            if getattr(data, key):
                raise ValueError(
                    f"data.{key} is given and data.markets is empty; name the symbols in data.markets, "
                    f"or drop data.{key}"
                )
        return
    if data.market != type(data)().market and data.market not in data.markets:
        raise ValueError(
            f"data.market = {data.market} has no effect beside data.markets ({', '.join(data.markets)}): "
            "drop it, or add it to data.markets"
        )
    twice = sorted({symbol for symbol in data.markets if data.markets.count(symbol) > 1})
    if twice:
        raise ValueError(
            f"data.markets names {', '.join(twice)} more than once; name each symbol once"
        )
    if len(data.markets) > MOST:
        raise ValueError(
            f"data.markets names {len(data.markets)} symbols; a set has at most {MOST}"
        )
    for key in OF_ONE:
        if getattr(data, key) is not None:
            raise ValueError(
                f"data.{key} belongs to one symbol, and data.markets names {len(data.markets)}: give it "
                f"in data.per_market, e.g. {{{data.markets[0]}: {{{key}: ...}}}}"
                f"{', or all files in data.folder' if key == 'file' else ''}"
            )
    if data.folder is not None and data.source != "file":
        raise ValueError(
            f"data.folder = '{data.folder}' is given but data.source = {data.source}; set "
            "data.source=file, or drop data.folder"
        )
    _check_keys(data, {name for name in type(data).model_fields if name not in OF_THE_SET})


def _check_keys(data: Any, known: Collection[str]) -> None:
    for symbol, keys in data.per_market.items():
        if symbol not in data.markets:
            raise ValueError(
                f"data.per_market.{symbol}: {symbol} is not in data.markets ({', '.join(data.markets)})"
                f"{suggest(symbol, data.markets)}"
            )
        for key in keys:
            if key in OF_THE_SET:
                raise ValueError(
                    f"data.per_market.{symbol}.{key}: {key} is a key of the whole set; drop it here"
                )
            if key not in known:
                raise ValueError(
                    f"data.per_market.{symbol}.{key}: the section data has no such key"
                    f"{suggest(key, known)}"
                )


# --- Share splits that a configuration states (`data.splits`)


MOST_SHARES = 1000  # on either side of a ratio: keeps the arithmetic of `adjusted` inside int64
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

    date: Annotated[str, AfterValidator(_date)] = Field()
    """the first trade date at the new price"""
    ratio: Annotated[str, PlainValidator(_ratio)] = Field()
    """new shares for old ones: 4, or 3:2"""

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
