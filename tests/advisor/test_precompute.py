"""`jaxtrade advise precompute` and `inspect` against a real server on loopback: plans, resumption,
caps, refusals.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest

from jaxtrade.advisor import asking
from jaxtrade.advisor.asking import Asked, make_plan, offer
from jaxtrade.advisor.compose import JOURNAL, LEDGER, journal_header
from jaxtrade.advisor.host.journal import Journal
from jaxtrade.advisor.host.paid import Caps, Ledger, Spend
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.snapshot import load_table, read_snapshot
from jaxtrade.cli import main
from jaxtrade.cli.precompute import progress_line
from tests.advisor.markets import book, config, market
from tests.advisor.servers import FaultServer, advises, reply, says
from tests.messages import missing

pytest.importorskip("httpx")
EVERY = 100  # of 2165 askable bars, which leaves 22
BARS = 22


def command(out, server, *more):
    return [
        "advise",
        "precompute",
        "--advisor",
        server.url,
        "--out",
        str(out),
        "--every",
        str(EVERY),
        "--set",
        "advisor.options.model=tiny",
        "--set",
        "advisor.service.workers=1",
        *more,
    ]


def prompts(server):
    return [request.body["messages"][0]["content"] for request in server.requests]


def asked_bars():
    return np.flatnonzero(book().askable)[::EVERY]


def test_a_snapshot_of_a_server_s_answers(tmp_path, capsys):
    """Every chosen bar is asked about once, under its own prompt; a second run takes all from the
    cache and writes the same."""
    out = tmp_path / "a.npz"
    with FaultServer(advises()) as server:
        assert main(command(out, server)) == 0
        said = capsys.readouterr().out
        assert f"plan: {BARS} bars" in said
        assert f"{out}: {BARS} of {BARS} bars have advice (100.0%)" in said
        assert "by kind: none" in said
        assert sorted(prompts(server)) == sorted(
            book().question(int(bar)).prompt for bar in asked_bars()
        )
        first = load_table(out, market())
        assert first.bars.tolist() == asked_bars().tolist()
        assert first.rows[0].tolist() == [
            0.0,
            pytest.approx(2.1),
            0.0,
            pytest.approx(0.7),
            pytest.approx(0.2),
            30.0,
        ]
        assert first.manifest["identity"]["model"] == "tiny"
        assert main(command(out, server)) == 0
        assert (
            f"{BARS} of them answered in {tmp_path / 'a.cache.sqlite'}\n      0 calls, 0 tokens"
            in capsys.readouterr().out
        )
        assert len(server.requests) == BARS
    assert read_snapshot(out).manifest == first.manifest


def test_the_plan_by_hand(tmp_path, capsys):
    """A token at most per byte of the prompt, 1024 beside it and 90 for the answer; at 2 and 10 a
    million.
    """
    out = tmp_path / "a.npz"
    prices = (
        "--set",
        "advisor.service.price_prompt=2",
        "--set",
        "advisor.service.price_completion=10",
        "--set",
        "advisor.service.completion_tokens=90",
        "--set",
        "advisor.service.max_calls=21",
    )
    with FaultServer(advises()) as server:
        assert main(command(out, server, *prices, "--plan")) == 0
        assert server.connections == 0
    prompt = sum(len(book().question(int(bar)).prompt.encode()) + 1024 for bar in asked_bars())
    said = capsys.readouterr().out
    assert f"{BARS} calls, {prompt + 90 * BARS:,} tokens" in said
    assert f"{(2 * prompt + 900 * BARS) / 1e6:.2f};" in said
    assert "max_calls = 21: it" in said
    assert list(tmp_path.iterdir()) == []


def test_an_offer_measures_a_part_of_a_large_market(monkeypatch):
    """Every second prompt is measured, which is close to all of them; without prices the cost is
    unknown.
    """
    backend, bars = make_backend("mock:random", {"seed": 0}), np.flatnonzero(book().askable)
    options = config().advisor.service
    monkeypatch.setattr(asking, "_MOST_BARS", len(bars) // 2 + 1)
    said: list[str] = []
    offer(backend, book(), book().askable, options, "ASK", "THEN", said.append)
    found = re.search(
        rf"about {len(bars):,} calls and ([\d,]+) tokens, cost unknown \(no prices set\):", said[0]
    )
    assert found is not None
    exact = make_plan(backend, book(), bars, options, said.append).most.tokens
    assert int(found[1].replace(",", "")) == pytest.approx(exact, rel=0.01)
    assert said[1:] == ["      ASK", "      THEN"]


@pytest.mark.slow
def test_what_costs_money_needs_a_yes(tmp_path, capsys):
    out = tmp_path / "a.npz"
    prices = (
        "--set",
        "advisor.service.price_prompt=2",
        "--set",
        "advisor.service.price_completion=10",
    )
    with FaultServer(advises()) as server:
        assert main(command(out, server, *prices)) == 2
        said = capsys.readouterr().err
        assert "error: --yes: missing" in said
        assert said.count("error:") == 1
        assert server.connections == 0
        assert main(command(out, server, *prices, "--yes")) == 0
        assert main(command(out, server, *prices)) == 0  # all of it is paid for already
        assert len(server.requests) == BARS


def interrupting(wire):
    """Ctrl-C while a request is under way, which is then answered."""
    os.kill(os.getpid(), signal.SIGINT)
    advises()(wire)


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_again(tmp_path, capsys):
    """Interrupted at the 8th request: exit 130, no snapshot, all answers kept. Again: no question a
    second time, and the snapshot is that of a run that was never interrupted."""
    out, whole, seen = tmp_path / "a.npz", tmp_path / "b.npz", threading.Event()

    def later(wire):
        seen.wait(0.5)  # a busy machine takes its time to see the signal
        advises()(wire)

    with FaultServer(*[advises()] * 7, interrupting, later) as server:
        assert main(command(out, server)) == 130
        seen.set()
        said = capsys.readouterr().err
        kept = re.search(
            r"interrupted; at least (\d+) answers are kept in (\S+); the same command", said
        )
        assert kept is not None
        assert kept[2] == str(tmp_path / "a.cache.sqlite")
        paid = len(server.requests)  # the 8th was answered, and some more until the signal was seen
        assert int(kept[1]) <= paid
        assert 8 <= paid < BARS
        assert not out.exists()
        assert main(command(out, server)) == 0
        assert f"plan: {BARS} bars, {paid} of them answered in" in capsys.readouterr().out
        assert Counter(prompts(server)).most_common(1)[0][1] == 1
        assert len(server.requests) == BARS
        assert main(command(whole, server)) == 0
    assert read_snapshot(out).manifest["sha256"] == read_snapshot(whole).manifest["sha256"]


KILLED = """
import os, signal, sys
from jaxtrade.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_kill_repeats_no_answered_call(tmp_path):
    """kill -9 while the 6th request is under way: the five answers before it are on disk, and only
    the one that was not answered is asked for again."""
    out, children = tmp_path / "a.npz", list[subprocess.Popen[bytes]]()

    def kill(wire):
        children[0].kill()
        wire.reset()

    with FaultServer(*[advises()] * 5, kill, advises()) as server:
        children.append(subprocess.Popen([sys.executable, "-c", KILLED, *command(out, server)]))
        assert children[0].wait(120) == -signal.SIGKILL
        assert not out.exists()
        assert main(command(out, server)) == 0
        assert len(server.requests) == BARS + 1
        twice = [prompt for prompt, count in Counter(prompts(server)).items() if count > 1]
        assert twice == [prompts(server)[5]]
    assert len(read_snapshot(out).bars) == BARS


