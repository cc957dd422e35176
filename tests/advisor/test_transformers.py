"""A real local model, tiny and of random weights, in its own process. What it says is no advice, and is refused."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrade.advisor.host.local import LocalBackend
from jaxtrade.advisor.host.registry import make_backend
from jaxtrade.advisor.host.types import Answer, Failure
from tests.advisor.asking import question

pytest.importorskip("h11")
ABSENT = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(bool(ABSENT), reason=f"no {', '.join(ABSENT)}: pip install 'jaxtrade[transformers]'")]

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds for torch to be loaded on a machine that does other things


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-random"
    path.mkdir()
    found = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    subprocess.run([sys.executable, "-m", "tests.advisor.tiny_transformer", str(path)], cwd=ROOT, check=True,
                   timeout=300, env={**os.environ, "PYTHONPATH": found})
    return path


@pytest.fixture(scope="module")
def make(folder: Path) -> Iterator[Callable[..., LocalBackend]]:
    made: list[LocalBackend] = []

    def new(**options: Any) -> LocalBackend:
        backend = make_backend(f"transformers:{folder}", {"device": "cpu", "max_tokens": 40, **options})
        assert isinstance(backend, LocalBackend)
        made.append(backend)
        return backend

    yield new
    for backend in made:
        backend.close()


def ask(backend: LocalBackend, bar: int = 0, seconds: float = PATIENCE) -> Answer:
    asked = question()._replace(prompt=f"{question().prompt}{bar}")
    return backend.answer(asked, time.monotonic() + seconds)


def test_what_it_says_is_refused_and_counted(make: Callable[..., LocalBackend]) -> None:
    backend = make()
    for bar in range(4):
        answer = ask(backend, bar)
        assert answer.advice is None
        assert answer.failure in (Failure.PARSE, Failure.TOO_LARGE, Failure.EMPTY)
        assert answer.status == 200
        assert answer.model == "tiny-random"
        assert answer.prompt_tokens == len(question().prompt.encode()) + 2  # a byte a token, the bar, a line's end
        assert 1 <= answer.completion_tokens <= 40
    assert "torch" not in sys.modules


def test_greedy_decoding_repeats_itself_and_so_does_a_seed(make: Callable[..., LocalBackend]) -> None:
    greedy = make()
    assert ask(greedy).raw == ask(greedy).raw != ""
    sampled = make(temperature=1.5, seed=7)
    assert ask(sampled).raw == ask(sampled).raw != ask(greedy).raw


def test_a_deadline_ends_the_writing_too(make: Callable[..., LocalBackend]) -> None:
    """What nobody waits for is written no further: the next question is not behind 3000 tokens."""
    backend = make(max_tokens=2500)
    ask(backend, 0, PATIENCE)  # loaded
    began = time.monotonic()
    full = ask(backend, 1, PATIENCE)
    whole = time.monotonic() - began
    assert full.completion_tokens == 2500, "random weights have found an end: choose another seed"
    assert ask(backend, 2, whole / 20).failure is Failure.TIMEOUT
    began = time.monotonic()
    ask(backend, 3, whole / 20)
    ask(backend, 4, PATIENCE)
    assert time.monotonic() - began < 2 * whole


def test_a_prompt_that_never_fits(make: Callable[..., LocalBackend]) -> None:
    long = question()._replace(prompt="x" * 5000)
    answer = make().answer(long, time.monotonic() + PATIENCE)
    assert (answer.failure, answer.status) == (Failure.REFUSED, 400)
    assert "do not fit into 4096" in answer.detail


@pytest.mark.parametrize(("damage", "words"), [
    (lambda folder: (folder / "model.safetensors").unlink(), "no *.safetensors there"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100), "cannot be loaded on cpu: SafetensorError"),
    (lambda folder: (folder / "config.json").write_text("{}"), "cannot be loaded on cpu: ValueError"),
    (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded on cpu: OSError"),
], ids=["no weights", "broken weights", "empty configuration", "broken configuration"])
def test_a_folder_that_cannot_be_loaded_is_one_line(
    folder: Path, tmp_path: Path, damage: Callable[[Path], Any], words: str
) -> None:
    copy = tmp_path / "tiny-random"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    damage(copy)
    backend = make_backend(f"transformers:{copy}", {"device": "cpu"})
    answer = ask(backend)  # type: ignore[arg-type]
    backend.close()
    assert answer.failure is Failure.REFUSED
    assert words in answer.detail
    assert "\n" not in answer.detail
    assert "Traceback" not in answer.detail
