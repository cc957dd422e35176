"""A second shared market, in plain Python, to hold the JAX one against.

Each agent is an `OracleEnv` with prices of its own world: here the offset is added to the bars, row
by row, and positions keep the prices at which they were filled. (The JAX environment does the
opposite: it leaves the bars and moves the positions.) The market maker keeps a book of cash and
contracts, marked at the prices at which agents would leave.
"""

import dataclasses
import math
from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.env.shared import ImpactParams, SharedEnv
from jaxtrade.env.state import EndReason
from jaxtrade.types import AGENTS
from tests import compiling
from tests.env.worlds import i32, ints
from tests.oracle.agreement import EVENTS, INTS, WILD, columns, differing, jax_ints, oracle_ints
from tests.oracle.engines import env_config
from tests.oracle.events import habit_logits, habits_of
from tests.oracle.model import HOLD, Ask, sign
from tests.oracle.oracle import OracleEnv

PRICES = ("open", "high", "low", "close")
LEVELS = ("entry", "stop", "target")


@dataclasses.dataclass(frozen=True)
class Impact:
    """As the section `shared`; decay in thousandths."""

    kappa: int = 0
    eta: int = 0
    decay: int = 1000


def rounded(thousandths):
    """The nearest whole tick, a half away from zero."""
    ticks = math.floor(abs(thousandths) / 1000 + 0.5)
    return ticks if thousandths >= 0 else -ticks


class SharedOracle:
    """`count` agents in one world. The caller says where a world starts; accounts that end are
    renewed here.

    slot, row, left: the session of the split, the decision bar, and the sessions that follow in
        this episode.
    """

    def __init__(self, bars, settings, count, impact):
        self.bars, self.settings, self.rules = bars, settings, impact
        prices = {name: list(getattr(bars, name)) for name in PRICES}
        ask = bars.ask and Ask(
            *(list(getattr(bars.ask, name)) for name in PRICES), paths=bars.ask.paths
        )
        self.world = dataclasses.replace(bars, ask=ask, **prices)
        self.agents = [
            OracleEnv(bars, settings) for _ in range(count)
        ]  # features come from the historical bars
        for agent in self.agents:
            agent.bars = self.world
        self.cash = self.contracts = self.paid = self.ended = 0

    @property
    def session(self):
        return self.bars.sessions[self.agents[0].slots[self.slot]]

    def reset(self, slot, row):
        """A new world, at historical prices; nobody holds anything."""
        for agent in self.agents:
            self.ended += agent.account.equity
            agent.reset(slot, row)
        self.left = self.settings.episode_sessions - 1
        self._open(slot, row)

    def _open(self, slot, row):
        self.slot, self.row = slot, row
        self.offset = self.flow = self.impact = 0
        self._place(row, 0)

    def _place(self, row, ticks):
        """The prices of a bar under an offset."""
        for side, source in ((self.world, self.bars), (self.world.ask, self.bars.ask)):
            for name in PRICES if side is not None else ():
                getattr(side, name)[row] = getattr(source, name)[row] + ticks

    def maker(self):
        """Mills: cash of the market maker and its contracts, at the prices at which the agents
        would leave.
        """
        marks = sum(
            agent.position.quantity * agent.leaving(agent.position.side).close[agent.row]
            for agent in self.agents
        )
        return (self.cash - marks) * self.settings.tick_mills

    def money(self):
        """Mills: equity of all accounts, open or ended, and of the market maker, plus all
        commissions.
        """
        return (
            sum(agent.account.equity for agent in self.agents)
            + self.ended
            + self.maker()
            + self.paid
        )

    def step(self, actions):
        """One bar. Accounts that end are renewed by `renew`, after the caller has looked at
        them.
        """
        self.offset = (
            math.trunc(Fraction(self.offset * self.rules.decay, 1000))
            + self.rules.kappa * self.flow
        )
        self._place(self.row + 1, rounded(self.offset))
        legal = [agent.mask()[action] for agent, action in zip(self.agents, actions, strict=True)]
        orders = [
            agent.decode(action if fine else HOLD)
            for agent, action, fine in zip(self.agents, actions, legal, strict=True)
        ]
        net = sum(
            _bought_at_open(agent, order.quantity)
            for agent, order in zip(self.agents, orders, strict=True)
        )
        size = self.rules.kappa * abs(net) + math.isqrt(self.rules.eta**2 * abs(net))
        self.impact = rounded(self.offset + (size if net > 0 else -size)) - rounded(self.offset)
        results = []
        for agent, action, order, fine in zip(self.agents, actions, orders, legal, strict=True):
            agent.impact = self.impact
            agent.stats.illegal += not fine
            results.append(agent.step_order(order, action, fine))
        self._book([result.event for result in results])
        return results

    def _book(self, events):
        """The market maker takes the other side of every fill."""
        self.flow = 0
        for event in events:
            for quantity, price in (
                (-event.order_exit_quantity, event.order_exit_price),
                (event.entry_quantity, event.entry_price),
                (-event.exit_quantity, event.exit_price),
            ):
                self.flow += quantity
                self.contracts -= quantity
                self.cash += quantity * price
            self.paid += event.commission

    def renew(self):
        """Go on to the next bar: a new account at the same place for each that has ended. True if
        the world is over.
        """
        over = self.row + 1 == self.session.last + 1
        if over and (
            not self.left or self.slot + 1 == len(self.agents[0].slots) or not self.session.complete
        ):
            return True
        if over:
            self.left -= 1
            self._open(self.slot + 1, self.bars.sessions[self.agents[0].slots[self.slot + 1]].first)
        else:
            self.row += 1
        for agent in self.agents:
            if agent.done:
                self.ended += agent.account.equity
                agent.reset(self.slot, self.row)
                agent.sessions_left = self.left
        return False


