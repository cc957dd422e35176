"""Advice beside training: a device table of opinions about bars, and the host threads that fill it."""
