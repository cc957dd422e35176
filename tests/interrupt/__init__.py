"""Ctrl-C at random moments of real commands."""
