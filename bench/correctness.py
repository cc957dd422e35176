"""Is what this device computes right? Four checks, with figures and the bound to meet.

`trajectories`: the JAX environment's trajectories replayed in its NumPy twin, step by step: masks,
ends, exits, money and the market row have to be equal; rewards and observations may differ by the
rounding of float32. `update`: one update of PPO against NumPy in float64 (`one_update`). `resumed`: a
run, the same run in another process, and that run from its first checkpoint have the same bits.
`seeds`: many agents as one program, each against itself alone. Every check runs in a process of its
own, with products in float32.
"""

from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from jaxtrade.config import TrainConfig
from jaxtrade.env.state import EndReason, ExitReason
from jaxtrade.storage import checkpoint
from jaxtrade.training.loop import train

from . import harness, one_update, population, setting
from .twin import Twin, make_tape

SESSIONS = 4
# Limits so near that accounts end by them, and episodes of several sessions that a limit of steps
# may cut.
STRICT = yaml.safe_load("""
account: {drawdown: 400, daily_loss: 150, profit_target: 250, min_days: 1, on_daily_loss: fail}
episode: {sessions: 3, max_steps: 40}
""")
WANTED = {  # events that a replay must have had to say anything
    "default": "illegal exit_ORDER exit_STOP exit_FLAT end_SESSION_END",
    "strict": "exit_LIQUIDATION end_DAILY_LOSS end_STEP_LIMIT",
}
UPDATE_BOUND = 1e-4  # |our step - their step| / |our step|; float32 on a CPU: below 1e-5
SEEDS_BOUND = 1e-3  # the same measure, of an agent that took the same actions
# Share of the agents that may have taken another action: a draw on the edge of two.
OTHER_ACTIONS = 1 / 16


WILD = 0.04  # share of actions drawn without a look at the mask
ACTS = 0.3  # share of those that are any legal one; the others are HOLD
TOLERANCE = 1e-5  # relative to max(1, |x|)


def play(env, params, slots, rows, key, steps):
    """Play random actions, some of them illegal -> arrays of [steps, N, ...].

    They say where each step stood, what was seen and legal, the action, and what came of it.
    """
    seeds = jnp.arange(len(slots))
    states = jax.vmap(env.reset_at, (None, 0, 0, 0))(params, slots, rows, seeds)

    def one(state, chances):
        ref = env.ref(state, params)
        wild, legal = jnp.int32(chances[1] * 7), setting.choose(ref.mask, chances[0] / ACTS)
        action = jnp.where(chances[2] < WILD, wild, legal)
        following, _, outcome = env.step(key, state, action, params)
        event, order = outcome.info.event, jnp.int32(ExitReason.ORDER)
        return following, {
            "slot": state.slot,
            "row": state.row,
            "time": state.time,
            "mask": ref.mask,
            "action": action,
            "observation": env.observe(ref, params),
            "final": env.observe(outcome.final_ref, params),
            "reward": outcome.reward,
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
            "end": outcome.info.end,
            "equity": outcome.info.equity,
            "exit": jnp.where(event.order_exit_quantity != 0, order, event.exit_reason),
            "illegal": outcome.info.illegal,
            "locked": following.account.locked,
        }

    chances = jax.random.uniform(key, (steps, len(slots), 3))
    return jax.lax.scan(jax.vmap(one), states, chances)[1]


def played(env, params, envs, steps, program):
    """Run `play` from starts all over the split, on the host.

    program: `play`, jitted with `env` and `steps` static.
    """
    rng = np.random.default_rng(0)
    slots = rng.integers(0, int(params.sessions.count), envs)
    table = params.market.sessions
    rows = rng.integers(np.asarray(table.first)[slots], np.asarray(table.last)[slots] + 1)
    given = jnp.asarray(slots), jnp.asarray(rows), jax.random.key(0), steps
    return jax.device_get(program(env, params, *given))


