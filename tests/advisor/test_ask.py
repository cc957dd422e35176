"""`jaxtrade advise ask` and `advise models` against a real server on loopback, and for kinds that
need none.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from jaxtrade.advisor.compose import followed_of
from jaxtrade.advisor.host.paid import Caps, Ledger
from jaxtrade.cli import main
from jaxtrade.cli.bar_at import bar_at
from jaxtrade.cli.followed import HIT, MISS, SMALL, UNSCORED, explained, labels_of, outcome
from jaxtrade.config import make_config
from jaxtrade.curriculum.config import dump_curriculum, load_curriculum
from jaxtrade.curriculum.phases import _with_models
from jaxtrade.errors import ConfigError
from jaxtrade.progress.screen import Screen
from tests.advisor import servers
from tests.advisor.markets import book, config, market
from tests.advisor.servers import FaultServer, advises, reply, says
from tests.advisor.test_models import offers

pytest.importorskip("httpx")
LAST = 5435  # the last askable bar of its training sessions


def ask(server, *more):
    return ["advise", "ask", "--advisor", server.url, "--set", "advisor.options.model=tiny", *more]


def training():
    """bool[T]: the decision bars of the sessions before the last."""
    sessions, found = market().data.sessions, np.zeros(len(market().bars), bool)
    for first, last in list(
        zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True)
    )[:-1]:
        found[first : last + 1] = True
    return found


# --- which bar -------------------------------------------------------------------------------------------------------


def test_the_last_askable_bar_of_training():
    assert (
        bar_at(book(), training(), None) == np.flatnonzero(book().askable & training())[-1] == LAST
    )


@pytest.mark.parametrize(
    ("at", "bar"),
    [
        ("1000", 1000),
        ("2013-10-07T11:13", 1000),
        ("2013-10-07 11:13:59", 1000),
        ("2013-10-07T15:13:30Z", 1000),
        ("2013-10-07T17:13:00+02:00", 1000),
        ("2013-10-07T11:14", 1001),
    ],
)
def test_a_bar_by_index_and_by_time(at, bar):
    """A time means the last bar that has closed by then; without a zone it is the exchange's."""
    assert bar_at(book(), training(), at) == bar


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (
            "2013-10-08",
            "no decision bar.*--at 1330 ",
        ),
        ("3", r"\(warm-up\).*is --at \d+"),
        (
            "99999",
            r"have bars 0 to \d+ \(closes 2013-10-06T18:01:00-04:00",
        ),
        (
            "2014-01-01T10:00",
            r"\(closes 2013-10-06.* to 2013-10-11.*--at 6808",
        ),
        (
            "2012-01-01T10:00",
            r"about is --at \d+",
        ),
        (
            "noon",
            "expected 1200 or .*without a zone",
        ),
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
    up, down, small = (
        int(np.flatnonzero(labels.room & (labels.came == way))[0]) for way in (1, -1, 0)
    )
    assert [outcome(1, bar, labels) for bar in (up, down, small)] == [HIT, MISS, SMALL]
    assert [outcome(-1, bar, labels) for bar in (up, down, small)] == [MISS, HIT, SMALL]
    assert outcome(0, up, labels) == UNSCORED
    assert "price rose by" in explained(1, up, labels)
    assert "the session ends within" in explained(1, int(last[0]), labels)


def test_the_room_of_a_horizon_is_counted_by_hand():
    first, last = (
        int(np.asarray(part)[0])
        for part in (market().data.sessions.first, market().data.sessions.last)
    )
    for horizon in (1, 2, 30):
        room = labels_of(market(), config(f"advisor.horizon={horizon}")).room
        inside = [
            bar for bar in range(first, last + 1) if bar + horizon <= last + 1
        ]  # `last + 1` is the flat bar
        assert np.flatnonzero(room[: last + 1]).tolist() == inside


# --- the command -----------------------------------------------------------------------------------------------------


