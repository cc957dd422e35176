"""Start a run in several processes: on this machine, or by a manifest for an engine
(docs/scale.md).
"""
