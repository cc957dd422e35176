"""`transformers serve` as docs/advisor.md starts it, with a tiny model of random weights: its text
is no advice.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.types import Backend, Failure
from tests.advisor.asking import SOON, question

pytest.importorskip("httpx")
COMMAND = shutil.which(
    "transformers", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
)
ABSENT = [
    name
    for name in ("torch", "transformers", "fastapi", "uvicorn", "openai")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(ABSENT) or COMMAND is None,
        reason=f"no {', '.join(ABSENT)}: pip install 'transformers[serving]'",
    ),
]

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds for torch to be loaded on a machine that does other things
Make = Callable[..., Backend]


class Server(NamedTuple):
    url: str
    model: str


def documented(folder):
    """The page's command for another folder."""
    page = (ROOT / "docs" / "advisor.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^transformers serve .*$", page, re.MULTILINE)
    return [str(folder) if part.startswith("/models/") else part for part in shlex.split(line)[1:]]


def is_up(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-random"
    folder.mkdir()
    own = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "HF_HUB_OFFLINE": "1",
    }
    subprocess.run(
        [sys.executable, "-m", "tests.advisor.tiny_transformer", str(folder)],
        cwd=ROOT,
        check=True,
        timeout=300,
        env=own,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder.with_name("server.log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(COMMAND), *documented(folder), "--port", str(port)],
            env=own,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    until = time.monotonic() + PATIENCE
    try:
        while not is_up(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield Server(f"http://127.0.0.1:{port}/v1", str(folder))
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def make(server):
    made: list[Backend] = []

    def new(**options):
        made.append(make_backend(server.url, {"model": server.model, "max_tokens": 40, **options}))
        return made[-1]

    yield new
    for backend in made:
        backend.close()


def ask(backend, bar=0, seconds=PATIENCE):
    asked = question()._replace(prompt=f"{question().prompt}{bar}")
    return backend.answer(asked, time.monotonic() + seconds)


@pytest.mark.parametrize("structured", ["json_schema", "json_object", "none"])
def test_every_request_is_accepted_and_its_text_is_checked(make, server, structured):
    answer = ask(make(structured=structured))
    assert (answer.advice, answer.status) == (None, 200)
    assert answer.failure in (Failure.PARSE, Failure.TOO_LARGE, Failure.EMPTY)
    assert answer.model.startswith(server.model)
    assert (
        answer.prompt_tokens == len(question().prompt.encode()) + 2
    )  # a byte a token, the bar, a line's end
    assert 1 <= answer.completion_tokens <= 40


def test_greedy_decoding_repeats_itself_and_so_does_a_seed(make):
    greedy = make()
    assert ask(greedy).raw == ask(greedy).raw != ""
    sampled = make(
        temperature=1.5, seed=7
    )  # the tiny model's generation_config.json says do_sample
    assert ask(sampled).raw == ask(sampled).raw != ask(greedy).raw


def test_another_model_is_refused_with_the_reason(make):
    answer = ask(make(model="another"))
    assert (answer.advice, answer.status, answer.retryable) == (None, 400, False)
    assert "pinned to" in answer.detail


def test_a_deadline_holds(make):
    began = time.monotonic()
    answer = ask(make(max_tokens=300), 0, 0.3)
    assert time.monotonic() - began < SOON
    assert (answer.failure, answer.retryable) == (Failure.TIMEOUT, True)
