"""Runs: from a configuration to a trained run folder, and from a run folder to its policies."""
