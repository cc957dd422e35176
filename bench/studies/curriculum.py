"""Does a curriculum help? Steps to a target reward in the last task, against training from scratch.

Market, target and hyper-parameters are those of `time_to_reward_settings` (the mean-reverting
chain, whose optimum dynamic programming gives; tasks as they are, account rules off). `manage` and
`advised` have the same actions and the same market, hence the same optimum. The lengths of the
phases were committed before the first run. Two counts: steps of the last phase alone, and of all
phases together, because the first ones are not free.
"""

import jax
import numpy as np

from bench import time_to_reward as chosen
from bench.time_to_reward import REWARD
from jaxtrade.config import TransferConfig
from jaxtrade.interop.world import load_world
from jaxtrade.rl import transfer
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.transfer import require_complete
from jaxtrade.runs.initial_state import label_policy
from jaxtrade.training.population import Stack

from . import LEVEL, interval, main, training

TASKS = ("entry", "manage", "advised")
EARLY = 40  # updates of each phase before the last, 81,920 environment steps
UPDATES = 150  # budget of the last phase, and of training from scratch
TARGET, WINDOW = chosen.GOAL.target, 8  # reward per step, over as many updates
SEEDS = 10
NUM_ENVS = 16


def config_of(task):
    """Return the committed settings with another task."""
    return chosen.config_of(NUM_ENVS, env={"task": task})


class Phase:
    """One task for `updates` updates of `seeds` agents as one program."""

    def __init__(self, task, updates, seeds):
        self.config = config_of(task)
        env, self.params = load_world(self.config)
        self._seeds = seeds
        agents = Stack.of(seeds).wrap(make_ppo(self.config, env, updates, summarise=REWARD))
        self._init = jax.jit(agents.init)

        self._train = jax.jit(training(agents, updates, ["reward"]))

    def start(self, before=None):
        """Return the first states of all seeds; a later phase takes the policies before it."""
        fresh = self._init(Stack.of(self._seeds).keys(0), self.params)
        if before is None:
            return fresh
        phase, state = before
        source, target = label_policy(phase.config), label_policy(self.config)
        transfer.check_labels(source, target)
        carried = transfer.transfer(state.params, state.normaliser, None, source, fresh, target)
        require_complete(carried.coverage, allowed=False)
        return transfer.begin(
            fresh, carried, transfer.plan_unlock(carried.coverage, target, TransferConfig())
        )

    def train(self, state):
        """-> (states, mean reward per step of each update, float[updates, seeds])."""
        state, metrics = self._train(state, self.params)
        return state, np.asarray(metrics["reward"])


def updates_to_target(rewards):
    """Count updates until the mean of the last `WINDOW` is at the target.

    Where it never is: all of them, and False.
    """
    for done in range(WINDOW, len(rewards) + 1):
        if np.mean(rewards[done - WINDOW : done]) >= TARGET:
            return done, True
    return len(rewards), False


def summary(rewards, before):
    """Return environment steps of every seed until the target.

    before: updates of earlier phases, counted along.

    first_reward_each: reward per step of the first rollout, before any update of this task.
    """
    found = [updates_to_target(column) for column in rewards.T]
    steps = [(before + updates) * chosen.ROLLOUT for updates, _ in found]
    return {
        "seeds": len(steps),
        "reached": sum(reached for _, reached in found),
        "env_steps": float(np.median(steps)),
        "env_steps_range": [min(steps), max(steps)],
        "env_steps_each": steps,
        "first_reward_each": rewards[0].tolist(),
        "last_reward_each": ends(rewards),
    }


def ends(rewards):
    """Of each seed, the mean of the last window."""
    return rewards[-WINDOW:].mean(axis=0).tolist()


def over(ours, theirs, axis=None):
    """Ours, in the median, over theirs."""
    return np.median(ours, axis) / np.median(theirs, axis)


def run(quick):
    """Return `sides` and `ratios`.

    `sides`: the last task from scratch, and after a curriculum by both counts. `ratios`: scratch's
    steps over the curriculum's, above 1 where the curriculum needs fewer.
    """
    budget, early, seeds = (4, 2, 2) if quick else (UPDATES, EARLY, SEEDS)
    before = None
    rewards = scratch = np.empty((0, seeds))
    early_last = {}
    for task in TASKS:
        phase = Phase(task, budget if task == TASKS[-1] else early, seeds)
        state, rewards = phase.train(phase.start(before))
        before = phase, state
        if task != TASKS[-1]:
            early_last[task] = ends(rewards)
        else:
            _, scratch = phase.train(phase.start())
    sides = {
        "from scratch": summary(scratch, 0),
        "curriculum, last phase alone": summary(rewards, 0),
        "curriculum, all phases": summary(rewards, early * (len(TASKS) - 1)),
    }
    whole, *others = sides
    ratios = {}
    for name in others:
        both = [sides[side]["env_steps_each"] for side in (whole, name)]
        ratios[name] = {"env_steps": over(*both), "env_steps_interval": interval(over, *both)}
    return {
        "config": {
            "tasks": list(TASKS),
            "early_updates": early,
            "goal": {"target": TARGET, "window": WINDOW, "updates": budget},
            "optimum": chosen.OPTIMUM,
            "seeds": seeds,
            "num_envs": NUM_ENVS,
            "rollout": chosen.ROLLOUT,
            "sessions": chosen.SESSIONS,
            **chosen.SECTIONS,
            "ppo": chosen.PPO,
            "transfer": TransferConfig().model_dump(),
            "rule": "mean reward per step of the last `window` updates, while exploring; a seed that misses "
            "the target counts as the whole budget",
            "interval": f"{LEVEL:.0%} bootstrap",
        },
        "sides": sides,
        "ratios": ratios,
        "reward_before": early_last,
        "rewards": {
            "from scratch": scratch.mean(axis=1).tolist(),
            "curriculum": rewards.mean(axis=1).tolist(),
        },
    }


if __name__ == "__main__":
    main("curriculum", __doc__ or "", run)
