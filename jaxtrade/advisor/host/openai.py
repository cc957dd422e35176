"""Servers with OpenAI's chat completions API: llama.cpp, vLLM, Ollama, transformers or a paid one.

The backend asks one model. Each call makes one attempt within a total deadline. It never raises and
never retries. Requests go only to the configured base URL, over TLS unless the server is on this
machine. The configuration names where the key is stored. The key is sent in one request header and
is removed from all text that the server returns. A server that rejects the form of answer that a
request asks for gets a weaker one from the next request on (`replies.Forms`).

`list_models` asks for the models that a server offers (GET /models), by the same rules.
Needs the extra `advisor`. Imports no JAX.

API keys, read from an environment variable or a private file. The configuration names the place,
never the key.

A `Secret` prints as a mask and cannot be serialised by accident. Its `scrub` removes the key from
texts that others wrote: a server may echo a key in its error message or in the model's answer.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import ssl
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import SplitResult, quote, urlsplit

from pydantic import AfterValidator, model_validator

from jaxtrade.advisor.host.replies import FORMS, Forms, Sampling, printable, read_reply
from jaxtrade.advisor.host.types import (
    ADVICE_SCHEMA,
    LOGIT_SCALE,
    PARSERS,
    SCHEMA_HASH,
    Answer,
    FailedError,
    Failure,
    Question,
    strict_json,
)
from jaxtrade.config import AdvisorConfig, RunConfig, validate
from jaxtrade.config.base import Section, declare_bounds
from jaxtrade.config.service import is_server, parts_of
from jaxtrade.errors import ConfigError
from jaxtrade.text import Log

if TYPE_CHECKING:
    from jaxtrade.advisor.host.http import Client


MIN_LENGTH = 8  # scrubbing a shorter "key" would remove ordinary words
_MASK = "[key]"
_HEAD = 6  # servers may echo only the first characters of a key
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_KEY = re.compile(rf"[!-~]{{{MIN_LENGTH},4096}}")


class Secret:
    """An API key. Only `reveal` returns it. Raises ConfigError for text that cannot be a key."""

    __slots__ = ("_value",)

    def __init__(self, value: str, source: str = "the key") -> None:
        if not _KEY.fullmatch(value):
            raise ConfigError(
                f"{source}: not a key; expected {MIN_LENGTH} to 4096 printable characters without blanks"
            )
        self._value = value

    def reveal(self) -> str:
        """Return the key itself."""
        return self._value

    def scrub(self, text: str, parts: bool = True) -> str:
        """Mask the key in `text`, plain or escaped.

        Args:
            parts: also mask words that begin like the key.
        """
        value = self._value
        for form in {
            value,
            quote(value, safe=""),
            value.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/"),
        }:
            text = text.replace(form, _MASK)
        return re.sub(re.escape(value[:_HEAD]) + r"[!-~]*", _MASK, text) if parts else text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")


def read_key(
    env: str | None, file: str | Path | None, environ: Mapping[str, str] = os.environ
) -> Secret | None:
    """Read the key in a named variable or file; None where neither is named.

    Raises ConfigError, whose message never contains the key.
    """
    if env is not None and file is not None:
        raise ConfigError("advisor key_env and key_file: give one of them")
    if env is not None:
        if not _ENV_NAME.fullmatch(env):
            raise ConfigError(
                "advisor key_env: expected the NAME of an environment variable, not the key itself"
            )
        if not environ.get(env):
            raise ConfigError(f"advisor key_env: the environment has no variable {env}")
        return Secret(environ[env].strip(), f"environment variable {env}")
    if file is None:
        return None
    path = Path(file)
    place = f"advisor key_file {path}"
    try:
        with path.open("rb") as handle:
            status = os.fstat(handle.fileno())
            if os.name == "posix" and stat.S_IMODE(status.st_mode) & 0o077:
                raise ConfigError(f"{place}: others may read it; chmod 600 {path}")
            data = handle.read(8192)
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}") from None
    return Secret(data.decode("ascii", "replace").strip(), place)


_LOCAL = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")
_PATH = "/chat/completions"
_URLS = "http://127.0.0.1:8080/v1 or https://HOST/v1"
_MAX_DETAIL = 300


def _is_name(value: object) -> bool:
    """Return whether a value can be the name of a model."""
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _check_name(value: str) -> str:
    if not _is_name(value):
        raise ValueError("expected the name that the server knows it by (see its /v1/models)")
    return value


class OpenAIOptions(Section, frozen=True):
    """Settings of a server. None of them is secret.

    base_url: up to and including `/v1`.
    model: the server's name for it.
    key_env, key_file: environment variable or file that holds the key; neither for a server without
        a key.
    structured: how the request asks for the answer's form; `json_schema` is constrained decoding,
        where the server supports it.
    answer: format of the answer, `json` or `pipe` (one line, see `types.parse_pipe`).
    temperature: None leaves it to the server.
    max_tokens: most tokens of an answer.
    tokens_key: name of that limit in requests; newer models need `max_completion_tokens`.
    max_bytes: most bytes of a response.
    ca_file: PEM file of certificates to trust instead of the system's.
    samples: answers that are asked for per question (`backends.SampledBackend`).
    """

    base_url: str
    model: Annotated[str, AfterValidator(_check_name)]
    key_env: str | None = None
    key_file: str | Path | None = None
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    answer: Literal["json", "pipe"] = "json"
    temperature: float | None = declare_bounds(0.0, 0, 2)
    seed: int | None = None
    max_tokens: int = declare_bounds(200, 1, 32768)
    tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    max_bytes: int = declare_bounds(256 * 1024, 1024, 2**24)
    ca_file: str | Path | None = None
    samples: int = declare_bounds(1, 1, 32)

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"samples = {self.samples}: needs random answers, and temperature = 0 gives the same "
                "one each time; set advisor.options.temperature=0.7, or null for the server's own"
            )
        return self


class OpenAIBackend:
    """A backend that asks one model on one server."""

    def __init__(self, **settings: Any) -> None:
        """Check the settings (of `OpenAIOptions`) and build the client.

        Raises ConfigError for an invalid one, a missing key or a missing library.
        """
        self._base = check_url(settings["base_url"])
        self._options = options = validate(OpenAIOptions, settings, "advisor.options")
        self._key = read_key(options.key_env, options.key_file)
        self._forms = Forms(options.structured if options.answer == "json" else FORMS[-1])
        self._client = client_of(self._base, options.ca_file)

    @property
    def name(self) -> str:
        return f"{self._options.model} at {self._base.geturl()}"

    def __repr__(self) -> str:
        return f"OpenAIBackend({self._options.model!r} at {self._base.geturl()}, {'with' if self._key else 'no'} key)"

    def identity(self) -> Mapping[str, str]:
        o = self._options
        return MappingProxyType(
            {
                "kind": "openai",
                "base_url": self._base.geturl(),
                "model": o.model,
                "structured": o.structured,
                "answer": o.answer,
                "temperature": str(o.temperature),
                "seed": str(o.seed),
                o.tokens_key: str(o.max_tokens),
                "schema": SCHEMA_HASH,
                "logits": f"{LOGIT_SCALE:g}",
            }
        )

    def answer(self, question: Question, deadline: float, number: int = 0) -> Answer:
        """Implement `Backend.answer`.

        Args:
            number: of the sample, from 0; it is added to the option `seed`, if there is one.
        """
        began = time.monotonic()
        try:
            answer = self._answer(question, deadline, number)
        except FailedError as error:
            answer = error.answer
        except Exception as error:  # a bug in the client: `Backend.answer` never raises
            detail = f"unexpected {type(error).__name__} in the client"
            answer = Answer(None, Failure.CONNECTION, detail)
        return self._clean(answer._replace(latency=time.monotonic() - began))

    def _answer(self, question: Question, deadline: float, number: int) -> Answer:
        request_id = f"jaxtrade-{secrets.token_hex(8)}"
        headers = headers_of(self._key) | {
            "Content-Type": "application/json",
            "X-Request-Id": request_id,
        }
        o, form = self._options, self._forms.now
        body = json.dumps(request_body(o, question.prompt, form, number)).encode()
        random = o.temperature is None or (o.temperature > 0 and o.seed is None)
        sampling = Sampling(request_id, random, PARSERS[o.answer], form)
        reply = self._client.send(_PATH, headers, deadline, o.max_bytes, body)
        answer = read_reply(reply.status, reply.headers, reply.body, sampling)
        if answer.failure is Failure.UNSUPPORTED:
            return answer._replace(detail=self._forms.note_rejection(form, answer.detail))
        return answer

    def _clean(self, answer: Answer) -> Answer:
        detail, model, raw = printable(answer.detail), answer.model, answer.raw
        reason = answer.reason
        if self._key:
            detail, model = self._key.scrub(detail), self._key.scrub(model)
            # A message shows the text of an unusable answer.
            raw = self._key.scrub(raw, parts=not answer.advice)
            reason = self._key.scrub(reason, parts=not answer.advice)
        return answer._replace(detail=detail[:_MAX_DETAIL], model=model, raw=raw, reason=reason)

    def close(self) -> None:
        """Cut every request in flight.

        These and all later requests end at once with the failure STOPPED.
        """
        self._client.close()


def request_body(options: OpenAIOptions, prompt: str, form: str, sample: int = 0) -> dict[str, Any]:
    """Build the JSON body of one request.

    Args:
        form: one of `FORMS`.
        sample: see `OpenAIBackend.answer`.
    """
    body: dict[str, Any] = {
        "model": options.model,
        "messages": [{"role": "user", "content": prompt}],
        options.tokens_key: options.max_tokens,
        "stream": False,
    }
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.seed is not None:
        body["seed"] = options.seed + sample
    if options.answer == "json" and form == "json_schema":
        schema = {"name": "advice", "strict": True, "schema": ADVICE_SCHEMA}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif options.answer == "json" and form == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def check_url(text: str) -> SplitResult:
    """Return a valid base URL, without a trailing slash.

    Raises ConfigError, whose message shows no password.
    """
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        raise ConfigError(f"the address of an advisor is not a URL; expected {_URLS}") from None
    if (
        url.scheme not in ("http", "https")
        or not host
        or not re.fullmatch(r"[A-Za-z0-9.:_-]+", host)
    ):
        raise ConfigError(
            f"the address of an advisor begins with http:// or https://; expected {_URLS}"
        )
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ConfigError(
            f"advisor base_url at {host}: holds a user, query or fragment; a key is named by key_env or "
            "key_file"
        )
    if not re.fullmatch(r"[A-Za-z0-9/._~-]*", url.path):
        raise ConfigError(f"advisor base_url at {host}: its path holds unusual characters")
    if url.scheme == "http" and not _LOCAL.fullmatch(host):
        raise ConfigError(f"advisor base_url at {host}: plain http only on this machine; use https")
    if url.path.rstrip("/").endswith(_PATH):
        raise ConfigError(f"advisor base_url at {host}: give it without {_PATH}, which is added")
    return url._replace(path=url.path.rstrip("/"))


def client_of(base: SplitResult, ca_file: str | Path | None) -> Client:
    """Build a client of the server at a valid base URL.

    Raises ConfigError for a file that cannot be used, and for a missing library.

    Args:
        ca_file: certificates to trust instead of the system's.
    """
    try:
        from jaxtrade.advisor.host.http import Client
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"an advisor over HTTP needs {error.name}: in the checkout, pip install '.[advisor]'"
        ) from None
    try:
        return Client(
            base, ssl.create_default_context(cafile=ca_file) if base.scheme == "https" else None
        )
    except OSError as error:
        raise ConfigError(f"advisor ca_file {ca_file}: {error.strerror or error}") from None


def headers_of(key: Secret | None) -> dict[str, str]:
    """Return the headers of every request."""
    plain = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "jaxtrade"}
    return plain | ({"Authorization": f"Bearer {key.reveal()}"} if key else {})


DEADLINE_S = 15.0  # of a list of models; a server that loads models may be slow to answer at first
MAX_BYTES = 4 * 1024 * 1024  # hundreds of models with their descriptions
_MOST_NAMED = 12  # models that an error lists
_LIST = "/models"
_ACCESS = ("key_env", "key_file", "ca_file")  # options of how a server is reached
_MEANING = {
    401: "the key is not accepted",
    403: "the key may not do this",
    404: "it has no list of models here; the "
    "URL ends where /chat/completions would follow, as http://127.0.0.1:8080/v1",
}


class NoListError(ConfigError):
    """A server did not list its models: it cannot be reached, or it answers something else."""


class Model(NamedTuple):
    """A model that a server offers.

    name: as requests call it.
    owner: as the server says, or "".
    """

    name: str
    owner: str = ""


def list_models(
    url: str,
    key_env: str | None = None,
    key_file: str | Path | None = None,
    ca_file: str | Path | None = None,
    seconds: float = DEADLINE_S,
) -> tuple[Model, ...]:
    """List the models of the server with the base URL `url`, in its order.

    Raises ConfigError where the URL or the key cannot be used, NoListError where the server gives
    no list. Messages name the server and hold no key.

    Args:
        seconds: the total deadline; the others as in `OpenAIOptions`.
    """
    base, key = check_url(url), read_key(key_env, key_file)
    client = client_of(base, ca_file)

    def no_list(why: str, fix: str) -> NoListError:
        why = printable(why)[:300]
        return NoListError(
            f"advisor {base.geturl()}: it did not list its models: {key.scrub(why) if key else why}; {fix}"
        )

    try:
        status, _, body = client.send(_LIST, headers_of(key), time.monotonic() + seconds, MAX_BYTES)
    except FailedError as error:
        raise no_list(str(error), "start the server, or check the URL") from None
    if status != 200:
        fix = _MEANING.get(status, "see the server's own messages")
        raise no_list(f"status {status}", fix)
    try:
        value = strict_json(body.decode("utf-8"), MAX_BYTES)
    except (UnicodeDecodeError, FailedError) as error:
        raise no_list(f"the answer is no JSON ({error})", "check the URL") from None
    rows = value.get("data", value) if isinstance(value, dict) else value
    rows = [] if rows is None else rows  # Ollama without a model
    if not isinstance(rows, list):
        raise no_list("the answer holds no list 'data'", "check the URL")
    found = []
    for row in rows:
        if isinstance(row, dict) and _is_name(row.get("id")):
            owner = row.get("owned_by")
            shown = printable(owner[:80]) if isinstance(owner, str) else ""
            found.append(Model(row["id"], key.scrub(shown) if key else shown))
    return tuple(found)


def only_model(url: str, **access: Any) -> str:
    """Return the name of the only model of a server.

    Raises ConfigError as `list_models`, and for none or several models.

    Args:
        access: as of `list_models`.
    """
    try:
        found = list_models(url, **access)
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


def with_model(config: RunConfig, log: Log) -> RunConfig:
    """Fill in the configuration's model from its server.

    Where it names one, no request is sent.

    Otherwise the server's only model is taken, and `log` receives one line. The run folder then
    holds the name, so a resumed run, its evaluations and its cache use the same one.

    Raises ConfigError where the server cannot be reached, or offers none or several models.
    """
    chosen = config.advisor
    panel = tuple(
        member.model_copy(update={"options": _with_model(member.kind, member.options, chosen, log)})
        for member in chosen.panel
    )
    if panel:
        return config.replace(advisor={"panel": panel})
    options = _with_model(chosen.kind, chosen.options, chosen, log)
    return config.replace(advisor={"options": options})


def _with_model(
    kind: str, own: Mapping[str, Any], chosen: AdvisorConfig, log: Log
) -> dict[str, Any]:
    """Fill in the model of its server in the options `own` of an advisor of a kind.

    Those of `chosen` hold for it too.
    """
    url, options = server_of(kind), {**chosen.options, **own}
    if not url or options.get("model") is not None:
        return dict(own)
    access = {name: options[name] for name in _ACCESS if name in options}
    name = only_model(url, seconds=min(chosen.service.deadline_s, DEADLINE_S), **access)
    log(f"advisor {kind}: its only model is {name}; it is used (advisor.options.model)")
    return {**own, "model": name}


def server_of(kind: str) -> str:
    """Return the URL in a kind, behind mocks or not; "" for a kind without a server."""
    own = parts_of(kind)[-1]
    return own if is_server(own) else ""
