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
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxtrade.advisor.host import mocks
from jaxtrade.advisor.host.backends import (
    RecordedBackend,
    RuleBackend,
    SampledBackend,
    read_recorded,
)
from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.types import (
    Backend,
    nearest,
)
from jaxtrade.config import RunConfig, validate
from jaxtrade.config.service import is_server, parts_of
from jaxtrade.errors import ConfigError
from jaxtrade.parts import ADVISORS

Options = Mapping[str, Any]
NO_OPTIONS: Options = MappingProxyType({})
NOBODY = ("none", "off")  # kinds that are no advisor
WRITTEN = ("table", "replay")  # kinds whose advice exists already, so that no backend is needed
SERVED = ("http", "https")  # requests are slow and may cost money; answers are cached
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
    """A kind of mock.

    make: its class, or a function, whose parameters are its options.
    number: the option that the number after the name sets, or "".
    """

    make: Callable[..., Backend]
    number: str = ""

    @property
    def takes(self) -> frozenset[str]:
        """Names of its options."""
        return frozenset(signature(self.make).parameters)

    @property
    def needs(self) -> list[str]:
        """Names of its options without a default."""
        options = signature(self.make).parameters.values()
        return [option.name for option in options if option.default is Parameter.empty]


class AdvisorKind(NamedTuple):
    """A user's own advisor, chosen by `advisor.kind=NAME` or `NAME:REST`.

    make(rest, options) builds the backend.

    takes: names of its options (`advisor.options`).
    """

    make: Callable[[str, dict[str, Any]], Backend]
    takes: frozenset[str] = frozenset()


Supplied = Callable[[str], Options]


def make_backend(
    kind: str, options: Options = NO_OPTIONS, supplied: Supplied = lambda own: NO_OPTIONS
) -> Backend:
    """Build a backend from its kind or URL.

    Raises ConfigError for an unknown kind or option (with the nearest known name) and for
    a missing option.

    Args:
        supplied: values that a run gives to one backend of the kind, for options
            that are not given.
    """
    backend = None
    for own, given in reversed(_divide_options(kind, options)):
        if isinstance(inner := given.get("inner"), str):
            raise ConfigError(
                f"advisor.options.inner = {inner}: write it into advisor.kind, as {own}/{inner}"
            )
        if isinstance(then := given.get("then"), str):
            # `is_slow` reads only the kind and does not see this option, so a slow backend here
            # would block training.
            if is_slow(then):
                raise ConfigError(
                    f"advisor.options.then = {then}: takes time; expected a mock or rules, as "
                    "mock:skilled:0.4"
                )
            given["then"] = make_backend(then, supplied=supplied)
        known = takes(own)
        given = {name: value for name, value in supplied(own).items() if name in known} | given
        backend = _make_backend(own, given if backend is None else {**given, "inner": backend})
    assert backend is not None
    return backend


def _make_backend(own: str, given: dict[str, Any]) -> Backend:
    """Build one backend.

    Args:
        given: all its options.
    """
    head, _, rest = own.partition(":")
    if head in ADVISORS:
        return ADVISORS[head].make(rest, given)
    if is_server(own):
        _require("server", given, "model")
        server, samples = OpenAIBackend(base_url=own, **given), given.get("samples", 1)
        return SampledBackend(server, samples) if samples > 1 else server
    if head == "rules":
        return RuleBackend(**given)
    if head == "recorded":
        return RecordedBackend(read_recorded(Path(rest)), **given)
    name, mock, given = _read_mock(own, given)
    _require(f"mock:{name}", given, *mock.needs)
    return mock.make(**given)


def check_kind(kind: str, options: Options = NO_OPTIONS) -> None:
    """Check a kind, its options and its files, as far as possible without a market or a server.

    Raises ConfigError as `make_backend`, and for a file that does not exist.
    """
    if kind in NOBODY:
        return
    for part in parts_of(kind):
        head, _, file = part.partition(":")
        if head in _FILES and not Path(file).is_file():
            raise ConfigError(
                f"advisor.kind = {part}: there is no such file; expected {head}:FILE, {_FILES[head]}"
            )
    parts = parts_of(kind)
    # Of advice that is written already, its file is all that can be checked.
    follows = parts.pop() if parts[-1].partition(":")[0] in WRITTEN else ""
    for own, given in reversed(_divide_options("/".join(parts), options) if parts else ()):
        _check_one(own, {**given, "inner": follows} if follows else given)
        follows = own


