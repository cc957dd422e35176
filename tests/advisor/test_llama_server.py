"""A really started server of chat completions: llama.cpp with a tiny model of random weights.

Its grammar makes every answer fit the schema while the weights know nothing: a null advisor through
a real tokenizer, real HTTP and real latency.
"""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jaxtrade.advisor.host.openai import OpenAIBackend
from jaxtrade.advisor.host.prompts import TEMPLATES, make_question
from jaxtrade.cli import main
from tests.advisor.asking import SLOTS
from tests.advisor.tiny_model import write_model

pytest.importorskip("httpx")
pytest.importorskip("gguf")
pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KEY = "sk-local-CANARY-1234"
LIFE = 300.0  # seconds after which the server ends by itself
PATIENCE = 30.0  # seconds for one answer on a machine that does other things


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The URL of a server process of its own, polite to what else runs, ready to answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = write_model(tmp_path_factory.mktemp("llama") / "tiny.gguf")
    words = ["-m", "tests.advisor.tiny_model", str(model), str(port), KEY, str(LIFE)]
    polite = ["nice", "-n", "19"] if shutil.which("nice") else []
    command = [*polite, sys.executable, *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(60, process.kill)  # a server that does not start is no reason to wait
    timer.start()
    address = process.stdout.readline().strip()
    timer.cancel()
    assert address.startswith("http"), "the server did not start"
    yield f"{address}/v1"
    process.kill()
    process.wait(10)


def ask(backend, bar):
    stamp = f"2024-03-01T10:{bar:02d}:00-05:00"
    asked = make_question(bar, "ES", stamp, {**SLOTS, "close": 5000.0 + bar})
    return backend.answer(asked, time.monotonic() + PATIENCE)


def test_a_null_advisor(server, monkeypatch):
    """Every answer fits, and none has anything to do with the question."""
    monkeypatch.setenv("LLM_KEY", KEY)
    backend = OpenAIBackend(
        base_url=server, model="tiny-random", key_env="LLM_KEY", max_tokens=600, temperature=1.0
    )
    answers = [ask(backend, bar) for bar in range(8)]
    backend.close()
    assert [answer.detail for answer in answers if answer.advice is None] == []
    assert {answer.model for answer in answers} == {"tiny-random"}
    assert all(answer.prompt_tokens > 500 and answer.completion_tokens > 50 for answer in answers)
    assert len({answer.advice for answer in answers}) > 4


@pytest.mark.parametrize("template", [*TEMPLATES, "window", "desk"])
def test_a_user_asks_it_first(server, template, monkeypatch, capsys):
    """`advise models` lists its model, and `advise ask` finds it and shows what it answers, with
    every template.
    """
    monkeypatch.setenv("LLM_KEY", KEY)
    assert main(["advise", "models", server, "--key-env", "LLM_KEY"]) == 0
    assert capsys.readouterr().out.split()[0] == "tiny-random"
    # The tiny model takes about a character for a token, and reads 4,096.
    few = ("context.bars=3", "context.higher_bars=1") if template in ("window", "desk") else ()
    given = ("options.key_env=LLM_KEY", "service.completion_tokens=600", f"template={template}")
    flags = [flag for each in (*given, *few) for flag in ("--set", f"advisor.{each}")]
    code = main(["advise", "ask", "--advisor", server, "--json", *flags])
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert min(answer["prompt_tokens"], answer["completion_tokens"]) > 0
    assert code == (0 if answer["advice"] else 1)
    assert answer["advice"] or (template == "pipe" and answer["remedy"])  # which is not constrained
