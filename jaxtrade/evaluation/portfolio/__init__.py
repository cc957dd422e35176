"""Evaluate the task `allocate`: agents over all decision bars of a split, with account rules off
and on.
"""
