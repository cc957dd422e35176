"""What `--nulls KIND:DRAWS` asks for. Imports no heavy library."""

from __future__ import annotations

import difflib
from typing import Literal, NamedTuple, get_args

from jaxtrade.errors import ConfigError

NullKind = Literal["sign", "sessions", "phase", "martingale"]
NULL_KINDS: tuple[NullKind, ...] = get_args(NullKind)
RULE_DRAWS, TRAINED_DRAWS = (
    99,
    19,
)  # recommended: a rule is evaluated in moments, a policy is trained again per draw
MOST_DRAWS = 1_000_000


class NullSpec(NamedTuple):
    """The null markets of a test.

    kind: of null market.
    draws: B, the largest number of null markets to make (fewer after an early stop).
    """

    kind: NullKind
    draws: int

    @property
    def floor(self) -> float:
        """The smallest p-value that B draws can give: 1 / (B + 1)."""
        return 1 / (self.draws + 1)

    def __str__(self) -> str:
        return f"{self.kind}:{self.draws}"


def parse_null_spec(text: str, draws: int = RULE_DRAWS, flag: str = "--nulls") -> NullSpec:
    """Parse `sign:99` as NullSpec("sign", 99).

    Args:
        draws: the number of draws if the text names a kind alone.
        flag: the flag or key that the text comes from, for messages.

    Raises:
        ConfigError: an unknown kind, or a number that is not whole or not in 1 .. MOST_DRAWS.
    """
    name, colon, count = text.strip().partition(":")
    form = f"expected KIND:DRAWS, as in {flag} sign:{draws}"
    kind: NullKind | None = next((known for known in NULL_KINDS if known == name), None)
    if kind is None:
        near = difflib.get_close_matches(name, NULL_KINDS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(
            f"{flag} {text}: '{name}' is no kind of null market{hint}; {form}, with one of the kinds "
            f"{', '.join(NULL_KINDS)}"
        )
    if not colon:
        return NullSpec(kind, draws)
    if not (count.isascii() and count.isdigit()) or not 1 <= int(count) <= MOST_DRAWS:
        raise ConfigError(
            f"{flag} {text}: '{count}' is no number of null markets; {form}, with a whole number from 1 "
            f"to {MOST_DRAWS:,}"
        )
    return NullSpec(kind, int(count))
