"""The host side of the advisor: queue, workers, backends, prompts, journal. Imports no JAX."""
