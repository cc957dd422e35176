"""The page of a walk-forward: its figures from its folder, its sections, its files."""