def apart(ours, theirs):
    """Return the greatest difference, relative to max(1, |x|); inf where one is not a number."""
    found = np.abs(np.asarray(ours, np.float64) - theirs) / np.maximum(1, np.abs(theirs))
    return float(np.max(found)) if np.all(np.isfinite(found)) else np.inf


def compare(env, reported):
    """Replay what `play` reported, one environment after the other, until one differs.

    Returns the first difference or None, how often each kind of event was replayed, and the
    greatest differences of rewards and observations before it, relative to max(1, |x|).
    """
    kinds = Counter()
    worst = {"reward": 0.0, "observation": 0.0}

    def far(kind, ours, theirs):
        found = apart(ours, theirs)
        worst[kind] = max(worst[kind], found)
        return found > TOLERANCE

    def differing(lane):
        seen = np.empty(0)
        for step in range(len(reported["row"])):
            then = {name: values[step, lane] for name, values in reported.items()}
            if then["time"] == 0:
                seen, _ = env.reset(options={"slot": then["slot"], "row": then["row"]})
            if env.row != then["row"] or far("observation", seen, then["observation"]):
                return f"step {step}: row {env.row}, not {then['row']}, or observations differ"
            if not np.array_equal(env.action_masks(), then["mask"]):
                return f"step {step}: masks {env.action_masks()}, {then['mask']}"
            refused = env.illegal
            seen, reward, terminated, truncated, info = env.step(then["action"])
            end, illegal = info.get("end_reason", 0), env.illegal - refused
            ours = (terminated, truncated, end, env.equity, env.exit_reason, illegal)
            names = "terminated truncated end equity exit illegal"
            theirs = tuple(then[name].item() for name in names.split())
            if ours != theirs:
                return f"step {step}: {ours}, not {theirs}"
            last = end and far("observation", seen, then["final"])
            if far("reward", reward, then["reward"]) or last:
                return (
                    f"step {step}: reward {reward}, {then['reward']}, or last observations differ"
                )
            kinds.update([f"end_{EndReason(end).name}", f"exit_{ExitReason(env.exit_reason).name}"])
            kinds.update(illegal=illegal, locked=int(then["locked"]))
        return None

    fault = next(filter(None, map(differing, range(reported["row"].shape[1]))), None)
    return fault, kinds, worst


def trajectories(envs, steps):
    """Replay `envs` environments for `steps` steps by the twin on the host.

    The actions are random, some illegal, under the default account and a strict one.
    """
    program = jax.jit(play, static_argnums=(0, 5))
    found = {}
    for name, sections in (("default", {}), ("strict", STRICT)):
        world = setting.world(SESSIONS, **sections)
        reported = played(world.env, world.params, envs, steps, program)
        twin = Twin(make_tape(world.config.env, world.params))
        fault, kinds, worst = compare(twin, reported)
        found[name] = {
            "fault": fault,
            "missing": missing(kinds, name),
            "steps": envs * steps,
            **{f"{name}_difference": each for name, each in worst.items()},
        }
    passed = not any(each["fault"] or each["missing"] for each in found.values())
    return {
        "passed": passed,
        "reference": "the NumPy twin: masks, ends, exits and money equal, the rest within the "
        "bound",
        "bound": TOLERANCE,
        "accounts": found,
    }


def missing(kinds, name):
    """Events of `WANTED` that did not come up."""
    return [kind for kind in WANTED[name].split() if not kinds[kind]]


def update():
    """One update of three epochs with truncated episodes; the weights' step against NumPy's."""
    rollout = one_update.Rollout(loud=one_update.LOUD, hidden=())
    found = one_update.distance(rollout, one_update.reference(rollout))
    return {
        "passed": found < UPDATE_BOUND,
        "difference": found,
        "bound": UPDATE_BOUND,
    }


