"""Benches: what is measured, how, and what a reader may conclude. Installed as `jaxtrade.bench`.

Each module of `catalogue.BENCHES` measures one thing and returns a plain dict; `jaxtrade bench`
runs it, prints one JSON line and writes `bench/results/NAME.json`. `harness` holds the timing,
`setting` the market and configuration. Functions have no annotations, as those of the tests:
pyright reads `jaxtrade` alone.
"""
