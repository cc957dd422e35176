"""A report of a finished run: one HTML file, the same content as JSON, and the trades."""