@pytest.mark.slow
def test_a_cap_stops_it_and_a_higher_one_goes_on(tmp_path, capsys):
    """Five calls are allowed: five are made, over two runs as well; exit 1, with a snapshot of what
    there is.
    """
    out = tmp_path / "a.npz"
    with FaultServer(advises()) as server:
        for _ in range(2):
            assert main(command(out, server, "--set", "advisor.service.max_calls=5")) == 1
            assert len(server.requests) == 5
            said = capsys.readouterr()
            assert not missing(said.out, f"{BARS - 5} bars", "advisor.service.max_calls = 5")
            assert len(load_table(out, market()).bars) == 5
        assert (tmp_path / "a.ledger.sqlite").is_file()
        assert main(command(out, server, "--set", "advisor.service.max_calls=100")) == 0
        assert len(server.requests) == BARS
    assert len(load_table(out, market()).bars) == BARS


@pytest.mark.slow
def test_a_cap_never_hides_what_the_cache_knows(tmp_path, capsys):
    """The first 12 bars were answered with nonsense, the others are in the cache. With no call
    allowed and a queue of four that those 12 fill, all the others come nevertheless."""
    out = tmp_path / "a.npz"
    with FaultServer(*[says("no")] * 12, advises()) as server:
        assert main(command(out, server, "--set", "advisor.service.unusable_pause_after=13")) == 0
        assert read_snapshot(out).bars.tolist() == asked_bars()[12:].tolist()
        out.unlink()
        capsys.readouterr()
        few = ("--set", "advisor.service.max_calls=0", "--set", "advisor.service.queue_size=4")
        assert main(command(out, server, *few)) == 1
        assert len(server.requests) == BARS
    said = capsys.readouterr().out
    assert "advisor.service.max_calls = 0" in said
    assert read_snapshot(out).bars.tolist() == asked_bars()[12:].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (reply(401, "{}"), "it refuses"),
        (reply(404, "{}"), "it refuses"),
        (says("no idea"), "failures: 8 parse; "),
    ],
)
def test_no_advice_at_all(step, words, tmp_path, capsys):
    out = tmp_path / "a.npz"
    with FaultServer(step) as server:
        assert main(command(out, server, "--set", "advisor.service.attempts=1")) == 2
    said = capsys.readouterr().err
    assert words in said
    assert f"about any of {BARS}" in said
    assert said.count("error:") == 1
    assert "Traceback" not in said
    assert not out.exists()


