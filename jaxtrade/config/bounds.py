"""Upper bounds of the numbers of a new configuration that no rule of its section bounds.

A value beyond them is a slip (`1e9` epochs, a learning rate of `1e30`): nobody has a use for it,
and it would end in days of computing or in NaN. Folders of earlier runs may hold such values and
still open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtrade.config.run import RunConfig

# Key -> the largest value. A list or mapping of numbers: of each of them; a number below zero: of
# its size.
MOST: dict[str, float] = {
    "data.price_scale": 1e9,
    "data.synthetic_seed": 2**63 - 1,
    "data.synthetic_drift": 1e4,
    "data.synthetic_pull": 1,
    "split.validation_sessions": 1e5,
    "split.test_sessions": 1e5,
    "split.embargo_sessions": 1e5,
    "costs.commission": 1e6,
    "brackets.stop_atr": 1e4,
    "brackets.trail_atr": 1e4,
    "account.drawdown": 1e9,
    "account.daily_loss": 1e9,
    "account.profit_target": 1e9,
    "allocate.size": 1e5,
    "allocate.max_total": 1e5,
    "reward.weights": 1e6,
    # far more than fits: `runs.memory` refuses less, and says what would fit
    "network.hidden": 2**24,
    "rollout.num_envs": 2**40,
    "network.rnn_width": 16_384,
    "network.adapter": 16_384,
    "rollout.num_steps": 1e6,
    "rollout.num_shards": 65_536,
    "actor.rho_clip": 1e3,
    "actor.c_clip": 1e3,
    **{
        f"{learner}.{key}": 1.0
        for learner in ("ppo", "dqn", "pqn")
        for key in ("learning_rate", "learning_rate_end")
    },
    **{f"{learner}.max_grad_norm": 1e6 for learner in ("ppo", "dqn", "pqn")},
    "ppo.gradient_rows": 2**40,
    "ppo.num_minibatches": 2**20,
    "pqn.num_minibatches": 2**20,
    "ppo.num_epochs": 1_000,
    "pqn.num_epochs": 1_000,
    "ppo.adapter_freeze": 1,
    "ppo.clip_eps": 10,
    "ppo.vf_clip_eps": 1e6,
    "ppo.ent_coef": 10,
    "ppo.ent_coef_end": 10,
    "ppo.vf_coef": 100,
    "ppo.target_kl": 10,
    "dqn.batch_size": 2**20,
    "dqn.replay_ratio": 1e3,
    "dqn.target_every": 1e9,
    "train.chunk_updates": 1e6,
    "train.checkpoint_every": 1e6,
    "train.keep_checkpoints": 1e6,
    "advisor.max_age": 1e5,
    "advisor.memory": 1e7,
    "advisor.prior": 1e6,
    "advisor.abstain": 1e3,
    "advisor.cap": 1e3,
    "advisor.gate_cost": 1e3,
    "advisor.veto": 1e3,
    "advisor.evaluation_wait_s": 86_400,
    **{
        f"advisor.service.{key}": 86_400
        for key in (
            "deadline_s",
            "grace_s",
            "retry_base_s",
            "retry_cap_s",
            "failed_for_s",
            "breaker_open_s",
            "breaker_longest_s",
        )
    },
    **{
        f"advisor.service.{key}": 1e6
        for key in (
            "queue_size",
            "ttl_chunks",
            "ready_rows",
            "poison_after",
            "breaker_failures",
            "unusable_pause_after",
            "price_prompt",
            "price_completion",
            "completion_tokens",
            "overhead_tokens",
        )
    },
    **{
        f"advisor.service.{key}": 1e12
        for key in (
            "requests_per_minute",
            "tokens_per_minute",
            "max_calls",
            "max_tokens",
            "max_cost",
        )
    },
    "advisor.service.seed": 2**63 - 1,
    **{
        f"control.{key}": 1e6
        for key in (
            "evaluate_every",
            "patience",
            "min_evaluations",
            "plateau_patience",
            "plateau_cooldown",
        )
    },
    "control.improvement": 1e9,
    "control.plateau_lr_min": 1,
    "control.plateau_ent_factor": 1e3,
    "control.plateau_ent_max": 10,
    "control.wall_clock": 366 * 86_400,
    "evolve.every": 1e6,
    "evolve.perturb": 100,
    "walk.embargo": 1e5,
    "walk.train": 1e5,
    "walk.test": 1e5,
    "evaluation.policy_samples": 10_000,
    "evaluation.sma_fast": 1e5,
    "evaluation.sma_slow": 1e5,
}
SEEDS = "keep one (for more seeds of each setting: sweep.seeds)"


def beyond(config: RunConfig) -> Iterator[tuple[str, str]]:
    """(key, what is wrong) of every number that is larger than its bound, and of every value that a
    sweep has twice.
    """
    for key, most in MOST.items():
        value: Any = config
        for name in key.split("."):
            value = getattr(value, name, None)
        for number in (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, tuple)
            else (value,)
        ):
            if isinstance(number, int | float) and not abs(number) <= most:
                yield key, f"'{key}' = {number!r}: expected at most {most:g}"
    for symbol, own in config.data.per_market.items():
        for name, value in own.items():
            if isinstance(value, int | float) and not abs(value) <= MOST.get(
                f"data.{name}", math.inf
            ):
                key = f"data.per_market.{symbol}.{name}"
                yield key, f"'{key}' = {value!r}: expected at most {MOST[f'data.{name}']:g}"
    for key, values in config.sweep.keys.items():
        if twins := [value for i, value in enumerate(values) if value in values[:i]]:
            yield (
                f"sweep.keys.{key}",
                f"sweep.keys: {key} has the value {twins[0]!r} twice; {SEEDS}",
            )
    settings = config.sweep.settings
    if any(each in settings[:i] for i, each in enumerate(settings)):
        yield "sweep.settings", f"sweep.settings: a setting is there twice; {SEEDS}"
