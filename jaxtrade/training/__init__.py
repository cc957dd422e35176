"""The loop around a learner: chunks, hooks, control, health, populations."""
