"""Markets that the tests of advice share, each loaded once."""

from __future__ import annotations

from functools import cache

from jaxtrade.advisor.questions import QuestionBook, make_book
from jaxtrade.config import RunConfig, load_config
from jaxtrade.data.market import Market, load_market


def config(*overrides: str, kind: str = "off", **options: str | int | float) -> RunConfig:
    """The quickstart's configuration (bundled ES), with an advisor."""
    chosen = load_config("quickstart", overrides)
    advisor = chosen.advisor.model_copy(update={"kind": kind, "options": options})
    return chosen.model_copy(update={"advisor": advisor})


@cache
def market(*overrides: str) -> Market:
    return load_market(config(*overrides))


@cache
def book(*overrides: str) -> QuestionBook:
    return make_book(market(*overrides), config(*overrides))


EURUSD = ("data.market=EURUSD", "advisor.template=no_volume")
