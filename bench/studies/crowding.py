"""Crowding against impact: what agents of one market earn, by how much their orders move the price.

Eight agents train with PPO on the mean-reverting chain (docs/data.md), where all of them can
find the same edge. Between the runs only `shared.kappa` changes; it is an argument of one compiled
program. With 0 the agents are alone. Figures are means over the last quarter of the updates and
over the agents, then over independent groups of agents, with the lowest and the highest group
beside them.
"""

import jax
import numpy as np

from jaxtrade.config import load_config
from jaxtrade.env.shared import with_impact
from jaxtrade.runs.setup import prepare

from . import main, training

# Thousandths of a tick per contract.
KAPPAS, QUICK_KAPPAS = (0, 1_000, 2_000, 4_000, 8_000, 16_000), (0, 4_000)
GROUPS, QUICK_GROUPS = 5, 1
SETTINGS = """
data.market=ES data.source=synthetic data.synthetic=mean_reversion data.synthetic_sessions=20
account.preset=rules_off_50k env.task=manage env.window=2 env.features=[close] split.test_sessions=0
shared.on=true train.num_seeds=8 shared.eta=0 shared.decay=0.9
network.hidden=[32] rollout.num_envs=16 rollout.num_steps=64 ppo.num_minibatches=2 ppo.num_epochs=4
ppo.learning_rate=0.002 ppo.learning_rate_end=0.0002 ppo.gamma=0.95 ppo.gae_lambda=0.9
ppo.ent_coef=0.02 ppo.ent_coef_end=0.002 monitor.on=false
train.total_timesteps=204_800 train.chunk_updates=1
"""
NAMES = """
crowding_profit crowding_return_spread crowding_position_correlation impact_paid offset_low
offset_high maker_profit
"""
FIGURES = NAMES.split()


def config_of(kappa, quick):
    """Return the configuration of one run."""
    more = " train.total_timesteps=4_096" if quick else ""
    return load_config(None, f"{SETTINGS} shared.kappa={kappa}{more}".split())


def trainer(setup):
    """Compile a whole training: (keys of the agents, parameters) -> metrics [updates, agents]."""
    algorithm = setup.stack.wrap(setup.algorithm)
    train = training(algorithm, setup.plan.total_updates, FIGURES)
    return jax.jit(lambda keys, params: train(algorithm.init(keys, params), params)[1])


def ends(metrics):
    """Take means over the last quarter of the updates and over the agents.

    They are of what is defined.
    """
    found = {}
    for name, values in metrics.items():
        last = np.asarray(values, np.float64)[-max(1, len(values) // 4) :]
        found[name] = float(np.nanmean(last)) if np.isfinite(last).any() else float("nan")
    return found


def summed_up(groups):
    """Figure -> its mean, lowest and highest over the groups."""
    ends = {"mean": np.mean, "low": min, "high": max}
    return {
        name: {end: of([group[name] for group in groups]) for end, of in ends.items()}
        for name in FIGURES
    }


def run(quick):
    kappas, groups = (QUICK_KAPPAS, QUICK_GROUPS) if quick else (KAPPAS, GROUPS)
    setup = prepare(config_of(kappas[0], quick))
    train = trainer(setup)
    table = {}
    for kappa in kappas:
        params = with_impact(setup.params, config_of(kappa, quick))
        found = [ends(train(setup.stack.keys(100 * group), params)) for group in range(groups)]
        table[str(kappa)] = summed_up(found)
    return {
        "config": {
            "settings": SETTINGS.split(),
            "kappas": list(kappas),
            "groups": groups,
            "agents": setup.stack.count,
            "steps_of_each_agent": setup.plan.total_steps,
        },
        "by_kappa": table,
    }


if __name__ == "__main__":
    main("crowding", __doc__ or "", run)