def test_prompt_answer_verdict_and_cost(capsys):
    """Everything is shown as it went over the wire, and the cost is 321 and 45 tokens at 2 and 10 a
    million.
    """
    with FaultServer(advises(reason="trend up")) as server:
        prices = (
            "--set",
            "advisor.service.price_prompt=2",
            "--set",
            "advisor.service.price_completion=10",
        )
        assert main(ask(server, "--at", "1000", *prices)) == 0
        (request,) = server.requests
    said = capsys.readouterr().out
    prompt = request.body["messages"][0]["content"]
    assert prompt == book().question(1000).prompt
    assert "\n".join(f"  | {line}" for line in prompt.splitlines()) in said
    assert '  | {"v": 1, "direction": "long", "confidence": 0.7' in said
    assert "bar 1000 of ES, close 2013-10-07T11:13:00-04:00" in said
    assert "long, confidence 0.70, risk 0.20, horizon 30" in said
    assert "321 tokens of the prompt, 45" in said
    assert "what followed (" in said


def test_without_prices_the_cost_is_unknown(capsys):
    with FaultServer(advises()) as server:
        assert main(ask(server)) == 0
    assert "cost unknown without prices" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "verdict", "remedy"),
    [
        (
            says("I would buy."),
            "parse: not JSON",
            "advisor.template=pipe",
        ),
        (
            says(json.dumps({"v": 1})),
            "schema: no key",
            "advisor.template=pipe",
        ),
        (
            says("{", finish="length"),
            "too_large: the answer",
            "service.completion_tokens (now 256)",
        ),
        (says(None), "empty: no content", "advisor.service.completion_tokens"),
        (reply(401, "{}"), "refused: status 401", "the key"),
        (reply(500, "{}"), "http: status 500", "the server's own messages"),
        (servers.reset(), "connection: ", "check the URL"),
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
def test_an_answer_changes_no_terminal(capsys):
    with FaultServer(advises(reason="\x1b[2Jgone")) as server:
        main(ask(server))
        said = capsys.readouterr().out
    with FaultServer(says("\x1b]0;title\x07\u202eabc")) as server:
        main(ask(server))
        said += capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in said)


@pytest.mark.slow
def test_json_and_repetition(capsys):
    with FaultServer(advises(), advises(direction="short", confidence=0.4), says("no")) as server:
        assert main(ask(server, "--json", "--repeat", "3", "--at", "1000")) == 1
        document = json.loads(capsys.readouterr().out)
        assert len(server.requests) == 3
        assert main(ask(server, "--repeat", "2")) == 1
    assert (document["bar"], document["split"], document["model"]) == (1000, "train", "tiny")
    first, second, third = document["answers"]
    assert first["advice"] == {
        "direction": "long",
        "confidence": 0.7,
        "risk": 0.2,
        "horizon_bars": 30,
        "reason": "trend",
    }
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
        assert main(command) == 0
    assert [each["advisor"] for each in found] == ["rules", server.url]
    assert found[1]["answers"][0]["advice"]["reason"] == "trend"
    assert capsys.readouterr().out.count("verdict: ") == 2


def test_a_server_that_rejects_the_form_is_asked_without_it(
    capsys,
):
    rejects = reply(400, json.dumps({"error": {"message": "response_format is not supported"}}))
    with FaultServer(rejects, rejects, advises()) as server:
        assert main(ask(server)) == 0
        bodies = [request.body for request in server.requests]
    said = capsys.readouterr()
    assert [body.get("response_format", {}).get("type") for body in bodies] == [
        "json_schema",
        "json_object",
        None,
    ]
    assert "response_format is not" in said.err
    assert "verdict: long" in said.out


@pytest.mark.slow
def test_every_sample_of_a_question_counts(tmp_path, capsys):
    ledger = tmp_path / "ledger.sqlite"
    options = (
        "--set",
        "advisor.options.samples=3",
        "--set",
        "advisor.options.temperature=0.7",
        "--set",
        "advisor.service.max_calls=4",
        "--set",
        f"advisor.service.ledger={ledger}",
    )
    with FaultServer(advises()) as server:
        assert main(ask(server, *options)) == 0
        assert main(ask(server, *options)) == 1  # three more would exceed the cap
        assert len(server.requests) == 3
    assert "not asked: " in capsys.readouterr().out
    spent = Ledger(ledger, Caps())
    assert spent.spent().calls == 3
    spent.close()


