"""A local Hugging Face model: a server process of our own, and the client of chat completions that asks it.

Generating holds a Python interpreter for seconds, so it happens in another one: `jaxtrade.advisor.serve`, on a free
port of this machine, behind a token that is made here and given to that process alone. A daemon thread starts it, waits
until it is ready, and starts it again where it dies later; whoever asks meanwhile waits no longer than its deadline.
Where it cannot start there is one reason, and from then on no advice.

No torch here: this process never loads it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import jaxtrade
from jaxtrade.advisor.host.child import Child, Said
from jaxtrade.advisor.host.keys import Secret
from jaxtrade.advisor.host.openai import OpenAIBackend, OpenAIOptions
from jaxtrade.advisor.host.replies import printable
from jaxtrade.advisor.host.schema import LOGIT_SCALE, SCHEMA_HASH
from jaxtrade.advisor.host.types import Answer, Failure, Question
from jaxtrade.errors import ConfigError

MOST_RESTARTS = 3
_PAUSE_S = 1.0  # before the first restart, doubled at each
_CLOSE_S = 2.0  # that `close` waits for the process to be gone
_VARIABLE = "JAXTRADE_SERVE_TOKEN"  # as `jaxtrade.advisor.serve.process` reads it
_NEEDS = ("torch", "transformers")
_BLOCKS, _BLOCK = 64, 65536  # of a file of weights that are hashed
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class LocalOptions:
    """Settings of a local model. Nothing here is secret.

    folder: with config.json, tokenizer and *.safetensors. answer: `json`, or `pipe` for the old format. temperature 0:
    greedy. max_tokens: of an answer. device: as torch names it; auto is a GPU where there is one. dtype: auto is that
    of the weights. threads: of a CPU that it may use beside training. start_s: seconds that loading may take.
    """

    folder: Path
    answer: Literal["json", "pipe"] = "json"
    temperature: float = 0.0
    seed: int | None = None
    max_tokens: int = 200
    device: str = "auto"
    dtype: Dtype = "auto"
    threads: int = 1
    start_s: float = 300.0


class LocalBackend:
    """A local model in its own process, which is started here and ends with us."""

    def __init__(self, options: LocalOptions, command: Sequence[str] | None = None) -> None:
        """command: another server than ours. Raises ConfigError for a setting that cannot be, a folder without a model,
        or an absent package."""
        _check(options)
        self._options = options
        self._model = options.folder.resolve().name
        self._weights = fingerprint(options.folder)
        if command is None:
            command = _command(options)
        self._command = tuple(command)
        self._token = Secret(secrets.token_urlsafe(24))
        self._client_of(1)  # what it needs is told now
        self._changed = threading.Condition()
        self._began = time.monotonic()
        self._child: Child | None = None
        self._client: OpenAIBackend | None = None
        self._fault, self._closed, self.starts = "", False, 0
        self._thread = threading.Thread(target=self._supervise, name="advisor-server", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return f"transformers:{self._model}"

    def __repr__(self) -> str:
        state = ("closed" if self._closed else "given up" if self._fault else "ready" if self._client else "loading")
        return f"LocalBackend({self._model!r}, {state})"

    def identity(self) -> Mapping[str, str]:
        """Without folder and port: the same weights elsewhere give the same answers."""
        o = self._options
        return MappingProxyType({
            "kind": "transformers", "model": self._model, "weights": self._weights, "answer": o.answer,
            "temperature": str(o.temperature), "seed": str(o.seed), "max_tokens": str(o.max_tokens), "dtype": o.dtype,
            "schema": SCHEMA_HASH, "logits": f"{LOGIT_SCALE:g}"})

    def answer(self, question: Question, deadline: float) -> Answer:
        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._client or self._fault or self._closed, max(0.0, deadline - began))
            client, fault, closed = self._client, self._fault, self._closed
        if not closed and not fault and client is not None:
            return self._seen(client.answer(question, deadline))
        latency = time.monotonic() - began
        if closed:
            return Answer(None, Failure.STOPPED, "closed", latency=latency)
        if fault:
            return Answer(None, Failure.REFUSED, fault, latency=latency)
        waited = time.monotonic() - self._began
        return Answer(None, Failure.TIMEOUT, f"the model is not loaded yet, after {waited:.0f} s", retryable=True,
                      latency=latency)

    def close(self) -> None:
        """End the process and every request; at most 3 s."""
        with self._changed:
            self._closed = True
            client, self._client = self._client, None
            self._changed.notify_all()
            if self._child is not None:
                self._child.kill()
        if client is not None:
            client.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    def _seen(self, answer: Answer) -> Answer:
        """A connection that was cut since the process died was not stopped by us."""
        if answer.failure is Failure.STOPPED and not self._closed:
            return answer._replace(failure=Failure.CONNECTION, detail="the server process ended", retryable=True)
        return answer

    def _client_of(self, port: int) -> OpenAIBackend:
        o = self._options
        return OpenAIBackend(OpenAIOptions(f"http://127.0.0.1:{port}/v1", self._model, structured="none",
                                           answer=o.answer, temperature=o.temperature, seed=o.seed,
                                           max_tokens=o.max_tokens), self._token)

    # --- the supervisor's thread -------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """Start the process, and again where it dies after it was ready, until it is given up or closed."""
        for restart in range(MOST_RESTARTS + 1):
            why = self._once()
            if why:
                return self._give_up(why)
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, _PAUSE_S * 2**restart):
                    return None
        return self._give_up(f"its server process ended {MOST_RESTARTS + 1} times")

    def _once(self) -> str:
        """One life of the process; why there must not be another, or ""."""
        try:
            child = Child(self._command, {_VARIABLE: self._token.reveal(), "PYTHONPATH": _path()})
        except OSError as error:
            return f"its server process cannot be started ({error.strerror})"
        with self._changed:
            self._child, self._began = child, time.monotonic()
            self.starts += 1
            if self._closed:
                child.kill()
        faults: list[str] = []
        ready = threading.Event()

        def heard(said: Said) -> None:
            if said.fault:
                faults.append(said.fault)
                return
            with self._changed:
                if not self._closed:
                    self._client = self._client_of(said.port)
                    ready.set()
                self._changed.notify_all()

        code = child.listen(heard, self._options.start_s)
        with self._changed:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        if faults or ready.is_set():
            return faults[0] if faults else ""
        if time.monotonic() - self._began >= self._options.start_s:
            return f"not loaded within {self._options.start_s:g} s (advisor.options.start_s)"
        return f"its server process ended before it was ready ({child.ending(code)})"

    def _give_up(self, why: str) -> None:
        with self._changed:
            self._fault = printable(self._token.scrub(why, parts=False))
            self._changed.notify_all()


def _command(options: LocalOptions) -> tuple[str, ...]:
    """How our own server is started: this interpreter, nothing of the working folder in its path."""
    if missing := [name for name in _NEEDS if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"advisor transformers: needs {' and '.join(missing)}: pip install 'jaxtrade[transformers]'")
    return (sys.executable, "-P", "-m", "jaxtrade.advisor.serve", str(options.folder), "--device", options.device,
            "--dtype", options.dtype, "--threads", str(options.threads))


def _path() -> str:
    """PYTHONPATH under which the process finds this very package."""
    return os.pathsep.join(filter(None, (str(Path(jaxtrade.__file__).parents[1]), os.environ.get("PYTHONPATH"))))


def fingerprint(folder: Path) -> str:
    """A hash of a model's files: all of those up to 4 MiB, and of larger ones the size and 64 blocks spread evenly.

    Raises ConfigError where the folder has no config.json or cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"advisor transformers:{folder}: no model there (no config.json); expected a folder as "
                          "transformers saves one, with its tokenizer and *.safetensors")
    digest = hashlib.sha256()
    try:
        for path in sorted(folder.glob("*")):
            if path.is_file() and path.suffix in (".json", ".safetensors", ".model", ".txt", ".jinja"):
                size = path.stat().st_size
                digest.update(f"{path.name}/{size}/".encode())
                with path.open("rb") as file:
                    for block in range(_BLOCKS):
                        file.seek(block * size // _BLOCKS if size > _BLOCKS * _BLOCK else block * _BLOCK)
                        digest.update(file.read(_BLOCK))
    except OSError as error:
        raise ConfigError(f"advisor transformers:{folder}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()[:32]


def _check(o: LocalOptions) -> None:
    if o.dtype not in get_args(Dtype):
        raise ConfigError(f"advisor dtype {o.dtype!r}: expected {', '.join(get_args(Dtype))}")
    if not 1 <= o.threads <= 256:
        raise ConfigError(f"advisor threads {o.threads}: expected 1 to 256")
    if not 0 < o.start_s <= 86400:
        raise ConfigError(f"advisor start_s {o.start_s}: expected seconds above 0")
    if not 1 <= o.max_tokens <= 4096:
        raise ConfigError(f"advisor max_tokens {o.max_tokens}: expected 1 to 4096")
    if o.temperature is None:
        raise ConfigError("advisor temperature: expected 0 (greedy) to 2")
    if not o.device or not o.device.isprintable() or o.device.startswith("-"):
        raise ConfigError("advisor device: expected auto, cpu, cuda or cuda:N")
