"""Runs as a kill leaves them."""

import shutil

from jaxtrade.storage import checkpoint


def cut(run, to, update):
    """A copy of a run without its checkpoints after an update."""
    shutil.copytree(run, to)
    for number, path in checkpoint.list_checkpoints(to / "checkpoints"):
        if number > update:
            shutil.rmtree(path)
    return to
