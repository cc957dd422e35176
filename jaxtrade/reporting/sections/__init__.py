"""The sections of a report. Each module turns the figures of one section into HTML, and computes
nothing.
"""
