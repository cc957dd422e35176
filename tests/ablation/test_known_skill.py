"""The gates on a market where the answer is known: on a martingale only an advisor that knows the
future can gain.
"""

import pytest

from jaxtrade.ablation.report import table
from jaxtrade.ablation.run import ablate
from jaxtrade.config import load_config
from jaxtrade.progress.screen import Screen
from tests.ablation.gates import gates

# A walk of one tick a minute: brackets of three ticks are reached in about nine bars, within the
# advice's horizon of eight. Costs are small but not nothing, so that who knows nothing learns to
# stay out.
MARTINGALE = (
    "data.source=synthetic",
    "data.synthetic=martingale",
    "data.synthetic_sessions=60",
    "split.test_sessions=30",
    "account.preset=rules_off_50k",
    "costs.commission=0.5",
    "costs.slippage=0",
    "env.task=entry",
    "env.features=[close]",
    "env.window=1",
    "brackets.stop_atr=3",
    "brackets.target_multiple=1",
    "brackets.min_stop_ticks=3",
    "advisor.horizon=8",
    "advisor.latency=[0]",
    "rollout.num_envs=32",
    "rollout.num_steps=64",
    "ppo.num_minibatches=4",
    "ppo.num_epochs=2",
    "network.hidden=[16]",
    "ppo.learning_rate=0.003",
    "ppo.gamma=0.95",
    "ppo.gae_lambda=0.9",
    "ppo.ent_coef=0.003",
    "ppo.normalise_rewards=false",
    "ppo.learning_rate_end=3e-5",
    "train.num_seeds=3",
    "train.total_timesteps=204_800",
    "train.chunk_updates=5",
)
KINDS = (
    "none",
    "mock:random",
    "mock:shifted/mock:skilled:0.7",
    "mock:skilled:0.6",
    "mock:skilled:0.7",
    "mock:skilled:0.85",
    "mock:oracle",
    "mock:adversarial:0.7",
    "mock:delayed:8/mock:skilled:0.85",
    "mock:available:0/mock:skilled:0.85",
    "mock:available:0.2/mock:skilled:0.85",
    "turn:0.85",
)


@pytest.mark.slow
def test_gates_hold_where_skill_is_known(tmp_path):
    """`trust` passes every gate. `slots` passes all but G5: a network that has learned to follow an
    advisor follows it into every trap, which is what the gate is there to show."""
    config = load_config(None, list(MARTINGALE))
    found = ablate(config, KINDS, ("trust", "slots"), tmp_path / "known", str, Screen())
    print(table(found))
    trust, slots = (gates(found, fusion) for fusion in found.fusions)
    assert all(trust.values()), trust
    assert all(slots[name] for name in ("G1", "G2", "G6")), slots
    follows = found.compare(found.fusions[0], "turn:0.85", "none").mean
    trapped = found.compare(found.fusions[1], "turn:0.85", "none")
    assert trapped.certain < 0
    assert trapped.mean < follows
    assert (
        found.compare(found.fusions[0], "mock:oracle", "mock:shifted/mock:skilled:0.7").certain > 0
    )
