"""How often an advisor is trusted: without skill (false trust), and with it (power).

Markets are the bundled week of ES, its phase-randomised copies and random walks on its sessions. An
advisor gives an opinion (+1 or -1, confidence 0.6) about every decision bar of the training
sessions. Its answers become visible in a random order, `ROWS` at a time, and are scored by the
library's own `what_followed`, `score_delta` and `log_odds`. Trust is false if it is not 0 after the last
answer, in any range of confidence. `ever` also counts draws in which it was not 0 at some earlier
time. Every draw has another market (except real bars), other opinions and another order.

`answers` is the rule of earlier versions, at its own default of 2 standard errors; `blocks` is today's.
"""

from collections import namedtuple
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from jaxtrade.advisor.outcomes import log_odds, no_outcomes, score_delta, what_followed
from jaxtrade.advisor.questions import in_sessions, round_turn
from jaxtrade.advisor.table import Delta
from jaxtrade.config import AdvisorConfig, load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.data.synthetic import phase_randomised_bars

from . import main

DRAWS, QUICK_DRAWS, BATCH = 1_000, 20, 50
ROWS = 64  # answers that become visible together
CONFIDENCE, RANGES = 0.6, 5
STEP_TICKS = 6.0  # standard deviation of a random walk's move per bar
RULES = {"answers": {"evidence": "answers", "abstain": 2.0}, "blocks": {"evidence": "blocks"}}
SKILL = {"skilled:0.6": 0.6, "skilled:0.55": 0.55}


# Where the bars of a market lie. bars: T. first, last: int[N] of each session. asked: int[n], bars
# with answers. cost: ticks of a round turn.
Layout = namedtuple("Layout", "bars first last asked cost")
# A market's prices, int[T] ticks, and what followed each bar, int8[T], 0 outside the training
# sessions.
Path = namedtuple("Path", "close followed")


# --- markets ----------------------------------------------------------------------------------------------------------


def layout_of(market):
    """Return the layout of the training sessions of the shipped configuration `advised`."""
    config = load_config("advised")
    train = split_sessions(market, config.split)["train"]
    first, last = map(np.asarray, (market.data.sessions.first, market.data.sessions.last))
    asked = np.flatnonzero(in_sessions(market, train))
    return Layout(len(market.bars), first, last, asked, round_turn(market, config))


def path_of(open_, close, layout, horizon):
    """Prices with what followed them, as a run scores it: in the training sessions only."""
    followed = np.zeros(layout.bars, np.int8)
    labels = what_followed(open_, close, layout.first, layout.last, horizon, layout.cost)
    followed[layout.asked] = labels[layout.asked]
    return Path(close, followed)


def markets_of(market, layout, horizon):
    """Markets by name, each a function of a random generator."""
    bars = market.bars
    real = path_of(bars.open, bars.close, layout, horizon)

    def walk(random):
        moves = np.rint(STEP_TICKS * random.standard_normal(layout.bars))
        close = 10_000 + np.cumsum(moves).astype(np.int64)
        return path_of(np.append(close[:1], close[:-1]), close, layout, horizon)

    def surrogate(random):
        copy = phase_randomised_bars(bars, 1_000, int(random.integers(2**31)))
        return path_of(copy.open, copy.close, layout, horizon)

    return {"real bars": lambda random: real, "random walk": walk, "phase-randomised": surrogate}


# --- opinions: (generator, path, layout) -> int8[T] of +1 and -1 --------------------------------------------------


def persistent(bars):
    """Return an opinion: a random side, kept for a geometric number of bars with this mean."""

    def opinion(random, _, layout):
        turns = random.random(layout.bars) < 1 / bars
        spell = np.cumsum(turns)
        return random.choice(np.array([-1, 1], np.int8), spell[-1] + 1)[spell]

    return opinion


def always(side):
    """Return an opinion: the same side at every bar."""
    return lambda random, path, layout: np.full(layout.bars, side, np.int8)


def trend(bars):
    """Return an opinion: the side of the move of the last bars."""

    def opinion(_, path, layout):
        before = np.concatenate([np.full(bars, path.close[0]), path.close[:-bars]])
        return np.where(path.close >= before, 1, -1).astype(np.int8)

    return opinion


def skilled(share):
    """Return an opinion: the side that pays, with this probability; as `mock:skilled`.

    At bars without such a side it is a random one.
    """

    def opinion(random, path, layout):
        side = np.where(path.followed == 0, random.choice([-1, 1], layout.bars), path.followed)
        return (side * np.where(random.random(layout.bars) < share, 1, -1)).astype(np.int8)

    return opinion


