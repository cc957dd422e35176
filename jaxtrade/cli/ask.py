"""`jaxtrade advise ask`: ask an advisor about one bar; show prompt, raw answer and verdict."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from jaxtrade.advisor.compose import backend_of
from jaxtrade.advisor.host.backends import calls_of
from jaxtrade.advisor.host.ledger import MICRO, Caps, Ledger, Spend, at_most, cost_of, spend_of
from jaxtrade.advisor.host.openai import with_model
from jaxtrade.advisor.host.registry import is_slow, members_of
from jaxtrade.advisor.host.replies import (
    FORMS,
    check_answer,
    is_unusable,
    printable,
    reason_of,
)
from jaxtrade.advisor.host.replies import remedy as unusable_remedy
from jaxtrade.advisor.host.types import (
    DIRECTIONS,
    Answer,
    Backend,
    Failure,
    Question,
)
from jaxtrade.advisor.questions import (
    QuestionBook,
    followed_of,
    in_sessions,
    make_book,
    round_turn,
)
from jaxtrade.cli.shared import say
from jaxtrade.config import RunConfig
from jaxtrade.config.service import ServiceOptions
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.errors import ConfigError
from jaxtrade.formatting import stamp

# What followed advice, in words: hit, miss, too small a move, or not scored.

HIT, MISS, SMALL, UNSCORED = "hit", "miss", "too small", "not scored"


class Labels(NamedTuple):
    """What followed the bars of a market. Both arrays read the future.

    came: int8[T], +1 where a buy would have paid, -1 where a sale would have paid, else 0.
    room: bool[T], bars whose horizon ends in their own session.
    horizon: bars.
    cost: ticks of a round turn.
    """

    came: np.ndarray
    room: np.ndarray
    horizon: int
    cost: int


def labels_of(market: Market, config: RunConfig) -> Labels:
    """Compute the labels of a market's bars, with the horizon `advisor.horizon`."""
    horizon = config.advisor.horizon
    return Labels(
        followed_of(market, config), room_of(market, horizon), horizon, round_turn(market, config)
    )


def room_of(market: Market, horizon: int) -> np.ndarray:
    """Find decision bars after which `horizon` bars of the same session follow (bool[T])."""
    sessions, room = market.data.sessions, np.zeros(len(market.bars), bool)
    for first, last in zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True):
        # A session's last bar is `last + 1`, its flat bar; advice at `last` itself needs a horizon
        # of one bar.
        room[first : max(int(first), min(int(last) + 2 - horizon, int(last) + 1))] = True
    return room


def outcome(side: int, bar: int, labels: Labels) -> str:
    """Describe what followed advice about a bar.

    side: +1 to buy, -1 to sell, 0 to hold.
    """
    if side == 0 or not labels.room[bar]:
        return UNSCORED
    came = int(labels.came[bar])
    return SMALL if came == 0 else HIT if came == side else MISS


def explain_outcome(side: int, bar: int, labels: Labels) -> str:
    """Describe the `outcome`, with its reason, as a sentence."""
    found = outcome(side, bar, labels)
    if found == UNSCORED:
        return f"{found}: " + (
            "advice to hold says no direction"
            if side == 0
            else f"the session ends within the horizon of {labels.horizon} bars"
        )
    if found == SMALL:
        return (
            f"{found}: over {labels.horizon} bars the price moved by no more than the {labels.cost} ticks of a "
            "round turn, so this is not scored"
        )
    way = "rose" if int(labels.came[bar]) > 0 else "fell"
    return f"{found}: over {labels.horizon} bars the price {way} by more than the {labels.cost} ticks of a round turn"


# The bar that a command means: by its index, by a time, or the last one that may be asked about
# in training.


def bar_at(book: QuestionBook, training: np.ndarray, at: str | None) -> int:
    """Find the index of the askable bar that `--at` names.

    Args:
        training: bool[T], the decision bars of the training sessions.
        at: a bar's index, or an ISO time with or without a zone (without: the exchange's). A time
            means the bar whose close is at it, or the last before it. None: the last askable bar of
            the training sessions.
    Raises ConfigError where the text is neither, lies outside the data, or means a bar that may not
    be asked about.
    """
    if at is None:
        known = np.flatnonzero(book.askable & training)
        if not len(known):
            raise ConfigError(
                "--at: not given, and no bar of the training sessions may be asked about; name one of "
                f"another session, such as --at {_nearest(book, 0)}"
            )
        return int(known[-1])
    bar = _by_index(book, at) if at.strip().isdecimal() else _by_time(book, at)
    if not book.askable[bar]:
        near = _nearest(book, bar)
        why = (
            "one of its values is not known yet (warm-up)"
            if bar < int(book.askable.argmax())
            else "it is no decision bar of a session, or one of its values is not known"
        )
        raise ConfigError(
            f"--at {at}: bar {bar} (close {_close(book, bar)}) may not be asked about: {why}; the "
            f"nearest that may is --at {near} (close {_close(book, near)})"
        )
    return bar


