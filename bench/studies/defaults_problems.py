"""What PPO's defaults are chosen on: markets of known optimum, control problems, and real bars.

A score is 1 for the optimum. A market with an optimum above 0: money of the greedy policy over that
of the optimum, on 100 sessions of a path that no training has seen. The martingale, where staying
flat is the optimum: 1 minus the loss over the loss of random trading. CartPole: return over 500.
Acrobot: 1 at a return of -85, 0 at -500 (never up). Real bars: dollars per session, in sample and
on the validation session; the held-out test session is never evaluated.
"""

from collections import namedtuple
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from jaxtrade.config import load_config
from jaxtrade.env.params import make_params
from jaxtrade.interop.gymnax_adapter import from_gymnax
from jaxtrade.rl.state import reset_all
from jaxtrade.runs.setup import prepare

FRESH_SEED, FRESH_SESSIONS = 1_000_003, 100
EPISODES, LIMIT = 50, 501  # of a control problem: greedy episodes, and steps until all have ended
MILLS = 1000.0  # per dollar
MARKET = "data.source=synthetic account.preset=rules_off_50k split.test_sessions=0"


class Problem(NamedTuple):
    """kind: market, control or bars. keys: of the configuration, beside `MARKET` for a market.

    optimum, random: dollars per fresh session of the solved policy and of random trading; a test
    computes them again. environment: gymnax's name.
    """

    kind: str
    keys: str = ""
    optimum: float = 0.0
    random: float = 0.0
    environment: str = ""


TABLE = """
reversion: {kind: market, optimum: 154261.83, random: 12070.65,
            keys: data.synthetic=mean_reversion env.task=manage}
reversion weak: {kind: market, optimum: 165716.87, random: 13802.40,
                 keys: data.synthetic=mean_reversion env.task=manage data.synthetic_pull=0.2}
reversion strong: {kind: market, optimum: 141545.35, random: 6049.20,
                   keys: data.synthetic=mean_reversion env.task=manage data.synthetic_pull=0.8}
trend: {kind: market, optimum: 1040.78, random: -3674.49,
        keys: data.synthetic=trend env.task=manage data.synthetic_drift=0.2}
trend down: {kind: market, optimum: 435.23, random: -3639.45,
             keys: data.synthetic=trend env.task=manage data.synthetic_drift=-0.1}
martingale: {kind: market, optimum: 0.0, random: -3664.91,
             keys: data.synthetic=martingale env.task=manage}
reversion, entry: {kind: market, optimum: 116269.67, random: 5067.41,
                   keys: data.synthetic=mean_reversion env.task=entry}
trend, entry: {kind: market, optimum: 1040.78, random: 391.00,
               keys: data.synthetic=trend env.task=entry data.synthetic_drift=0.2}
reversion, advised: {kind: market, optimum: 154261.83, random: 12070.65,
                     keys: data.synthetic=mean_reversion env.task=advised}
CartPole: {kind: control, environment: CartPole-v1}
Acrobot: {kind: control, environment: Acrobot-v1}
ES week: {kind: bars, keys: split.validation_sessions=1}
"""
PROBLEMS = {name: Problem(**of) for name, of in yaml.safe_load(TABLE).items()}


# env, params: to train on. judge: (algorithm, policies with a leading axis of agents) -> figures of
# each agent, float64[agents] by name; one of them is `score`.
World = namedtuple("World", "env params judge")


def config_of(problem, network, static=()):
    """Return the configuration of a problem: the defaults with some keys set.

    Of real bars, the defaults are those of the quickstart.
    """
    base = "quickstart" if problem.kind == "bars" else None
    keys = f"{MARKET if problem.kind == 'market' else ''} {problem.keys} network.kind={network}"
    return load_config(base, [*keys.split(), *static])


