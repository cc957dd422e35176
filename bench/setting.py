"""The market, task and learner that every bench shares, so that their figures can be read together.

Synthetic NQ minute bars (seed 0), task `manage` in relative scaling (228 slots, 7 actions), default
account, costs, brackets and reward, episodes of one session that start anywhere in it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.types import SessionSet

from .learning import fixed_sections, sections_of

SESSIONS = 78  # 107,000 bars, as many as three months have


class World(NamedTuple):
    """A market on device and what an environment needs of it; every session is a training
    session.
    """

    config: RunConfig
    env: TradingEnv
    params: EnvParams
    market: Market
    sessions: SessionSet


def config(sessions: int = SESSIONS, **sections: Mapping[str, Any]) -> RunConfig:
    """The shared configuration with some keys changed, e.g. `config(ppo={"num_envs": 1024})`; `ppo`
    holds all keys of the learner (`learning.sections_of`)."""
    own: dict[str, dict[str, Any]] = fixed_sections() | {
        "data": {"market": "NQ", "source": "synthetic", "synthetic_sessions": sessions},
        "split": {"test_sessions": 0},
    }
    if "ppo" in sections:
        sections = {
            name: values for name, values in sections.items() if name != "ppo"
        } | sections_of(sections["ppo"])
    for name, values in sections.items():
        own[name] = own.get(name, {}) | dict(values)
    return make_config(own)


@functools.lru_cache(maxsize=4)
def _market(sessions: int) -> Market:
    return load_market(config(sessions))


def learner_config(
    algorithm: str, sessions: int = SESSIONS, **sections: Mapping[str, Any]
) -> RunConfig:
    """The shared configuration for another learner than PPO, whose own section has the package's
    defaults.
    """
    own = {name: dict(values) for name, values in fixed_sections().items() if name != "ppo"} | {
        "algorithm": algorithm,
        "data": {"market": "NQ", "source": "synthetic", "synthetic_sessions": sessions},
        "split": {"test_sessions": 0},
    }
    for name, values in sections.items():
        own[name] = own.get(name, {}) | dict(values)
    return make_config(own)


def world(sessions: int = SESSIONS, **sections: Mapping[str, Any]) -> World:
    """Environment and parameters of `config(...)` over all its sessions."""
    return world_of(config(sessions, **sections), sessions)


def world_of(chosen: RunConfig, sessions: int) -> World:
    """Environment and parameters of a configuration over all sessions of the shared market."""
    market = _market(sessions)
    every = split_sessions(market, chosen.split)["train"]
    return World(chosen, TradingEnv(chosen.env), make_params(market, every, chosen), market, every)
