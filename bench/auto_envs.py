"""`rollout.num_envs: auto` against a grid: how fast is the size that it chooses, and how fast the
best of all?

The choice is made as `jaxtrade train` makes it, from one pass over sizes that are doubled. The grid
holds sizes on both sides of every choice; its sizes take turns after the choice, so that both see
the same machine. A turn has as many updates, one after the other as in training, as make the steps
of one update of the largest size. `share` is the speed of the choice over that of the grid's
fastest size (medians). PPO's minibatches keep their rows at every size, and DQN its batch and its
replay ratio.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxtrade.runs.auto_envs import measure_update, memory_left
from jaxtrade.runs.setup import Setup, prepare, with_learner_of
from jaxtrade.runs.sizing import SHARE, search, sized, sizes

from . import harness, setting
from .catalogue import Options

LEARNERS: dict[
    str, dict[str, Any]
] = {  # by name: keys of `learning.sections_of`; "dqn": of that section instead
    "64x64": {"hidden": [64, 64], "num_epochs": 4},
    "256-256-128": {"hidden": [256, 256, 128], "num_epochs": 4},
    "dqn": {"dqn": {"buffer_size": 2**20}},  # the replay has room for the grid's largest size
}
NUM_STEPS, LONG = 32, 10**10  # a run so long that its number of updates limits no choice
MOST = 4096  # environments of the grid's largest size
QUICK_MOST = 32


def setup_of(learner: dict[str, Any], quick: bool) -> Setup:
    sessions, rollout = 8 if quick else setting.SESSIONS, {"num_envs": 16, "num_steps": NUM_STEPS}
    train = {"total_timesteps": LONG}
    if "dqn" in learner:
        return prepare(
            setting.learner_config("dqn", sessions, **learner, rollout=rollout, train=train)
        )
    return prepare(
        setting.config(sessions, ppo=learner | rollout | {"num_minibatches": "auto"}, train=train)
    )


def grid_side(setup: Setup, num_envs: int, most: int) -> harness.Side:
    """Updates of a size, each from the state of the one before, with the steps of one update of
    size `most` or a little fewer. The state is given away as in training: a replay is not
    copied."""
    own = with_learner_of(setup, sized(setup.config, num_envs))
    state = jax.jit(own.algorithm.init)(jax.random.key(0), own.params)
    update = jax.jit(
        lambda state, params: own.algorithm.update(state, params, None), donate_argnums=0
    )
    program, updates = update.lower(state, own.params).compile(), most // num_envs

    def work() -> Any:
        nonlocal state
        metrics: Any = None
        for _ in range(updates):
            state, metrics = program(state, own.params)
        jax.block_until_ready(state)  # waited for here, because the next turn gives it away
        return metrics

    return harness.side(work, updates * own.algorithm.steps_per_update)


def one(learner: dict[str, Any], options: Options) -> dict[str, Any]:
    """The choice for a learner, the grid, and how near the choice is to the grid's fastest size."""
    setup, most = setup_of(learner, options.quick), QUICK_MOST if options.quick else MOST
    free = memory_left()
    limit = None if free is None else int(SHARE * free)
    grid = list(
        sizes(
            setup.config.model_copy(
                update={
                    "train": setup.config.train.model_copy(
                        update={"total_timesteps": most * NUM_STEPS * 50}
                    )
                }
            )
        )
    )
    choice = search(
        grid,
        lambda number: measure_update(with_learner_of(setup, sized(setup.config, number)), limit),
        limit,
    )
    measured = harness.compare(
        {str(number): grid_side(setup, number, grid[-1]) for number in grid}, options.repeats
    )
    speeds = {number: each["steps_per_second"] for number, each in measured.items()}
    fastest = max(speeds, key=lambda number: speeds[number])
    return {
        "chosen": choice.num_envs,
        "reason": choice.reason,
        "fastest": int(fastest),
        "grid": measured,
        "probe": [each._asdict() for each in choice.measured],
        "share": harness.rounded(speeds[str(choice.num_envs)] / speeds[fastest]),
    }


def run(options: Options) -> dict[str, Any]:
    learners = {name: LEARNERS[name] for name in ("64x64", "dqn")} if options.quick else LEARNERS
    found = {name: one(learner, options) for name, learner in learners.items()}
    return {
        "config": {
            "num_steps": NUM_STEPS,
            "learners": learners,
            "repeats": options.repeats,
            "threads": harness.cores(),
        },
        "learners": {
            name: {key: value for key, value in each.items() if key != "grid"}
            for name, each in found.items()
        },
        "worst_share": min(each["share"] for each in found.values()),
        "sides": {
            f"{name}/{number}": side
            for name, each in found.items()
            for number, side in each["grid"].items()
        },
        "ratios": {},
    }
