"""Seeded faults of the package, each of which the quick tests must notice."""
