"""What is written to disk: checkpoints, metrics and compiled programs."""
