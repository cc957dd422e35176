"""This version against another checkout: who computes with how many threads, what is refused, one
quick run.
"""

from bench import harness, versions


def test_each_version_has_the_threads_that_it_chooses(monkeypatch):
    monkeypatch.setattr(harness, "cores", lambda: 6)
    chosen = {
        name: (versions.threads(shape, True), versions.threads(shape, False))
        for name, shape in versions.SHAPES.items()
    }
    assert chosen == {"env": (6, 6), "small": (1, 6), "large": (6, 6), "default": (6, 6)}
