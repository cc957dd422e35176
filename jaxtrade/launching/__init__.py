"""Start a run in several processes: on this machine, or by an engine's manifest (docs/scale.md)."""
