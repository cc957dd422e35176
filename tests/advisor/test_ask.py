"""`jaxtrade advise ask` and `advise models` against a real server on loopback, and for kinds that
need none.
"""

import json

import numpy as np
import pytest

from jaxtrade.advisor.questions import followed_of
from jaxtrade.cli import main
from jaxtrade.cli.ask import HIT, MISS, SMALL, UNSCORED, bar_at, labels_of, outcome
from jaxtrade.config import make_config
from jaxtrade.curriculum.config import dump_curriculum, load_curriculum
from jaxtrade.curriculum.phases import _with_models
from jaxtrade.errors import ConfigError
from jaxtrade.progress.screen import Screen
from tests.advisor import servers
from tests.advisor.markets import book, config, market
from tests.advisor.servers import FaultServer, advises, reply, says
from tests.advisor.test_models import offers
from tests.messages import missing, refuses

pytest.importorskip("httpx")
LAST = 5435  # the last askable bar of its training sessions


def ask(server, *more):
    return ["advise", "ask", "--advisor", server.url, "--set", "advisor.options.model=tiny", *more]


def training():
    """bool[T]: the decision bars of the sessions before the last."""
    sessions, found = market().data.sessions, np.zeros(len(market().bars), bool)
    for first, last in zip(sessions.first[:-1], sessions.last[:-1], strict=True):
        found[first : last + 1] = True
    return found


# --- which bar -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "bar"),
    [
        (None, LAST),
        ("1000", 1000),
        ("2013-10-07T11:13", 1000),
        ("2013-10-07T15:13:30Z", 1000),
        ("2013-10-07T11:14", 1001),
    ],
)
def test_a_bar_by_index_and_by_time(at, bar):
    """A time means the last bar that has closed by then; without a zone it is the exchange's."""
    assert bar_at(book(), training(), at) == bar


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2013-10-08", "2013-10-08.*--at 1330 "),
        ("3", r"--at 3.*--at \d+"),
        ("99999", r"0 to \d+ .*2013-10-06T18:01:00-04:00"),
        ("2014-01-01T10:00", "2013-10-06.*2013-10-11.*--at 6808"),
        ("noon", "noon.* 1200 "),
    ],
)
def test_bars_that_cannot_be_asked_about(at, words):
    with pytest.raises(ConfigError, match=words):
        bar_at(book(), training(), at)


# --- what followed ---------------------------------------------------------------------------------------------------


def test_outcomes_are_those_that_trust_is_made_of():
    """Every outcome but one agrees with the labels; `room` tells a small move from a horizon
    without an end.
    """
    labels = labels_of(market(), config())
    assert np.array_equal(labels.came, followed_of(market(), config()))
    assert not labels.came[~labels.room].any()
    last = np.asarray(market().data.sessions.last)
    assert [outcome(1, int(bar), labels) for bar in last] == [UNSCORED] * len(last)
    bars = [int(np.flatnonzero(labels.room & (labels.came == way))[0]) for way in (1, -1, 0)]
    assert [outcome(1, bar, labels) for bar in bars] == [HIT, MISS, SMALL]
    assert [outcome(-1, bar, labels) for bar in bars] == [MISS, HIT, SMALL]
    assert outcome(0, bars[0], labels) == UNSCORED


# --- the command -----------------------------------------------------------------------------------------------------


def test_prompt_answer_verdict_and_cost(capsys):
    """Everything is shown as it went over the wire, and the cost is 321 and 45 tokens at 2 and 10 a
    million.
    """
    prices = ("advisor.service.price_prompt=2", "advisor.service.price_completion=10")
    given = [flag for price in prices for flag in ("--set", price)]
    with FaultServer(advises(reason="trend up")) as server:
        assert main(ask(server, "--at", "1000", *given)) == 0
        (request,) = server.requests
    said = capsys.readouterr().out
    prompt = request.body["messages"][0]["content"]
    assert prompt == book().question(1000).prompt
    assert "\n".join(f"  | {line}" for line in prompt.splitlines()) in said
    assert '  | {"v": 1, "direction": "long", "confidence": 0.7' in said
    assert not missing(said, "bar 1000 of ES", "2013-10-07T11:13:00-04:00", "long, confidence 0.70")
    assert not missing(said, "risk 0.20", "horizon 30", "321 tokens", "45", "what followed (")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "verdict", "remedy"),
    [
        (says("I would buy."), "parse: ", "advisor.template=pipe"),
        (says("{", finish="length"), "too_large: ", "service.completion_tokens (now 256)"),
        (reply(401, "{}"), "refused: status 401", "the key"),
        (servers.hang(), "timeout: ", "advisor.service.deadline_s (now 0.25)"),
    ],
)
def test_a_failure_has_a_reason_and_a_remedy(step, verdict, remedy, capsys):
    with FaultServer(step) as server:
        assert main(ask(server, "--set", "advisor.service.deadline_s=0.25")) == 1
    said = capsys.readouterr().out
    assert f"verdict: no advice, {verdict}" in said
    assert remedy in next(line for line in said.splitlines() if line.startswith("remedy: "))


