"""A run from its configuration to its folder, and back."""
