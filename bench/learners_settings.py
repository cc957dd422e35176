"""What `learners` asks for: tasks, targets, budgets and the settings of every learner, committed
before a timed run.

Tasks: CartPole-v1 and Acrobot-v1 of gymnax, and the mean-reverting chain (docs/synthetic.md) with
    the task `manage` and
account rules off, whose optimum is known exactly. CartPole's settings of PQN and DQN were chosen on
seeds from 100 on; the bench uses others. Stable-Baselines3's DQN has on CartPole the settings of
its own collection of tuned settings (RL Baselines3 Zoo, `dqn.yml`), and on the chain those of our
DQN, as far as it knows them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TASKS = ("cartpole", "acrobot", "chain")
GYMNAX = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1"}
LEARNERS = ("pqn", "dqn", "ppo")
CHAIN = (
    "data.market=ES",
    "data.source=synthetic",
    "data.synthetic=mean_reversion",
    "account.preset=rules_off_50k",
    "env.task=manage",
    "split.test_sessions=0",
)
FRESH = (
    "data.synthetic_seed=1000003",
    "data.synthetic_sessions=100",
)  # bars that no training has seen
# Reward per step, in risk units, of the exact optimum over random starts: a test computes both
# again.
OPTIMUM = 0.6994
OPTIMUM_FRESH = 0.6994
SEEDS = tuple(range(5))
EPISODES = 200  # of a greedy score; on the chain as many environments side by side
STEPS = 2_048  # of a greedy score on the chain, in each environment


class Goal(NamedTuple):
    """The target of the race, met while the learner still explores.

    by: `episode`, mean return of the last `window` finished episodes or more; `step`, mean reward
        of the last `window`
    steps or more.
    """

    by: str
    target: float
    window: int


GOALS = {"cartpole": Goal("episode", 400.0, 100), "chain": Goal("step", 0.75 * OPTIMUM, 16_384)}
# What a greedy score must reach: CartPole's own threshold, gymnasium's for Acrobot, and a share of
# the chain's optimum.
WANTED = {"cartpole": 475.0, "acrobot": -100.0, "chain": 0.85}
_PQN_CONTROL = (
    "rollout.num_envs=32",
    "rollout.num_steps=64",
    "pqn.num_minibatches=16",
    "pqn.num_epochs=4",
    "pqn.learning_rate=0.0003",
    "pqn.learning_rate_end=0.00001",
    "pqn.gamma=0.99",
    "pqn.q_lambda=0.95",
    "pqn.epsilon_end=0.05",
    "pqn.epsilon_until=0.2",
    "network.hidden=128,128",
    "network.activation=relu",
    "train.total_timesteps=500_000",
)
_DQN_CONTROL = (
    "rollout.num_envs=8",
    "rollout.num_steps=8",
    "dqn.buffer_size=160_000",
    "dqn.batch_size=64",
    "dqn.replay_ratio=8",
    "dqn.learning_starts=1000",
    "dqn.target_every=500",
    "dqn.epsilon_until=0.2",
    "dqn.learning_rate=0.0005",
    "dqn.learning_rate_end=0.00001",
    "train.total_timesteps=160_000",
)
# (task, learner) -> keys. `train.total_timesteps` is the budget too: a seed that has not met the
# target by then counts as all of it.
ROWS: dict[tuple[str, str], tuple[str, ...]] = {
    ("cartpole", "pqn"): _PQN_CONTROL,
    ("acrobot", "pqn"): _PQN_CONTROL,
    ("chain", "pqn"): (
        "rollout.num_envs=64",
        "rollout.num_steps=128",
        "pqn.num_minibatches=8",
        "pqn.num_epochs=4",
        "pqn.learning_rate=0.001",
        "pqn.learning_rate_end=0.00001",
        "pqn.gamma=0.95",
        "pqn.q_lambda=0.9",
        "pqn.epsilon_end=0.02",
        "pqn.epsilon_until=0.5",
        "network.activation=relu",
        "train.total_timesteps=800_000",
    ),
    ("cartpole", "dqn"): (*_DQN_CONTROL, "dqn.n_steps=5"),
    ("acrobot", "dqn"): _DQN_CONTROL,
    ("chain", "dqn"): ("dqn.replay_ratio=4", "dqn.gamma=0.95", "train.total_timesteps=800_000"),
    ("cartpole", "ppo"): (
        "rollout.num_envs=16",
        "rollout.num_steps=64",
        "ppo.num_minibatches=4",
        "ppo.num_epochs=4",
        "ppo.learning_rate=0.001",
        "ppo.learning_rate_end=0.0001",
        "ppo.gamma=0.99",
        "ppo.ent_coef=0.0",
        "train.total_timesteps=400_000",
    ),
    ("acrobot", "ppo"): (
        "rollout.num_envs=16",
        "rollout.num_steps=64",
        "ppo.num_minibatches=4",
        "ppo.num_epochs=4",
        "ppo.learning_rate=0.001",
        "ppo.learning_rate_end=0.0001",
        "ppo.gamma=0.99",
        "ppo.ent_coef=0.0",
        "train.total_timesteps=400_000",
    ),
    ("chain", "ppo"): (
        "rollout.num_envs=64",
        "rollout.num_steps=128",
        "ppo.num_minibatches=4",
        "ppo.learning_rate=0.001",
        "ppo.learning_rate_end=0.0001",
        "ppo.normalise_rewards=false",
        "ppo.gamma=0.95",
        "ppo.gae_lambda=0.9",
        "ppo.ent_coef=0.02",
        "ppo.ent_coef_end=0.002",
        "train.total_timesteps=800_000",
    ),
}
# Keyword arguments of Stable-Baselines3's DQN, and the budget in environment steps. On CartPole: RL
# Baselines3 Zoo, hyperparams/dqn.yml, whose exploration ends after 0.16 of 50,000 steps.
SB3: dict[str, tuple[dict[str, Any], int]] = {
    "cartpole": (
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16 * 50_000 / 200_000,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
        200_000,
    ),
    # One gradient step of 256 samples in 64 environment steps: the replay ratio 4 of our row.
    "chain": (
        {
            "learning_rate": 1e-3,
            "batch_size": 256,
            "buffer_size": 200_000,
            "learning_starts": 10_000,
            "gamma": 0.95,
            "n_steps": 3,
            "target_update_interval": 2_000,
            "train_freq": 64,
            "gradient_steps": 1,
            "exploration_fraction": 0.5,
            "exploration_final_eps": 0.05,
            "policy_kwargs": {"net_arch": [64, 64]},
        },
        800_000,
    ),
}
