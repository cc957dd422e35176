"""Names that several sections show in the same way: agents and their colours, splits, keys of
figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxtrade.evaluation.metrics import CHOSEN_HERE

OWN = "s0"
_KINDS = {"sampled": "s1", "flat": "s2", "random": "s3", "buy_hold": "s4", "sma_cross": "s5"}
SPLITS = {
    "test": "held-out test sessions",
    "validation": "validation sessions",
    "train": "training sessions",
    "all": "all sessions",
}


def kinds(agents: Iterable[str]) -> dict[str, str]:
    """Agent -> class of its colour. The first agent is the one that the report is about."""
    found = {}
    for i, name in enumerate(agents):
        found[name] = (
            OWN if i == 0 else _KINDS.get(name.rstrip("_0123456789"), f"s{1 + (i - 1) % 5}")
        )
    return found


def trained_on(split: str, labels: Sequence[str]) -> bool:
    """Whether the policy was trained on some of the sessions. labels: of the evaluation."""
    return split not in ("test", "validation") or any(
        label.startswith("in sample") for label in labels
    )


def chosen_on(labels: Sequence[str]) -> bool:
    """Whether the policy was chosen by its scores on the sessions. labels: of the evaluation."""
    return any(CHOSEN_HERE in label for label in labels)


def spoken(key: str) -> str:
    """A key as words: `daily_loss` -> `daily loss`."""
    return key.replace("_", " ")


def times(number: int) -> str:
    """`once`, `twice`, `7 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`, `23rd`."""
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number:,}{ending}"


def capital(text: str) -> str:
    """The text with a capital letter at its start."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(reason: str) -> str:
    """A reason as a sentence of its own: a capital letter and a full stop."""
    return f"{capital(reason)}{'' if reason.endswith('.') else '.'}"
