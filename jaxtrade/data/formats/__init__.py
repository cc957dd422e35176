"""Layouts in which vendors write bars: how each is recognised, its stamps and its prices."""
