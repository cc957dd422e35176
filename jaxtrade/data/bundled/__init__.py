"""Real bars that the package contains. Each file comes with a SOURCE file and its licence."""
