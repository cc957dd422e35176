"""`python -m jaxtrade`: the same command line as `jaxtrade`."""

from __future__ import annotations

from jaxtrade.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
