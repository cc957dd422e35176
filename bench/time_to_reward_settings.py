"""What `time_to_reward` asks for, fixed and committed before either learner was timed on it.

Market and task: the mean-reverting chain (docs/synthetic.md), task `manage` with its default
    observation, brackets,
costs and reward, account rules off; the optimum is known exactly. The target is 0.9 of it, the
share that
`tests/optimum/test_learning.py` has asked of our learner since before this bench. A first draft asked for a half: both
learners met that with the first updates that the rule can read (18,432 or 20,480 steps for all of 8 seeds each), so it
showed nothing. It was raised, still before any timed run, once one untimed run of Stable-Baselines3 (seed 100, none of
`SEEDS`) had shown that 0.9 can be met within the budget.

Hyper-parameters: network, epochs and batch of the small network of `ppo_train`; learning rate,
gamma and lambda as
`tests/optimum/test_learning.py` had them for this task, the rates constant because Stable-Baselines3 and we count a
schedule's progress differently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Reward per step, in risk units, of the policy that `tests/optimum/dp.py` finds, over the training
# sessions' random starts: a test computes it again.
OPTIMUM = 0.6994
SECTIONS: dict[str, dict[str, Any]] = {
    "data": {"market": "ES", "synthetic": "mean_reversion"},
    "account": {"preset": "rules_off_50k"},
    "env": {"task": "manage"},
}
SESSIONS = 40
ROLLOUT = 2_048  # steps of one update, over all environments
PPO: dict[str, Any] = {
    "num_minibatches": 8,
    "num_epochs": 4,
    "num_shards": 1,
    "hidden": (64, 64),
    "activation": "tanh",
    "normalise_observations": False,
    "normalise_advantages": True,
    "learning_rate": 1e-3,
    "learning_rate_end": 1e-3,
    "gamma": 0.95,
    "gae_lambda": 0.9,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}


class Goal(NamedTuple):
    """target: reward per step, the mean over the steps of the last `window` updates, while the
    policy still explores.
    updates: the budget; a seed that has not met the target by then counts as all of it.
    """

    target: float = 0.9 * OPTIMUM
    window: int = 8
    updates: int = 150


GOAL = Goal()
SEEDS = tuple(range(8))
NUM_ENVS = (4, 8, 16)
