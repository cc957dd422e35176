"""The version of the package. It is also in pyproject.toml; a test compares the two."""

__version__ = "0.1.0"
