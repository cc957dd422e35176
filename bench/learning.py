"""The learner's three sections in one: how benches and tests of the learner write them down.

What they do not name has the value of `FIXED`, not the package's default: the work that a bench
measures stays the same when a default changes.
"""

import yaml
from pydantic import model_validator

from jaxtrade.config import NetworkConfig, PPOConfig, RolloutConfig, make_config

SECTIONS = {"network": NetworkConfig, "rollout": RolloutConfig, "ppo": PPOConfig}


FIXED = yaml.safe_load("""
# the package's defaults until 2026-10
kind: mlp
hidden: [64, 64]
activation: tanh
rnn_width: 64
normalise_observations: true
num_envs: 256
num_steps: 128
num_shards: 8
num_minibatches: 8
num_epochs: 4
normalise_advantages: true
normalise_rewards: false
learning_rate: 0.0003
learning_rate_end: 0.00003
gamma: 0.99
gae_lambda: 0.95
clip_eps: 0.2
vf_clip_eps: 0.0
ent_coef: 0.01
ent_coef_end: null
vf_coef: 0.5
max_grad_norm: 0.5
target_kl: 0.0
""")


class Learning(NetworkConfig, RolloutConfig, PPOConfig, frozen=True):
    """Every key of `network`, `rollout` and `ppo` by its own name."""

    num_minibatches: int = FIXED["num_minibatches"]

    @model_validator(mode="before")
    @classmethod
    def _fixed(cls, given):
        return FIXED | given

    @property
    def run(self):
        """The whole configuration, all else at its defaults."""
        return make_config(sections_of(self.model_dump(mode="json")))


def sections_of(flat):
    """Keys by their own name -> by section. An unknown one is left to `ppo`, which refuses it."""
    found = {}
    for key, value in flat.items():
        section = next(
            (name for name, model in SECTIONS.items() if key in model.model_fields), "ppo"
        )
        found.setdefault(section, {})[key] = value
    return found


def fixed_sections():
    """Return `FIXED` by section, as far as the package has its keys.

    The package may be of another version.
    """
    known = {key for model in SECTIONS.values() for key in model.model_fields}
    return sections_of({key: value for key, value in FIXED.items() if key in known})


def learning_of(config):
    """Return the learner's keys of a configuration."""
    keys = {**config.network.model_dump(), **config.rollout.model_dump(), **config.ppo.model_dump()}
    return Learning(**keys | {"num_minibatches": config.minibatches})
