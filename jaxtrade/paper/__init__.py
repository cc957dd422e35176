"""Paper trading: a run's policy on bars that arrive, with rails, a journal and recovery."""