def _by_index(book: QuestionBook, at: str) -> int:
    bar, last = int(at), len(book.closes) - 1
    if bar > last:
        raise ConfigError(
            f"--at {at}: no such bar; the data have bars 0 to {last}{_range(book)}; the nearest that may "
            f"be asked about is --at {_nearest(book, last)}"
        )
    return bar


def _by_time(book: QuestionBook, at: str) -> int:
    try:
        when = datetime.datetime.fromisoformat(at.strip())
    except ValueError:
        example = _close(book, _nearest(book, len(book.closes) - 1))
        raise ConfigError(
            f"--at {ascii(at)[:60]}: neither a bar's index nor an ISO time; expected 1200 or {example} "
            f"(without a zone: {book.zone})"
        ) from None
    local = when if when.tzinfo is not None else when.replace(tzinfo=ZoneInfo(book.zone))
    seconds = local.timestamp()
    bar = int(np.searchsorted(book.closes, seconds, side="right")) - 1
    if bar < 0 or seconds > int(book.closes[-1]):
        near = _nearest(book, max(bar, 0))
        raise ConfigError(
            f"--at {at}: {local.isoformat()} lies outside the data{_range(book)}; the nearest bar that "
            f"may be asked about is --at {near} (close {_close(book, near)})"
        )
    return bar


def _nearest(book: QuestionBook, bar: int) -> int:
    """Find the askable bar with the nearest index; of two equally near ones the earlier."""
    known = np.flatnonzero(book.askable)
    return int(known[np.abs(known - bar).argmin()])


def _close(book: QuestionBook, bar: int) -> str:
    return stamp(int(book.closes[bar]), book.zone)


def _range(book: QuestionBook) -> str:
    return f" (closes {_close(book, 0)} to {_close(book, len(book.closes) - 1)})"


_KEPT = {
    "table": "its advice is written already; jaxtrade advise inspect FILE shows it",
    "replay": "its advice is recorded already; jaxtrade advise log RUN and advise inspect RUN show it",
    "none": "there is nobody to ask",
    "off": "there is nobody to ask",
}
_TEXT = "  | "  # before each line of a prompt or an answer, which may look like anything


class Reply(NamedTuple):
    """One answer.

    cost: None without prices.
    asked: False where a cap stopped the request.
    """

    answer: Answer
    cost: float | None
    asked: bool = True


def ask(config: RunConfig, at: str | None, repeat: int, as_json: bool) -> int:
    """Handle the command. Return 0, or 1 if an answer is a failure.

    Every member of a panel is asked.

    at: as in `bar_at`.
    repeat: how often the same question is asked.

    Raises ConfigError (flags, a kind that answers no question, a server without its only
    model), DataError.
    """
    members = members_of(config)
    for member in members:
        _check_kind(member.advisor.kind)
    market = load_market(config)
    documents = [_document_of(with_model(member, say), market, at, repeat) for member in members]
    if as_json:
        print(
            json.dumps(documents if len(documents) > 1 else documents[0], indent=2, allow_nan=False)
        )
    else:
        print("\n\n".join("\n".join(_lines(document)) for document in documents))
    return (
        0
        if all(
            answer["advice"] is not None for document in documents for answer in document["answers"]
        )
        else 1
    )


