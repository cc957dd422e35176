"""Advice in a learner: its fusion with the policy, its state, and its exchange with the host."""
