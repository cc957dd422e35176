"""Measures what an advisor is worth.

Trains advisors x fusions x seeds side by side and compares them in pairs.
"""