def test_a_dead_server_is_reported_soon(tmp_path, capsys):
    with FaultServer(advises()) as server:
        gone = command(tmp_path / "a.npz", server)
    assert (
        main(
            [
                *gone,
                "--set",
                "advisor.service.retry_base_s=0.05",
                "--set",
                "advisor.service.retry_cap_s=0.1",
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "last one by connection" in said
    assert "about any of 22" in said


def test_some_failures_are_counted_by_kind(tmp_path, capsys):
    """Failures are absence: those bars have no row, and the run ends well."""
    out = tmp_path / "a.npz"
    with FaultServer(
        says("no"), *[advises()] * 4, says('{"v": 2}'), says("no"), advises()
    ) as server:
        assert main(command(out, server)) == 0
    said, beside = capsys.readouterr()
    assert f"{BARS - 3} of {BARS} bars have advice (86.4%)" in said
    assert "2 parse, 1 schema; " in said
    assert "(2 prose, 1 schema)" in beside
    assert len(load_table(out, market()).bars) == BARS - 3


def test_a_plan_of_the_desk_counts_the_longest_record(tmp_path, capsys):
    """A question of `desk` holds the answers before it: none when the plan is made, all of them
    when it is asked.
    """
    out = tmp_path / "a.npz"
    with FaultServer(advises()) as server:
        assert (
            main(
                command(
                    out,
                    server,
                    "--set",
                    "advisor.service.queue_size=2",
                    "--set",
                    "advisor.template=desk",
                )
            )
            == 0
        )
        asked = prompts(server)
    assert len(asked) == BARS
    assert "Your own record: none yet" in asked[0]
    assert "Last 8 answers, oldest first" in asked[15]  # of the training sessions
    assert "Last 8 answers, oldest first" not in asked[-1]  # the first answers of the test session
    planned = int(
        re.findall(r"([0-9,]+) tokens at most", capsys.readouterr().out)[0].replace(",", "")
    )
    used = sum(len(prompt.encode()) for prompt in asked)
    assert used < planned - BARS * (1024 + 256) < 1.3 * used
    assert read_snapshot(out).manifest["prompt_version"].startswith("desk:")


@pytest.mark.slow
def test_mocks_need_no_service(tmp_path, capsys):
    out = tmp_path / "a.npz"
    assert (
        main(
            [
                "advise",
                "precompute",
                "--advisor",
                "mock:oracle",
                "--out",
                str(out),
                "--split",
                "train",
            ]
        )
        == 0
    )
    assert "by mock:oracle: no" in capsys.readouterr().out
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]
    assert main(["advise", "inspect", str(out), "quickstart", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    last = found["ranges"][-1]
    assert last["hits"] == last["scored"] > 100  # an oracle is right wherever anything followed
    assert last["rows"] == found["rows"] == found["directions"]["buy"] + found["directions"]["sell"]
    assert main(["advise", "inspect", str(out)]) == 0
    text = capsys.readouterr().out
    assert "hit rate" not in text
    assert f"{found['rows']} rows about {found['rows']} bars, 1 versions" in text
    assert main(["advise", "inspect", str(out), "quickstart"]) == 0
    *_, head, _, _, _, _, shown = capsys.readouterr().out.splitlines()
    assert head.split() == ["confidence", "rows", "scored", "hit", "rate"]
    assert shown.split() == ["0.80", "-", "1.00", str(last["rows"]), str(last["scored"]), "100.0%"]
    assert main(["advise", "inspect", str(out), "--market", "NQ"]) == 2
    assert "ES there, NQ here" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--out", "a.txt"), "--out a.txt: expected"),
        (("--out", "no/a.npz"), "no folder no"),
        (("--out", "a.npz", "--every", "0"), "--every 0: expected 1 or more"),
        (("--out", "a.npz", "--split", "validation"), "--split validation: holds"),
        (("--out", "a.npz"), "advisor.kind = off"),
        (("--out", "a.npz", "--advisor", "mock:skilld"), "did you mean 'skilled'"),
        (
            ("--out", "a.npz", "--advisor", "rules", "--set", "advisor.template=v9"),
            "prompt template 'v9': unknown",
        ),
        (
            (
                "--out",
                "a.npz",
                "--advisor",
                "http://example.com/v1",
                "--set",
                "advisor.options.model=m",
            ),
            "use https",
        ),
    ],
)
def test_refusals_write_nothing(
    flags,
    words,
    tmp_path,
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(tmp_path)
    assert main(["advise", "precompute", *flags]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("error:") == 1
    assert list(tmp_path.iterdir()) == []


# --- inspect ---------------------------------------------------------------------------------------------------------


def a_run(folder):
    """A run's folder as far as its advice goes: three rows of two versions."""
    folder.mkdir()
    header = journal_header(config(kind="rules"), book(), {"kind": "rules"}, run="r1")
    with_journal = Journal.create(folder / JOURNAL, header)
    with_journal.append(3, 1, [1300, 1301], [[0, 2.4, 0, 0.8, 0.2, 30], [1.5, 0, 0, 0.5, 0.5, 30]])
    with_journal.append(5, 2, [1300], [[0, 0, 1.8, 0.6, 0.4, 10]])
    with_journal.close()
    ledger = Ledger(folder / LEDGER, Caps())
    ledger.reserve(Spend(3, 900, 1_250_000))
    ledger.close()
    return folder


def test_inspect_a_run_and_its_journal(tmp_path, capsys):
    run = a_run(tmp_path / "run")
    assert main(["advise", "inspect", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["bars"], found["versions"], found["updates"]) == (3, 2, 2, [3, 5])
    assert found["directions"] == {"buy": 1, "sell": 1, "hold": 1}
    assert [each["rows"] for each in found["ranges"]] == [0, 0, 1, 1, 1]  # 0.5, 0.6 and 0.8
    assert found["spent"] == {"calls": 3, "tokens": 900, "cost": 1.25}
    assert main(["advise", "inspect", str(run / JOURNAL)]) == 0
    text = capsys.readouterr().out
    assert "3 rows about 2 bars, 2" in text
    assert "confidence: 0.5 to 0.8" in text
    assert "spent" not in text


def test_inspect_refuses(tmp_path, capsys):
    run = a_run(tmp_path / "run")
    journal = run / JOURNAL
    (tmp_path / "empty").mkdir()

    def refused(words, *flags):
        assert main(["advise", "inspect", *flags]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("error:") == 1

    refused("there is no such file", str(tmp_path / "x.npz"))
    refused(f"holds no {JOURNAL}", str(tmp_path / "empty"))
    refused("for snapshots alone", str(journal), "quickstart")
    journal.write_bytes(journal.read_bytes().replace(b"2.4", b"2.5"))
    refused("damaged or edited", str(journal))
    (tmp_path / "x.npz").write_bytes(b"no")
    refused("not a snapshot", str(tmp_path / "x.npz"))


def statistics(**more):
    return {
        "asked": 30,
        "prompt_tokens": 9000,
        "completion_tokens": 1000,
        "cost": None,
        "mode": "asking, breaker closed",
        "unusable": {},
        **more,
    }


def test_the_progress_line_by_hand():
    """A quarter after 100 s leaves 300 s."""
    assert (
        progress_line(Asked(100, 25, 24, statistics()), 100.0)
        == "25 of 100 bars (25%)  24 advised  0:05:00 left  30 calls, 10,000 tokens"
    )
    assert progress_line(
        Asked(100, 25, 24, statistics(cost=1.5, mode="asking, breaker open")), 100.0
    ).endswith("10,000 tokens  cost 1.50  asking, breaker open")
    assert progress_line(
        Asked(100, 25, 24, statistics(unusable={"think": 1, "prose": 2})), 100.0
    ).endswith("10,000 tokens  unusable: 2 prose, 1 think")
    assert progress_line(Asked(100, 0, 0, {}), 5.0) == "0 of 100 bars (0%)  0 advised"
