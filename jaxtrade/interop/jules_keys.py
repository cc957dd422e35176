"""The keys of IntradayJules' configurations (Stable-Baselines3 style), and what becomes of each
here.

`PLAIN` keys are taken as ours, value for value; `{learner}` is the section of the chosen learner. `MADE` keys are taken
too, by the functions of `interop.jules_config`. `NO_MEANING` and `UNSUPPORTED` say why a key is not taken. A name that
ends in `.*` stands for all keys below it.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxtrade.config.faults import PARAMETERS

DQN, PPO, PQN = "dqn", "ppo", "pqn"
# `algorithm` there -> ours, and keys that go with it.
ALGORITHMS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "DQN": (DQN, {}),
    "PQN": (PQN, {}),
    "PPO": (PPO, {}),
    "RecurrentPPO": (PPO, {"network.kind": "gru"}),  # a GRU where sb3-contrib has an LSTM
}
NOT_HERE = ("QR-DQN", "QRDQN", "A2C", "SAC", "TD3", "DDPG")

PLAIN: Mapping[str, str] = {
    "training.total_timesteps": "train.total_timesteps",
    "environment.lookback_window": "env.window",
    "environment.max_steps": "episode.max_steps",
    "seed": "seed",
    "training.seed": "seed",
}
MADE = (
    "algorithm",
    "training.algorithm",
    "training.vectorized_training.n_envs",
    "training.vectorized_training.symbols",
    "training.vectorized_training.data_dir",
    "training.vectorized_training.monitor.enabled",
    "environment.observation_feature_cols",
    "environment.initial_balance",
    "environment.reward_type",
    "environment.action_type",
    "hardware.cpu.torch_threads",
    *(
        f"training.algo_params.{name}"
        for name in (
            "learning_rate",
            "train_freq",
            "gradient_steps",
            "tau",
            "prioritized_replay",
            "policy",
            "n_steps",
            "seed",
            "policy_kwargs.net_arch",
        )
    ),
    *(f"training.algo_params.{name}" for names in PARAMETERS.values() for name in names),
)
NO_MEANING: Mapping[str, str] = {
    "training.log_interval": "every update is a row of metrics.jsonl",
    "training.vectorized_training.enabled": "environments always step side by side, in one program",
    "training.vectorized_training.use_shared_memory": "there are no worker processes: all environments are rows of "
    "arrays in one address space",
    "training.vectorized_training.max_envs": "rollout.num_envs: auto is limited by memory and by measured speed",
    "training.vectorized_training.monitor.log_path": "monitor.csv is in the run's folder",
    "training.vectorized_training.monitor.info_keywords": "monitor.csv has all four keywords as columns: drawdown, "
    "turnover, sharpe_ratio, max_drawdown",
    "training.algo_params.verbose": "progress is shown unless --quiet is given",
    "training.algo_params.device": "JAX takes the accelerator if there is one",
    "training.algo_params.tensorboard_log": "event files are in tensorboard/ of the run's folder (train.tensorboard)",
    "training.algo_params.optimize_memory_usage": "the replay keeps references, and no observations",
    "environment.reward_scaling": "rewards are divided by their running deviation (normalise_rewards of the learner)",
    "feature_engineering.*": "env.features names what is observed; each feature has its window in its name (ema_10)",
    "data.data_dir_raw": "a run reads the files that it names (data.folder) and keeps no other copy",
    "data.data_dir_processed": "a market is made from its files at every start",
    "logging.*": "a run writes run.log, and --quiet limits what is shown",
    "monitoring.*": "what a run measures is in summary.json and metrics.jsonl (jaxtrade train --perf)",
    "hardware.cpu.affinity": "the operating system places the one process; its threads are compute.threads",
    "hardware.memory.shm_size": "there is no shared memory to size",
    "hardware.memory.replay_buffer_size": "it repeats training.algo_params.buffer_size",
    "requirements.*": "jaxtrade doctor examines the machine",
    "benchmarks.*": "figures are measured (jaxtrade bench, jaxtrade train --perf), never configured",
    "usage_example": "it is text",
}
UNSUPPORTED: Mapping[str, str] = {
    "environment.transaction_cost": "a share of the traded value; costs here are dollars and ticks per side: set "
    "costs.commission and costs.slippage (the contract's own are used)",
    "environment.include_market_impact_features": "no order book is simulated",
    "environment.risk_penalty": "weigh a reward term instead: reward.weights",
    "environment.transaction_penalty": "the reward is net of costs; weigh a term instead: reward.weights",
    "risk.*": "drawdown and loss limits are rules of the account (account.drawdown, account.daily_loss), early "
    "stopping is control.patience",
    "data.enhance_with_order_book": "no order book is simulated",
    "data.order_book_simulation.*": "no order book is simulated",
    "training.algo_params.policy_kwargs.activation_fn": "set network.activation to tanh or relu",
    "training.algo_params.prioritized_replay_eps": "the least priority is fixed",
    "training.algo_params.prioritized_replay_beta_iters": "beta changes over the whole run (dqn.priority_beta_end)",
}
