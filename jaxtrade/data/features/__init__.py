"""Features of bars, and the view of them that observations read."""
