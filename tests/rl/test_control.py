"""Training control: decisions worked by hand, and runs that stop, adjust, remember and resume by
them.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.config import ControlConfig
from jaxtrade.errors import DivergedError
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import RepeatedPrograms
from jaxtrade.training.control import (
    ControlDecision,
    Controller,
    ControlState,
    adjust_floats,
    decide,
    is_exhausted,
)
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import train
from tests.messages import missing
from tests.rl.test_train import KEY, PARAMS, PPO, TRAIN, assert_same, like

PROGRAMS = RepeatedPrograms()  # all runs of this file are the same program
BEST, GO_ON = ControlDecision(True, False, False), ControlDecision(False, False, False)
ADJUST, STOP = ControlDecision(False, True, False), ControlDecision(False, False, True)


def decisions(scores, **keys):
    """Decisions after each score of evaluations at updates 1, 2, ..., and the last state."""
    state, made = ControlState(), []
    for update, score in enumerate(scores, start=1):
        state, decision = decide(state, score, update, ControlConfig(evaluate_every=1, **keys))
        made.append(decision)
    return made, state


FLAT = [1] + [0] * 7


@pytest.mark.parametrize(
    ("scores", "keys", "made", "state"),
    [
        # a score must be higher to be the best
        (
            [0.5, 0.5, 0.75, 0.7],
            {},
            [BEST, GO_ON, BEST, GO_ON],
            {"best_score": 0.75, "best_update": 3, "since_best": 1, "flat": 1},
        ),
        # -0.75 is just 0.25 better, -0.5 is 0.5 better than -1
        (
            [-1.0, -0.75, -0.5, -0.4],
            {"improvement": 0.25},
            [BEST, GO_ON, BEST, GO_ON],
            {"best_score": -0.5, "best_update": 3},
        ),
        # patience ends at its count, and not before enough evaluations
        ([3, 2, 1], {"patience": 2}, [BEST, GO_ON, STOP], {}),
        ([3, 2, 4, 2, 1], {"patience": 2}, [BEST, GO_ON, BEST, GO_ON, STOP], {}),
        (
            [3, 2, 1, 0],
            {"patience": 2, "min_evaluations": 4},
            [BEST, GO_ON, GO_ON, STOP],
            {},
        ),
        # a plateau is adjusted again and again, with cooldown between; a new best ends it
        (FLAT, {"plateau_patience": 2}, [BEST, GO_ON] + [ADJUST, GO_ON] * 3, {}),
        (
            FLAT,
            {"plateau_patience": 2, "plateau_cooldown": 1},
            [BEST, GO_ON, ADJUST, GO_ON, GO_ON, ADJUST, GO_ON, GO_ON],
            {"adjustments": 2, "since_best": 7, "flat": 1, "cooldown": 0},
        ),
        (
            [1, 0, 2, 0, 0],
            {"plateau_patience": 2},
            [BEST, GO_ON, BEST, GO_ON, ADJUST],
            {"adjustments": 1},
        ),
        # who stops is not adjusted
        ([1, 0, 0], {"patience": 2, "plateau_patience": 1}, [BEST, ADJUST, STOP], {}),
    ],
)
def test_decisions_by_hand(scores, keys, made, state):
    found, last = decisions(scores, **keys)
    assert found == made
    assert last.scores == tuple(enumerate(scores, start=1))
    assert {name: getattr(last, name) for name in state} == state
    config = ControlConfig(evaluate_every=1, **keys)
    assert is_exhausted(last, config) == (found[-1] == STOP)


def test_who_is_done_is_not_adjusted():
    _, state = decisions([1, 0])
    config = ControlConfig(evaluate_every=1, patience=1, plateau_patience=0)
    last, decision = decide(state, 0.0, 3, config, last=True)
    assert decision == GO_ON
    assert last.adjustments == 0


RATES, BONUSES = ("learning_rate", "learning_rate_end"), ("ent_coef", "ent_coef_end")


FLOATS = (*RATES, *BONUSES)


@pytest.mark.parametrize(
    ("floats", "expected"),
    [
        ([4e-5, 1.5e-5, 0.06, 0.0], [2e-5, 1e-5, 0.1, 0.0]),
        ([1e-6, 1e-7, 0.5, 0.2], [1e-6, 1e-7, 0.5, 0.2]),  # beyond them
    ],
)
def test_adjustments_stop_at_their_bounds(floats, expected):
    config = ControlConfig(evaluate_every=1, plateau_patience=1)
    found = adjust_floats(dict(zip(FLOATS, floats, strict=True)), config, RATES, BONUSES)
    assert found == dict(zip(FLOATS, expected, strict=True))


# --- runs -------------------------------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


def killer(at):
    """A hook that ends the process, as far as the run can tell, after the hooks before it were
    asked.
    """

    def hook(state, update):
        if update == at:
            raise KilledError
        return Change()

    return hook


def controller(folder, scores, said=None, **keys):
    """Scores by update."""
    return Controller(
        ControlConfig(**{"evaluate_every": 1} | keys),
        lambda state: scores[int(state.update)],
        folder,
        chunk_updates=2,
        total_updates=8,
        steps_per_update=64,
        metadata={"run": "a"},
        log=(said if said is not None else []).append,
        unit="points",
        step_sizes=RATES,
        exploration=BONUSES,
    )


def run(tmp_path, hooks, **keywords):
    start = {"key": KEY} if "state" not in keywords else {}
    return train(
        PPO,
        PARAMS,
        config=TRAIN,
        checkpoint_dir=tmp_path / "checkpoints",
        hooks=hooks,
        programs=PROGRAMS,
        **start,
        **keywords,
    )


def kept(folder):
    return [update for update, _ in checkpoint.list_checkpoints(folder)]


@pytest.mark.slow
def test_early_stop_stops_and_stays_stopped(tmp_path):
    said = []
    made = controller(tmp_path / "best", {2: 1.0, 4: 1 / 3}, said, patience=1)
    result = run(tmp_path, [made])
    assert (result.updates, result.stopped) == (4, True)
    assert "stopped early, after 1 evaluations" in said[-1]
    restored = checkpoint.restore_latest(tmp_path / "checkpoints", like())
    assert restored.metadata["steps"] == 256
    again = controller(tmp_path / "best", {}, patience=1)
    assert not again.is_exhausted
    again.recall(restored.metadata["hooks"]["control"])
    assert again.is_exhausted
    assert again.state == made.state
    assert isinstance(hash(again.state), int)  # plain and immutable


@pytest.mark.slow
def test_evaluations_are_every_n_chunks_and_at_the_end(tmp_path):
    made = controller(tmp_path / "best", {6: 1.0, 8: 0.0}, evaluate_every=3)
    run(tmp_path, [made])
    assert [update for update, _ in made.state.scores] == [6, 8]
    assert not missing(made.summary(), "update 6, 1", "2 evaluations", "last 0", "0 adjustments")


@pytest.mark.slow
def test_the_best_state_is_kept_whole_and_alone(tmp_path):
    made = controller(tmp_path / "best", {2: 0.0, 4: 3.0, 6: 1.0, 8: 2.0})
    result = run(tmp_path, [made])
    best = made.best(result.state)
    assert_same(
        best, checkpoint.restore(tmp_path / "checkpoints" / "update-00000004", like()).state
    )
    assert kept(tmp_path / "best") == [4]
    metadata = checkpoint.restore_latest(tmp_path / "best", like()).metadata
    assert (metadata["run"], metadata["steps"], metadata["hooks"]["control"]["best_update"]) == (
        "a",
        256,
        4,
    )


def test_a_plateau_changes_the_floats_and_compiles_nothing(tmp_path):
    made = controller(tmp_path / "best", {2: 1.0, 4: 0.0, 6: 0.0, 8: 0.0}, plateau_patience=1)
    result = run(tmp_path, [made])
    assert result.health["recompiles"] == (True, 0)
    assert made.state.adjustments == 2  # after updates 4 and 6
    hparams = result.state.hparams
    np.testing.assert_allclose(
        [hparams.learning_rate, hparams.learning_rate_end], [1e-2 / 4, 1e-5], rtol=1e-6
    )
    np.testing.assert_allclose([hparams.ent_coef, hparams.ent_coef_end], [0.04, 0.04], rtol=1e-6)
    rows = {row["update"]: row["ent_coef"] for row in result.history}
    np.testing.assert_allclose(
        [rows[4], rows[5], rows[6], rows[7]], [0.01, 0.02, 0.02, 0.04], rtol=1e-6
    )


def test_a_score_that_is_not_finite_ends_the_run(tmp_path):
    with pytest.raises(DivergedError, match="update 2: points is nan"):
        run(tmp_path, [controller(tmp_path / "best", {2: float("nan")})])


def test_a_resumed_run_decides_and_ends_in_the_same_bits(tmp_path):
    """Killed after the best state of update 6 was written, and resumed from update 4, which knows
    that of update 2.
    """
    scores = {2: 1.0, 4: 0.0, 6: 2.0, 8: 0.0}
    whole = controller(tmp_path / "whole" / "best", scores, plateau_patience=1)
    result = run(tmp_path / "whole", [whole])

    cut, folder = tmp_path / "cut", tmp_path / "cut" / "best"
    with pytest.raises(KilledError):
        run(cut, [controller(folder, scores, plateau_patience=1), killer(6)])
    assert kept(folder) == [2, 6]
    restored = checkpoint.restore_latest(cut / "checkpoints", like())
    assert restored.step == 4
    made = controller(folder, scores, plateau_patience=1)
    made.recall(restored.metadata["hooks"]["control"])
    assert kept(folder) == [2]  # nothing from the future
    assert sorted(path.name for path in folder.iterdir()) == [
        "update-00000002",
        "update-00000006.stale",
    ]
    resumed = run(cut, [made], state=restored.state)
    assert_same(resumed.state, result.state)
    assert made.state == whole.state
    assert_same(made.best(like()), whole.best(like()))
    assert kept(folder) == [6]


def test_each_of_several_agents_has_floats_of_its_own(tmp_path):
    said = []
    made = controller(tmp_path / "best", {4: 0.0}, said, plateau_patience=1)
    made.state = ControlState(scores=((2, 1.0),), best_score=1.0, best_update=2)
    values = np.float32([[1e-2, 4e-2, 1e-5], [1e-3] * 3, [0.01, 0.02, 0.5], [0.01] * 3])
    stacked = SimpleNamespace(**dict(zip(FLOATS, values, strict=True)))
    change = made(SimpleNamespace(update=np.int32(4), hparams=stacked), 4)
    assert not change.stop
    np.testing.assert_allclose(change.hparams["learning_rate"], [5e-3, 2e-2, 1e-5], rtol=1e-6)
    np.testing.assert_allclose(change.hparams["learning_rate_end"], [5e-4] * 3, rtol=1e-6)
    np.testing.assert_allclose(change.hparams["ent_coef"], [0.02, 0.04, 0.5], rtol=1e-6)
    assert not missing(said[0], "1e-05 .. 0.04 -> 1e-05 .. 0.02", "0.001 -> 0.0005")