def _document_of(config: RunConfig, market: Market, at: str | None, repeat: int) -> dict[str, Any]:
    """Ask one advisor, and return all that is shown, as JSON values."""
    book, splits, labels = (
        make_book(market, config),
        split_sessions(market, config.split),
        labels_of(market, config),
    )
    inside = {name: in_sessions(market, splits[name]) for name in ("train", "validation", "test")}
    scored = inside["train"] & labels.room  # what followed the usual bar can then be shown
    bar = bar_at(book, scored if (scored & book.askable).any() else inside["train"], at)
    question = book.question(bar)
    backend = backend_of(config, market, book, labels.came)
    try:
        replies = ask_times(backend, question, config, repeat)
    finally:
        backend.close()
    split = next((name for name, bars in inside.items() if bars[bar]), "none")

    def describe_followed(reply: Reply) -> str | None:
        """Describe what followed the advice, which is shown for training sessions alone."""
        advice = reply.answer.advice
        return (
            explain_outcome(advice.direction, bar, labels) if advice and split == "train" else None
        )

    identity, options = backend.identity(), config.advisor.service
    return {
        "bar": question.bar,
        "symbol": question.symbol,
        "time": question.time,
        "split": split,
        "advisor": config.advisor.kind,
        "model": config.advisor.options.get("model"),
        "template": question.prompt_version,
        "prompt": question.prompt,
        "answers": [
            {**_answer_of(reply, options, identity), "followed": describe_followed(reply)}
            for reply in replies
        ],
        "served": is_slow(config.advisor.kind),
        "last_of_training": at is None,
    }


def _check_kind(kind: str) -> None:
    """Raise ConfigError for a kind that answers no question."""
    head = kind.partition(":")[0]
    if head in _KEPT:
        raise ConfigError(
            f"advisor.kind = {kind}: {_KEPT[head]}; to ask, give --advisor rules, mock:KIND, "
            "recorded:FILE, ollama:NAME or the URL of a server"
        )


def ask_times(backend: Backend, question: Question, config: RunConfig, times: int) -> list[Reply]:
    """Ask the same question `times` times in a row, within the caps of `advisor.service`.

    After a request that a cap stops, no more are tried.

    Requests are counted in the ledger that the configuration names, or for this command alone.
    """
    if not is_slow(config.advisor.kind):
        return [_reply(backend, question, config) for _ in range(times)]
    options, replies = config.advisor.service, list[Reply]()
    share = at_most(question.prompt, options)
    reserved = Spend(*(calls_of(backend) * part for part in share))
    left, tries = times, times + len(FORMS)
    with closing(Ledger(options.ledger, Caps.of(options))) as ledger:
        while left and tries:
            tries -= 1
            if why := ledger.reserve(reserved):
                why = f"not asked: {why}; one more request may need {reserved.tokens} tokens"
                stopped = Answer(None, Failure.STOPPED, why)
                return [*replies, Reply(stopped, 0.0, asked=False)]
            reply = _reply(backend, question, config)
            spent = [
                spend_of(part, share, options) for part in reply.answer.parts or (reply.answer,)
            ]
            ledger.book_cost(reserved, Spend(*map(sum, zip(*spent, strict=True))))
            if reply.answer.failure is Failure.UNSUPPORTED and tries:
                # The backend's next request has the next weaker form.
                say(f"note: {printable(reply.answer.detail)}")
                continue
            replies.append(reply)
            left -= 1
    return replies


def _reply(backend: Backend, question: Question, config: RunConfig) -> Reply:
    options, began = config.advisor.service, time.monotonic()
    answer = check_answer(backend.answer(question, began + options.deadline_s))
    answer = answer._replace(latency=answer.latency or time.monotonic() - began)
    if not is_slow(config.advisor.kind):
        return Reply(answer, 0.0)
    used = (answer.prompt_tokens, answer.completion_tokens)
    known = any(used) and None not in (options.price_prompt, options.price_completion)
    return Reply(answer, cost_of(options, *used) / MICRO if known else None)


# --- what is shown ---------------------------------------------------------------------------------------------------


def remedy(answer: Answer, options: ServiceOptions, identity: Mapping[str, str]) -> str:
    """Suggest what to do about a failure.

    identity: the backend's.
    """
    if is_unusable(answer):
        return unusable_remedy(reason_of(answer), identity, options.completion_tokens)
    match answer.failure:
        case Failure.TIMEOUT:
            return f"raise advisor.service.deadline_s (now {options.deadline_s:g}), or use a faster model"
        case Failure.CONNECTION:
            return "start the server, or check the URL; jaxtrade advise models URL shows whether it answers"
        case Failure.REFUSED:
            return "check advisor.options.model (jaxtrade advise models URL lists them), the key and the account"
        case Failure.UNSUPPORTED:
            return "set advisor.options.structured=none, or advisor.template=pipe"
        case Failure.STOPPED:
            return "raise the cap (advisor.service.max_*), or give another advisor.service.ledger"
        case _:
            return "see the server's own messages"


