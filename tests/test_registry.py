"""Named parts: built-in ones are imported late, users add their own, faults name the remedy."""

import math

import pytest

from jaxtrade.registry import Registry
from tests.messages import refused


def shapes():
    return Registry("shape", {"square": "math:sqrt", "lost": "no_such_module:part"})


def test_a_built_in_part_is_imported_when_it_is_used():
    known = shapes()
    assert known.names == ("square", "lost")
    assert "lost" in known
    assert known["square"] is math.sqrt
    with pytest.raises(ModuleNotFoundError):
        known["lost"]


def test_a_registered_part_is_found_and_may_be_registered_again():
    known, part = shapes(), object()
    assert known.register("disc", part) is part
    assert known.register("disc", part) is part
    assert known["disc"] is part
    assert known.names == ("square", "lost", "disc")


@pytest.mark.parametrize("name", ["square", "disc"])
def test_a_name_is_never_taken_over(name):
    known = shapes()
    known.register("disc", object())
    with refused(f"shape '{name}' exists already"):
        known.register(name, object())
