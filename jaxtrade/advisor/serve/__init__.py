"""A local model behind chat completions on loopback, in a process of its own: `python -m jaxtrade.advisor.serve`."""
