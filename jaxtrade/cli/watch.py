"""`jaxtrade watch`: a live page about a run that trains, or about all runs of a folder. Imports no
heavy library.
"""

from __future__ import annotations

import argparse
import errno
import getpass
import html
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jaxtrade.cli.flags import whole
from jaxtrade.cli.usage import add_command
from jaxtrade.errors import ConfigError


def add_watch(commands: Any) -> None:
    """Add `watch`."""
    add_command(
        commands,
        "watch",
        "open a live page about runs while they train, for this machine alone",
        """
        RUN|DIR? [runs] -> folder  a run's folder, or a folder of runs (default: runs)
        --port N [0]  port to listen on (default: a free one)
        --open -> browse  also open the page in a browser
        """,
        port=whole,
    )


def watch(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C. Raises ConfigError if there is no such folder, or the port is taken."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder; name a run's folder, or the folder of your runs"
        )
    from jaxtrade.watching.metrics import Reader
    from jaxtrade.watching.server import Server, new_token, routes

    reader = Reader()
    try:
        server = Server(routes(folder, reader), new_token(), args.port)
    except (OSError, OverflowError) as error:
        reader.close()
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        raise ConfigError(
            f"--port {args.port}: {'another program listens on it' if taken else error}; leave --port "
            "out for a free one"
        ) from None
    for line in lines_of(server.address, server.port):
        print(line, flush=True)
    with ExitStack() as stack:
        stack.callback(reader.close)
        stack.callback(server.server_close)
        if args.browse:
            import webbrowser

            if not webbrowser.open(
                stack.enter_context(page_that_leads_to(server.address)).as_uri()
            ):
                print(
                    "note: no browser could be opened; open the address yourself", file=sys.stderr
                )
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("stopped")
    return 0


@contextmanager
def page_that_leads_to(address: str) -> Iterator[Path]:
    """A page that only this user can read, and that leads to an address: on a browser's command
    line every user of the machine could read the secret in it."""
    with tempfile.TemporaryDirectory(prefix="jaxtrade-watch-") as folder:  # mode 0700
        page = Path(folder) / "open.html"
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">'
            f'<a href="{html.escape(address)}">open</a>\n',
            encoding="utf-8",
        )
        yield page


def lines_of(address: str, port: int) -> list[str]:
    """What the command prints: the address, and how to see the page from another machine."""
    host, user = platform.node() or "THIS_MACHINE", _user()
    return [
        f"open {address}",
        "The address holds a secret: whoever has it, on this machine, sees your runs.",
        "From another machine, first:",
        f"  ssh -L {port}:127.0.0.1:{port} {user}@{host}",
        "then open the same address there. Ctrl-C ends the page; runs go on.",
    ]


def _user() -> str:
    """The name of the user; YOU where the system knows none, as in a container that runs under a
    number.
    """
    try:
        return getpass.getuser()
    except (
        OSError,
        KeyError,
        ImportError,
    ):  # Python before 3.13 lets KeyError through, on Windows ImportError
        return "YOU"
