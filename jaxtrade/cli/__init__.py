"""The command line."""

from jaxtrade.cli.entry import main

__all__ = ["main"]
