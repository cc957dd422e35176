"""The settings with which each learner solves the problems of `defaults_problems`: keys beside the defaults.

CartPole and Acrobot are learnt with few environments and many gradient steps per environment step, the market with
the default rollout.
"""

from __future__ import annotations

DQN_CONTROL = (
    "algorithm=dqn", "train.total_timesteps=80_000", "rollout.num_envs=8", "rollout.num_steps=8",
    "dqn.buffer_size=80_000", "dqn.batch_size=64", "dqn.replay_ratio=8", "dqn.learning_starts=1000",
    "dqn.target_every=500", "dqn.epsilon_until=0.2", "dqn.learning_rate=0.0005", "dqn.learning_rate_end=0.00001",
)
DQN: dict[str, tuple[str, ...]] = {
    "CartPole": DQN_CONTROL,
    "Acrobot": DQN_CONTROL,
    "reversion": ("algorithm=dqn", "train.total_timesteps=800_000", "train.chunk_updates=1", "dqn.replay_ratio=4",
                  "dqn.gamma=0.95"),
}
PQN_CONTROL = (
    "algorithm=pqn", "train.total_timesteps=500_000", "rollout.num_envs=32", "rollout.num_steps=64",
    "pqn.num_minibatches=16", "pqn.num_epochs=4", "pqn.learning_rate_end=0.00001", "pqn.q_lambda=0.95",
    "pqn.epsilon_until=0.2", "network.hidden=128,128", "network.activation=relu",
)
PQN: dict[str, tuple[str, ...]] = {
    "CartPole": PQN_CONTROL,
    "Acrobot": PQN_CONTROL,
    "reversion": ("algorithm=pqn", "train.total_timesteps=800_000", "rollout.num_envs=64", "rollout.num_steps=128",
                  "pqn.num_minibatches=8", "pqn.num_epochs=4", "pqn.learning_rate_end=0.00001", "pqn.gamma=0.95",
                  "pqn.q_lambda=0.9", "pqn.epsilon_end=0.02", "network.activation=relu"),
}
# learner -> problem -> overrides
SETTINGS: dict[str, dict[str, tuple[str, ...]]] = {"dqn": DQN, "pqn": PQN}
