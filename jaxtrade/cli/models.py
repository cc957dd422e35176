"""`jaxtrade advise models`: list the models that a server offers."""

from __future__ import annotations

from jaxtrade.advisor.host.openai import Access, list_models
from jaxtrade.config.service import base_url
from jaxtrade.errors import ConfigError
from jaxtrade.text import aligned, show


def models(server: str, key_env: str | None, key_file: str | None, ca_file: str | None) -> int:
    """Handle the command. server: a URL, or a short name such as `ollama`. Returns 0, or 1 if there
    is no model.

    Raises ConfigError where the server cannot be asked.
    """
    try:
        url, options = base_url(server)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if key_env is None and key_file is None:
        key_env = None if options.get("key_env") is None else str(options["key_env"])
    found = list_models(url, Access(key_env, key_file, ca_file))
    if not found:
        show(f"{url} offers no model; load one into the server")
        return 1
    show("\n".join(aligned([[model.name, model.owner] for model in found], left=(0, 1))))
    return 0
