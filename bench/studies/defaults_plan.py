"""The cells of the sweep: which settings are tried on which problems.

A cell is one compiled program.

Tunable floats are leaves of the training state, so that all variants and seeds of a cell are one
population. Static keys (counts, widths, ...) take a cell each.
"""

from typing import NamedTuple

import yaml


class Cell(NamedTuple):
    """part: of the page. label: what its static keys are called. static: overrides `key=value`.

    variants: name -> tunable floats over those of the configuration. points: how often the policies
    are judged on the way.
    """

    part: str
    problem: str
    network: str
    label: str
    static: tuple[str, ...]
    variants: dict
    steps: int
    seeds: int
    points: int = 1

    @property
    def name(self):
        """The cell's key in the result."""
        return f"{self.part} / {self.problem} / {self.network} / {self.label}"


def _rate(rate, share=0.1):
    return {"learning_rate": rate, "learning_rate_end": rate * share}


# What the package had until 2026-10. `--test` was 64 environments x 64 steps, 4 minibatches,
# 200,000 steps.
OLD = """
rollout.num_envs=256 rollout.num_steps=128 ppo.num_minibatches=8 ppo.num_epochs=4
ppo.normalise_rewards=false ppo.learning_rate=3e-4 ppo.learning_rate_end=3e-5 ppo.gamma=0.99
ppo.gae_lambda=0.95 ppo.clip_eps=0.2 ppo.ent_coef=0.01 ppo.ent_coef_end=0.01 ppo.vf_coef=0.5
ppo.max_grad_norm=0.5
"""
# The centre of the sweep: one thing is changed at a time. The defaults are chosen from what it
# shows.
CENTRE = """
rollout.num_envs=64 rollout.num_steps=32 ppo.num_minibatches=4 ppo.num_epochs=4
ppo.normalise_rewards=true ppo.learning_rate=1e-3 ppo.learning_rate_end=1e-4 ppo.gamma=0.99
ppo.gae_lambda=0.95 ppo.clip_eps=0.2 ppo.ent_coef=0.01 ppo.ent_coef_end=0.01 ppo.vf_coef=0.5
ppo.max_grad_norm=0.5
"""
FLOATS = {
    "centre": {},
    "learning_rate 3e-4": _rate(3e-4),
    "learning_rate 5e-4": _rate(5e-4),
    "learning_rate 2e-3": _rate(2e-3),
    "learning_rate 3e-3": _rate(3e-3),
    "learning_rate constant": _rate(1e-3, 1.0),
    **yaml.safe_load("""
gamma 0.95: {gamma: 0.95}
gamma 0.98: {gamma: 0.98}
gamma 0.998: {gamma: 0.998}
gae_lambda 0.9: {gae_lambda: 0.9}
gae_lambda 0.98: {gae_lambda: 0.98}
ent_coef 0: {ent_coef: 0.0, ent_coef_end: 0.0}
ent_coef 0.03: {ent_coef: 0.03, ent_coef_end: 0.03}
ent_coef 0.01 to 0.001: {ent_coef: 0.01, ent_coef_end: 0.001}
ent_coef 0.03 to 0.001: {ent_coef: 0.03, ent_coef_end: 0.001}
clip_eps 0.1: {clip_eps: 0.1}
clip_eps 0.3: {clip_eps: 0.3}
max_grad_norm 5: {max_grad_norm: 5.0}
vf_coef 1: {vf_coef: 1.0}
"""),
}
STATIC = yaml.safe_load("""
rewards as they are: ppo.normalise_rewards=false
32 environments x 64 steps: rollout.num_envs=32 rollout.num_steps=64
64 environments x 128 steps: rollout.num_steps=128 ppo.num_minibatches=16
256 environments x 32 steps: rollout.num_envs=256 ppo.num_minibatches=16
256 environments x 128 steps, 32 minibatches:
  rollout.num_envs=256 rollout.num_steps=128 ppo.num_minibatches=32
8 minibatches: ppo.num_minibatches=8
10 epochs: ppo.num_epochs=10
relu: network.activation=relu
advantages as they are: ppo.normalise_advantages=false
observations as they are: network.normalise_observations=false
""")
RATES = {f"learning_rate {rate:g}": _rate(rate) for rate in (5e-4, 1e-3, 2e-3)}
PLAIN = {"": {}}


def sweep():
    """Return the cells from which the defaults are chosen."""
    short, seeds, centre = 200_000, 2, tuple(CENTRE.split())
    on = ("reversion", "trend", "martingale", "reversion, entry", "Acrobot", "ES week")
    both = [*((problem, "mlp") for problem in on), ("reversion", "gru")]
    return [
        Cell("floats", problem, network, "centre", centre, FLOATS, short, seeds)
        for problem, network in both
    ] + [
        Cell("static", "reversion", "mlp", label, (*centre, *keys.split()), RATES, short, seeds)
        for label, keys in STATIC.items()
    ]


def scales():
    """Return the defaults with other numbers of environments and other lengths."""
    sizes = {f"{envs} environments": (f"rollout.num_envs={envs}",) for envs in (16, 256, 1024)}
    sizes["16 environments x 128 steps"] = ("rollout.num_envs=16", "rollout.num_steps=128")
    runs = [(size, steps, 2) for size in sizes for steps in (200_000, 800_000)]
    at = "scale", "reversion", "mlp"
    return [
        Cell(*at, f"{size}, {steps:,} steps", sizes[size], PLAIN, steps, seeds)
        for size, steps, seeds in (*runs, ("1024 environments", 10_000_000, 1))
    ]


NEW = """
reversion; reversion weak; reversion strong; trend; trend down; martingale; reversion, entry;
reversion, advised
"""


def final():
    """Return the old and the new defaults, 8 seeds each, with curves."""
    old = tuple(OLD.split())
    new = [("mlp", name.strip()) for name in NEW.split(";")]
    new += [("gru", name) for name in ("reversion", "trend", "reversion, entry")]
    before = [("mlp", name) for name in ("reversion", "trend", "martingale")]
    runs = [("new", name, network, (), 800_000) for network, name in new]
    runs += [("old", *at[::-1], old, 800_000) for at in (*before, ("gru", "reversion"))]
    for label, static in (("new", ()), ("old", old)):
        runs += [(label, name, "mlp", static, 200_000) for name in ("CartPole", "Acrobot")]
    return [
        Cell("curves", name, network, label, static, PLAIN, steps, 8, 10)
        for label, name, network, static, steps in runs
    ]


PARTS = {"sweep": sweep, "scales": scales, "final": final}


def settings_of(cell):
    """Return what a cell's result was made with: it is computed again where this has changed."""
    keys = ("variants", "steps", "seeds", "points")
    return {"static": list(cell.static)} | {key: getattr(cell, key) for key in keys}
