"""The learner's three sections in one: how benches and tests of the learner write them down."""

from __future__ import annotations

from typing import Any

from jaxtrade.config import NetworkConfig, PPOConfig, RolloutConfig, RunConfig, make_config

SECTIONS = {"network": NetworkConfig, "rollout": RolloutConfig, "ppo": PPOConfig}


class Learning(NetworkConfig, RolloutConfig, PPOConfig, frozen=True):
    """Every key of `network`, `rollout` and `ppo` by its own name."""

    @property
    def run(self) -> RunConfig:
        """The whole configuration, all else at its defaults."""
        return make_config(sections_of(self.model_dump(mode="json")))


    @property
    def sequence(self) -> int:
        """Consecutive steps of one env that stay together in a minibatch."""
        return self.num_steps if self.kind == "gru" else 1


def sections_of(flat: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Keys by their own name -> by section. An unknown one is left to `ppo`, which refuses it."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        section = next((name for name, model in SECTIONS.items() if key in model.model_fields), "ppo")
        found.setdefault(section, {})[key] = value
    return found


def learning_of(config: RunConfig) -> Learning:
    """The learner's keys of a configuration."""
    return Learning(**config.network.model_dump(), **config.rollout.model_dump(), **config.ppo.model_dump())