@pytest.mark.slow
@pytest.mark.parametrize("step", [advises(reason="\x1b[2Jgone"), says("\x1b]0;title\x07\u202eabc")])
def test_an_answer_changes_no_terminal(step, capsys):
    with FaultServer(step) as server:
        main(ask(server))
    assert all(char.isprintable() or char == "\n" for char in capsys.readouterr().out)


@pytest.mark.slow
def test_json_and_repetition(capsys):
    with FaultServer(advises(), advises(direction="short"), says("no")) as server:
        assert main(ask(server, "--json", "--repeat", "3", "--at", "1000")) == 1
        document = json.loads(capsys.readouterr().out)
        assert len(server.requests) == 3
        assert main(ask(server, "--repeat", "2")) == 1
    assert (document["bar"], document["split"], document["model"]) == (1000, "train", "tiny")
    first, second, third = document["answers"]
    assert first["advice"] == {name: value for name, value in servers.GOOD.items() if name != "v"}
    assert second["advice"]["direction"] == "short"
    assert (third["advice"], third["failure"], third["raw"]) == (None, "parse", "no")
    assert "0 flat, 0 long, 0 short, 2 without" in capsys.readouterr().out


@pytest.mark.slow
def test_a_panel_is_asked_member_by_member(capsys):
    with FaultServer(advises()) as server:
        panel = f"advisor.panel=[rules, {{kind: '{server.url}', options: {{model: tiny}}}}]"
        command = ["advise", "ask", "--advisor", "panel", "--set", panel, "--at", "1000"]
        assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["advisor"] for each in found] == ["rules", server.url]
    assert found[1]["answers"][0]["advice"]["reason"] == "trend"


@pytest.mark.slow
def test_caps_hold(tmp_path, capsys):
    """Two calls are allowed, over several commands with the same ledger."""
    ledger = tmp_path / "ledger.sqlite"
    caps = ("--set", "advisor.service.max_calls=2", "--set", f"advisor.service.ledger={ledger}")
    with FaultServer(advises()) as server:
        for _ in range(2):
            assert main(ask(server, "--repeat", "5", *caps)) == 1
            assert len(server.requests) == 2
    assert not missing(capsys.readouterr().out, "service.max_calls = 2", "0 flat, 2 long, 0 short")


@pytest.mark.slow
def test_a_held_out_bar_says_nothing_of_its_future(capsys):
    with FaultServer(advises()) as server:
        assert main(ask(server, "--at", "6500", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["split"], document["answers"][0]["followed"]) == ("test", None)


def test_kinds_that_answer_nothing(tmp_path, capsys):
    table = tmp_path / "a.npz"
    table.write_bytes(b"x")
    for arguments, words in (
        ([], "advisor.kind = none: there is nobody to ask"),
        (["--advisor", f"table:{table}"], "jaxtrade advise inspect FILE shows it"),
        (["--advisor", f"replay:{table}"], "jaxtrade advise log RUN"),
        (["--advisor", "rules", "--repeat", "0"], "--repeat: '0' is not a whole number"),
    ):
        refuses(capsys, ["advise", "ask", *arguments], words)


@pytest.mark.slow
def test_the_only_model_is_taken(capsys):
    with FaultServer(offers("one"), advises()) as server:
        assert main(["advise", "ask", "--advisor", server.url]) == 0
        listed, asked = server.requests
    assert (listed.path, asked.path) == ("/v1/models", "/v1/chat/completions")
    assert asked.body["model"] == "one"
    with FaultServer(offers("one", "two")) as server:
        assert main(["advise", "ask", "--advisor", server.url]) == 2
    assert not missing(capsys.readouterr().err, "model=NAME", "one, two")


def test_every_phase_of_a_curriculum_gets_its_model():
    """Only the phases with a server, and only those that are trained."""
    with FaultServer(offers("one")) as server:
        kind = [f'phases.{name}.run.advisor.kind="{server.url}"' for name in ("manage", "advised")]
        course = load_curriculum("curriculum", kind, (), make_config)
        found = _with_models(course, 2, Screen())
        assert [phase.config.advisor.options.get("model") for phase in found.phases] == [
            None,
            None,
            "one",
        ]
        assert len(server.requests) == 1
        assert "model: one" in dump_curriculum(found)  # what a resumed curriculum reads
    assert [phase.config.advisor.kind for phase in found.phases] == ["off", server.url, server.url]


# --- models ----------------------------------------------------------------------------------------------------------


def test_models(capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    with FaultServer(offers("a", "longer")) as server:
        assert main(["advise", "models", server.url, "--key-env", "MY_KEY"]) == 0
        assert server.requests[0].headers["authorization"] == "Bearer sk-0123456789"
        assert capsys.readouterr().out.splitlines() == ["a       me", "longer  me"]
        assert main(["advise", "models", f"vllm:{server.url.removesuffix('/v1')}"]) == 0
    for step, code in ((offers(), 1), (reply(404, ""), 2)):
        with FaultServer(step) as server:
            assert main(["advise", "models", server.url]) == code
    assert main(["advise", "models", "vllm:8000"]) == 2
    assert "vllm:URL" in capsys.readouterr().err


def test_the_key_of_a_short_name(capsys, monkeypatch):
    """`openai` reads its own variable; nothing is sent without it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["advise", "models", "openai"]) == 2
    assert "variable OPENAI_API_KEY" in capsys.readouterr().err
