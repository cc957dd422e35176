"""Services that are stopped when a test ends."""

import pytest

from tests.advisor.service_parts import CANARY, Running, ScriptedBackend


@pytest.fixture
def run(monkeypatch):
    """Makes a service (`Running`), by default of a backend that answers at once."""
    monkeypatch.setenv("LLM_KEY", CANARY)
    made = []

    def make(backend=None, **options):
        made.append(Running(backend or ScriptedBackend(), **options))
        return made[-1]

    yield make
    for running in made:
        running.service.stop()
