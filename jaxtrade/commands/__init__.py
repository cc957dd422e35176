"""Commands of the command line that are no part of `jaxtrade.cli` itself: a parser and a handler each."""