# -------------------------------------------------------------------------------------------------- the same bits
def _trained(ppo, chunk, folder=None, start=None):
    """Two chunks from the key, or from the checkpoint `start` to their end."""
    world = setting.world(SESSIONS, ppo=ppo)
    algorithm, key = setting.learner(world, 2 * chunk), jax.random.key(0)
    config = TrainConfig(
        total_timesteps=2 * chunk * algorithm.info.steps_per_update,
        chunk_updates=chunk,
        checkpoint_every=1,
        keep_checkpoints=2,
    )
    begin = {"key": key, "checkpoint_dir": folder}
    if start:
        like = jax.eval_shape(algorithm.init, key, world.params)
        begin = {"state": checkpoint.restore(start, like).state}
    return train(algorithm, world.params, config=config, **begin)


def straight(ppo, chunk, folder):
    """Run two chunks of updates, with a checkpoint after each in `folder`."""
    return {"updates": _trained(ppo, chunk, Path(folder)).updates}


def resumed(ppo, chunk, folder):
    """Compare with the end of `straight` the same run again, and one from its first checkpoint.

    Both run in another process than `straight`.
    """
    first, last = (Path(folder) / f"update-{count * chunk:08d}" for count in (1, 2))
    again, onward = _trained(ppo, chunk).state, _trained(ppo, chunk, start=first).state
    end = checkpoint.restore(last, jax.eval_shape(lambda: again)).state
    found = {"again": bits(again, end), "resumed": bits(onward, end)}
    moved = np.any(_plain(end.params)[0])
    return {
        "passed": bool(moved) and not any(each["arrays_differing"] for each in found.values()),
        "bound": "the same bits",
        "updates": 2 * chunk,
        **found,
    }


def bits(one, other):
    """Count the arrays of two train states that differ in a bit.

    Also returns the greatest difference of a parameter.
    """
    pairs = list(zip(_plain(one), _plain(other), strict=True))
    differing = sum(a.tobytes() != b.tobytes() for a, b in pairs)
    worst = np.abs(harness.row_of(one.params) - harness.row_of(other.params)).max()
    return {
        "arrays": len(pairs),
        "arrays_differing": differing,
        "parameter_difference": worst,
    }


def _plain(tree):
    """All arrays on the host; keys as their numbers."""
    kind, leaves = jax.dtypes.prng_key, jax.tree.leaves(tree)
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, kind) else x) for x in leaves
    ]


# --------------------------------------------------------------------------------------------------------- seeds
def seeds(count, ppo, sessions, updates):
    """Train `count` agents as one program, each against the agent of its key alone.

    The programs are those of the bench `population`.
    """
    many, one = (population.agents_of(number, ppo, sessions) for number in (count, 1))

    def trained(agents, keys):
        state = first = agents.init(keys, agents.params)
        for _ in range(updates):
            state, _ = agents.update(state, agents.params)
        return first, state

    keys = many.stack.keys(0)
    _, together = trained(many, keys)
    steps, same = [], 0
    for i in range(count):
        first, state = trained(one, keys[i])
        own = many.stack.agent(together, i)
        if _actions(own) == _actions(state):
            same += 1
            steps.append(harness.distance(first.params, own.params, state.params))
    return seeds_verdict(count, updates, same, steps)


def seeds_verdict(count, updates, same, steps):
    """Judge the seeds.

    same: agents that took the same actions; steps: the difference of each of these.
    """
    worst = max(steps, default=float("inf"))
    return {
        "passed": worst < SEEDS_BOUND and count - same <= OTHER_ACTIONS * count,
        "seeds": count,
        "updates": updates,
        "difference": worst if steps else None,
        "bound": SEEDS_BOUND,
        "with_other_actions": count - same,
        "with_other_actions_at_most": int(OTHER_ACTIONS * count),
    }


def _actions(state):
    """All whole numbers of the environments' states, which are equal after the same actions."""
    leaves = _plain(state.env_state)
    return [x.tobytes() for x in leaves if not np.issubdtype(x.dtype, np.floating)]
