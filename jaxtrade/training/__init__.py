"""Training of any learner: the loop, chunks, hooks, control, health checks, populations."""
