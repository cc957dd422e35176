"""Grids and attributions of a run as one text or one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtrade.evaluation import grids
from jaxtrade.evaluation.attribution import result
from jaxtrade.evaluation.attribution.result import SlotAttribution
from jaxtrade.evaluation.grids import Grid


def shown(found: Mapping[str, Sequence[Grid | SlotAttribution]], as_json: bool) -> str:
    """What was found for each symbol, as JSON or text. That of a single symbol stands for
    itself.
    """
    if as_json:
        documents = documents_of(found)
        return json.dumps(
            documents if len(found) > 1 else next(iter(documents.values())),
            indent=2,
            allow_nan=False,
        )
    texts = {symbol: "\n\n".join(_text(each) for each in own) for symbol, own in found.items()}
    return "\n\n".join(
        f"{symbol}\n{text}" if len(texts) > 1 else text for symbol, text in texts.items()
    )


def documents_of(
    found: Mapping[str, Sequence[Grid | SlotAttribution]],
) -> dict[str, dict[str, Any]]:
    """Symbol -> title -> plain data."""
    return {symbol: {each.title: _json(each) for each in own} for symbol, own in found.items()}


def _text(found: Grid | SlotAttribution) -> str:
    return grids.table(found) if isinstance(found, Grid) else result.table(found)


def _json(found: Grid | SlotAttribution) -> dict[str, Any]:
    return grids.to_json(found) if isinstance(found, Grid) else result.to_json(found)
