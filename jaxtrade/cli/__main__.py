"""`python -m jaxtrade.cli`."""

from jaxtrade.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
