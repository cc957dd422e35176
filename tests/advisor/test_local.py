"""A local model's process through the backend that starts it: a stub writes, everything else is real."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrade.advisor.host import local
from jaxtrade.advisor.host.local import LocalBackend, LocalOptions, fingerprint
from jaxtrade.advisor.host.options import ServiceOptions
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.schema import parse_advice
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Answer, Failure
from jaxtrade.errors import ConfigError
from tests.advisor.asking import ask, question
from tests.advisor.servers import GOOD

pytest.importorskip("h11")

ROOT = Path(__file__).parents[2]
CANARY = "canary-CANARY-0123456789"
MISSING = "a local model needs torch: pip install 'jaxtrade[transformers]'"
Make = Callable[..., LocalBackend]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "stub"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture
def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[LocalBackend] = []
    monkeypatch.setattr(local, "_PAUSE_S", 0.01)

    def new(mode: str = "good", command: list[str] | None = None, **options: Any) -> LocalBackend:
        command = command or [sys.executable, "-P", "-m", "tests.advisor.stub_model", "stub", mode]
        made.append(LocalBackend(LocalOptions(folder, **options), command))
        return made[-1]

    yield new
    for backend in made:
        backend.close()


def pid_of(backend: LocalBackend) -> int:
    assert backend._child is not None
    return backend._child.pid


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        if Path("/proc/self").exists():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True


def wait_for(done: Callable[[], Any], seconds: float = 10.0) -> bool:
    patience = time.monotonic() + seconds
    while not done() and time.monotonic() < patience:
        time.sleep(0.02)
    return bool(done())


def test_the_whole_way(make: Make) -> None:
    backend = make()
    assert repr(backend) == "LocalBackend('stub', loading)"
    answer = ask(backend, 10)
    assert answer.advice == parse_advice(json.dumps(GOOD)).advice is not None
    assert (answer.model, answer.status, answer.detail) == ("stub", 200, "")
    assert answer.prompt_tokens == len(question().prompt.split())
    assert answer.completion_tokens == 12
    assert ask(backend).advice == answer.advice
    assert (backend.name, backend.starts, repr(backend)) == ("transformers:stub", 1, "LocalBackend('stub', ready)")
    pid = pid_of(backend)
    began = time.monotonic()
    backend.close()
    assert time.monotonic() - began < 3
    assert not alive(pid)
    assert not backend._thread.is_alive()
    assert (ask(backend).failure, repr(backend)) == (Failure.STOPPED, "LocalBackend('stub', closed)")
    backend.close()


def test_many_threads_ask_one_model(make: Make) -> None:
    backend = make()
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(backend, 10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [answer.detail for answer in answers if answer.advice is None] == []
    assert (len(answers), backend.starts) == (8, 1)


def test_who_answered_is_the_weights_and_the_sampling(folder: Path, make: Make) -> None:
    identity = dict(make().identity())
    assert identity["weights"] == fingerprint(folder)
    assert {"kind": "transformers", "model": "stub", "temperature": "0.0"}.items() <= identity.items()
    assert str(folder) not in repr(identity)
    assert make(max_tokens=9).identity() != identity
    (folder / "model.safetensors").write_bytes(bytes(10 * 2**20))
    big = fingerprint(folder)
    (folder / "notes.md").write_text("no part of the model")
    assert fingerprint(folder) == big != identity["weights"]
    (folder / "model.safetensors").write_bytes(bytes(5 * 2**20) + b"\1" * 5 * 2**20)
    assert fingerprint(folder) != big


@pytest.mark.parametrize(("mode", "words"), [
    ("fault", MISSING),
    ("error", "ValueError: a bug in a library"),
    ("crash", "ended before it was ready (killed by SIGKILL (out of memory?); its last words: last words)"),
    ("unknown", ""),
])
def test_what_cannot_start_is_one_reason_and_no_second_try(make: Make, mode: str, words: str) -> None:
    backend = make(mode, command=[sys.executable, "-c", "import sys; print('bye'); sys.exit(4)"]
                   if mode == "unknown" else None)
    answer = ask(backend, 10)
    assert (answer.advice, answer.failure, answer.retryable) == (None, Failure.REFUSED, False)
    assert words in answer.detail
    if mode == "unknown":
        assert "exit code 4; its last words: bye" in answer.detail
    assert "\n" not in answer.detail
    assert ask(backend).detail == answer.detail
    assert (backend.starts, repr(backend)) == (1, "LocalBackend('stub', given up)")


def test_an_interpreter_that_is_not_there(make: Make) -> None:
    answer = ask(make(command=["/nowhere/python"]))
    assert (answer.failure, answer.detail) == (
        Failure.REFUSED, "its server process cannot be started (No such file or directory)")


def test_loading_is_waited_for_no_longer_than_the_deadline_and_not_for_ever(make: Make) -> None:
    backend = make("hang", start_s=1.0)
    early = ask(backend, 0.2)
    assert (early.failure, early.retryable) == (Failure.TIMEOUT, True)
    assert "not loaded yet" in early.detail
    late = ask(backend, 10)
    assert (late.failure, late.detail) == (Failure.REFUSED, "not loaded within 1 s (advisor.options.start_s)")
    assert not alive(pid_of(backend))


def test_a_death_is_a_failure_a_restart_and_in_the_end_a_refusal(make: Make) -> None:
    backend = make("dies")
    answers = [ask(backend, 10)]
    while answers[-1].failure is not Failure.REFUSED:  # some find the port of the dead one
        assert (answers[-1].failure, answers[-1].retryable) == (Failure.CONNECTION, True)
        answers.append(ask(backend, 10))
    assert len(answers) > local.MOST_RESTARTS + 1
    assert answers[-1].detail == "its server process ended 4 times"
    assert backend.starts == local.MOST_RESTARTS + 1


def test_a_killed_process_is_started_again(make: Make) -> None:
    backend = make()
    assert ask(backend, 10).advice is not None
    first = pid_of(backend)
    os.kill(first, signal.SIGKILL)
    assert wait_for(lambda: pid_of(backend) != first)
    assert ask(backend, 10).advice is not None
    assert backend.starts == 2


def test_a_model_that_raises_is_a_failure_without_the_prompt(make: Make) -> None:
    answer = ask(make("raises"), 10)
    assert (answer.failure, answer.status, answer.retryable) == (Failure.HTTP, 500, True)
    assert answer.detail == "status 500: error the model raised RuntimeError"


@pytest.mark.parametrize("mode", ["hang", "slow", "good", "fault"])
def test_close_is_short_in_every_state(make: Make, mode: str) -> None:
    backend = make(mode)
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(backend.answer(question(), time.monotonic() + 30)))
    asking.start()
    ready = {"hang": lambda: backend._child, "slow": lambda: backend._client}.get(mode)
    assert wait_for(ready or (lambda: answers))
    time.sleep(0.1 if mode == "slow" else 0)
    began = time.monotonic()
    backend.close()
    asking.join(3)
    assert time.monotonic() - began < 3
    assert not alive(pid_of(backend))
    expected = {"good": None, "fault": Failure.REFUSED}
    assert [answer.failure for answer in answers] == [expected.get(mode, Failure.STOPPED)]


@pytest.mark.parametrize("mode", ["good", "hang"])
def test_it_dies_with_its_parent(folder: Path, mode: str) -> None:
    """Killed without a chance to say so, while the model is served and while it is loaded."""
    code = (f"import sys, time\nfrom pathlib import Path\n"
            f"from jaxtrade.advisor.host.local import LocalBackend, LocalOptions\n"
            f"b = LocalBackend(LocalOptions(Path({str(folder)!r})), "
            f"[sys.executable, '-m', 'tests.advisor.stub_model', 'stub', {mode!r}])\n"
            f"while not (b._client if {mode!r} == 'good' else b._child): time.sleep(0.01)\n"
            f"print(b._child.pid, flush=True)\ntime.sleep(60)\n")
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.3 if mode == "hang" else 0)  # until it watches
    assert alive(pid)
    parent.kill()
    parent.wait(5)
    assert wait_for(lambda: not alive(pid), 3)


def test_ctrl_c_is_not_its_affair(make: Make) -> None:
    backend = make()
    assert ask(backend, 10).advice is not None
    assert os.getpgid(pid_of(backend)) != os.getpgid(0)
    os.kill(pid_of(backend), signal.SIGINT)
    time.sleep(0.1)
    assert ask(backend, 10).advice is not None
    assert backend.starts == 1


def test_the_token_is_nowhere(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even in the environment that the model's libraries see."""
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: CANARY)
    caplog.set_level("DEBUG")
    backend = make("environment")
    raw = ask(backend, 10).raw
    assert "PYTHONPATH" in raw
    assert "CANARY" not in raw
    said: list[str] = []
    options = ServiceOptions(workers=2, cache=str(tmp_path / "a.sqlite"), ledger=str(tmp_path / "l.sqlite"))
    service = AdviceService(backend, options, tell=said.append)
    service.submit([(question(bar), 1.0) for bar in range(4)])
    assert wait_for(lambda: sum(service.statistics()[place] for place in ("failed", "poisoned")) == 4)
    shown = repr((backend, backend.identity(), service.statistics(), said, ask(backend)))
    service.stop()
    assert "CANARY" not in shown + caplog.text
    assert not any("CANARY" in value for value in os.environ.values())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"a.sqlite", "l.sqlite"}
    assert [path for path in files if b"CANARY" in path.read_bytes()] == []
    if Path("/proc").is_dir():
        assert CANARY not in Path("/proc/self/environ").read_text()


