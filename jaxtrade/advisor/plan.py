"""The largest cost of asking about bars beforehand, and the offer to do so that a training run
begins with.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxtrade.advisor.host.cache import AdviceCache
from jaxtrade.advisor.host.ledger import MICRO, Prices, Spend, at_most
from jaxtrade.advisor.host.samples import calls_of
from jaxtrade.advisor.host.types import Backend
from jaxtrade.advisor.questions import QuestionBook
from jaxtrade.config.service import ServiceOptions
from jaxtrade.text import Tell

_MOST_BARS = 4000  # bars whose prompts an offer measures; the rest of a larger market is like them


class AskPlan(NamedTuple):
    """What the command will ask.

    bars: number of bars to ask about. hits: those whose answer is in the cache. hopeless: those
        that the cache knows to
    fail. most: the largest cost of the others, if each is asked once.
    """

    bars: int
    hits: int
    hopeless: int
    most: Spend


def make_plan(
    backend: Backend, book: QuestionBook, bars: np.ndarray, options: ServiceOptions, tell: Tell
) -> AskPlan:
    """The largest cost of asking about the bars, given the cache. Creates no cache file.

    bars: int[n]. tell: prints one line about a cache that cannot be read.
    """
    path = (
        Path(options.cache) if options.cache is not None and Path(options.cache).exists() else None
    )
    cache = AdviceCache(path, tell)
    cache.open()
    identity, prices = backend.identity(), Prices(options.price_prompt, options.price_completion)
    hits, hopeless, calls = 0, 0, calls_of(backend)
    most = [0, 0, 0]
    try:
        for bar in bars:
            question = book.preview(bar)
            known = cache.get(cache.key(identity, question))
            hits += known is not None and known.advice is not None
            if known is not None and (
                known.advice is not None or known.attempts >= options.poison_after
            ):
                hopeless += known.advice is None
                continue
            spend = at_most(
                question.prompt, options.overhead_tokens, options.completion_tokens, prices
            )
            most = [total + calls * more for total, more in zip(most, spend, strict=True)]
    finally:
        cache.close()
    return AskPlan(len(bars), hits, hopeless, Spend(*most))


def cost_text(most: Spend, options: ServiceOptions) -> str:
    """The cost of a plan in words."""
    priced = options.price_prompt is not None or options.price_completion is not None
    return f"cost at most {most.cost / MICRO:.2f}" if priced else "cost unknown (no prices set)"


def offer(
    backend: Backend,
    book: QuestionBook,
    training: np.ndarray,
    options: ServiceOptions,
    ask: str,
    then: str,
    tell: Tell,
) -> None:
    """Offer to ask about all bars before training: tell its largest cost and the commands.

    Args:
        training: bool[T], the bars that training may ask about.
        ask: the command that asks beforehand. then: the command that trains with its answers.
    """
    bars = np.flatnonzero(book.askable)
    step = -(-len(bars) // _MOST_BARS)
    plan = make_plan(backend, book, bars[::step], options, tell)
    scale = len(bars) / plan.bars
    most = Spend(*(round(scale * part) for part in plan.most))
    about = "about " if step > 1 else ""
    tell(
        f"note: this advisor answers while the run trains, so the first updates lack its advice. The training "
        f"split has {int(training.sum()):,} bars to ask about, all splits have {len(bars):,}. To ask about all of "
        f"these beforehand takes at most {about}{most.calls:,} calls and {most.tokens:,} tokens, "
        f"{cost_text(most, options)}:"
    )
    tell(f"      {ask}")
    tell(f"      {then}")
