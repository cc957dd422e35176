"""Curricula: phases of training, each of which begins from the policy of the one before."""
