"""A report of a finished run: one HTML file, the same figures as JSON, and the trades."""
