"""Plots of an evaluation and of a training, drawn with matplotlib."""
