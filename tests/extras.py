"""What tests say that skip because a package of an extra is absent."""

import pytest

INSTALL = (
    'pip install torch (its CPU build is enough), then pip install -e ".[bench]" (docs/checks.md)'
)


def needed(name):
    """The module, or the test is skipped and says what to install."""
    return pytest.importorskip(name, reason=f"{name} is not installed: {INSTALL}")
