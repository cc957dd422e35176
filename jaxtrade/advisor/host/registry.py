"""Builds backends by name: `make_backend("mock:skilled:0.6", {"future": directions})`.

rules                       the prompt's rules as code
mock:KIND[:NUMBER]          a mock of known skill, see `MOCKS`
mock:KIND[:NUMBER]/OTHER    a wrapper that changes the answers of OTHER, as mock:delayed:5/mock:skilled:0.6; options
                            that the wrapper does not take go to OTHER, `seed` goes to both
recorded:FILE               recorded answers of a JSONL file
http://... , https://...    an OpenAI-compatible server; needs the option `model` (`openai.with_model` finds it)
NAME[:REST]                 a user's own advisor, see `AdvisorKind`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.advisor.host import mocks
from jaxtrade.advisor.host.backends import (
    RecordedBackend,
    RuleBackend,
    Sampled,
    check_samples,
    read_recorded,
)
from jaxtrade.advisor.host.mocks import Honesty
from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.types import Backend, nearest
from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.parts import ADVISORS

Options = Mapping[str, Any]
_EXPECTED = {
    "rules": "'rules' alone",
    "mock": "mock:KIND[:NUMBER], as mock:skilled:0.6",
    "recorded": "recorded:FILE",
    "http": "a URL as http://127.0.0.1:8080/v1",
    "https": "a URL as https://HOST/v1",
}
_MEANING = {
    "future": "an array by bar of -1, 0 or +1: this mock reads it",
    "inner": "the backend it is made of",
    "bars": "the bars it is about, or how many",
    "then": "the backend after the turn",
    "turn": "a bar",
    "sessions": "the bars of each session",
    "model": "the name that the server knows it by",
}
_FILES = {
    "table": "a snapshot that 'jaxtrade advise precompute' wrote",
    "replay": "the journal of an earlier run",
    "recorded": "recorded answers, one JSON line each",
}
_SHARES = ("q", "p", "confidence")  # numbers of mocks that lie from 0 to 1


class MockKind(NamedTuple):
    """A kind of mock. make: its class, or a function, whose parameters are its options. number: the
    option that the number after the name sets, or ""."""

    make: Callable[..., Backend]
    number: str = ""

    @property
    def takes(self) -> frozenset[str]:
        """Names of its options."""
        return frozenset(signature(self.make).parameters) - {"monotonic"}

    @property
    def needs(self) -> list[str]:
        """Names of its options without a default."""
        options = signature(self.make).parameters.values()
        return [option.name for option in options if option.default is Parameter.empty]


class AdvisorKind(NamedTuple):
    """A user's own advisor, chosen by `advisor.kind=NAME` or `NAME:REST`.

    make(rest, options) builds the backend. takes: names of its options (`advisor.options`).
    """

    make: Callable[[str, dict[str, Any]], Backend]
    takes: frozenset[str] = frozenset()


def make_backend(kind: str, options: Options | None = None) -> Backend:
    """Build a backend from its kind or URL.

    Raises ConfigError for an unknown kind or option (with the nearest known name) and for a missing
    option.
    """
    head, _, rest = kind.partition(":")
    if kind in ("none", "off"):
        raise ConfigError(f"advisor {kind!r}: it is no advisor and has no backend")
    if head == "transformers":
        folder = rest or "FOLDER"
        raise ConfigError(
            f"advisor {kind[:60]!r}: jaxtrade no longer runs a model itself. Start it with "
            f"'transformers serve {folder}' (pip install 'transformers[serving]') and use --advisor "
            f"http://127.0.0.1:8000/v1 --set advisor.options.model={folder}"
        )
    if head in ADVISORS:
        return ADVISORS[head].make(rest, _known(kind, options, head))
    if head not in _EXPECTED:
        raise ConfigError(
            f"advisor {kind[:60]!r}: unknown{nearest(head, (*_EXPECTED, *ADVISORS.names))}"
        )
    if _is_url(kind):
        return _server(kind, _known(kind, options, "server"))
    if head in ("http", "https") or bool(rest) == (head == "rules"):
        raise ConfigError(f"advisor {head!r}: expected {_EXPECTED[head]}")
    if head == "rules":
        return RuleBackend(**_known(kind, options, head))
    if head == "recorded":
        return RecordedBackend(read_recorded(Path(rest)), **_known(kind, options, head))
    return _mock(rest, _known(kind, options, kind))


def check_kind(kind: str, options: Options | None = None) -> None:
    """Check a kind, its options and its files, as far as that needs neither a market nor a server.

    Raises ConfigError as `make_backend`, and for a file that does not exist.
    """
    head, _, rest = kind.partition(":")
    if kind in ("none", "off"):
        return
    if head in _FILES and not Path(rest).is_file():
        raise ConfigError(
            f"advisor.kind = {kind}: there is no such file; expected {head}:FILE, {_FILES[head]}"
        )
    if head in ("table", "replay"):
        return
    if head != "mock" or not rest:
        if _is_url(kind):  # without a model, the server's only one is taken (`openai.with_model`)
            _known(kind, options, "server")
            check_samples(options or {})
        else:
            make_backend(kind, options)
        return
    name, mock, other, given = _read_mock(rest, _known(kind, options, kind))
    if other:
        check_kind(
            other, {key: value for key, value in (options or {}).items() if key in takes(other)}
        )
    elif "inner" in mock.needs and "inner" not in given:
        raise ConfigError(
            f"advisor mock:{name}: changes another backend; write it behind a '/', as "
            f"mock:{name}/mock:skilled:0.6"
        )
    if mock.number in _SHARES and mock.number in given:
        mocks.share(mock.number, given[mock.number], kind.partition("/")[0])
    if not mock.needs:
        mock.make(**given)


def takes(kind: str) -> frozenset[str]:
    """Names of the options that a kind takes, including those of a wrapped backend."""
    head, _, rest = kind.partition(":")
    if head in ADVISORS:
        return ADVISORS[head].takes
    if _is_url(kind):
        return frozenset(field.name for field in fields(OpenAIOptions)) - {"base_url"} | {"samples"}
    if head == "mock":
        own, _, other = rest.partition("/")
        return _mock_kind(own)[1].takes | (takes(other) if other else frozenset())
    return {"rules": frozenset(("horizon",)), "recorded": frozenset(("answer_format",))}.get(
        head, frozenset()
    )


def parts_of(kind: str) -> list[str]:
    """The backends in a kind, outermost first: mock:slow:5, then rules, of `mock:slow:5/rules`."""
    own, _, other = kind.partition("/") if kind.startswith("mock:") else (kind, "", "")
    return [own, *(parts_of(other) if other else ())]


def _is_url(kind: str) -> bool:
    return kind.startswith(("http://", "https://"))


def _known(kind: str, options: Options | None, shown: str) -> dict[str, Any]:
    """A copy of the options. Raises ConfigError for an option that the kind does not take."""
    known = takes(kind)
    for key in options or {}:
        if key not in known:
            raise ConfigError(
                f"advisor {shown}: unknown option {key!r}" + (nearest(key, known) if known else "")
            )
    return dict(options or {})


def _needed(shown: str, options: Options, *names: str) -> None:
    for name in names:
        if options.get(name) is None:
            raise ConfigError(f"advisor {shown}: option {name!r} is missing ({_MEANING[name]})")


def _server(url: str, options: dict[str, Any]) -> Backend:
    _needed("server", options, "model")
    samples = check_samples(options)
    options.pop("samples", None)
    backend = OpenAIBackend(OpenAIOptions(base_url=url, **options))
    return Sampled(backend, samples) if samples > 1 else backend


def _mock_kind(own: str) -> tuple[str, MockKind, str]:
    """Name, `MockKind` and number (as text, or "") of `KIND[:NUMBER]`."""
    name, _, number = own.partition(":")
    if name not in MOCKS:
        raise ConfigError(f"advisor mock:{name[:40]}: unknown{nearest(name, MOCKS)}")
    if number and not MOCKS[name].number:
        raise ConfigError(f"advisor mock:{name}: takes no number")
    return name, MOCKS[name], number


def _read_mock(rest: str, options: dict[str, Any]) -> tuple[str, MockKind, str, dict[str, Any]]:
    """Name and `MockKind` of `KIND[:NUMBER][/OTHER]`, OTHER, and the mock's own options with the
    number among them. Raises ConfigError for a number that is none or given twice."""
    own, _, other = rest.partition("/")
    name, kind, number = _mock_kind(own)
    if other and "inner" not in kind.takes:
        raise ConfigError(f"advisor mock:{name}: changes no other backend, so no '/' follows it")
    given = {key: value for key, value in options.items() if key in kind.takes}
    if number:
        if kind.number in given:
            raise ConfigError(f"advisor mock:{name}: {kind.number} is given twice")
        try:
            given[kind.number] = float(number)
        except ValueError:
            raise ConfigError(
                f"advisor mock:{name}:{number[:20]}: expected a number ({kind.number})"
            ) from None
    return name, kind, other, given


def _mock(rest: str, options: dict[str, Any]) -> Backend:
    name, kind, other, given = _read_mock(rest, options)
    if other:
        names = (takes(other) - kind.takes) | (takes(other) & {"seed"})
        given["inner"] = make_backend(
            other, {key: value for key, value in options.items() if key in names}
        )
    _needed(f"mock:{name}", given, *kind.needs)
    return kind.make(**given)


def _skilled(honesty: Honesty, default: float, wrong: bool = False) -> Callable[..., Backend]:
    """A function that builds a `Skilled` mock. wrong: `q` is the probability of being wrong."""

    def make(
        future: Iterable[int], q: float = default, seed: int = 0, horizon: int = 30
    ) -> Backend:
        return mocks.Skilled(future, 1 - q if wrong else q, honesty, seed, horizon)

    return make


def _oracle(future: Iterable[int], seed: int = 0, horizon: int = 30) -> Backend:
    return mocks.Skilled(future, 1.0, seed=seed, horizon=horizon)


MOCKS: Mapping[str, MockKind] = {
    "random": MockKind(mocks.Random),
    "persistent": MockKind(mocks.Persistent, "bars"),
    "constant": MockKind(mocks.Constant, "confidence"),
    "skilled": MockKind(mocks.Skilled, "q"),
    "oracle": MockKind(_oracle),
    "adversarial": MockKind(_skilled("honest", 0.6, wrong=True), "q"),
    "overconfident": MockKind(_skilled("overconfident", 0.5), "q"),
    "underconfident": MockKind(_skilled("underconfident", 0.6), "q"),
    "shifted": MockKind(mocks.Shifted),
    "permuted": MockKind(mocks.Permuted),
    "delayed": MockKind(mocks.Delayed, "bars"),
    "available": MockKind(mocks.Available, "p"),
    "turning": MockKind(mocks.Turning, "turn"),
    "slow": MockKind(mocks.Slow, "seconds"),
    "failing": MockKind(mocks.Failing),
}


PANEL = "panel"
_NO_MEMBERS = ("none", "off", "replay", PANEL)


def members_of(config: RunConfig) -> tuple[RunConfig, ...]:
    """One configuration per advisor: of a panel its members, else the configuration itself.

    A member has its own options, and those of `advisor.options` that its kind takes.
    Raises ConfigError for a member that is no advisor, or of an unknown kind.
    """
    chosen = config.advisor
    if chosen.kind != PANEL:
        return (config,)
    found = []
    for number, member in enumerate(chosen.panel):
        head = member.kind.partition(":")[0]
        if head in _NO_MEMBERS:
            raise ConfigError(
                f"advisor.panel.{number} = {member.kind}: is no advisor of its own; expected rules, "
                "mock:KIND, recorded:FILE, table:FILE or the URL of a server"
            )
        known = (
            {}
            if head == "table"
            else {
                name: value for name, value in chosen.options.items() if name in takes(member.kind)
            }
        )
        alone = chosen.model_copy(
            update={"kind": member.kind, "options": {**known, **member.options}, "panel": ()}
        )
        found.append(config.model_copy(update={"advisor": alone}))
    return tuple(found)


def snapshots_of(config: RunConfig) -> dict[int, Path]:
    """Number of each advisor whose advice is in a snapshot -> its file. A replay has those of the
    recorded panel.
    """
    chosen, replayed = config.advisor, config.advisor.kind.startswith("replay:")
    kinds = (
        [member.kind for member in chosen.panel]
        if chosen.kind == PANEL or replayed
        else [chosen.kind]
    )
    return {
        i: Path(kind.removeprefix("table:"))
        for i, kind in enumerate(kinds)
        if kind.startswith("table:")
    }


def name_of(config: RunConfig) -> str:
    """The advisor as reports name it: its kind; of a panel, those of its members."""
    kinds = ", ".join(member.kind for member in config.advisor.panel)
    return f"panel [{kinds}]" if config.advisor.kind == PANEL else config.advisor.kind


def identity_of_members(identities: list[Mapping[str, str]]) -> dict[str, str]:
    """The identities of several advisors as one: each name behind its member's number. That of one
    stays as it is.
    """
    if len(identities) == 1:
        return dict(identities[0])
    return {
        f"{i}.{name}": text
        for i, identity in enumerate(identities)
        for name, text in identity.items()
    }
