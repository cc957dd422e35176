"""The template that a configuration names, with the feeds that it shows. All its files are read and
checked here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.advisor.host.context import user_template
from jaxtrade.advisor.host.context.blocks import BLOCKS, shape_of
from jaxtrade.advisor.host.context.events import Events, read_events
from jaxtrade.advisor.host.context.news import News, read_news
from jaxtrade.advisor.host.context.templates import context_text
from jaxtrade.advisor.host.prompts import CONTEXT_NAMES, Template, find_template
from jaxtrade.config import AdvisorConfig
from jaxtrade.config.context import ContextConfig
from jaxtrade.errors import ConfigError

_UNASKED = ("off", "none", "table")  # kinds without questions
FEEDS = {"news": "advisor.context.news", "calendar": "advisor.context.calendar"}


class Chosen(NamedTuple):
    """A template, and the feeds that it shows; None where it shows none."""

    template: Template
    news: News | None = None
    events: Events | None = None


def choose(config: AdvisorConfig, volume: bool = True) -> Chosen:
    """The template `advisor.template` with its feeds. volume: whether the market's bars have
    volume.

    Raises ConfigError for an unknown template, an unknown field of a user's template, or a feed or
    key of the context without effect on the template; DataError for a file that cannot be read or
    is wrong.
    """
    name, context = config.template, config.context
    given = {feed for feed in FEEDS if getattr(context, feed) is not None}
    if user_template.is_file(name):
        own = user_template.read_template(Path(name))
        for feed in sorted(set(FEEDS) & set(own.lines) - given):
            raise ConfigError(
                f"{name}: line {own.lines[feed]}: {{{feed}}} needs a file; set {FEEDS[feed]}=FILE, or "
                "take the field out"
            )
        parts = (own.name, own.text, own.answer)
    elif name in CONTEXT_NAMES:
        text = context_text(name, volume, "news" in given, "calendar" in given)
        parts = (name if volume else f"{name}_no_volume", text, "json")
    else:
        template = find_template(name)
        parts = (template.name, template.text, template.answer)
    plain = Template(*parts)
    if unused := sorted(given - set(plain.fields)):
        raise ConfigError(
            f"{FEEDS[unused[0]]} = {getattr(context, unused[0])}: the template {name} does not show it; "
            f"set advisor.template=window or desk, or a file of your own with {{{unused[0]}}}"
        )
    _check_effect(plain, config)
    if not blocks_of(plain):
        return Chosen(plain)
    news = read_news(Path(context.news)) if context.news is not None else None
    events = read_events(Path(context.calendar)) if context.calendar is not None else None
    files = {
        feed: found.sha256
        for feed, found in (("news", news), ("calendar", events))
        if found is not None
    }
    return Chosen(Template(*parts, shape_of(blocks_of(plain), config, files)), news, events)


def _check_effect(template: Template, config: AdvisorConfig) -> None:
    """Raises ConfigError for a key of `advisor.context` that is set and changes nothing that the
    template shows.
    """
    shown = {key for block in blocks_of(template) for key in BLOCKS[block].keys}
    for key, field in ContextConfig.model_fields.items():
        value = getattr(config.context, key)
        if value != field.default and key not in FEEDS and key not in shown:
            needs = " and ".join(
                f"{{{name}}}" for name, block in BLOCKS.items() if key in block.keys
            )
            raise ConfigError(
                f"advisor.context.{key} = {value}: the template {config.template} shows nothing that it "
                f"changes, which is {needs}; choose a template that does (advisor.template=window or "
                "desk, with the file if it is of a feed), or leave the key out"
            )


def blocks_of(template: Template) -> tuple[str, ...]:
    """The names of blocks among the fields of a template that has no shape yet."""
    return tuple(name for name in template.fields if name in BLOCKS)


def files_of(config: AdvisorConfig) -> dict[str, str]:
    """Key -> path of every file that the template and the context name."""
    found = {
        key: path
        for feed, key in FEEDS.items()
        if (path := getattr(config.context, feed)) is not None
    }
    return found | (
        {user_template.KEY: config.template} if user_template.is_file(config.template) else {}
    )


def check_context(config: AdvisorConfig) -> None:
    """Check template and feeds where questions will be built, before the market is read. Raises as
    `choose`.
    """
    if config.kind.partition(":")[0] not in _UNASKED:
        choose(config)


def digest_values(config: AdvisorConfig) -> dict[str, Any]:
    """`advisor.template` and `advisor.context` as a run's digest holds them: files by content, not
    by place.

    A context that is all default is left out, as in runs of earlier versions. Raises DataError,
    ConfigError as
    `choose`.
    """
    found: dict[str, Any] = {"template": config.template}
    if user_template.is_file(config.template):
        found["template"] = f"file:{user_template.digest_of(Path(config.template))}"
    if config.context != ContextConfig():
        context = config.context.model_dump(mode="json")
        if config.context.news is not None:
            context["news"] = read_news(Path(config.context.news)).sha256
        if config.context.calendar is not None:
            context["calendar"] = read_events(Path(config.context.calendar)).sha256
        found["context"] = context
    return found
