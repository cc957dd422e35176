"""Runs that nothing stopped, and the programs that all runs of this folder share."""

from pathlib import Path

import jax
import pytest

from tests.scale.started import STRICT, TRAIN, trained


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The folder of all tests, so that no two workers compile the same program."""
    return Path(jax.config.jax_compilation_cache_dir or tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def alone(cache, tmp_path_factory):
    """The result of one process with strict sums."""
    run = tmp_path_factory.mktemp("alone") / "run"
    return trained([*STRICT, "--devices", "1", "--run-dir", str(run)], cache, run)


@pytest.fixture(scope="session")
def uninterrupted(cache, tmp_path_factory):
    """The result of two processes, by `launch local`."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return trained(["launch", "local", "-n", "2", "--", *TRAIN, "--run-dir", str(run)], cache, run)