@pytest.mark.slow
def test_caps_hold(tmp_path, capsys):
    """Two calls are allowed, over several commands with the same ledger."""
    ledger = tmp_path / "ledger.sqlite"
    caps = ("--set", "advisor.service.max_calls=2", "--set", f"advisor.service.ledger={ledger}")
    with FaultServer(advises()) as server:
        assert main(ask(server, "--repeat", "5", *caps)) == 1
        said = capsys.readouterr().out
        assert main(ask(server, *caps)) == 1
        assert len(server.requests) == 2
    assert "service.max_calls = 2 are" in said
    assert "0 flat, 2 long, 0 short, 1 without" in said
    kept = Ledger(ledger, Caps())
    assert kept.spent()[:2] == (2, 2 * 366)
    kept.close()


@pytest.mark.slow
def test_a_held_out_bar_says_nothing_of_its_future(capsys):
    with FaultServer(advises()) as server:
        assert main(ask(server, "--at", "6500", "--json")) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert main(ask(server, "--at", "6500")) == 0
    assert (document["split"], document["answers"][0]["followed"]) == ("test", None)
    said = capsys.readouterr().out
    assert "in a test session" in said
    assert "what followed: not shown" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rules", "mock:skilled:0.6", "mock:slow:0/mock:random"])
def test_kinds_that_answer_here(kind, capsys):
    assert main(["advise", "ask", "--advisor", kind, "--at", "1000"]) == 0
    said = capsys.readouterr().out
    assert f"advisor {kind}, template" in said
    assert "verdict: " in said


@pytest.mark.slow
def test_recorded_answers(tmp_path, capsys):
    file = tmp_path / "answers.jsonl"
    file.write_text(
        json.dumps({"bar": 1000, "raw": json.dumps({**servers.GOOD, "reason": "as recorded"})})
        + "\n",
        encoding="utf-8",
    )
    assert main(["advise", "ask", "--advisor", f"recorded:{file}", "--at", "1000"]) == 0
    assert "reason: as recorded" in capsys.readouterr().out
    assert main(["advise", "ask", "--advisor", f"recorded:{file}", "--at", "1001"]) == 1
    assert "nothing recorded for bar 1001" in capsys.readouterr().out


def test_kinds_that_answer_nothing(tmp_path, capsys):
    table = tmp_path / "a.npz"
    table.write_bytes(b"x")
    for arguments, words in (
        ([], "advisor.kind = none: there is nobody to ask"),
        (["--advisor", f"table:{table}"], "jaxtrade advise inspect FILE shows it"),
        (["--advisor", f"replay:{table}"], "jaxtrade advise log RUN"),
        (["--advisor", "rules", "--repeat", "0"], "--repeat 0: expected 1 or more"),
    ):
        assert main(["advise", "ask", *arguments]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_the_only_model_is_taken(capsys):
    with FaultServer(offers("one"), advises()) as server:
        assert main(["advise", "ask", "--advisor", server.url]) == 0
        assert [request.path for request in server.requests] == [
            "/v1/models",
            "/v1/chat/completions",
        ]
        assert server.requests[1].body["model"] == "one"
    shown = capsys.readouterr()
    assert "(advisor.options.model)" in shown.err
    assert "model one, template" in shown.out
    with FaultServer(offers("one", "two")) as server:
        assert main(["advise", "ask", "--advisor", server.url]) == 2
    assert "model=NAME) of one, two" in capsys.readouterr().err


def test_precompute_takes_the_only_model(tmp_path, capsys):
    with FaultServer(offers("one")) as server:
        assert (
            main(
                [
                    "advise",
                    "precompute",
                    "--advisor",
                    server.url,
                    "--out",
                    str(tmp_path / "a.npz"),
                    "--plan",
                ]
            )
            == 0
        )
        assert len(server.requests) == 1
    assert "only model is one" in capsys.readouterr().err


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
    with FaultServer(offers()) as server:
        assert main(["advise", "models", server.url]) == 1
    with FaultServer(reply(404, "")) as server:
        assert main(["advise", "models", server.url]) == 2
    assert main(["advise", "models", "vllm:8000"]) == 2
    assert "expected vllm:URL" in capsys.readouterr().err


def test_the_key_of_a_short_name(capsys, monkeypatch):
    """`openai` reads its own variable; nothing is sent without it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["advise", "models", "openai"]) == 2
    assert "variable OPENAI_API_KEY" in capsys.readouterr().err
