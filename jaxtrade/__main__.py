"""The `jaxtrade` command, and `python -m jaxtrade`.

Ctrl-C works from here on, so that it works during imports.
"""

from __future__ import annotations

import os
import sys

from jaxtrade import interrupt

# Commands that go on, or begin again, when they are started again: SIGTERM ends them with 75.
RESUMABLE = (["train"], ["curriculum"], ["walkforward"], ["ablate"], ["advise", "precompute"])


def main() -> int:
    """Run the command line of this process and return its exit code.

    After a Ctrl-C, this function does not return.
    """
    words = sys.argv[1:]
    resumable = any(words[: len(each)] == each for each in RESUMABLE)
    interrupt.install(resumable=resumable)  # before the imports, which take a moment
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`), who wants to read nothing
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # to the end of the process
    from jaxtrade.cli.entry import main as command

    return interrupt.run(command, resumable=resumable)


if __name__ == "__main__":
    raise SystemExit(main())
