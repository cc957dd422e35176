"""The models that a server offers (GET /models), and the only one where a configuration names none.

The rules are those of questions: TLS unless the server is on this machine, one total deadline, a
cap on the body, and a key that is read from where the configuration says and appears in no message.
Needs the extra `advisor`. Imports no JAX.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult

from jaxtrade.advisor.host.keys import Secret, read_key
from jaxtrade.advisor.host.openai import check_url, client_of, headers_of
from jaxtrade.advisor.host.replies import printable
from jaxtrade.advisor.host.schema import RefusedError, strict_json
from jaxtrade.advisor.host.types import TransportError
from jaxtrade.config import AdvisorConfig, RunConfig
from jaxtrade.errors import ConfigError
from jaxtrade.text import Tell

DEADLINE_S = 15.0  # of a list of models; a server that loads models may be slow to answer at first
MAX_BYTES = 4 * 1024 * 1024  # hundreds of models with their descriptions
_MOST_NAMED = 12  # models that an error lists
_PATH = "/models"
_MEANING = {
    401: "the key is not accepted",
    403: "the key may not do this",
    404: "it has no list of models here; the "
    "URL ends where /chat/completions would follow, as http://127.0.0.1:8080/v1",
}


class Access(NamedTuple):
    """How a server is reached. key_env, key_file: where the key is; neither for a server without
    one. ca_file: PEM file of certificates to trust instead of the system's."""

    key_env: str | None = None
    key_file: Path | None = None
    ca_file: Path | None = None


PLAIN = Access()


class NoListError(ConfigError):
    """A server did not list its models: it cannot be reached, or it answers something else."""


class Model(NamedTuple):
    """A model that a server offers. name: as requests call it. owner: as the server says, or ""."""

    name: str
    owner: str = ""


def list_models(url: str, access: Access = PLAIN, seconds: float = DEADLINE_S) -> tuple[Model, ...]:
    """The models of the server with the base URL `url`, in its order.

    seconds: the total deadline. Raises ConfigError where the URL or the key cannot be used,
        NoListError where the
    server gives no list. Messages name the server and hold no key.
    """
    base, key = check_url(url), read_key(access.key_env, access.key_file)
    client = client_of(base, access.ca_file)
    try:
        status, _, body = client.send(_PATH, headers_of(key), time.monotonic() + seconds, MAX_BYTES)
    except TransportError as error:
        raise _no_list(base, key, str(error), "start the server, or check the URL") from None
    if status != 200:
        raise _no_list(
            base, key, f"status {status}", _MEANING.get(status, "see the server's own messages")
        )
    return _models(base, key, body)


def only_model(url: str, access: Access = PLAIN, seconds: float = DEADLINE_S) -> str:
    """The name of the only model of a server. Raises ConfigError as `list_models`, and for none or
    several models.
    """
    try:
        found = list_models(url, access, seconds)
    except NoListError as error:
        raise NoListError(
            f"{error}; with a model named (--set advisor.options.model=NAME) a run starts although the "
            "server is down"
        ) from None
    if len(found) == 1:
        return found[0].name
    shown = url if len(url) <= 80 else f"{url[:79]}…"
    if not found:
        raise ConfigError(
            f"advisor.options.model: not given, and {shown} offers no model; load one into the server, "
            "or name one (--set advisor.options.model=NAME)"
        )
    names = ", ".join(model.name for model in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    raise ConfigError(
        f"advisor.options.model: not given, and {shown} offers {len(found)} models; name one (--set "
        f"advisor.options.model=NAME) of {names}{more}"
    )


def with_model(config: RunConfig, tell: Tell) -> RunConfig:
    """The configuration with the model of its server. Where it names one, no request is sent.

    Otherwise the server's only model is taken, and `tell` receives one line. The run folder then
    holds the name, so a resumed run, its evaluations and its cache use the same one.

    Raises ConfigError where the server cannot be reached, or offers none or several models.
    """
    chosen = config.advisor
    if chosen.panel:
        members = tuple(
            _named(member.kind, member.options, chosen, tell) for member in chosen.panel
        )
        panel = tuple(
            member.model_copy(update={"options": options})
            for member, options in zip(chosen.panel, members, strict=True)
        )
        return config.model_copy(update={"advisor": chosen.model_copy(update={"panel": panel})})
    options = _named(chosen.kind, chosen.options, chosen, tell)
    return config.model_copy(update={"advisor": chosen.model_copy(update={"options": options})})


def _named(kind: str, own: Mapping[str, Any], chosen: AdvisorConfig, tell: Tell) -> dict[str, Any]:
    """The options `own` of an advisor of a kind, with the model of its server. Those of `chosen`
    hold for it too.
    """
    url, options = server_of(kind), {**chosen.options, **own}
    if url is None or options.get("model") is not None:
        return dict(own)
    given = {name: str(options[name]) for name in Access._fields if options.get(name) is not None}
    name = only_model(url, access_of(**given), min(chosen.service.deadline_s, DEADLINE_S))
    tell(f"advisor {kind}: its only model is {name}; it is used (advisor.options.model)")
    return {**own, "model": name}


def server_of(kind: str) -> str | None:
    """The URL in a kind, behind mocks or not; None for a kind without a server."""
    if kind.startswith("mock:"):
        return server_of(kind.partition("/")[2])
    return kind if kind.startswith(("http://", "https://")) else None


def access_of(
    key_env: str | None = None, key_file: str | None = None, ca_file: str | None = None
) -> Access:
    """The access that options or flags name as text."""
    return Access(
        key_env,
        None if key_file is None else Path(key_file),
        None if ca_file is None else Path(ca_file),
    )


def _models(base: SplitResult, key: Secret | None, body: bytes) -> tuple[Model, ...]:
    """The models in the body of a list. Raises NoListError for any other body."""
    try:
        value = strict_json(body.decode("utf-8"), MAX_BYTES)
    except (UnicodeDecodeError, RefusedError) as error:
        raise _no_list(base, key, f"the answer is no JSON ({error})", "check the URL") from None
    rows = value.get("data", value) if isinstance(value, dict) else value
    rows = [] if rows is None else rows  # Ollama without a model
    if not isinstance(rows, list):
        raise _no_list(base, key, "the answer holds no list 'data'", "check the URL")
    return tuple(
        _model(row, key) for row in rows if isinstance(row, dict) and _is_name(row.get("id"))
    )


def _is_name(value: object) -> bool:
    """Whether a value can be the option `model` (`openai.OpenAIOptions`)."""
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _model(row: Mapping[str, Any], key: Secret | None) -> Model:
    owner = row.get("owned_by")
    shown = printable(owner[:80]) if isinstance(owner, str) else ""
    return Model(row["id"], key.scrub(shown) if key else shown)


def _no_list(base: SplitResult, key: Secret | None, why: str, fix: str) -> NoListError:
    why = printable(why)[:300]
    return NoListError(
        f"advisor {base.geturl()}: it did not list its models: {key.scrub(why) if key else why}; {fix}"
    )