def test_a_service_tells_one_line_and_goes_on_without(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    service = AdviceService(make("fault"), ServiceOptions(workers=4))
    service.submit([(question(bar), 1.0) for bar in range(20)])
    assert wait_for(lambda: "refused" in service.statistics()["mode"])
    service.stop()
    assert [record.message for record in caplog.records] == [
        f"advisor transformers:stub: it refuses ({MISSING}); nothing more is asked in this run, which goes on with the "
        "advice it has"]
    assert service.take(10) == []


def test_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that is started, without starting it."""
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(local, "Child", lambda command, more: started.append(command) or (_ for _ in ()).throw(OSError))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    backend = make_backend(f"transformers:{folder}", {"threads": 2, "device": "cpu", "start_s": 5.0})
    assert ask(backend).failure is Failure.REFUSED
    assert started == [(sys.executable, "-P", "-m", "jaxtrade.advisor.serve", str(folder), "--device", "cpu", "--dtype",
                        "auto", "--threads", "2")]


def test_an_absent_package_or_folder_is_told_before_anything_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(ConfigError, match=r"needs torch: pip install 'jaxtrade\[transformers\]'"):
        make_backend(f"transformers:{folder}")
    with pytest.raises(ConfigError, match="no model there"):
        make_backend(f"transformers:{folder}/other")


@pytest.mark.parametrize(("options", "words"), [
    ({"dtype": "int4"}, "dtype 'int4': expected auto, float32"),
    ({"threads": 0}, "expected 1 to 256"),
    ({"start_s": 0}, "expected seconds above 0"),
    ({"temperature": 3.0}, "expected 0 to 2"),
    ({"temperature": None}, "0 (greedy) to 2"),
    ({"answer": "xml"}, "expected json, pipe"),
    ({"max_tokens": 0}, "expected 1 to"),
    ({"max_tokens": 5000}, "expected 1 to 4096"),
    ({"device": "--help"}, "expected auto, cpu"),
    ({"model": "m"}, "unknown option 'model'"),
])
def test_settings_that_cannot_be(folder: Path, options: dict[str, Any], words: str,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(local, "Child", lambda *_: pytest.fail("started"))
    with pytest.raises(ConfigError) as caught:
        make_backend(f"transformers:{folder}", options)
    assert words in str(caught.value)
