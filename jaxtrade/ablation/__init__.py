"""Measures what an advisor is worth: trains advisors x fusions x seeds side by side and compares
them in pairs.
"""
