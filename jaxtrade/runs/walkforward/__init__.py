"""Walk-forward runs: all folds and seeds trained as one program, then tested out of sample."""
