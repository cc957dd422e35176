"""`python -m jaxtrade.cli`: `python -m jaxtrade` under its former name."""

from jaxtrade import interrupt
from jaxtrade.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(interrupt.run(main))
