"""Short names of common servers. A configuration turns them into the ordinary kind, a URL, and its
options.

ollama:NAME    http://127.0.0.1:11434/v1, with the model NAME
openai:NAME    https://api.openai.com/v1, with the model NAME and the key in the variable OPENAI_API_KEY
vllm:URL       the URL of `vllm serve` (with or without /v1), with the only model that it serves

A shortcut may stand behind a mock that changes another kind, as mock:delayed:5/ollama:NAME. Because
the configuration resolves it, run folders, caches and journals hold the URL and the options alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Option = str | int | float | bool


class Server(NamedTuple):
    """A server with a short name. url: its base URL. options: what `advisor.options` holds besides
    the model.
    """

    url: str
    options: Mapping[str, Option]


SERVERS: Mapping[str, Server] = {
    "ollama": Server("http://127.0.0.1:11434/v1", {}),
    "openai": Server(
        "https://api.openai.com/v1",
        {"key_env": "OPENAI_API_KEY", "tokens_key": "max_completion_tokens"},
    ),
}
VLLM = "vllm"
SHORTCUTS = (*SERVERS, VLLM)


class Resolved(NamedTuple):
    """A kind without shortcuts, and the options that its shortcut stands for."""

    kind: str
    options: Mapping[str, Option]


def resolved(kind: str) -> Resolved:
    """The kind and the options that a shortcut stands for. Any other kind is returned as it is,
    without options.

    Raises ValueError for a shortcut without a model or a URL.
    """
    if kind.startswith("mock:"):
        own, slash, other = kind.partition("/")
        inner = resolved(other)
        return Resolved(f"{own}{slash}{inner.kind}", inner.options)
    head, colon, rest = kind.partition(":")
    if head not in SHORTCUTS:
        return Resolved(kind, {})
    if head == VLLM:
        return Resolved(_served_by_vllm(rest), {})
    if not colon or not rest:
        raise ValueError(
            f"advisor.kind = '{kind[:60]}' names no model; expected {head}:NAME (jaxtrade advise "
            f"models {head} lists them)"
        )
    server = SERVERS[head]
    return Resolved(server.url, {**server.options, "model": rest})


def base_url(server: str) -> Resolved:
    """The base URL of a server that is named by URL or by shortcut, and its options. The model may
    be left out.

    Raises ValueError for `vllm` without a URL.
    """
    head, _, rest = server.partition(":")
    if head in SERVERS and not rest:
        return Resolved(SERVERS[head].url, SERVERS[head].options)
    return resolved(server)


def combined(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of the section `advisor` with its shortcut resolved. Options that are given come
    before the shortcut's.

    Raises ValueError where the shortcut names another model than `advisor.options.model`.
    """
    kind, options = values.get("kind"), values.get("options", {})
    if not isinstance(kind, str) or not isinstance(options, Mapping):
        return values  # the checks of the section itself say what is wrong
    plain, stands_for = resolved(kind)
    if plain == kind:
        return values
    named, given = stands_for.get("model"), options.get("model")
    if named is not None and given is not None and given != named:
        raise ValueError(
            f"advisor.kind = {kind} and advisor.options.model = {given} name two models; give one of them"
        )
    if "key_file" in options:  # a key is read from one place
        stands_for = {name: value for name, value in stands_for.items() if name != "key_env"}
    return {**values, "kind": plain, "options": {**stands_for, **options}}


def _served_by_vllm(url: str) -> str:
    """The base URL of a vLLM server, which answers below /v1. Raises ValueError for anything but a
    URL.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(
            f"advisor.kind = '{VLLM}:{url[:60]}' holds no URL; expected {VLLM}:URL, as {VLLM}:http://127.0.0.1:8000"
        )
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/v1")
