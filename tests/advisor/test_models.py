"""The models of a server, and the only one of them, over real sockets."""

import json

import pytest

from jaxtrade.advisor.host.openai import list_models, only_model, with_model
from jaxtrade.errors import ConfigError
from tests.advisor import servers
from tests.advisor.markets import config
from tests.advisor.servers import FaultServer, reply
from tests.messages import missing

pytest.importorskip("httpx")
CANARY = "sk-CANARY-0123456789"


def offers(*names, **more):
    """200 with a list of models."""
    rows = [{"id": name, "object": "model", "owned_by": "me"} for name in names]
    return reply(200, json.dumps({"object": "list", "data": rows, **more}))


def refused(step, **options):
    with FaultServer(step) as server, pytest.raises(ConfigError) as caught:
        list_models(server.url, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('{"data": []}', ()),
        ('[{"id": "x"}]', ("x",)),
        (
            '{"models": [{"name": "y"}], "data": [{"id": "y"}, {"id": 3}, 7, {"id": "\\u001b[2J"}, {}]}',
            ("y",),
        ),
    ],
)
def test_forms_of_a_list(body, names):
    """Names that no request could hold are left out."""
    with FaultServer(reply(200, body)) as server:
        assert tuple(model.name for model in list_models(server.url)) == names


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (reply(401, '{"error": "no"}'), "status 401; the key"),
        (reply(404, "no"), "status 404; it has"),
        (reply(200, "<html>"), "no JSON"),
        (reply(200, '{"error": "x"}'), "'data'"),
        (servers.flood(8 * 1024 * 1024), "4194304"),
        (servers.bomb(10_000), "'gzip'"),
        (servers.reset(), "did not list"),
    ],
)
def test_what_is_no_list(step, words):
    said = refused(step)
    assert words in said
    assert "http://127.0.0.1:" in said
    assert said.isprintable()


@pytest.mark.parametrize(
    "step",
    [
        servers.hang(),
        servers.drip(b"x" * 1000, 0.02, servers.head(200, {"Content-Length": "1000"})),
    ],
)
def test_the_total_deadline_holds(step):
    assert "by the deadline" in refused(step, seconds=0.25)


@pytest.mark.parametrize(
    "step",
    [
        reply(401, CANARY),
        reply(200, json.dumps({"data": [{"id": "a", "owned_by": CANARY}]})),
        servers.cut(f"HTTP/1.1 200 {CANARY}\r\n".encode()),
    ],
)
def test_no_message_holds_the_key(step, monkeypatch):
    monkeypatch.setenv("MY_KEY", CANARY)
    with FaultServer(step) as server:
        try:
            said = str(list_models(server.url, key_env="MY_KEY"))
        except ConfigError as error:
            said = str(error)
    assert "CANARY" not in said


def test_the_only_model():
    with FaultServer(offers("one")) as server:
        assert only_model(server.url) == "one"
    for names, words in (((), "no model"), ([f"m{i}" for i in range(14)], "14 .*m11 .* 2 ")):
        with FaultServer(offers(*names)) as server, pytest.raises(ConfigError, match=words):
            only_model(server.url)


def test_a_configuration_gets_the_model_and_is_asked_once():
    """Once the model is in the configuration, as in a run's folder, no request is sent: a resumed
    run keeps it.
    """
    lines = []
    with FaultServer(offers("one"), offers("other")) as server:
        first = with_model(config(kind=f"mock:delayed:5/{server.url}", temperature=0), lines.append)
        assert first.advisor.options == {"temperature": 0, "model": "one"}
        assert with_model(first, lines.append) == first
        assert len(server.requests) == 1
    [line] = lines
    assert not missing(line, f"mock:delayed:5/{server.url}", "one", "(advisor.options.model)")


def test_a_named_model_needs_no_server_and_a_missing_one_does():
    named = config(kind="http://127.0.0.1:1/v1", model="m")
    assert with_model(named, pytest.fail) == named
    assert with_model(config(kind="rules"), pytest.fail) == config(kind="rules")
    with pytest.raises(ConfigError, match=r"options\.model=NAME\) a"):
        with_model(config(kind="http://127.0.0.1:1/v1"), pytest.fail)
