"""`jaxtrade advise precompute` and `inspect` against a real server on loopback: plans, resumption,
caps, refusals.
"""

import json
import os
import signal
import sys
import threading

import numpy as np
import pytest

from jaxtrade.advisor.compose import JOURNAL, LEDGER, AskProgress, journal_header
from jaxtrade.advisor.host.journal import Journal
from jaxtrade.advisor.host.ledger import Caps, Ledger, Spend
from jaxtrade.advisor.table import load_table, read_snapshot
from jaxtrade.cli import main
from jaxtrade.cli.precompute import progress_line
from tests.advisor.bridge_parts import append
from tests.advisor.markets import book, config, market
from tests.advisor.servers import FaultServer, advises, reply, says
from tests.messages import missing

pytest.importorskip("httpx")
EVERY = 100  # of 2165 askable bars, which leaves 22
BARS = 22


def command(out, server, *more):
    words = f"advise precompute --advisor {server.url} --out {out} --every {EVERY}"
    keys = "--set advisor.options.model=tiny --set advisor.service.workers=1"
    return [*words.split(), *keys.split(), *more]


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
        wanted = [book().question(int(bar)).prompt for bar in asked_bars()]
        assert sorted(prompts(server)) == sorted(wanted)
        first = load_table(out, market())
        assert main(command(out, server)) == 0
        assert len(server.requests) == BARS
    assert first.bars.tolist() == asked_bars().tolist()
    np.testing.assert_allclose(first.rows[0], [0.0, 2.1, 0.0, 0.7, 0.2, 30.0], rtol=1e-6)
    assert first.manifest["identity"]["model"] == "tiny"
    assert read_snapshot(out).manifest == first.manifest
    said = capsys.readouterr().out
    assert not missing(said, f"{BARS} of {BARS}", "(100.0%)", "0 calls, 0 tokens", "a.cache.sqlite")


PRICES = ("--set", "advisor.service.price_prompt=2", "--set", "advisor.service.price_completion=10")


def test_the_plan_by_hand(tmp_path, capsys):
    """A token at most per byte of the prompt, 1024 beside it and 90 for the answer; at 2 and 10 a
    million.
    """
    few = ("--set", "advisor.service.completion_tokens=90")
    with FaultServer(advises()) as server:
        assert main(command(tmp_path / "a.npz", server, *PRICES, *few, "--plan")) == 0
        assert server.connections == 0
    prompt = sum(len(book().question(int(bar)).prompt.encode()) + 1024 for bar in asked_bars())
    said = capsys.readouterr().out
    assert not missing(said, f"{BARS} calls", f"{prompt + 90 * BARS:,} tokens")
    assert f"{(2 * prompt + 900 * BARS) / 1e6:.2f};" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_costs_money_needs_a_yes(tmp_path, capsys):
    out = tmp_path / "a.npz"
    with FaultServer(advises()) as server:
        assert main(command(out, server, *PRICES)) == 2
        assert "error: --yes: " in capsys.readouterr().err
        assert server.connections == 0
        assert main(command(out, server, *PRICES, "--yes")) == 0
        assert main(command(out, server, *PRICES)) == 0  # all of it is paid for already
        assert len(server.requests) == BARS


def interrupting(wire):
    """Ctrl-C while a request is under way, which is then answered."""
    os.kill(os.getpid(), signal.SIGINT)
    advises()(wire)


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_again(tmp_path, capsys):
    """Interrupted at the 8th request: exit 130, no snapshot, all answers kept. Again: no question a
    second time. A busy machine takes its time to see the signal."""
    out, seen = tmp_path / "a.npz", threading.Event()

    def later(wire):
        seen.wait(0.5)
        advises()(wire)

    with FaultServer(*[advises()] * 7, interrupting, later) as server:
        assert main(command(out, server)) == 130
        seen.set()
        paid = len(server.requests)  # the 8th was answered, and some more until the signal was seen
        assert 8 <= paid < BARS
        assert not out.exists()
        assert str(tmp_path / "a.cache.sqlite") in capsys.readouterr().err
        assert main(command(out, server)) == 0
        assert f"{BARS} bars, {paid} of them" in capsys.readouterr().out
        assert len(set(prompts(server))) == len(server.requests) == BARS
    assert len(read_snapshot(out).bars) == BARS


