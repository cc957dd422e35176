"""An advisor beside a real training run: failure is absence, replay is the run, trust never sees a
bar's future.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
import time

import pytest

from jaxtrade import cli
from jaxtrade.cli.inspection import state_differences
from jaxtrade.runs.evaluate import Request, evaluate_run, history
from tests.advisor.servers import (
    FaultServer,
    advises,
    hang,
    reply,
    reset,
    says,
)
from tests.children import sets
from tests.messages import refuses
from tests.reading import read_json
from tests.resuming import leaves

pytestmark = pytest.mark.slow

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


def train(path, advisor, *overrides, resume=False):
    if resume:
        assert cli.main(["train", "--resume", str(path)]) == 0
        return
    served = [f"advisor.service.{key}={value}" for key, value in QUICK.items()]
    flags = sets(*TINY, *served, *overrides)
    assert cli.main(["train", "--advisor", advisor, "--run-dir", str(path), *flags]) == 0


def same(one, other):
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(one), leaves(other), strict=True))


def figures(path):
    return read_json(path / "advice.json")


def state_bytes(path):
    return (sorted((path / "checkpoints").iterdir())[-1] / "state.npz").read_bytes()


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    """The run with an advisor that says nothing."""
    path = tmp_path_factory.mktemp("silent") / "run"
    train(path, "none")
    return path


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A run with a slow, skilled advisor."""
    path = tmp_path_factory.mktemp("live") / "run"
    train(path, "mock:slow:0.003/mock:skilled:0.8", "train.total_timesteps=10240")
    return path


REJECTED = {
    "prose": says("I would buy here."),
    "cut off": says('{"v": 1, "direction": "long", "confidence": 0.9', finish="length"),
    "wrong key": reply(401, b'{"error": {"message": "bad key"}}'),
    "down": reset(),
    "hung": hang(),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_server_that_gives_nothing_usable_is_no_advisor(
    silent, tmp_path, name, monkeypatch, capsys
):
    """The evaluation at the run's end asks too, and has no next try."""
    monkeypatch.setenv("ADVISOR_KEY", CANARY)
    path = tmp_path / "run"
    keys = ("options.model=m", "options.key_env=ADVISOR_KEY", "evaluation_wait_s=0.5")
    with FaultServer(REJECTED[name]) as server:
        more = (*keys, "service.breaker_open_s=600")
        train(path, server.url, *(f"advisor.{key}" for key in more))
        assert server.connections > 0
    assert same(path, silent)
    printed = capsys.readouterr()
    log, found = (path / "run.log").read_text(), figures(path)
    assert log.count("next try in") <= 1, log
    if name in ("prose", "cut off"):  # training asks, and the evaluation's one request is a probe
        assert found["asked"] == sum(found["unusable"].values()) == PAUSE_AFTER
        assert len(server.requests) == PAUSE_AFTER + 1
        assert log.count("answers in a row") == 1, log
        assert f"{PAUSE_AFTER} answers were paid" in printed.out + printed.err
    if name == "wrong key":
        assert 1 <= log.count("it refuses") <= 2, log
    written = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    assert CANARY.encode() not in b"".join(written)
    assert CANARY not in printed.out + printed.err


def test_advise_replay_compares_and_refuses_an_edited_journal(live, silent, tmp_path, capsys):
    recorded = live
    assert (
        cli.main(["advise", "replay", str(recorded), "--run-dir", str(tmp_path / "replayed")]) == 0
    )
    assert "same state, bit" in capsys.readouterr().out
    assert state_differences(tmp_path / "replayed", silent) != []
    edited = tmp_path / "edited"
    shutil.copytree(recorded, edited)
    text = (edited / "advice.jsonl").read_text()
    (edited / "advice.jsonl").write_text(text.replace('"update":', '"update": ', 1))
    refuses(capsys, ["advise", "replay", str(edited)], "damaged or edited")
    refuses(capsys, ["advise", "replay", str(silent)], "had no advisor")


def test_advice_reaches_the_policy_and_the_figures(live, silent, capsys):
    path = live
    assert not same(path, silent)
    last = history(path)[-1]
    assert last["hit_rate"] == pytest.approx(0.8, abs=0.1)
    assert last["trust"] > 0.3
    assert 0 < last["agreement"] <= 1
    assert last["override"] > 0
    assert max(row["ratio_error"] for row in history(path)) <= 1e-5
    assert all(row["illegal"] == 0 for row in history(path))
    log = (path / "run.log").read_text()
    assert "requests, " in log
    assert "hit rate" in log
    found = read_json(path / "evaluation" / "test" / "evaluation.json")
    assert any("reads future prices" in label for label in found["labels"])
    assert "of none on 0" in evaluate_run(Request(path, advisor="none"))


def test_a_server_is_asked_about_an_evaluation(live, capsys):
    """`evaluate --advisor URL`, with its options; a finished run that is resumed asks nobody."""
    path = live
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


def test_a_killed_and_resumed_run_is_its_own_journal(tmp_path):
    """`kill -9` while answers come in; what the resumed run did replays to the same bits, in one
    piece.
    """
    path, replayed, output = (tmp_path / name for name in ("run", "replayed", "output"))
    overrides = [*TINY, "train.total_timesteps=20480", "train.checkpoint_every=2"]
    flags = sets(*overrides)

    def fresh(advisor, folder):
        return ["train", "--advisor", advisor, "--run-dir", str(folder), *flags]

    def saved():
        return len(list(path.glob("checkpoints/*/manifest.json")))

    draw, command = random.Random(0), fresh("mock:slow:0.01/mock:skilled:0.8", path)
    for kill in (True, True, False):
        before = saved()
        with output.open("a") as said:
            called = [sys.executable, "-m", "jaxtrade.cli", *command]
            process = subprocess.Popen(called, stdout=said, stderr=said)
            while kill and process.poll() is None and saved() <= before:
                time.sleep(0.002)
            if kill:
                time.sleep(draw.uniform(0.0, 0.05))
                process.kill()
            process.wait(300)
        command = ["train", "--resume", str(path)]
    assert process.returncode == 0, output.read_text()[-3000:]
    assert "resumed after update" in output.read_text()
    assert cli.main(fresh(f"replay:{path / 'advice.jsonl'}", replayed)) == 0
    assert state_bytes(replayed) == state_bytes(path)
    assert figures(path)["rows_handed_out"] > 0


_ONE_OF_TWO = """
import sys
import jax
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
from jaxtrade import cli
sys.exit(cli.main(["train", "advised", "--advisor", "mock:random", "--test", "--run-dir", sys.argv[3]]))
"""


def test_31_of_several_processes_none_begins_with_an_advisor(tmp_path):
    """Two real processes of one JAX program: both refuse before a run is written."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    children = []
    for i in range(2):
        command = [sys.executable, "-c", _ONE_OF_TWO, port, str(i), str(tmp_path / str(i))]
        children.append(subprocess.Popen(command, env=own, stderr=subprocess.PIPE, text=True))
    for i, child in enumerate(children):
        _, error = child.communicate(timeout=240)
        assert (child.returncode, "run of one process" in error) == (2, True), error
        assert f"process {i} of 2" in error
        assert not (tmp_path / str(i)).exists()
