"""PQN, DQN, PPO and Stable-Baselines3's DQN side by side: time and steps to the same reward.

Tasks: CartPole-v1 of gymnax, and the mean-reverting chain (docs/data.md) with the task `manage`
and account rules off, whose optimum is known exactly. Each side trains in a child of its own, seed
by seed, the sides take turns; the rule and the seconds are those of `time_to_reward`. The settings
below were committed before a timed run; CartPole's of PQN and DQN were chosen on seeds from 100 on.
Stable-Baselines3's DQN has on CartPole the settings of its own collection of tuned settings (RL
Baselines3 Zoo, `dqn.yml`), and on the chain those of our DQN, as far as it knows them.
`tests/rl/test_learns.py` trains by the same rows to their end.
"""

from contextlib import ExitStack

import yaml

from jaxtrade.config import load_config
from jaxtrade.interop.world import load_world
from jaxtrade.training.loop import plan_run

from . import sb3
from .time_to_reward import OPTIMUM, Goal, Recent, compare, raced

GYMNAX = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1"}
LEARNERS = ("pqn", "dqn", "ppo")
CHAIN = """
data.market=ES data.source=synthetic data.synthetic=mean_reversion
account.preset=rules_off_50k env.task=manage split.test_sessions=0
"""
SEEDS = tuple(range(5))
GOALS = {"cartpole": Goal("episode", 400.0, 100), "chain": Goal("step", 0.75 * OPTIMUM, 16_384)}
PQN_CONTROL = """
rollout.num_envs=32 rollout.num_steps=64 pqn.num_minibatches=16 pqn.num_epochs=4
pqn.learning_rate=0.0003 pqn.learning_rate_end=0.00001 pqn.gamma=0.99 pqn.q_lambda=0.95
pqn.epsilon_end=0.05 pqn.epsilon_until=0.2 network.hidden=128,128 network.activation=relu
train.total_timesteps=500_000
"""
DQN_CONTROL = """
rollout.num_envs=8 rollout.num_steps=8 dqn.buffer_size=160_000 dqn.batch_size=64
dqn.replay_ratio=8 dqn.learning_starts=1000 dqn.target_every=500 dqn.epsilon_until=0.2
dqn.learning_rate=0.0005 dqn.learning_rate_end=0.00001 train.total_timesteps=160_000
"""
PPO_CONTROL = """
rollout.num_envs=16 rollout.num_steps=64 ppo.num_minibatches=4 ppo.num_epochs=4
ppo.learning_rate=0.001 ppo.learning_rate_end=0.0001 ppo.gamma=0.99 ppo.ent_coef=0.0
train.total_timesteps=400_000
"""
# (task, learner) -> keys; Acrobot is trained by the tests alone. `train.total_timesteps` is the
# budget too: a seed that has not met the target by then counts as all of it.
ROWS = {
    ("cartpole", "pqn"): PQN_CONTROL,
    ("acrobot", "pqn"): PQN_CONTROL,
    ("cartpole", "dqn"): f"{DQN_CONTROL} dqn.n_steps=5",
    ("acrobot", "dqn"): DQN_CONTROL,
    ("cartpole", "ppo"): PPO_CONTROL,
    ("acrobot", "ppo"): PPO_CONTROL,
    ("chain", "pqn"): """
rollout.num_envs=64 rollout.num_steps=128 pqn.num_minibatches=8 pqn.num_epochs=4
pqn.learning_rate=0.001 pqn.learning_rate_end=0.00001 pqn.gamma=0.95 pqn.q_lambda=0.9
pqn.epsilon_end=0.02 pqn.epsilon_until=0.5 network.activation=relu
train.total_timesteps=800_000
    """,
    ("chain", "dqn"): """
dqn.replay_ratio=4 dqn.gamma=0.95 train.total_timesteps=800_000
    """,
    ("chain", "ppo"): """
rollout.num_envs=64 rollout.num_steps=128 ppo.num_minibatches=4 ppo.learning_rate=0.001
ppo.learning_rate_end=0.0001 ppo.normalise_rewards=false ppo.gamma=0.95 ppo.gae_lambda=0.9
ppo.ent_coef=0.02 ppo.ent_coef_end=0.002 train.total_timesteps=800_000
    """,
}
# Keyword arguments of Stable-Baselines3's DQN, and the budget in environment steps. On CartPole: RL
# Baselines3 Zoo, hyperparams/dqn.yml, whose exploration ends after 0.16 of 50,000 steps.
SB3 = yaml.safe_load("""
cartpole:
  budget: 200000
  keywords:
    learning_rate: 0.0023
    batch_size: 64
    buffer_size: 100000
    learning_starts: 1000
    gamma: 0.99
    target_update_interval: 10
    train_freq: 256
    gradient_steps: 128
    exploration_fraction: 0.04  # 0.16 of the collection's 50,000 steps
    exploration_final_eps: 0.04
    policy_kwargs: {net_arch: [256, 256]}
# One gradient step of 256 samples in 64 environment steps: the replay ratio 4 of our row.
chain:
  budget: 800000
  keywords:
    learning_rate: 0.001
    batch_size: 256
    buffer_size: 200000
    learning_starts: 10000
    gamma: 0.95
    n_steps: 3
    target_update_interval: 2000
    train_freq: 64
    gradient_steps: 1
    exploration_fraction: 0.5
    exploration_final_eps: 0.05
    policy_kwargs: {net_arch: [64, 64]}
""")

