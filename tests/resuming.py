"""Runs as a kill leaves them, and what is compared of two."""

import shutil

import jax
import numpy as np

from jaxtrade.runs.evaluate import open_run
from jaxtrade.runs.initial_state import load_source
from jaxtrade.storage import checkpoint


def cut(run, to, update):
    """A copy of a run without its checkpoints after an update."""
    shutil.copytree(run, to)
    for number, path in checkpoint.list_checkpoints(to / "checkpoints"):
        if number > update:
            shutil.rmtree(path)
    return to


def leaves(run):
    """The arrays of its last policy and optimiser."""
    source = load_source(run)
    return [
        np.asarray(x) for x in jax.tree.leaves((source.params, source.normaliser, source.opt_state))
    ]


def final_state(run):
    """What its newest checkpoint holds."""
    setup, _ = open_run(run)
    first = setup.stack.wrap(setup.algorithm).init
    like = jax.eval_shape(first, setup.stack.keys(setup.config.seed), setup.agents.params)
    return checkpoint.restore_latest(run / "checkpoints", like).state
