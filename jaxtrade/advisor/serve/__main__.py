"""`python -m jaxtrade.advisor.serve FOLDER`: a server of one local model, for the process that starts it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from jaxtrade.advisor.serve.model import load
from jaxtrade.advisor.serve.process import run


def main(arguments: list[str]) -> NoReturn:
    """Load and serve, and end the process."""
    parser = argparse.ArgumentParser(prog="jaxtrade.advisor.serve")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    run(lambda: load(given.folder, given.device, given.dtype, given.threads))


if __name__ == "__main__":
    main(sys.argv[1:])
