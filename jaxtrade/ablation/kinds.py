"""The kinds of advisors in a matrix: names, which read the future, which placebo belongs to which.

none              no answers
turn[:Q]          mock:skilled:Q, and from the middle of the run on the answers of
                  mock:adversarial:Q (Q is 0.6 if absent)
table:FILE        a snapshot written by `jaxtrade advise precompute`
other             a value of `advisor.kind` that answers at once: rules, mock:KIND[:NUMBER][/OTHER], recorded:FILE
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jaxtrade.advisor.host.registry import check_kind as known
from jaxtrade.advisor.host.registry import reads_future as known_to_read
from jaxtrade.advisor.host.registry import takes
from jaxtrade.advisor.host.types import nearest
from jaxtrade.config.service import parts_of
from jaxtrade.errors import ConfigError
from jaxtrade.runs.plan import run_all

NONE = "none"
TURN_SKILL = 0.6  # the Q of `turn` without a number; the same default as mock:skilled
DEFAULT = (
    NONE,
    "rules",
    "mock:random",
    "mock:persistent:60",
    "mock:shifted/mock:skilled:0.6",
    "mock:skilled:0.55",
    "mock:skilled:0.6",
    "mock:skilled:0.7",
    "mock:oracle",
    "mock:adversarial:0.6",
    "mock:delayed:30/mock:skilled:0.6",
    "mock:available:0.25/mock:skilled:0.6",
    "mock:available:0/mock:skilled:0.6",
    "mock:constant",
    "mock:overconfident",
    "turn",
)
FUSIONS = ("trust", "slots", "gate", "rules", "none")
_HEADS = (NONE, "turn", "table", "rules", "mock", "recorded")
_SLOW = ("http", "https")
PLACEBO = "mock:shifted/"  # the placebo of a kind is this and the kind
_PLACEBOS = (PLACEBO, "mock:permuted/")  # answers that no longer belong to their bars


def parse_kinds(text: str | None) -> tuple[str, ...]:
    """Parse kinds that are separated by commas, and put `none` first.

    None gives the default matrix.

    Raises ConfigError for an unknown or slow kind, and where there is nothing to compare
    with `none`.
    """
    if text is None:
        return DEFAULT
    kinds = tuple(
        dict.fromkeys((NONE, *(part.strip() for part in text.split(",") if part.strip())))
    )
    run_all([partial(check_kind, kind) for kind in kinds])
    if len(kinds) == 1:
        raise ConfigError(
            f"--kinds {text!r}: nothing to compare with {NONE!r}; name at least one advisor, as "
            "mock:skilled:0.6"
        )
    return kinds


def parse_fusions(text: str | None) -> tuple[str, ...]:
    """Parse fusions that are separated by commas. None gives `trust` and `slots`.

    Raises ConfigError for an unknown fusion or an empty list.
    """
    if text is None:
        return FUSIONS[:2]
    fusions = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    run_all([partial(_check_fusion, fusion) for fusion in fusions])
    if not fusions:
        raise ConfigError(f"--fusions {text!r}: expected some of {', '.join(FUSIONS)}")
    return fusions


def _check_fusion(fusion: str) -> None:
    if fusion not in FUSIONS:
        raise ConfigError(f"--fusions {fusion!r}: unknown{nearest(fusion, FUSIONS)}")


def check_kind(kind: str) -> None:
    """Check a kind. Raises ConfigError where it does not exist or its answers take time."""
    head = parts_of(kind)[-1].partition(":")[0]
    if head in _SLOW:
        raise ConfigError(
            f"--kinds {kind}: its answers take time; ask once with 'jaxtrade advise precompute' and give "
            "table:FILE"
        )
    changed = kind.startswith("mock:") and head in (NONE, "turn", "table")
    if head not in _HEADS or (changed and placebo_file(kind) is None):
        raise ConfigError(f"--kinds {kind[:60]}: unknown{nearest(head, _HEADS)}")
    if head == "turn":
        turn_skill(kind)
    elif head == "mock":
        takes(kind)  # the names; then the numbers of the innermost mock
        known(parts_of(kind)[-1])


def turn_skill(kind: str) -> str:
    """Return the Q of turn[:Q] as text. Raises ConfigError where it is not a number from 0 to 1."""
    number = kind.partition(":")[2] or str(TURN_SKILL)
    try:
        if not 0.0 <= float(number) <= 1.0:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"--kinds {kind}: expected turn:Q with Q from 0 to 1, as turn:0.7"
        ) from None
    return number


def is_placebo(kind: str) -> bool:
    """Return whether the kind moves its answers to other bars (`shifted`, `permuted`).

    They then say nothing of their own bars.
    """
    return kind.startswith(_PLACEBOS)


def placebo_file(kind: str) -> str | None:
    """Return the FILE of a snapshot's placebo, `mock:shifted/table:FILE`; None for other kinds.

    No other mock changes a snapshot.
    """
    return next(
        (
            kind.removeprefix(f"{head}table:")
            for head in _PLACEBOS
            if kind.startswith(f"{head}table:")
        ),
        None,
    )


def reads_future(kind: str) -> bool:
    """Return whether the kind reads the future.

    Such a mock measures how well training uses advice of a known skill.

    A placebo does not count: its answers belong to other bars, so they do not predict the future of
    their own.
    """
    return not is_placebo(kind) and (kind.partition(":")[0] == "turn" or known_to_read(kind))


def placebo_of(kind: str, kinds: Sequence[str]) -> str | None:
    """Choose the placebo that a kind is compared with.

    It is its own answers moved by sessions, else its own shuffled answers, else the only placebo
    among `kinds`.

    None for `none` and for placebos, and where none of these exists.
    """
    if kind == NONE or is_placebo(kind):
        return None
    if (own := own_placebo(kind, kinds)) is not None:
        return own
    placebos = [other for other in kinds if is_placebo(other)]
    return placebos[0] if len(placebos) == 1 else None


def own_placebo(kind: str, kinds: Sequence[str]) -> str | None:
    """Find the kind's own answers on other bars in `kinds`: moved by sessions, else shuffled.

    None without either.
    """
    return next((head + kind for head in _PLACEBOS if head + kind in kinds), None)


def is_real(kind: str) -> bool:
    """Return whether the answers may come from a real advisor (a snapshot or recorded answers).

    Mocks and rules are not real.
    """
    return parts_of(kind)[-1].partition(":")[0] in ("table", "recorded")
