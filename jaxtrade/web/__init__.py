"""Files of pages in a browser: style sheets and scripts of our own, and uPlot.

uPlot is under `vendor/uplot/` (MIT licence).

A report holds them inside its one file; a server of live pages can send the same files. There is no
build step.
"""
