"""The command line."""

from jaxtrade.cli.entry import main
from jaxtrade.cli.parser import build_parser

__all__ = ["build_parser", "main"]