def _answer_of(
    reply: Reply, options: ServiceOptions, identity: Mapping[str, str]
) -> dict[str, Any]:
    """Convert one answer to JSON values.

    identity: the backend's.
    """
    answer, advice = reply.answer, reply.answer.advice
    return {
        "raw": answer.raw,
        "model": answer.model,
        "advice": advice
        and {
            "direction": DIRECTIONS[advice.direction],
            "confidence": advice.confidence,
            "risk": advice.risk,
            "horizon_bars": advice.horizon,
            "reason": answer.reason,
        },
        "failure": answer.failure and answer.failure.value,
        "detail": answer.detail,
        "remedy": answer.failure and remedy(answer, options, identity),
        "asked": reply.asked,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "milliseconds": 1000 * answer.latency,
        "cost": reply.cost,
    }


def _lines(document: dict[str, Any]) -> list[str]:
    """Format the document as text."""
    where = {"train": "a training session", "none": "a session of no split"}.get(
        document["split"], f"a {document['split']} session"
    )
    last = ", the last whose horizon ends in its session" if document["last_of_training"] else ""
    named = f", model {document['model']}" if document["model"] else ""
    lines = [
        f"bar {document['bar']} of {document['symbol']}, close {document['time']}, in {where}{last}",
        f"advisor {document['advisor']}{named}, template {document['template']}",
        "",
        f"prompt ({len(document['prompt']):,} characters)"
        + (
            ""
            if document["served"]
            else ": what a language model would be shown; this kind does not read it"
        ),
        *_block(document["prompt"]),
    ]
    answers = document["answers"]
    for number, answer in enumerate(answers, 1):
        lines += [
            "",
            *_answer_lines(
                answer, document, f" {number} of {len(answers)}" if len(answers) > 1 else ""
            ),
        ]
    return [*lines, *_summary(answers)]


def _answer_lines(answer: dict[str, Any], document: dict[str, Any], number: str) -> list[str]:
    raw = (
        _block(answer["raw"])
        if answer["raw"]
        else [
            f"{_TEXT}(no text)"
            if document["served"]
            else f"{_TEXT}(this kind answers with values, not with text)"
        ]
    )
    lines = [f"raw answer{number}", *raw, ""] if answer["asked"] else []
    if (advice := answer["advice"]) is not None:
        lines.append(
            f"verdict: {advice['direction']}, confidence {advice['confidence']:.2f}, risk "
            f"{advice['risk']:.2f}, horizon {advice['horizon_bars']} bars"
            + (f" ({answer['detail']})" if answer["detail"] else "")
        )
        lines += [f"reason: {printable(advice['reason'])}"] if advice["reason"] else []
    else:
        detail = f": {printable(answer['detail'])}" if answer["detail"] else ""
        lines += [f"verdict: no advice, {answer['failure']}{detail}", f"remedy: {answer['remedy']}"]
    if answer["asked"]:
        lines.append(_spent_line(answer, document["served"]))
    if answer["followed"] is not None:
        lines.append(f"what followed (not shown to the advisor): {answer['followed']}")
    elif advice is not None and document["split"] != "train":
        lines.append("what followed: not shown, because only training sessions are scored")
    return lines


def _spent_line(answer: dict[str, Any], served: bool) -> str:
    if not served:
        return f"took {answer['milliseconds']:.3g} ms, answered here: no tokens, no cost"
    tokens = (
        f"{answer['prompt_tokens']:,} tokens of the prompt, {answer['completion_tokens']:,} of the answer"
        if answer["prompt_tokens"] + answer["completion_tokens"]
        else "tokens not reported"
    )
    cost = "unknown" if answer["cost"] is None else f"{answer['cost']:.6f}"
    why = (
        " without prices (advisor.service.price_prompt, price_completion)"
        if cost == "unknown"
        else ""
    )
    return f"took {answer['milliseconds']:,.0f} ms; {tokens}; cost {cost}{why}"


def _summary(answers: Sequence[dict[str, Any]]) -> list[str]:
    """Summarise several answers in one line; return none about a single one."""
    if len(answers) < 2:
        return []
    given = [answer["advice"] for answer in answers if answer["advice"] is not None]
    counts = {name: sum(advice["direction"] == name for advice in given) for name in DIRECTIONS}
    confidence = [advice["confidence"] for advice in given]
    spread = f"; confidence {min(confidence):.2f} to {max(confidence):.2f}" if given else ""
    return [
        "",
        f"{len(answers)} answers: "
        + ", ".join(f"{count} {name}" for name, count in counts.items())
        + f", {len(answers) - len(given)} without advice{spread}",
    ]


def _block(text: str) -> list[str]:
    """Format a text of others as lines that change no terminal."""
    return [f"{_TEXT}{printable(line)}" for line in text.splitlines()]
