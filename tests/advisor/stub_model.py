"""A server process around a stub that needs no torch: `python -m tests.advisor.stub_model NAME MODE`.

good: good advice. slow: a token every 10 ms, for ever. dies: the process ends at the first question. raises: an
exception that quotes the prompt. environment: says all its variables. At loading: fault, crash, hang.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from jaxtrade.advisor.serve.api import Ask, Text
from jaxtrade.advisor.serve.process import LoadError, run
from tests.advisor.servers import GOOD


class Stub:
    """What a model does, by its mode. asks: those it got."""

    def __init__(self, name: str = "stub", mode: str = "good") -> None:
        self.name, self.mode = name, mode
        self.asks: list[Ask] = []
        self.abandoned = 0

    def write(self, ask: Ask, go_on: Callable[[], bool]) -> Text:
        self.asks.append(ask)
        prompt = ask.messages[-1][1]
        if self.mode == "dies":
            os._exit(3)
        if self.mode == "raises":
            raise RuntimeError(prompt)
        while self.mode == "slow" and "quick" not in prompt:
            if not go_on():
                self.abandoned += 1
                break
            time.sleep(0.01)
        text = json.dumps(dict(os.environ)) if self.mode == "environment" else json.dumps(GOOD)
        return Text(text, len(prompt.split()), len(text.split()), cut=ask.max_tokens < 5)


def load(name: str, mode: str) -> Stub:
    print("a library that prints")
    print("and one that leaves its line open", end="", file=sys.stderr, flush=True)
    if mode == "fault":
        raise LoadError("a local model needs torch: pip install 'jaxtrade[transformers]'")
    if mode == "crash":
        print("\nlast words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    if mode == "error":
        raise ValueError("a bug in a library\nwith many lines")
    if mode == "hang":
        time.sleep(60)
    return Stub(name, mode)


if __name__ == "__main__":
    run(lambda: load(sys.argv[1], sys.argv[2]))
