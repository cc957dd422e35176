"""The task `allocate`: several symbols held jointly, in one account (docs/semantics.md)."""