def world_of(problem, config):
    """Return the problem's environment. config: from `config_of`."""
    if problem.kind == "control":
        env, params = from_gymnax(problem.environment)
        return World(env, params, _Returns(env, params, problem.environment))
    setup = prepare(config)
    if problem.kind == "market":
        fresh = {"synthetic_seed": FRESH_SEED, "synthetic_sessions": FRESH_SESSIONS}
        data = config.data.model_copy(update=fresh)
        unseen = prepare(config.model_copy(update={"data": data}))
        return World(setup.env, setup.params, _Money(unseen.env, {"": unseen.params}, problem))
    splits = {
        "in_sample": setup.params,
        "validation": make_params(setup.market, setup.splits["validation"], config),
    }
    return World(setup.env, setup.params, _Money(setup.env, splits, problem))


class _Money:
    """Dollars per session of greedy policies, every session from its first bar, side by side."""

    def __init__(self, env, splits, problem):
        self.env, self.splits, self.problem = env, splits, problem
        self.programs = {}

    def __call__(self, algorithm, policies):
        made = {name: self._dollars(algorithm, policies, name) for name in self.splits}
        if self.problem.kind == "bars":
            told = {f"dollars_{name}": dollars for name, dollars in made.items()}
            return told | {"score": made["validation"]}
        return {"dollars": made[""], "score": score_of(self.problem, made[""])}

    def _dollars(self, algorithm, policies, name):
        params = self.splits[name]
        table, count = params.market.sessions, int(params.sessions.count)
        # the first learner's `act` serves all: they have the same network
        if name not in self.programs:
            bars = np.asarray(table.last) - np.asarray(table.first) + 1
            length = int(bars[np.asarray(params.sessions.ids)[:count]].max())
            one = jax.vmap(_session(self.env, algorithm, length), (None, 0, None))
            self.programs[name] = jax.jit(jax.vmap(one, (0, None, None)))
        made = self.programs[name](policies, jnp.arange(count), params)
        return np.asarray(made, np.float64).mean(axis=1) / MILLS


def _session(env, algorithm, length):
    """(policy, slot of the session, params) -> mills that the greedy policy makes in it."""

    def run(policy, slot, params):
        session, table = params.sessions.ids[slot], params.market.sessions

        def decide(loop, _):
            carry, state = loop
            ref = env.ref(state, params)
            after, action, _ = algorithm.act(policy, carry, ref, params, None, False)
            order = env.decode(jnp.where(ref.mask[action], action, 0), state, params)
            moved, _ = env.transition(state, order, params)
            over = state.row > table.last[session]  # a half day: nothing after its flat bar
            moved = after, moved
            return jax.tree.map(partial(jnp.where, over), (carry, state), moved), None

        state = env.reset_at(params, slot, table.first[session])
        (_, state), _ = jax.lax.scan(decide, (algorithm.carry, state), None, length=length)
        return state.account.balance

    return run


def score_of(problem, dollars):
    """Return the score of dollars per fresh session."""
    return dollars / problem.optimum if problem.optimum > 0 else 1.0 - dollars / problem.random


class _Returns:
    """Mean return of greedy episodes of a control problem."""

    def __init__(self, env, params, name):
        self.env, self.params, self.name = env, params, name
        self.program = None

    def __call__(self, algorithm, policies):
        if self.program is None:
            self.program = jax.jit(jax.vmap(_episodes(self.env, algorithm), (0, None)))
        returns = np.asarray(self.program(policies, self.params), np.float64)
        return {
            "return": returns,
            "score": returns / 500 if "CartPole" in self.name else (returns + 500) / 415,
        }


def _episodes(env, algorithm):
    """(policy, params) -> mean return of `EPISODES` greedy episodes."""

    def run(policy, params):
        act = jax.vmap(algorithm.act, (None, 0, 0, None, None, None))

        def step(loop, key):
            carry, state, ref, alive, total = loop
            carry, action, _ = act(policy, carry, ref, params, None, False)
            state, ref, outcome = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(key, EPISODES), state, action, params
            )
            total += jnp.where(alive, outcome.reward, 0.0)
            alive &= ~(outcome.terminated | outcome.truncated)
            return (carry, state, ref, alive, total), None

        carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (EPISODES, *x.shape)), algorithm.carry)
        begun = reset_all(env, jax.random.key(1), params, EPISODES)
        start = carry, *begun, jnp.ones(EPISODES, bool), jnp.zeros(EPISODES)
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(2), LIMIT))[0][-1].mean()

    return run
