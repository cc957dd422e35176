"""Files to validated bars."""
