"""Storage on disk: checkpoints, metrics and compiled programs."""
