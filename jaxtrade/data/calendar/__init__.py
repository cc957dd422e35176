"""Trading hours, holidays and sessions."""
