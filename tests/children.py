"""Pythons of their own."""

import subprocess
import sys


def run_python(*words, **given):
    """What `python WORDS` did, with its output as text."""
    return subprocess.run(
        [sys.executable, *words], **{"capture_output": True, "text": True, "check": False} | given
    )


def sets(*keys):
    """The flags that set keys of the configuration."""
    return [word for key in keys for word in ("--set", key)]