def _check_one(own: str, given: dict[str, Any]) -> None:
    """Check one backend of a kind.

    Args:
        given: its options; `inner` is what it wraps.
    """
    if is_server(own):  # without a model, the server's only one is taken (`openai.with_model`)
        validate(OpenAIOptions, {"model": "any", **given, "base_url": own}, "advisor.options")
        return
    if not own.startswith("mock:"):
        _make_backend(own, given)
        return
    name, mock, given = _read_mock(own, given)
    if "inner" in mock.needs and "inner" not in given:
        raise ConfigError(
            f"advisor mock:{name}: changes another backend; write it behind a '/', as "
            f"mock:{name}/mock:skilled:0.6"
        )
    if not mock.needs:
        mock.make(**given)


def takes(kind: str) -> frozenset[str]:
    """List the options that a kind takes, including those of a wrapped backend."""
    own, *others = parts_of(kind)
    head = own.partition(":")[0]
    if head in ADVISORS:
        found = ADVISORS[head].takes
    elif is_server(own):
        found = frozenset(OpenAIOptions.model_fields) - {"base_url"}
    elif head == "mock":
        found = _mock_kind(own)[1].takes
    else:
        found = {"rules": {"horizon"}, "recorded": {"answer_format"}}.get(head, ())
    return frozenset(found).union(*map(takes, others))


def is_slow(kind: str) -> bool:
    """Return whether answers of this kind take time.

    Such an advisor must be asked through a service.
    """
    *wrappers, own = parts_of(kind)
    return is_server(own) or any(part.startswith("mock:slow") for part in wrappers)


def reads_future(kind: str) -> bool:
    """Return whether an advisor of this kind reads the future.

    This is a mock of known skill, wrapped or not.
    """
    names = [part.split(":")[1] for part in parts_of(kind) if part.startswith("mock:")]
    return any("future" in MOCKS[name].takes for name in names if name in MOCKS)


def _divide_options(kind: str, options: Options) -> list[tuple[str, dict[str, Any]]]:
    """Divide the options among the backends of a kind, the outermost first.

    An option goes to the first that takes it, `seed` to all. Raises ConfigError for an unknown kind
    or option.
    """
    parts = parts_of(kind)
    for own in parts:
        _check_form(own)
    known = takes(kind)
    for key in options:
        if key not in known:
            raise ConfigError(
                f"advisor {'server' if is_server(kind) else kind}: unknown option {key!r}"
                + (nearest(key, known) if known else "")
            )
    found, left = list[tuple[str, dict[str, Any]]](), dict(options)
    for own in parts:
        given = {name: left[name] for name in takes(own) & left.keys()}
        left = {name: left[name] for name in left if name not in given or name == "seed"}
        found.append((own, given))
    return found


def _check_form(own: str) -> None:
    """Raise ConfigError for a kind that does not exist, or that is not written as it must be."""
    head, _, rest = own.partition(":")
    if own in NOBODY:
        raise ConfigError(f"advisor {own!r}: it is no advisor and has no backend")
    if head == "transformers":
        folder = rest or "FOLDER"
        raise ConfigError(
            f"advisor {own[:60]!r}: jaxtrade no longer runs a model itself. Start it with "
            f"'transformers serve {folder}' (pip install 'transformers[serving]') and use --advisor "
            f"http://127.0.0.1:8000/v1 --set advisor.options.model={folder}"
        )
    if head in ADVISORS or is_server(own):
        return
    if head not in _EXPECTED:
        raise ConfigError(
            f"advisor {own[:60]!r}: unknown{nearest(head, (*_EXPECTED, *ADVISORS.names))}"
        )
    if head in SERVED or bool(rest) == (head == "rules"):
        raise ConfigError(f"advisor {head!r}: expected {_EXPECTED[head]}")


