"""Small worlds to trade on paper in: bars, a lively policy, and the evaluation's account pass."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import make_config
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import bars_of
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_env, make_params
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.rails import PaperConfig
from jaxtrade.paper.session import JOURNAL, Session
from jaxtrade.rl.ppo import make_ppo
from tests.evaluation.tiny import lively

GRU = {"network": {"kind": "gru", "rnn_width": 8, "hidden": [16]}, "ppo": {"num_minibatches": 1}}
SMALL = {"network": {"hidden": [16]}}
GUARDS = {"guards": {"cooldown": 2, "trades_per_day": 4, "daily_stop": 300.0}}
FX = {"data": {"market": "EURUSD"}}
LOOSE = {"account": {"drawdown": 1500.0}}
WORLDS = {
    "ES": SMALL | {"account": {"drawdown": 400.0}},
    "FX": GRU | FX | LOOSE | {"env": {"task": "advised"}, "episode": {"sessions": 2}},
    "free": SMALL | FX | {"env": GUARDS, "account": {"preset": "rules_off_50k"}},
    "short": GRU | FX | {"account": {"drawdown": 500.0}},
}
SESSIONS = {"ES": 3, "FX": 40, "free": 5, "short": 5}
NAME, HOUR = "short", 3600
NAMED = {
    "broker": "ninjatrader",
    "accounts": ("Sim101",),
    "simulation": True,
    "instrument": "ES 12-26",
}
RAILS = PaperConfig.model_validate(NAMED)


class World(NamedTuple):
    config: Any
    bars: Any
    env: Any
    params: Any
    policy: Any
    learner: Any
    decisions: Any
    first: int  # row at which the feed begins

    @property
    def history(self):
        return self.bars.rows(slice(0, self.first))

    @property
    def feed(self):
        return self.bars.rows(slice(self.first, None))


def holed(bars):
    """Bars of which every third date lacks the last hours, one has a single bar, and the last one
    is cut short: only later bars, or the end of the data, show that a session is over."""
    dates, at = np.unique(bars.trade_dates, return_inverse=True)
    since = np.arange(len(bars)) - bars.date_starts[at]
    left = np.bincount(at)[at] - since
    back = len(dates) - 1 - at
    gone = (back % 3 == 1) & (left <= 9) | (back == 2) & (since > 0) | (back == 0) & (left <= 12)
    return bars.rows(~gone)


@functools.cache
def world(name):
    config = make_config(WORLDS[name])
    bars = holed(bars_of(config))
    market = build_market(bars, config)
    ids = np.arange(market.num_sessions - SESSIONS[name], market.num_sessions)
    sessions = session_set(ids, market.num_sessions)
    env, params = make_env(config), make_params(market, sessions, config)
    policy = lively(config, env, by=30)
    with tempfile.TemporaryDirectory() as folder:
        save_policy_bundle(Path(folder) / "policy", policy, env, market, config)
        loaded = load_policy(folder)
    decisions = decision_bars(market.data, sessions)
    first = int(market.data.sessions.start[ids[0]])
    return World(config, bars, env, params, loaded, make_ppo(config, env, 1), decisions, first)


@functools.cache
def evaluated(name):
    """(record, observations) of the account pass."""
    made = world(name)
    agent = greedy(made.learner, made.policy.policy, made.env)
    record = backtest(made.env, agent, made.params, made.decisions, "account", jax.random.key(0))
    seen = jax.jit(jax.vmap(made.env.observe, (0, None)))(record.ref, made.params)
    return record, np.asarray(seen)


def begin(name, folder, rails=None, history=None, **others):
    made = world(name)
    history = made.history if history is None else history
    return Session(folder, made.config, made.policy, history, rails or PaperConfig(), **others)


def short(name, bars=400):
    """The history that a session needs, which builds faster."""
    made = world(name)
    return made.bars.rows(slice(made.first - bars, made.first))


@functools.cache
def messages():
    return list(bars_messages(world(NAME).feed))


def source(messages, first=0):
    return messages


class Fake:
    """A small NinjaTrader: reads incoming files at once, fills at `price`, answers in outgoing.

    It outlives this process.
    """

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "fake.json"
        self.held, self.orders, self.seen, self.lines = 0, {}, [], []
        for name in ("incoming", "outgoing"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            self.held, self.orders, self.seen, self.lines = json.loads(self.file.read_text())

    def run(self, price):
        """Take the files. Returns their lines."""
        new = []
        for path in sorted((self.folder / "incoming").iterdir()):
            assert path.match("oif*.txt")
            assert path.name not in self.seen
            *lines, end = path.read_text().split("\n")
            assert end == ""
            self.seen.append(path.name)
            path.unlink()
            for line in lines:
                self.take(line.split(";"), price)
            new += lines
        self.lines += new
        self.save()
        return new

    def take(self, fields, price):
        assert len(fields) == 13
        name, account, instrument, action, qty, kind, _, level, _, _, key, *_ = fields
        match name:
            case "PLACE":
                assert (account, instrument) == ("Sim101", "ES 12-26")
                assert key not in self.orders
                signed = int(qty) * (1 if action == "BUY" else -1)
                self.orders[key] = [kind, signed, level]
                if kind == "MARKET":
                    self.fill(key, price)
            case "CHANGE":
                self.orders[key][2] = level
            case "CANCEL":
                del self.orders[key]
            case "CLOSEPOSITION":
                self.orders, self.held = {}, 0
                self.report(0)
            case _:
                raise AssertionError(name)

    def fill(self, key, price):
        quantity = self.orders.pop(key)[1]
        self.held += quantity
        (self.folder / "outgoing" / f"{key}.txt").write_text(f"FILLED;{abs(quantity)};{price}")
        if not self.held:
            self.orders = {}
        self.report(price)

    def hold(self, quantity):
        """Hold a position that nobody ordered."""
        self.held = quantity
        self.report(0)
        self.save()

    def save(self):
        self.file.write_text(json.dumps([self.held, self.orders, self.seen, self.lines]))

    def report(self, price):
        side = "LONG" if self.held > 0 else "SHORT" if self.held < 0 else "FLAT"
        path = self.folder / "outgoing" / "ES 12-26 Globex_Sim101_Position.txt"
        path.write_text(f"{side}; {abs(self.held)}; {price}")


class Clock:
    now = 0

    def __call__(self):
        return self.now


def recorded(folder):
    return [json.loads(line) for line in (folder / JOURNAL).read_bytes().split(b"\n")[:-1]]
