"""Headless Chromium for the tests of pages. The client is the one of the benches."""

from __future__ import annotations

import os
import shutil

import pytest

from bench.browser import ELEMENT, PACKAGES, PROGRAMS, Browser, browser

__all__ = ["ELEMENT", "KEYS", "Browser", "browser", "skip_or_fail"]
REQUIRED = "JAXTRADE_BROWSER"  # set by .ci/run: a missing browser is then a failure
NEEDED = (*PROGRAMS, "pdftotext")
KEYS = {"down": "\ue015", "tab": "\ue004", "left": "\ue012", "right": "\ue014"}


def skip_or_fail() -> None:
    """Skip the test where a program is missing; fail where the environment says that they must be
    there.
    """
    if lacking := [name for name in NEEDED if shutil.which(name) is None]:
        said = f"{', '.join(lacking)} not found (Debian: apt-get install {PACKAGES} poppler-utils)"
        if os.environ.get(REQUIRED):
            pytest.fail(said)
        pytest.skip(said)