OPINIONS = {
    **{f"persistent:{bars}": persistent(bars) for bars in (1, 10, 30, 60, 240)},
    "always long": always(1),
    "always short": always(-1),
    "follow the trend of 30 bars": trend(30),
}
# On the one real path these have one outcome for all draws: no share of draws can be stated.
OF_PATH_ALONE = ("always long", "always short", "follow the trend of 30 bars")


# --- measuring --------------------------------------------------------------------------------------------------------


def answers(opinion, layout, random, ranges):
    """All answers in the order in which they become visible: NumPy arrays [updates, ROWS, ...].

    ranges: of confidence, in which the answers lie at random.
    """
    order = random.permutation(layout.asked)
    updates = -(-len(order) // ROWS)
    bars = np.full(updates * ROWS, layout.bars, np.int32)
    bars[: len(order)] = order
    rows = np.zeros((len(bars), 6), np.float32)
    side = opinion[order]
    sure = np.full(len(order), CONFIDENCE) if ranges == 1 else random.random(len(order))
    rows[: len(order), 1:4] = np.stack([side > 0, side < 0, sure], axis=1)
    shape = updates, ROWS
    return Delta(bars.reshape(shape), rows.reshape(*shape, 6), np.ones(updates, np.int32))


def trusts_of(config, bars):
    """Compile (deltas [D, U, ...], followed [D, T]) -> trust float32[D, U, B] after each update."""

    def one(deltas, followed):
        def step(outcomes, delta):
            outcomes = score_delta(outcomes, delta, followed, float(config.memory))
            return outcomes, log_odds(outcomes, config.prior, config.abstain, config.cap)

        return jax.lax.scan(step, no_outcomes(config, bars), deltas)[1]

    return jax.jit(jax.vmap(one))


def interval(hits, draws):
    """Return the 95 % interval of a share (Clopper and Pearson 1934)."""
    return list(stats.binomtest(hits, draws).proportion_ci())


def measured(trust):
    """Return the figures of trust float[D, U, B].

    They are the share of draws with trust after the last update, its interval, the share that ever
    had trust, and the mean size of trust after the last update (its largest range).
    """
    draws, last = len(trust), np.abs(trust[:, -1]).max(axis=-1)
    hits = int((last > 0).sum())
    return {
        "share": hits / draws,
        "interval": interval(hits, draws),
        "ever": (trust != 0).any(axis=(1, 2)).mean(),
        "mean_size": float(last.mean()),
    }


def cell(draw, opinion, layout, rules, draws, seed, ranges=1):
    """Every rule's figures on the same draws."""
    found = {name: [] for name in rules}
    for first in range(0, draws, BATCH):
        drawn = []
        for number in range(first, min(first + BATCH, draws)):
            random = np.random.default_rng([seed, number])
            path = draw(random)
            given = answers(opinion(random, path, layout), layout, random, ranges)
            drawn.append((given, path.followed))
        together = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *drawn)
        for name, rule in rules.items():
            found[name].append(np.asarray(rule(*together)))
    return {name: measured(np.concatenate(parts)) for name, parts in found.items()}


def run(quick):
    draws = QUICK_DRAWS if quick else DRAWS
    configs = {
        name: AdvisorConfig.model_validate({"kind": "none", **keys}) for name, keys in RULES.items()
    }
    horizon = configs["blocks"].horizon
    market = load_market(load_config("advised"))
    layout = layout_of(market)
    rules = {name: trusts_of(config, layout.bars) for name, config in configs.items()}
    false, power = {}, {}
    for at, (name, draw) in enumerate(markets_of(market, layout, horizon).items()):
        measure = partial(cell, draw, layout=layout, rules=rules, draws=draws, seed=at)
        chosen = [each for each in OPINIONS if at or each not in OF_PATH_ALONE]
        false[name] = {each: measure(OPINIONS[each]) for each in chosen}
        false[name] |= {"persistent:30, random confidence": measure(persistent(30), ranges=RANGES)}
        power[name] = {each: measure(skilled(share)) for each, share in SKILL.items()}
    worst = {
        rule: max(row[rule]["interval"][1] for rows in false.values() for row in rows.values())
        for rule in RULES
    }
    least = {
        rule: min(rows["skilled:0.6"][rule]["share"] for rows in power.values()) for rule in RULES
    }
    return {
        "config": {
            "draws": draws,
            "answers": len(layout.asked),
            "horizon": horizon,
            "cost_ticks": layout.cost,
            "rules": {
                name: config.model_dump(include={"evidence", "abstain", "prior", "cap", "memory"})
                for name, config in configs.items()
            },
        },
        "false_trust": false,
        "power": power,
        "worst_upper_bound": worst,
        "least_power": least,
    }


if __name__ == "__main__":
    main("trust", __doc__ or "", run)
