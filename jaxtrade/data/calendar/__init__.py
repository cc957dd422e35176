"""Calendars: trading hours, holidays and sessions."""
