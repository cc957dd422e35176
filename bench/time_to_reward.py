"""Environment steps and seconds until a target reward, against Stable-Baselines3's MaskablePPO.

Market and task: the mean-reverting chain (docs/data.md), task `manage` with its default
observation, brackets, costs and reward, account rules off; the optimum is known exactly. Task,
target, budget and hyper-parameters below were committed before either learner was timed. The target
is 0.9 of the optimum, the share that `tests/optimum/test_learning.py` has asked of our learner since
before this bench; a half, tried first, was met with the first updates that the rule can read.

Both learners train on the same market with the same mathematics (`sb3.arguments`) and are read by
one rule (`Recent`), exploration included. Each side runs in a child; one child works at a time,
seeds take turns. Seconds are those of a whole run, network and environments started, without
compilation; what compiling takes in a process that has compiled nothing is beside them. A seed that
misses the target counts as the whole budget.
"""

from collections import deque, namedtuple
from contextlib import ExitStack

import jax
import jax.numpy as jnp
import yaml

from jaxtrade.config import make_config
from jaxtrade.interop.gymnax_adapter import from_gymnax
from jaxtrade.interop.world import load_world
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.types import Summary

from . import harness, sb3, setting
from .learning import learning_of
from .worker import Worker

# Reward per step, in risk units, of the policy that `tests/optimum/dp.py` finds, over the training
# sessions' random starts: a test computes it again.
OPTIMUM = 0.6994
SECTIONS = yaml.safe_load("""
data: {market: ES, synthetic: mean_reversion}
account: {preset: rules_off_50k}
env: {task: manage}
""")
SESSIONS = 40
ROLLOUT = 2_048  # steps of one update, over all environments
PPO = yaml.safe_load("""
num_minibatches: 8
num_epochs: 4
num_shards: 1
hidden: [64, 64]
activation: tanh
normalise_observations: false
normalise_advantages: true
learning_rate: 0.001
learning_rate_end: 0.001
gamma: 0.95
gae_lambda: 0.9
clip_eps: 0.2
ent_coef: 0.01
vf_coef: 0.5
max_grad_norm: 0.5
""")
SEEDS = tuple(range(8))
NUM_ENVS = (4, 8, 16)
BUDGET = 150 * ROLLOUT


# The target, met while the learner still explores. by: `episode`, mean return of the last `window`
# finished episodes or more; `step`, mean reward of the last `window` steps or more.
Goal = namedtuple("Goal", "by target window")
GOAL = Goal("step", 0.9 * OPTIMUM, 8 * ROLLOUT)


class Recent:
    """What a run has given lately.

    One entry per call of `add`: an update, or a step of all environments.
    """

    def __init__(self, goal):
        self._goal = goal
        self._entries = deque()  # (sum, number of what is averaged)
        self._sum, self._count, self.steps = 0.0, 0, 0

    def add(self, steps, reward, episodes=0, returns=0.0):
        """Add an entry.

        steps: environment steps taken. reward: their sum of rewards. episodes, returns: the
        episodes that ended, and the sum of their returns.
        """
        entry = (reward, steps) if self._goal.by == "step" else (returns, episodes)
        self._entries.append(entry)
        self._sum, self._count = self._sum + entry[0], self._count + entry[1]
        self.steps += steps
        while self._count - self._entries[0][1] >= self._goal.window:
            total, count = self._entries.popleft()
            self._sum, self._count = self._sum - total, self._count - count

    @property
    def mean(self):
        """Over the window; minus infinity before there are as many."""
        return self._sum / self._count if self._count >= self._goal.window else float("-inf")

    @property
    def reached(self):
        return self.mean >= self._goal.target

    def result(self, budget):
        """Return `reached`, `steps` and `last`.

        steps: until then, or the whole budget; last: mean of the last window, None if it was never
        full.
        """
        full = self._count >= self._goal.window
        steps = self.steps if self.reached else budget
        return {"reached": self.reached, "steps": steps, "last": self.mean if full else None}


