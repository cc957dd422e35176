"""A policy on every path by which it can act, compared decision by decision."""
