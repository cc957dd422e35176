"""The serving process: loads a model, says on its standard output where it listens, and lives as long as its parent.

Its standard output carries one JSON line: {"port": N}, or {"fault": WHY} where it cannot serve. Whatever
else libraries print there goes to standard error. It ends when its standard input does, which is when whoever started
it has closed it, or has died.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from jaxtrade.advisor.serve.api import Model
from jaxtrade.advisor.serve.server import Server

TOKEN = "JAXTRADE_SERVE_TOKEN"  # name of the variable that holds it, which is taken out of the environment at once
_LONGEST = 300  # characters of a fault
_NICENESS = 5  # what trains goes first


class LoadError(Exception):
    """A model that cannot be served; its text is one line for the user."""


def run(load: Callable[[], Model]) -> NoReturn:
    """Serve what `load` makes until the parent is gone, and end the process. Exit codes: 0 served, 2 a LoadError,
    70 another error at loading."""
    token = os.environ.pop(TOKEN, "")
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()

    def say(**value: Any) -> None:
        out.write(f"\n{json.dumps(value)}\n")  # on a line of its own, whatever a progress bar has left behind
        out.flush()

    try:
        server = Server(load(), token)
    except LoadError as error:
        say(fault=str(error)[:_LONGEST])
        os._exit(2)
    except Exception as error:
        say(fault=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:_LONGEST])
        os._exit(70)
    say(port=server.port)
    try:
        server.serve_forever()
    finally:
        os._exit(0)  # nothing here needs an orderly end, and threads of a model may never come to one


def _end_with_parent() -> None:
    """Wait for the end of standard input, and end at once."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)
