"""Phases of training that hand their policy on: configuration, gates, the run of all phases, the report."""
