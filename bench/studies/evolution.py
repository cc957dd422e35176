"""Does population-based training help? Against random search, and against its own first settings.

Market: the mean-reverting chain (docs/data.md), task `manage`, account rules off, with sessions for
validation and others that nothing is chosen by. The random search has the same budget. Each repeat
draws settings for `AGENTS` agents and trains them twice from the same seeds, for the same number of
steps: once with events (`evolve.every`), once with the settings as drawn (random search). Both name
a winner by the validation sessions. What is compared is the greedy policy's reward per held-out
session: of the two winners, and of the median agent of the random search, which is the median of
the first settings. Market, ranges and lengths were chosen in trials with other seeds, so that the
first settings differ in what they reach: where every agent finds the optimum, there is nothing to
compare.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from jaxtrade.config import load_config
from jaxtrade.evaluation.evaluators import total_rewards
from jaxtrade.rl import evolve
from jaxtrade.runs.setup import policies_of, prepare
from jaxtrade.storage.compiling import Programs
from jaxtrade.training.population import Stack

from . import main, training

AGENTS, UPDATES, PERIOD, LEVEL = 8, 48, 4, 0.95  # updates between events; level of the intervals
FIRST_SEED, REPEATS = 50_000, 5
KEYS = {"ppo.learning_rate": [1e-5, 1e-1], "ppo.ent_coef": [1e-4, 1.0], "ppo.clip_eps": [0.02, 0.8]}
MARKET = """
data.market=ES data.source=synthetic data.synthetic=mean_reversion account.preset=rules_off_50k
env.task=manage data.synthetic_sessions=60 split.validation_sessions=20 split.test_sessions=20
"""
LEARNER = """
rollout.num_envs=16 rollout.num_steps=64 network.hidden=[32,32] monitor.on=false
"""
QUICK = {"agents": 4, "updates": 4, "period": 2}
SIDES = ("evolution", "random search", "median of the first settings")


def config_of(agents, seed):
    """Return the configuration of a repeat."""
    keys = f"evolve.keys={json.dumps(KEYS)}"
    own = (f"seed={seed}", f"train.num_seeds={agents}", keys, "evolve.every=1")
    return load_config(None, [*MARKET.split(), *LEARNER.split(), *own])


class Trial:
    """Trains the agents of every repeat with the same programs."""

    def __init__(self, agents, updates, period):
        self.agents, self.updates, self.period = agents, updates, period
        self.setup = prepare(config_of(agents, 0))
        self._programs, stacked = Programs(), Stack.of(agents).wrap(self.setup.algorithm)
        self._init = jax.jit(stacked.init)

        train = training(stacked, period)

        def chunk(state, params):
            state = state.replace(total_updates=jnp.full_like(state.total_updates, updates))
            return train(state, params)[0]

        self._chunk = jax.jit(chunk)
        rules = evolve.rules_of(self.setup.config)
        self._event = jax.jit(
            lambda parts, scores, key: evolve.exploit_parts(parts, scores, key, rules)[0]
        )

    def scores(self, state, split):
        """Reward per session of each agent's greedy policy on a split, float64[agents]."""
        own, sessions = self.setup, self.setup.splits[split]
        policies, programs = jax.device_get(policies_of(own, state)), self._programs
        given = own.env, own.params, sessions, own.algorithm, policies, programs
        return total_rewards(*given) / int(sessions.count)

    def trained(self, seed, evolves):
        """Return the last state of the agents of one repeat."""
        state = self._init(Stack.of(self.agents).keys(seed), self.setup.params)
        for update in range(self.period, self.updates + 1, self.period):
            state = self._chunk(state, self.setup.params)
            if evolves and update < self.updates:
                scores = jnp.float32(self.scores(state, "validation"))
                parts = self._event(evolve.parts_of(state), scores, evolve.event_key(seed, update))
                state = evolve.with_parts(state, parts)
        return state

    def repeat(self, seed):
        """Reward per held-out session of each of `SIDES`."""
        found = {}
        for side, evolves in zip(SIDES[:2], (True, False), strict=True):
            state = self.trained(seed, evolves)
            winner = evolve.winner_of(self.scores(state, "validation").tolist())
            held_out = self.scores(state, "test")
            found[side] = float("nan") if winner is None else float(held_out[winner])
            if not evolves:
                found[SIDES[2]] = float(np.nanmedian(held_out))
        return found


def difference(ours, theirs):
    """Mean of the paired differences, and its interval by Student's t."""
    each = np.subtract(ours, theirs)
    ends = stats.t.interval(LEVEL, len(each) - 1, each.mean(), stats.sem(each))
    return {
        "mean": each.mean(),
        "interval": ends,
        "each": each.tolist(),
        "above_0": int((each > 0).sum()),
    }


def run(quick):
    """Return `held_out` and `differences`.

    `held_out`: reward per held-out session of each side, by repeat. `differences`: of
    population-based training from the others, paired by repeat.
    """
    shape = QUICK if quick else {"agents": AGENTS, "updates": UPDATES, "period": PERIOD}
    repeats = 2 if quick else REPEATS
    trial = Trial(**shape)
    found = [trial.repeat(FIRST_SEED + 1_000 * number) for number in range(repeats)]
    held_out = {side: [each[side] for each in found] for side in SIDES}
    ours = held_out[SIDES[0]]
    setup = trial.setup
    return {
        "config": {
            **shape,
            "repeats": repeats,
            "steps_per_agent": shape["updates"] * setup.plan.steps_per_update,
            "evolve": setup.config.evolve.model_dump(mode="json"),
            "market": MARKET.split(),
            "learner": LEARNER.split(),
            "interval": f"{LEVEL:.0%}, Student's t over repeats",
            "sessions": {name: int(split.count) for name, split in setup.splits.items()},
        },
        "held_out": held_out,
        "differences": {
            f"{SIDES[0]} - {side}": difference(ours, held_out[side]) for side in SIDES[1:]
        },
    }


if __name__ == "__main__":
    main("evolution", __doc__ or "", run)
