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
# learner -> problem -> overrides
SETTINGS: dict[str, dict[str, tuple[str, ...]]] = {"dqn": DQN}
