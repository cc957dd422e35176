"""Layouts in which vendors write bars: how each is recognised, and what it says about its stamps
and prices.
"""