DIFFERENCES = (
    "Stable-Baselines3's DQN knows no action masks: on the chain an illegal action is executed as HOLD, and its "
    "targets take the maximum over all actions",
    "its DQN is neither double nor dueling; on the chain its learning rate is constant, and it neither normalises "
    "observations nor scales rewards",
    "it trains with one environment, as its tuned settings do; ours has the environments of its row",
)
QUICK_STEPS = 8_192


def config_of(task, learner, steps=None):
    """Return the committed settings of a learner on a task. steps: another budget."""
    more = "" if steps is None else f" train.total_timesteps={steps}"
    chain = CHAIN if task == "chain" else ""
    return load_config(None, f"{chain} algorithm={learner} {ROWS[task, learner]}{more}".split())


def dqn(task, goal, seeds, path):
    """Train Stable-Baselines3's DQN, for `Worker`: on gymnasium's CartPole or on the NumPy twin.

    CartPole has one environment, as the zoo's settings are for one. The first repeat imports torch
    and makes the environment; each later one trains the next seed.
    """
    yield
    import gymnasium
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    if task == "cartpole":
        envs = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    else:
        envs = sb3.vector_env(path, "dummy", 1)
    yield {"threads": 1}
    for seed in seeds:
        yield train(envs, SB3[task], Goal(*goal), seed)


def train(envs, settings, goal, seed):
    """One run of `learn`, which a callback ends once the target is met."""
    from stable_baselines3 import DQN

    keywords = settings["keywords"]
    model = DQN("MlpPolicy", envs, seed=seed, device="cpu", verbose=0, **keywords)
    recent, returns = Recent(goal), 0.0

    def count(seen, _):
        nonlocal returns
        reward, done = float(seen["rewards"][0]), int(seen["dones"][0])
        returns += reward
        recent.add(1, reward, done, done * returns)
        returns *= 1 - done
        return not recent.reached

    model.learn(settings["budget"], callback=count, log_interval=None)
    return recent.result(settings["budget"])


def race(task, quick):
    """Return `sides` and `ratios`.

    `sides`: ours by name, and `sb3_dqn`. `ratios`: of each of ours, as `time_to_reward.compare`
    gives them.
    """
    goal, seeds = GOALS[task], SEEDS[:1] if quick else SEEDS
    missing = sb3.missing("stable_baselines3")
    sides, path = {}, ""
    with ExitStack() as stack:
        for learner in LEARNERS:
            config = config_of(task, learner, QUICK_STEPS if quick else None)
            plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
            given = {"config": config.model_dump(mode="json"), "budget": plan.total_steps}
            given |= {"goal": goal, "seeds": seeds, "gymnax": GYMNAX.get(task, "")}
            sides[learner] = "time_to_reward.ours", given, 1
        if not missing and not quick:
            if task == "chain":
                env, params = load_world(config_of(task, "ppo"))
                path = stack.enter_context(sb3.taped(env.config, params))
            given = {"task": task, "goal": goal, "seeds": seeds, "path": path}
            sides["sb3_dqn"] = "learners.dqn", given, 1
        found = raced(sides, len(seeds))
    theirs = found.get("sb3_dqn")
    ratios = {name: compare(found[name], theirs) for name in LEARNERS} if theirs else {}
    left_out = {"sb3_dqn": missing} if missing else {}
    return {"goal": goal._asdict(), "sides": found, "ratios": ratios, "left_out": left_out}


def run(options):
    """`race`: by task."""
    return {
        "config": {
            "seeds": list(SEEDS),
            "optimum": OPTIMUM,
            "rows": {f"{task}/{name}": keys.split() for (task, name), keys in ROWS.items()},
            "sb3": SB3,
        },
        "race": {task: race(task, options.quick) for task in GOALS},
        "differences": {"sb3_dqn": list(DIFFERENCES)},
    }