@pytest.mark.slow
def test_a_cap_never_hides_what_the_cache_knows(tmp_path, capsys):
    """The first 12 bars were answered with nonsense, the others are in the cache. With no call
    allowed and a queue of four that those 12 fill, all the others come nevertheless."""
    out = tmp_path / "a.npz"
    with FaultServer(*[says("no")] * 12, advises()) as server:
        for code, keys in (
            (0, ("unusable_pause_after=13",)),
            (1, ("max_calls=0", "queue_size=4")),
        ):
            flags = [flag for key in keys for flag in ("--set", f"advisor.service.{key}")]
            assert main(command(out, server, *flags)) == code
            assert len(server.requests) == BARS
            assert load_table(out, market()).bars.tolist() == asked_bars()[12:].tolist()
            out.unlink()
    assert "advisor.service.max_calls = 0" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "words"), [(reply(401, "{}"), "it refuses"), (says("no idea"), "8 parse; ")]
)
def test_no_advice_at_all(step, words, tmp_path, capsys):
    out = tmp_path / "a.npz"
    with FaultServer(step) as server:
        assert main(command(out, server, "--set", "advisor.service.attempts=1")) == 2
    said = capsys.readouterr().err
    assert not missing(said, words, f"any of {BARS}")
    assert (said.count("error:"), "Traceback" in said, out.exists()) == (1, False, False)


@pytest.mark.slow
def test_mocks_need_no_service(tmp_path, capsys):
    """An oracle is right wherever anything followed."""
    out = str(tmp_path / "a.npz")
    made = ["advise", "precompute", "--advisor", "mock:oracle", "--out", out, "--split", "train"]
    assert main(made) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]
    capsys.readouterr()
    assert main(["advise", "inspect", out, "quickstart", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    last = found["ranges"][-1]
    assert last["hits"] == last["scored"] > 100
    assert last["rows"] == found["rows"] == found["directions"]["buy"] + found["directions"]["sell"]
    assert main(["advise", "inspect", out]) == 0
    assert f"{found['rows']} rows about {found['rows']} bars" in capsys.readouterr().out
    assert main(["advise", "inspect", out, "quickstart"]) == 0
    shown = capsys.readouterr().out.splitlines()[-1].split()
    assert shown[3:] == [str(last["rows"]), str(last["scored"]), "100.0%"]
    assert main(["advise", "inspect", out, "--market", "NQ"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--out a.txt", "--out a.txt"),
        ("--out no/a.npz", "no"),
        ("--out a.npz --every 0", "--every: '0'"),
        ("--out a.npz --split validation", "--split validation"),
        ("--out a.npz", "advisor.kind = off"),
        ("--out a.npz --advisor mock:skilld", "'skilled'"),
    ],
)
def test_refusals_write_nothing(flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):  # of argparse, or of the command
        sys.exit(main(["advise", "precompute", *flags.split()]))
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
    append(with_journal, 3, 1, [1300, 1301], [[0, 2.4, 0, 0.8, 0.2, 30], [1.5, 0, 0, 0.5, 0.5, 30]])
    append(with_journal, 5, 2, [1300], [[0, 0, 1.8, 0.6, 0.4, 10]])
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
    assert not missing(capsys.readouterr().out, "3 rows", "2 bars", "0.5 to 0.8")


def test_inspect_refuses(tmp_path, capsys):
    run = a_run(tmp_path / "run")
    journal = run / JOURNAL
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.npz").write_bytes(b"no")
    damaged = tmp_path / "damaged.jsonl"
    head, rows = journal.read_bytes().split(b"\n", 1)
    damaged.write_bytes(head + b"\n" + rows.replace(b"2.4", b"2.5"))
    for words, *flags in (
        ("y.npz", tmp_path / "y.npz"),
        (JOURNAL, tmp_path / "empty"),
        ("CONFIG", journal, "quickstart"),
        ("line 2 ", damaged),
        ("x.npz", tmp_path / "x.npz"),
    ):
        assert main(["advise", "inspect", *map(str, flags)]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("error:") == 1


def test_the_progress_line_by_hand():
    """A quarter after 100 s leaves 300 s."""
    counts = {"asked": 30, "prompt_tokens": 9000, "completion_tokens": 1000, "cost": 1.5}
    counts |= {"mode": "asking, breaker open", "unusable": {"think": 1, "prose": 2}}
    assert progress_line(AskProgress(100, 25, 24, counts), 100.0).split("  ") == [
        "25 of 100 bars (25%)",
        "24 advised",
        "0:05:00 left",
        "30 calls, 10,000 tokens",
        "unusable: 2 prose, 1 think",
        "cost 1.50",
        "asking, breaker open",
    ]
