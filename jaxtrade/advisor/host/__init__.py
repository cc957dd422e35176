"""The host side of the advisor: queue, workers, backends, prompts and journal.

Nothing here imports JAX.
"""