def _require(shown: str, options: Options, *names: str) -> None:
    for name in names:
        if options.get(name) is None:
            raise ConfigError(f"advisor {shown}: option {name!r} is missing ({_MEANING[name]})")


def _mock_kind(own: str) -> tuple[str, MockKind, str]:
    """Return name, `MockKind` and number (as text, or "") of `mock:KIND[:NUMBER]`."""
    name, _, number = own.removeprefix("mock:").partition(":")
    if name not in MOCKS:
        raise ConfigError(f"advisor mock:{name[:40]}: unknown{nearest(name, MOCKS)}")
    if number and not MOCKS[name].number:
        raise ConfigError(f"advisor mock:{name}: takes no number")
    return name, MOCKS[name], number


def _read_mock(own: str, options: Options) -> tuple[str, MockKind, dict[str, Any]]:
    """Return name, `MockKind` and options of `mock:KIND[:NUMBER]`.

    The number is among the options.
    Raises ConfigError for a number that is none, given twice, or no share where it must be one.
    """
    name, mock, number = _mock_kind(own)
    given = dict(options)
    if "inner" in given and "inner" not in mock.takes:
        raise ConfigError(f"advisor mock:{name}: changes no other backend, so no '/' follows it")
    if number:
        if mock.number in given:
            raise ConfigError(f"advisor mock:{name}: {mock.number} is given twice")
        try:
            given[mock.number] = float(number)
        except ValueError:
            raise ConfigError(
                f"advisor mock:{name}:{number[:20]}: expected a number ({mock.number})"
            ) from None
    if mock.number in _SHARES and mock.number in given:
        mocks.share(mock.number, given[mock.number], own)
    return name, mock, given


def _make_skilled(
    honesty: mocks.Honesty, default: float, wrong: bool = False
) -> Callable[..., Backend]:
    """Return a function that builds a `Skilled` mock.

    Args:
        wrong: `q` is the probability of being wrong.
    """

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
    "adversarial": MockKind(_make_skilled("honest", 0.6, wrong=True), "q"),
    "overconfident": MockKind(_make_skilled("overconfident", 0.5), "q"),
    "underconfident": MockKind(_make_skilled("underconfident", 0.6), "q"),
    "shifted": MockKind(mocks.Shifted),
    "permuted": MockKind(mocks.Permuted),
    "delayed": MockKind(mocks.DelayedBackend, "bars"),
    "available": MockKind(mocks.Available, "p"),
    "turning": MockKind(mocks.Turning, "turn"),
    "slow": MockKind(mocks.Slow, "seconds"),
    "failing": MockKind(mocks.Failing),
}


PANEL = "panel"
_NO_MEMBERS = (*NOBODY, "replay", PANEL)


def members_of(config: RunConfig) -> tuple[RunConfig, ...]:
    """Return one configuration per advisor: of a panel its members, else the configuration itself.

    A member has its own options, and those of `advisor.options` that its kind takes. Raises
    ConfigError for a member that is no advisor, or of an unknown kind.
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
        alone = {"kind": member.kind, "options": {**known, **member.options}, "panel": ()}
        found.append(config.replace(advisor=alone))
    return tuple(found)


def snapshots_of(config: RunConfig) -> dict[int, Path]:
    """Map the number of each advisor whose advice is in a snapshot to its file.

    A replay has those of the recorded panel.
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
    """Return the advisor's name in reports: its kind; of a panel, those of its members."""
    kinds = ", ".join(member.kind for member in config.advisor.panel)
    return f"panel [{kinds}]" if config.advisor.kind == PANEL else config.advisor.kind


def identity_of_members(identities: list[Mapping[str, str]]) -> dict[str, str]:
    """Merge the identities of several advisors into one: each name behind its member's number.

    That of one stays as it is.
    """
    if len(identities) == 1:
        return dict(identities[0])
    return {
        f"{i}.{name}": text
        for i, identity in enumerate(identities)
        for name, text in identity.items()
    }
