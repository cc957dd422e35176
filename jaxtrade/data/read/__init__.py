"""Read data files and turn them into validated bars."""