def _bought_at_open(agent, wanted):
    held, side = agent.position.quantity, sign(wanted)
    closes = -held if held and side != agent.position.side else 0
    return closes + (wanted if held + closes == 0 and side and agent.may_enter() else 0)


# --- the JAX side -----------------------------------------------------------------------------------------------------


def impact_arrays(impact, settings, count):
    """The table is made again here: float square roots, which are exact enough for small
    numbers.
    """
    most = 2 * settings.quantity * count
    return ImpactParams(
        i32(impact.kappa),
        i32(impact.decay),
        i32([math.floor(impact.eta * math.sqrt(n) + 1e-9) for n in range(most + 1)]),
    )


def make_rollout(settings):
    """jit of (params, keys[A], logits[A, K], noise[T, A, E, K], wild[T, A, E]) -> trace [T, A, E]
    of E worlds.
    """
    env = SharedEnv(env_config(settings))

    def one(state, params, logits, noise, wild):
        mask = env.mask(state, params)
        action = jnp.where(wild >= 0, wild, jnp.argmax(jnp.where(mask, logits + noise, -jnp.inf)))
        following, _, outcome = env.step(jax.random.key(0), state, action, params)
        return following, {"state": state, "mask": mask, "action": action, "info": outcome.info}

    def rollout(params, keys, logits, noise, wild):
        worlds = wild.shape[2]

        def start(key):
            return jax.vmap(env.reset, (0, None))(jax.random.split(key, worlds), params)[0]

        def agent(states, logits, noise, wild):
            return jax.vmap(one, (0, None, None, 0, 0))(states, params, logits, noise, wild)

        def body(states, inputs):
            return jax.vmap(agent, axis_name=AGENTS)(states, logits, *inputs)

        return jax.lax.scan(body, jax.vmap(start, axis_name=AGENTS)(keys), (noise, wild))[1]

    return jax.jit(rollout, compiler_options=compiling.fast())


