"""Advice during training: a table on the device holds opinions about bars, and host threads fill
it.
"""
