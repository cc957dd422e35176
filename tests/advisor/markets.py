"""Markets that the tests of advice share, each loaded once."""

from functools import cache

from jaxtrade.advisor.questions import make_book
from jaxtrade.config import load_config
from jaxtrade.data.market import load_market


def config(*overrides, kind="off", **options):
    """The quickstart's configuration (bundled ES), with an advisor."""
    chosen = load_config("quickstart", overrides)
    advisor = chosen.advisor.model_copy(update={"kind": kind, "options": options})
    return chosen.model_copy(update={"advisor": advisor})


@cache
def market(*overrides):
    return load_market(config(*overrides))


@cache
def book(*overrides):
    return make_book(market(*overrides), config(*overrides))


EURUSD = ("data.market=EURUSD", "advisor.template=no_volume")