def play(
    rollout,
    params,
    settings,
    count,
    worlds,
    steps,
    seed,
):
    """A trace of random, mostly legal actions; every agent has a habit of its own."""
    rng, actions = np.random.default_rng(seed), settings.num_actions
    shape = (steps, count, worlds)
    noise = rng.gumbel(size=(*shape, actions)).astype(np.float32)
    wild = np.where(rng.random(shape) < WILD, rng.integers(0, actions, shape), -1).astype(np.int32)
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.device_get(
        rollout(params, keys, habit_logits(habits_of(count), actions), noise, wild)
    )


EVENT_PRICES = {
    "order_exit_price": "order_exit_quantity",
    "entry_price": "entry_quantity",
    "exit_price": "exit_quantity",
    "favourable": None,
    "adverse": None,
}
WORLD = ("offset", "impact", "maker", "inventory")


def compare(trace, bars, settings, impact):
    """Replay every world in the oracle -> kinds of events. Raises AssertionError at the first
    difference.
    """
    kinds = Counter()
    for world in range(trace["action"].shape[2]):
        mine = jax.tree.map(lambda leaf, world=world: np.asarray(leaf[:, :, world]), trace)
        _compare_world(
            mine,
            SharedOracle(bars, settings, mine["action"].shape[1], impact),
            kinds,
            f"world {world}",
        )
    return kinds


def _compare_world(trace, oracle, kinds, where):
    state, event, over = trace["state"], trace["info"].event, True
    states, events = _states(state), _events(event)
    for i in range(len(trace["action"])):
        if over:
            oracle.reset(int(state.slot[i, 0]), int(state.row[i, 0]))
        for a, agent in enumerate(oracle.agents):
            fault = differing(f"{where} step {i} agent {a}", INTS, states[i, a], oracle_ints(agent))
            assert fault is None, fault
            assert agent.mask() == trace["mask"][i, a].tolist(), f"{where} step {i} agent {a}: mask"
        inventory, before = oracle.contracts, oracle.maker()
        results = oracle.step(trace["action"][i].tolist())
        for a, result in enumerate(results):
            fault = differing(
                f"{where} step {i} agent {a}",
                (*EVENTS, "end", "equity"),
                [
                    *events[i, a].tolist(),
                    int(trace["info"].end[i, a]),
                    int(trace["info"].equity[i, a]),
                ],
                [
                    *ints(result.event, *EVENTS),
                    int(result.end),
                    oracle.agents[a].account.equity,
                ],
            )
            assert fault is None, fault
            kinds.update(result.event.kinds)
        theirs = [rounded(oracle.offset), oracle.impact, oracle.maker() - before, inventory]
        for a in range(len(results)):
            found = [
                *(int(getattr(event, name)[i, a]) for name in WORLD[:3]),
                int(state.world.inventory[i, a]),
            ]
            assert found == theirs, (
                f"{where} step {i} agent {a}: {WORLD}: jax {found}, oracle {theirs}"
            )
        assert oracle.money() == 0, f"{where} step {i}: money does not add up in the oracle itself"
        ended = [
            result.end not in (EndReason.NONE, EndReason.SESSION_END, EndReason.END_OF_DATA)
            for result in results
        ]
        kinds["moved"] += rounded(oracle.offset) != 0
        kinds["paid"] += oracle.impact != 0
        over = oracle.renew()
        kinds["renewed"] += sum(ended) and not over
        kinds["over"] += over


def _states(state):
    """int64[T, A, len(INTS)]: levels as prices, without the offset taken away."""
    offset = np.vectorize(rounded)(state.world.offset)
    values = jax_ints(state)
    for name in LEVELS:
        values[..., INTS.index(name)] += np.where(state.position.quantity != 0, offset, 0)
    return values


def _events(event):
    """int64[T, A, len(EVENTS)]: prices with the offset added."""
    values = columns(event, EVENTS)
    for name, quantity in EVENT_PRICES.items():
        filled = True if quantity is None else getattr(event, quantity) != 0
        values[..., EVENTS.index(name)] += np.where(filled, event.offset, 0)
    return values
