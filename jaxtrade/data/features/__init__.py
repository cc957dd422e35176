"""Features of bars, and the view through which observations read them."""