def config_of(num_envs, **more):
    """Return the committed settings with `num_envs` environments.

    The steps and minibatches of an update stay the same.
    """
    ppo = PPO | {"num_envs": num_envs, "num_steps": ROLLOUT // num_envs}
    return setting.config(SESSIONS, ppo=ppo, **SECTIONS | more)


REWARD = Summary(
    start=lambda params: jnp.float32(0),
    collect=lambda seen: seen.reward,
    figures=lambda sums, steps: {"reward": sums / steps},
)


def ours(config, goal, seeds, budget, gymnax=""):
    """Train for `Worker`: each repeat gives `Recent.result`.

    The first repeat traces and compiles, from no cache; each later one trains the next seed until
    the target or the budget. gymnax: name of an environment, empty for the market's.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    chosen, by = make_config(config), Goal(*goal)
    env, params = from_gymnax(gymnax) if gymnax else load_world(chosen)
    updates = budget // (chosen.rollout.num_envs * chosen.rollout.num_steps)
    algorithm, key = make_algorithm(chosen, env, updates, summarise=REWARD), jax.random.key(0)
    steps = algorithm.info.steps_per_update
    yield
    init = jax.jit(algorithm.init).lower(key, params).compile()
    state = jax.eval_shape(algorithm.init, key, params)
    step = setting.update_of(algorithm).lower(state, params).compile()
    yield {}
    for seed in seeds:
        state, recent = init(jax.random.key(seed), params), Recent(by)
        while recent.steps < budget and not recent.reached:
            state, metrics = step(state, params)
            count = int(metrics["episodes"]) if by.by == "episode" else 0
            returns = float(metrics["episode_reward"]) * count if count else 0.0
            recent.add(steps, float(metrics["reward"]) * steps, count, returns)
        yield recent.result(budget)


def stable_baselines(config, goal, seeds, budget, path, threads):
    """Train MaskablePPO under DummyVecEnv, for `Worker`.

    The first repeat chooses the number of torch threads.
    """
    ppo = learning_of(make_config(config))
    envs = sb3.vector_env(path, "dummy", ppo.num_envs)
    yield
    count, trial = sb3.choose_threads(envs, sb3.arguments(ppo), threads)
    yield {"threads": count, "trial_seconds": trial}
    for seed in seeds:
        update, recent = sb3.Learner(ppo, envs, seed), Recent(Goal(*goal))
        while recent.steps < budget and not recent.reached:
            recent.add(ROLLOUT, update() * ROLLOUT)
        yield recent.result(budget)


def summary(replies):
    """Medians over the seeds and, in the seeds' order, every seed's figures."""
    samples, _, answers = zip(*replies, strict=True)
    steps, reached, last = ([each[key] for each in answers] for key in ("steps", "reached", "last"))
    result = {"repeats": len(replies), "reached": sum(reached)}
    columns = (*zip(*samples, strict=True), steps)
    for name, values in zip(("seconds", "cpu_seconds", "env_steps"), columns, strict=True):
        result |= harness.middle(name, values)
        result[f"{name}_each"] = values
    return result | {"last_each": last}


def compare(ours, theirs):
    """How many times sooner we are there (medians), and our environment steps over theirs."""
    clocks = ("seconds", "cpu_seconds")
    compiling = {key: ours[key] + ours[f"compile_{key}"] for key in clocks}
    return harness.sooner(ours, theirs) | {
        "with_compile": harness.sooner(compiling, theirs),
        "env_steps": ours["env_steps"] / theirs["env_steps"],
    }


def raced(sides, seeds):
    """Return side -> `summary`, with what it said when it had prepared.

    They train seed after seed in turns, in a child each. sides: name -> `MODULE.FUNCTION`, its
    arguments, threads.
    """
    work, first, found = {}, {}, {}
    with ExitStack() as stack:
        for name, (function, given, threads) in sides.items():
            worker = Worker(*function.split("."), given, threads, {"NPROC": str(threads)})
            work[name] = stack.enter_context(worker).run
            first[name] = work[name]()  # before the next starts: its compiling or trial is timed
        for name, replies in harness.take_turns(work, seeds).items():
            found[name] = summary(replies) | first[name].answer
            if not first[name].answer:
                wall, cpu = first[name].sample
                found[name] |= {"compile_seconds": wall, "compile_cpu_seconds": cpu}
    return found


def run(options):
    """`sides`: "ours/N" and "sb3/N" with N environments. `ratios`: by N, over SB3 with as many.

    `at_fastest`: the one of these with SB3's least median seconds, the bench's answer.
    """
    counts, seeds = (NUM_ENVS[-1:], SEEDS[:2]) if options.quick else (NUM_ENVS, SEEDS)
    budget = 16 * ROLLOUT if options.quick else BUDGET
    threads = [1] if options.quick else sorted({1, harness.cores()})
    missing = sb3.missing("sb3_contrib")
    env, params = load_world(config_of(counts[0]))
    given, ours, theirs = {"goal": GOAL, "seeds": seeds, "budget": budget}, {}, {}
    with sb3.taped(env.config, params) as path:
        for count in counts:
            own = given | {"config": config_of(count).model_dump(mode="json")}
            ours[f"ours/{count}"] = "time_to_reward.ours", own, 1
            own = own | {"path": path, "threads": threads}
            theirs[f"sb3/{count}"] = "time_to_reward.stable_baselines", own, threads[-1]
        sides = raced(ours if missing else ours | theirs, len(seeds))
    ratios = {
        str(count): compare(sides[f"ours/{count}"], sides[f"sb3/{count}"])
        for count in counts
        if f"sb3/{count}" in sides
    }
    result = {
        "config": {
            "goal": GOAL._asdict(),
            "optimum": OPTIMUM,
            "seeds": len(seeds),
            "rollout": ROLLOUT,
            "sessions": SESSIONS,
            **SECTIONS,
            "ppo": PPO,
        },
        "sides": sides,
        "ratios": ratios,
        "left_out": dict.fromkeys(theirs, missing) if missing else {},
        "differences": {"sb3": list(sb3.DIFFERENCES)},
    }
    if ratios:
        fastest = min(ratios, key=lambda count: sides[f"sb3/{count}"]["seconds"])
        result["at_fastest"] = {"num_envs": int(fastest), **ratios[fastest]}
    return result
