"""Advice during training: a device table holds opinions about bars, and host threads fill it."""
