"""An advisor beside a real training run: failure is absence, replay is the run, trust never sees a
bar's future.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.advisor.compose import followed_of, only, reads_future, table_reads_future
from jaxtrade.advisor.snapshot import read_snapshot
from jaxtrade.config import load_config
from jaxtrade.data.market import build_market, load_market
from jaxtrade.env.params import make_params
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy, sampled
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.rl.listening.fusion import Trust
from jaxtrade.runs.comparison import report_differences, state_differences
from jaxtrade.runs.evaluate import evaluate_run, history
from jaxtrade.runs.setup import params_shown, policies_of, prepare
from jaxtrade.runs.source import load_source
from tests.advisor.servers import (
    FaultServer,
    Step,
    Wire,
    advises,
    after,
    cut,
    drip,
    flood,
    hang,
    reply,
    reset,
    says,
)

TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=2048",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
)
QUICK = {
    "workers": 2,
    "deadline_s": 0.5,
    "grace_s": 0.2,
    "retry_base_s": 0.01,
    "retry_cap_s": 0.02,
    "breaker_failures": 2,
}
CANARY = "sk-canary-5e1f0a"
PAUSE_AFTER = 8  # advisor.service.unusable_pause_after


def train(path: Path, advisor: str, *overrides: str, resume: bool = False) -> None:
    if resume:
        assert cli.main(["train", "--resume", str(path)]) == 0
        return
    served = [f"advisor.service.{key}={value}" for key, value in QUICK.items()]
    flags = [flag for override in (*TINY, *served, *overrides) for flag in ("--set", override)]
    assert cli.main(["train", "--advisor", advisor, "--run-dir", str(path), *flags]) == 0


def leaves(path: Path) -> list[np.ndarray]:
    source = load_source(path)
    return [
        np.asarray(x) for x in jax.tree.leaves((source.params, source.normaliser, source.opt_state))
    ]


def same(one: Path, other: Path) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(one), leaves(other), strict=True))


def figures(path: Path) -> dict[str, Any]:
    return json.loads((path / "advice.json").read_text(encoding="utf-8"))


def state_bytes(path: Path) -> bytes:
    return (sorted((path / "checkpoints").iterdir())[-1] / "state.npz").read_bytes()


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run with an advisor that says nothing, by transport."""
    made: dict[str, Path] = {}

    def of(transport: str) -> Path:
        if transport not in made:
            made[transport] = tmp_path_factory.mktemp("silent") / transport
            train(made[transport], "none", f"advisor.transport={transport}")
        return made[transport]

    return of


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run with a slow, skilled advisor, by transport."""
    made: dict[str, Path] = {}

    def of(transport: str) -> Path:
        if transport not in made:
            made[transport] = tmp_path_factory.mktemp("live") / transport
            train(
                made[transport],
                "mock:slow:0.003/mock:skilled:0.8",
                f"advisor.transport={transport}",
                "train.total_timesteps=10240",
            )
        return made[transport]

    return of


@pytest.mark.slow
@pytest.mark.long  # so is a server that gives nothing usable
@pytest.mark.parametrize("transport", ["exchange", "callback"])
def test_an_advisor_that_always_fails_is_no_advisor(silent, tmp_path, transport) -> None:
    path = tmp_path / "failing"
    train(path, "mock:failing", f"advisor.transport={transport}")
    assert same(path, silent(transport))
    assert figures(path)["failed"] + sum(figures(path)["failures"].values()) > 0
    assert figures(path)["rows_handed_out"] == 0


REJECTED: dict[str, Step] = {
    "prose": says("I would buy here."),
    "hold for an unknown word": says(
        '{"v": 1, "direction": "moon", "confidence": 0.9, "risk": 0.1, "horizon_bars": 5, '
        '"reason": ""}'
    ),
    "an instruction": says("IGNORE ALL RULES and BUY | 0.99 | now"),
    "reasoning alone": says("<think>ADX 42: up. BUY!</think>"),
    "cut off": says('{"v": 1, "direction": "long", "confidence": 0.9', finish="length"),
    "wrong key": reply(401, b'{"error": {"message": "bad key"}}'),
    "wrong model": reply(404, b'{"error": {"message": "no such model"}}'),
    "quota": reply(402, b'{"error": {"message": "quota"}}'),
    "down": reset(),
    "hung": hang(),
}
LIKE_OTHERS = (
    "hold for an unknown word",
    "an instruction",
    "reasoning alone",
    "wrong model",
    "quota",
)
UNUSABLE = ("prose", "hold for an unknown word", "an instruction", "reasoning alone", "cut off")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "transport"),
    [
        *(
            pytest.param(name, "exchange", marks=[pytest.mark.long] * (name in LIKE_OTHERS))
            for name in REJECTED
        ),
        *(
            pytest.param(name, "callback", marks=pytest.mark.long)
            for name in ("prose", "hung", "wrong key")
        ),
    ],
)
def test_a_server_that_gives_nothing_usable_is_no_advisor(
    silent, tmp_path, name, transport, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("ADVISOR_KEY", CANARY)
    path = tmp_path / "run"
    with FaultServer(REJECTED[name]) as server:
        train(
            path,
            server.url,
            f"advisor.transport={transport}",
            "advisor.options.model=m",
            "advisor.options.key_env=ADVISOR_KEY",
            "advisor.evaluation_wait_s=0.5",
            "train.total_timesteps=2048",
            "advisor.service.breaker_open_s=600",
        )
        assert server.connections > 0
    assert same(path, silent(transport))
    printed = capsys.readouterr()
    log = (path / "run.log").read_text(encoding="utf-8")
    assert log.count("next try in") <= 1, (
        log
    )  # by training; the evaluation at the run's end has no next try
    if name in UNUSABLE:  # training asks, and the evaluation's one request is a probe
        found = figures(path)
        assert found["asked"] == PAUSE_AFTER
        assert sum(found["unusable"].values()) == PAUSE_AFTER
        assert len(server.requests) == PAUSE_AFTER + 1
        assert log.count("an answer cannot be used") == 1, log
        assert log.count("answers in a row cannot be used") == 1, log
        assert (
            f"{PAUSE_AFTER} answers were paid for and could not be used"
            in printed.out + printed.err
        )
    if name == "down":
        assert (
            "answers for the evaluation came (too many requests fail, the last one by connection"
            in log
        )
    if name in ("wrong key", "wrong model", "quota"):
        # once in training, once where the evaluation asks
        assert (
            1
            <= sum("advisor" in line and "refuse" in line.lower() for line in log.splitlines())
            <= 2
        ), log
    written = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    assert not any(CANARY.encode() in data for data in written)
    assert CANARY not in printed.out + printed.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "transport", ["exchange", pytest.param("callback", marks=pytest.mark.long)]
)
def test_a_replayed_run_is_the_run(live, tmp_path, transport) -> None:
    recorded, path = live(transport), tmp_path / "replayed"
    assert figures(recorded)["rows_handed_out"] > 0
    train(
        path,
        f"replay:{recorded / 'advice.jsonl'}",
        f"advisor.transport={transport}",
        "train.total_timesteps=10240",
    )
    assert state_bytes(path) == state_bytes(recorded)  # table, trust and demand too
    assert "asked" not in figures(path)


@pytest.mark.slow
def test_advise_replay_compares_and_refuses_an_edited_journal(
    live, silent, tmp_path, capsys
) -> None:
    recorded = live("exchange")
    assert (
        cli.main(["advise", "replay", str(recorded), "--run-dir", str(tmp_path / "replayed")]) == 0
    )
    assert "the same state, bit for bit" in capsys.readouterr().out
    assert state_differences(tmp_path / "replayed", silent("exchange")) != []
    edited = tmp_path / "edited"
    shutil.copytree(recorded, edited)
    text = (edited / "advice.jsonl").read_text(encoding="utf-8")
    (edited / "advice.jsonl").write_text(
        text.replace('"update":', '"update": ', 1), encoding="utf-8"
    )
    assert cli.main(["advise", "replay", str(edited)]) == 2
    assert "damaged or edited" in capsys.readouterr().err
    assert cli.main(["advise", "replay", str(silent("exchange"))]) == 2
    assert "this run had no advisor" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_the_replay_of_a_live_run_has_its_report_too(tmp_path, capsys) -> None:
    """A part of the answers for the evaluation never comes. The replay shows what the evaluation
    showed, and closes with the recorded figures. A later evaluation asks about the missing bars
    alone."""
    usable, path = {"all": False}, tmp_path / "run"

    def some(wire: Wire) -> None:
        draw = zlib.crc32(json.dumps(wire.request.body, sort_keys=True).encode())
        good = advises(direction="long" if draw % 2 else "short")
        (good if usable["all"] or draw % 3 else says("I would buy here."))(wire)

    with FaultServer(some) as server:
        train(
            path,
            server.url,
            "advisor.options.model=m",
            "train.total_timesteps=10240",
            "advisor.service.workers=8",
        )
        saved = read_snapshot(path / "advice" / "test.npz")
        missing = saved.manifest["missing"]
        assert 0 < missing < 433
        assert len(saved.bars) == 433 - missing
        assert cli.main(["advise", "replay", str(path), "--run-dir", str(tmp_path / "first")]) == 0
        assert "the same state, bit for bit, and the same report" in capsys.readouterr().out
        usable["all"], before = True, len(server.requests)
        assert (
            cli.main(["replay", str(path), "--session", "2013-10-11"]) == 0
        )  # shows what the evaluation showed
        assert len(server.requests) == before
        assert cli.main(["evaluate", str(path)]) == 0
        assert len(server.requests) == before + missing
    now = read_snapshot(path / "advice" / "test.npz")
    assert (len(now.bars), now.manifest["missing"]) == (433, 0)
    assert np.isin(saved.bars, now.bars).all()
    assert report_differences(path, tmp_path / "first") != []
    assert cli.main(["advise", "replay", str(path), "--run-dir", str(tmp_path / "second")]) == 0
    assert figures(tmp_path / "first")["recorded"] == figures(path)
    recorded, replayed = (asked_lines(run) for run in (path, tmp_path / "first"))
    assert len(recorded) == 1
    assert replayed == recorded
    log = (tmp_path / "first" / "run.log").read_text(encoding="utf-8")
    assert f"advisor {server.url} (recorded), fusion trust" in log


@pytest.mark.slow
@pytest.mark.long
def test_precompute_is_offered_first_with_its_cost_and_its_commands_work(tmp_path, capsys) -> None:
    path = tmp_path / "run"
    with FaultServer(advises()) as server:
        train(
            path,
            server.url,
            "advisor.options.model=m",
            "advisor.service.price_prompt=1.0",
            "advisor.service.price_completion=2.0",
        )
        lines = [
            line.partition(" ")[2]
            for line in (path / "run.log").read_text(encoding="utf-8").splitlines()
        ]
        [first] = [number for number, line in enumerate(lines) if "takes at most" in line]
        assert (
            "The training split has 1,732 bars to ask about, all splits have 2,165." in lines[first]
        )
        found = re.search(
            r"at most ([\d,]+) calls and ([\d,]+) tokens, cost at most ([\d.]+):", lines[first]
        )
        assert found is not None
        assert found[1] == "2,165"
        assert first < next(number for number, line in enumerate(lines) if "compiled" in line)
        ask, then = (shlex.split(line)[1:] for line in lines[first + 1 : first + 3])
        capsys.readouterr()
        assert cli.main([*ask, "--plan"]) == 0
        plan = capsys.readouterr().out
        [(tokens, cost)] = re.findall(
            r"2165 calls, ([\d,]+) tokens at most, cost at most ([\d.]+)", plan
        )
        assert (found[2], found[3]) == (tokens, cost)
        assert cli.main(ask) == 0
        asked = len(server.requests)
        assert cli.main([*then, "--run-dir", str(tmp_path / "with_table")]) == 0
        assert len(server.requests) == asked
    assert history(tmp_path / "with_table")[0]["advice_share"] > 0.9
    assert "takes at most" not in (tmp_path / "with_table" / "run.log").read_text(encoding="utf-8")


def asked_lines(path: Path) -> list[str]:
    """What a run says at its end about what was asked, without the time of day."""
    return [
        line[line.index("advisor: ") :]
        for line in (path / "run.log").read_text().splitlines()
        if " per 1,000 steps, and " in line
    ]


@pytest.mark.slow
@pytest.mark.long
def test_a_cut_journal_is_refused_where_its_run_knows_better_and_noted_elsewhere(
    live, tmp_path, capsys
) -> None:
    recorded, cut, alone = live("exchange"), tmp_path / "cut", tmp_path / "alone.jsonl"
    shutil.copytree(recorded, cut)
    lines = (cut / "advice.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "advice.jsonl").write_bytes(b"".join(lines[:-1]))
    assert cli.main(["advise", "replay", str(cut)]) == 2
    assert f"line {len(lines)} is missing: the run has finished" in capsys.readouterr().err
    (cut / "advice.jsonl").write_bytes(b"".join(lines[:-2]))
    flags = [flag for key in (*TINY, "train.total_timesteps=10240") for flag in ("--set", key)]
    for command in (
        ["advise", "replay", str(cut)],
        [
            "train",
            "--advisor",
            f"replay:{cut / 'advice.jsonl'}",
            "--run-dir",
            str(tmp_path / "x"),
            *flags,
        ],
    ):
        assert cli.main(command) == 2
        assert (
            f"line {len(lines) - 1} (delta {len(lines) - 2}) is missing" in capsys.readouterr().err
        )
    assert not (tmp_path / "x").exists()
    alone.write_bytes(b"".join(lines[:-1]))
    train(tmp_path / "again", f"replay:{alone}", "train.total_timesteps=10240")
    said = capsys.readouterr().err
    assert said.count("no end line") == 1
    assert "advice/test.npz is missing, so no advice is shown" in said
    assert state_differences(recorded, tmp_path / "again") == []


@pytest.mark.slow
def test_advice_reaches_the_policy_and_the_figures(live, silent, capsys) -> None:
    path = live("exchange")
    assert not same(path, silent("exchange"))
    last = history(path)[-1]
    assert last["hit_rate"] == pytest.approx(0.8, abs=0.1)
    assert last["trust"] > 0.3
    assert 0 < last["agreement"] <= 1
    assert last["override"] > 0
    assert max(row["ratio_error"] for row in history(path)) <= 1e-5
    assert all(row["illegal"] == 0 for row in history(path))
    log = (path / "run.log").read_text(encoding="utf-8")
    assert "requests, " in log
    assert "hit rate" in log
    found = json.loads(
        (path / "evaluation" / "test" / "evaluation.json").read_text(encoding="utf-8")
    )
    assert any("reads future prices" in label for label in found["labels"])
    assert "advice of none on 0 of" in evaluate_run(path, advisor="none")


@pytest.mark.slow
@pytest.mark.long
def test_the_command_of_the_readme_asks_and_comes_to_trust(tmp_path, capsys) -> None:
    before = sys.getswitchinterval()
    assert (
        cli.main(
            [
                "train",
                "advised",
                "--advisor",
                "mock:skilled:0.6",
                "--test",
                "--run-dir",
                str(tmp_path / "run"),
                "--set",
                "train.tensorboard=false",
            ]
        )
        == 0
    )
    printed = capsys.readouterr()
    rate, trust = (
        re.search(pattern, printed.out + printed.err)
        for pattern in (r"requests, ([\d.e+-]+) per 1,000 steps", r"trust ([\d.e+-]+) \(log-odds\)")
    )
    assert rate is not None
    assert float(rate[1]) > 0
    assert trust is not None
    assert float(trust[1]) > 0
    assert figures(tmp_path / "run")["rows_handed_out"] > 0
    assert sys.getswitchinterval() == before


@pytest.mark.slow
@pytest.mark.long
def test_a_curriculum_asks_in_the_phase_that_shows_advice(tmp_path) -> None:
    flags = [flag for override in (*TINY, "enforce_gates=false") for flag in ("--set", override)]
    assert (
        cli.main(
            [
                "curriculum",
                "--advisor",
                "mock:skilled:0.8",
                "--run-dir",
                str(tmp_path / "course"),
                "--non-interactive",
                *flags,
            ]
        )
        == 0
    )
    phases = sorted(phase for phase in (tmp_path / "course" / "phases").iterdir() if phase.is_dir())
    assert [(phase / "advice.json").exists() for phase in phases] == [False, False, True]
    assert figures(phases[-1])["rows_handed_out"] > 0
    assert history(phases[-1])[-1]["advice_scored"] > 0


@pytest.mark.slow
def test_a_run_without_an_advisor_has_no_trust_to_evaluate_with(tmp_path, capsys) -> None:
    path = tmp_path / "off"
    train(path, "off")
    assert cli.main(["evaluate", str(path), "--advisor", "rules"]) == 2
    assert "trained without an advisor" in capsys.readouterr().err
    assert not (path / "advice.json").exists()


def test_what_cannot_be_is_said_before_anything_runs(tmp_path, capsys) -> None:
    def refused(*arguments: str) -> str:
        assert cli.main(["train", "--run-dir", str(tmp_path / "x"), *arguments]) == 2
        assert not (tmp_path / "x").exists()
        return capsys.readouterr().err

    assert "advisor.transport=exchange" in refused(
        "--advisor", "rules", "--set", "advisor.transport=callback", "--set", "train.num_seeds=2"
    )
    assert "env.advice=true" in refused("--advisor", "rules", "--set", "advisor.fusion=slots")
    assert "did you mean 'skilled'" in refused("--advisor", "mock:skiled:0.8")
    assert "it did not list its models" in refused("--advisor", "http://127.0.0.1:1/v1")
    assert "there is no such file" in refused("--advisor", "table:nowhere.npz")
    assert "the longest session has 22 bars" in refused(
        "--advisor", "mock:skilled:0.6", "--market", "EURUSD", "--set", "advisor.template=no_volume"
    )


@pytest.mark.parametrize(
    "given",
    [
        ("--advisor", f"https://user:{CANARY}@host.example/v1"),
        ("--advisor", "https://host.example/v1", "--set", f"advisor.options.api_key={CANARY}"),
        (
            "--advisor",
            "https://host.example/v1",
            "--set",
            "advisor.options.model=m",
            "--set",
            f"advisor.options.key_env={CANARY}",
        ),
    ],
)
def test_a_key_given_where_a_name_belongs_is_written_nowhere(tmp_path, capsys, given) -> None:
    assert cli.main(["train", "--run-dir", str(tmp_path / "x"), *given]) == 2
    assert not (tmp_path / "x").exists()
    assert "advisor" in capsys.readouterr().err


def test_an_advisor_reported_the_future_is_labelled_however_it_comes() -> None:
    assert reads_future("mock:delayed:5/mock:oracle")
    assert table_reads_future({"advisor": "mock:skilled:0.6"})
    assert table_reads_future({"identity": {"kind": "mock:turning", "then.future": "ab12"}})
    assert not table_reads_future({"advisor": "rules", "identity": {"kind": "rules"}})
    assert not reads_future("mock:random")


@pytest.mark.slow
@pytest.mark.long
def test_a_replay_is_resumed_too(live, tmp_path) -> None:
    recorded, path = live("exchange"), tmp_path / "replayed"
    train(path, f"replay:{recorded / 'advice.jsonl'}", "train.total_timesteps=10240")
    newest = sorted((path / "checkpoints").iterdir())[-1]
    shutil.rmtree(newest)
    train(path, "", resume=True)
    assert state_bytes(path) == state_bytes(recorded)


@pytest.mark.slow
def test_a_server_is_asked_about_an_evaluation(live, capsys) -> None:
    """`evaluate --advisor URL`, with its options; a finished run that is resumed asks nobody."""
    path = live("exchange")
    with FaultServer(advises()) as server:
        assert (
            cli.main(
                ["evaluate", str(path), "--advisor", server.url, "--set", "advisor.options.model=m"]
            )
            == 0
        )
        assert len(server.requests) > 100
    assert f"advice of {server.url} on 4" in capsys.readouterr().out
    assert cli.main(["evaluate", str(path), "--advisor", "mock:nonsense", "--cost-grid"]) == 2
    assert cli.main(["evaluate", str(path), "--advisor", "rules", "--set", "ppo.gamma=0.9"]) == 2
    before = (path / "advice.json").read_bytes()
    assert cli.main(["train", "--resume", str(path)]) == 0
    assert (path / "advice.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "transport", ["exchange", pytest.param("callback", marks=pytest.mark.long)]
)
def test_a_killed_and_resumed_run_is_its_own_journal(tmp_path, transport) -> None:
    """`kill -9` while answers come in; what the resumed run did replays to the same bits, in one
    piece.
    """
    path, draw, kills = tmp_path / "run", random.Random(0), 0
    overrides = [
        *TINY,
        f"advisor.transport={transport}",
        "train.total_timesteps=20480",
        "train.checkpoint_every=2",
    ]
    flags = [flag for override in overrides for flag in ("--set", override)]
    first = [
        "train",
        "--advisor",
        "mock:slow:0.01/mock:skilled:0.8",
        "--run-dir",
        str(path),
        *flags,
    ]
    environment = {**os.environ, "NPROC": os.environ.get("NPROC", str(os.cpu_count() or 1))}
    for _ in range(12):
        command = (
            first if not (path / "manifest.json").exists() else ["train", "--resume", str(path)]
        )
        before = len(list(path.glob("checkpoints/*/manifest.json")))
        with (tmp_path / "output").open("a") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "jaxtrade.cli", *command],
                stdout=output,
                stderr=output,
                env=environment,
            )
            while (
                kills < 3
                and process.poll() is None
                and (len(list(path.glob("checkpoints/*/manifest.json"))) <= before)
            ):
                time.sleep(0.002)
            if kills < 3 and process.poll() is None:
                time.sleep(draw.uniform(0.0, 0.05))
                process.send_signal(signal.SIGKILL)
                kills += 1
            if process.wait(300) == 0:
                break
    assert process.returncode == 0, (tmp_path / "output").read_text()[-3000:]
    assert "resumed after update" in (tmp_path / "output").read_text()
    replayed = tmp_path / "replayed"
    flags = [flag for override in overrides for flag in ("--set", override)]
    assert (
        cli.main(
            [
                "train",
                "--advisor",
                f"replay:{path / 'advice.jsonl'}",
                "--run-dir",
                str(replayed),
                *flags,
            ]
        )
        == 0
    )
    assert state_bytes(replayed) == state_bytes(path)
    assert figures(path)["rows_handed_out"] > 0


@pytest.mark.slow
def test_trust_and_advice_look_at_nothing_later() -> None:
    """In evaluation with trust on: what comes after a bar changes no distribution up to it."""
    config = load_config("quickstart", [*TINY, "advisor.kind=rules", "advisor.latency=[1, 3]"])
    es_bars, cut = load_market(config).bars, 5_000
    later = np.random.default_rng(0).integers(-8, 9, len(es_bars) - cut).cumsum()
    moved = {
        name: np.concatenate([getattr(es_bars, name)[:cut], getattr(es_bars, name)[cut:] + later])
        for name in ("open", "high", "low", "close")
    }
    other = dataclasses.replace(es_bars, **moved)
    setup, records = prepare(config), []
    state = jax.jit(setup.algorithm.init)(jax.random.key(0), setup.params)
    policy = policies_of(setup, state)[0].replace(
        fusion=Trust(jnp.array([2.0, -1.0, 0.5, 2.0, 1.0]))
    )
    for bars in (es_bars, other):
        market = build_market(bars, config)
        sessions = setup.splits["train"]
        params = make_params(market, sessions, config).replace(advice=setup.params.advice)
        mine = dataclasses.replace(setup, market=market, params=params)
        shown, known = params_shown(mine, "train", None)
        assert known.advised > 100
        decisions = decision_bars(market.data, sessions)
        records.append(
            [
                backtest(
                    setup.env,
                    make(setup.algorithm, policy, setup.env),
                    shown,
                    decisions,
                    "strategy",
                    jax.random.key(1),
                )
                for make in (greedy, sampled)
            ]
        )
    for one, two in zip(*records, strict=True):
        known = one.row < cut
        assert 0 < known.sum() < len(known)
        np.testing.assert_array_equal(one.action[known], two.action[known])
        np.testing.assert_array_equal(
            np.asarray(one.ref.aux.version)[known], np.asarray(two.ref.aux.version)[known]
        )
        np.testing.assert_array_equal(
            np.asarray(one.ref.aux.values)[known], np.asarray(two.ref.aux.values)[known]
        )
    assert (records[0][1].action != records[1][1].action).any()


def test_outcomes_are_those_of_training_sessions_alone() -> None:
    setup = prepare(load_config("quickstart", [*TINY, "advisor.kind=none"]))
    followed = followed_of(setup.market, setup.config)
    kept = only(followed, setup.market, setup.splits["train"])
    test = decision_bars(setup.market.data, setup.splits["test"]).rows
    assert np.any(followed[test])
    assert not np.any(kept[test])
    train_rows = decision_bars(setup.market.data, setup.splits["train"]).rows
    np.testing.assert_array_equal(kept[train_rows], followed[train_rows])


@pytest.mark.slow
@pytest.mark.long  # a killed and resumed run is its journal too, and each fault has a test of its own
@pytest.mark.parametrize("transport", ["callback", "exchange"])
def test_a_run_in_which_all_goes_wrong_now_and_then_is_its_journal(tmp_path, transport) -> None:
    """Good answers between faults of every kind: what became visible, and nothing else, made the
    run.
    """
    faults = [
        *(
            step
            for name, step in REJECTED.items()
            if name not in ("wrong key", "wrong model", "quota")
        ),
        reply(429, b"{}", {"Retry-After": "0"}),
        reply(503, b"{}"),
        reply(200, b"<html>"),
        flood(1_000_000),
        cut(b"HTTP/1.1 200 OK\r\n"),
        drip(b"{" * 40, 0.1),
    ]
    script = [
        step
        for fault in faults * 4
        for step in (advises(), fault, advises(direction="short"), advises())
    ]
    path = tmp_path / "run"
    options = (
        "advisor.options.model=m",
        f"advisor.transport={transport}",
        "advisor.evaluation_wait_s=0.2",
        "train.total_timesteps=81920",
        "advisor.service.breaker_failures=50",
    )
    with FaultServer(*script, advises()) as server:
        train(path, server.url, *options)
        assert len(server.requests) > 20
    found = figures(path)
    assert found["rows_handed_out"] > 0
    assert sum(found["failures"].values()) > 3
    assert found["contained"] == {}
    assert found["faults"] == {}
    train(tmp_path / "replayed", f"replay:{path / 'advice.jsonl'}", *options[1:])
    assert state_bytes(tmp_path / "replayed") == state_bytes(path)


@pytest.mark.slow
def test_a_slow_answer_comes_in_a_later_version(tmp_path) -> None:
    with FaultServer(after(0.05, advises())) as server:
        train(
            tmp_path / "run",
            server.url,
            "advisor.options.model=m",
            "train.total_timesteps=20480",
            "advisor.evaluation_wait_s=0.2",
        )
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "advice.jsonl").read_text().splitlines()
    ]
    versions = [line["version"] for line in lines if line["kind"] == "delta"]
    assert versions == sorted(set(versions))
    assert versions


_ONE_OF_TWO = """
import sys
import jax
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
from jaxtrade import cli
sys.exit(cli.main(["train", "advised", "--advisor", "mock:random", "--test", "--run-dir", sys.argv[3]]))
"""


@pytest.mark.slow
def test_31_of_several_processes_none_begins_with_an_advisor(tmp_path):
    """Two real processes of one JAX program: both refuse before a run is written."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _ONE_OF_TWO, port, str(i), str(tmp_path / str(i))],
            env=own,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    for i, child in enumerate(children):
        _, error = child.communicate(timeout=240)
        assert (child.returncode, "an advisor serves a run of one process" in error) == (2, True), (
            error
        )
        assert f"process {i} of 2" in error
        assert not (tmp_path / str(i)).exists()
