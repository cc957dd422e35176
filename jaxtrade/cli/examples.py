"""An example for every configuration key: flags of `jaxtrade train` that set it, and that a test
checks.
"""

from __future__ import annotations

import shlex

from jaxtrade.config.keys import Key, all_keys, written
from jaxtrade.config.learners import SECTIONS
from jaxtrade.config.load import ALGORITHM

# Overrides of keys for which the default, or another of the key's own values, is no example. The
# first one sets the key; more follow where the key asks for another one.
_GIVEN: dict[str, tuple[str, ...]] = {
    "data.contract": ("data.contract=SPY",),
    "data.file": ("data.file=bars.csv", "data.source=file"),
    "data.seconds": ("data.seconds=seconds.csv",),
    "data.conversion": ("data.conversion=usdjpy.csv",),
    "data.quotes": ("data.quotes=quotes.csv",),
    "data.columns": ("data.columns={time: Timestamp, close: Last}",),
    "data.time_zone": ("data.time_zone=America/New_York",),
    "data.date_order": ("data.date_order=dmy",),
    "data.expiry": ("data.expiry=201312",),
    "data.roll": ("data.roll=volume",),
    "data.splice": ("data.splice=restart",),
    "data.start": ("data.start=2013-10-07",),
    "data.end": ("data.end=2013-10-11",),
    "data.synthetic_drift": ("data.synthetic_drift=0.1",),
    "data.synthetic_pull": ("data.synthetic_pull=0.4",),
    "env.advice": ("env.advice=true", "env.task=advised"),
    "env.fill": ("env.fill=close", "env.mark=close"),
    "account.drawdown": ("account.drawdown=2000",),
    "account.daily_loss": ("account.daily_loss=1000",),
    "account.profit_target": ("account.profit_target=3000",),
    "account.min_days": ("account.min_days=5",),
    "account.max_contracts": ("account.max_contracts=2",),
    "costs.commission": ("costs.commission=2.50",),
    "costs.slippage": ("costs.slippage=1",),
    "brackets.min_stop_ticks": ("brackets.min_stop_ticks=8",),
    "brackets.be_ticks": ("brackets.be_ticks=1",),
    **{
        f"allocate.{name}": (f"allocate.{name}={value}",)
        for name, value in (
            ("actions", "increment"),
            ("size", "[2]"),
            ("max_units", 2),
            ("max_total", 2),
            ("cooldown", 5),
            ("trades_per_day", 50),
            ("gate", 5),
            ("cost_bp", 0.5),
            ("impact_bp", 1.5),
            ("impact_base", 50_000.0),
            ("fee", 1.0),
        )
    },
    "allocate.preset": ("allocate.preset=full",),
    "shared.on": ("shared.on=true", "train.num_seeds=8"),
    **{
        f"shared.{name}": (f"shared.{name}={value}", "shared.on=true", "train.num_seeds=8")
        for name, value in (("kappa", 500), ("eta", 1000), ("decay", 0.95))
    },
    "reward.weights": ("reward.weights={equity_change: 1.0, loss: -0.1}",),
    "network.hidden": ("network.hidden=[256, 128]",),
    "rollout.num_envs": ("rollout.num_envs=512",),
    "actor.delay": ("actor.delay=2",),
    "actor.rho_clip": ("actor.rho_clip=2.0", "actor.delay=2"),
    "actor.c_clip": ("actor.c_clip=2.0", "actor.delay=2"),
    "ppo.ent_coef_end": ("ppo.ent_coef_end=0.001",),
    "stages.commission_start": ("stages.commission_start=0.2", "stages.commission_until=0.5"),
    "stages.commission_until": ("stages.commission_until=0.5", "stages.commission_start=0.2"),
    "stages.forced_start": ("stages.forced_start=0.3",),
    "stages.forced_start_end": ("stages.forced_start_end=0.1",),
    "stages.forced_start_until": ("stages.forced_start_until=0.5", "stages.forced_start=0.3"),
    "advisor.kind": ("advisor.kind=mock:skilled:0.6",),
    "advisor.panel": ("advisor.panel=[rules,mock:skilled:0.6]", "advisor.kind=panel"),
    "advisor.fusion": ("advisor.fusion=gate",),
    "advisor.options": ("advisor.options={model: NAME}",),
    "advisor.service.requests_per_minute": ("advisor.service.requests_per_minute=60",),
    "advisor.service.tokens_per_minute": ("advisor.service.tokens_per_minute=100_000",),
    "advisor.service.max_calls": ("advisor.service.max_calls=10_000",),
    "advisor.service.max_tokens": ("advisor.service.max_tokens=5_000_000",),
    "advisor.service.max_cost": (
        "advisor.service.max_cost=5",
        "advisor.service.price_prompt=0.15",
        "advisor.service.price_completion=0.60",
    ),
    "advisor.service.price_prompt": ("advisor.service.price_prompt=0.15",),
    "advisor.service.price_completion": ("advisor.service.price_completion=0.60",),
    "advisor.service.cache": ("advisor.service.cache=answers.sqlite",),
    "advisor.service.ledger": ("advisor.service.ledger=spent.sqlite",),
    "advisor.context.news": ("advisor.context.news=news.jsonl", "advisor.template=window"),
    "advisor.context.calendar": ("advisor.context.calendar=events.csv", "advisor.template=window"),
    "advisor.template": ("advisor.template=window",),
    "control.evaluate_every": ("control.evaluate_every=5", "split.validation_sessions=1"),
    "control.patience": (
        "control.patience=8",
        "control.evaluate_every=5",
        "split.validation_sessions=1",
    ),
    "control.plateau_patience": (
        "control.plateau_patience=4",
        "control.evaluate_every=5",
        "split.validation_sessions=1",
    ),
    "evolve.keys": ("evolve.keys={ppo.learning_rate: [1e-4, 1e-2]}", "train.num_seeds=8"),
    "evolve.every": (
        "evolve.every=5",
        "evolve.keys={ppo.learning_rate: [1e-4, 1e-2]}",
        "train.num_seeds=8",
        "split.validation_sessions=1",
    ),
    **{
        f"evolve.{name}": (
            f"evolve.{name}={value}",
            "evolve.every=5",
            "evolve.keys={ppo.learning_rate: [1e-4, 1e-2]}",
            "train.num_seeds=8",
            "split.validation_sessions=1",
        )
        for name, value in (("truncation", 0.5), ("perturb", 1.5), ("resample", 0.0))
    },
    "control.wall_clock": ("control.wall_clock=2h",),
    "sweep.keys": ("sweep.keys={ppo.learning_rate: [1e-3, 3e-4]}",),
    "sweep.settings": ("sweep.settings=[{ppo.learning_rate: 1e-3}, {ppo.learning_rate: 3e-4}]",),
    "sweep.random": ("sweep.random=4", "sweep.keys={ppo.learning_rate: ['log:1e-4..1e-2']}"),
    "sweep.seeds": ("sweep.seeds=2", "sweep.keys={ppo.learning_rate: [1e-3, 3e-4]}"),
    "sweep.optuna": (
        "sweep.optuna=32",
        "sweep.keys={ppo.learning_rate: ['log:1e-4..1e-2']}",
        "train.num_seeds=8",
    ),
    "imports": ("imports=[my_module]",),
}


def overrides_of(key: Key) -> tuple[str, ...]:
    """The overrides of a key's example. For a key of few values it is one that is not the
    default.
    """
    if key.name in _GIVEN:
        return _GIVEN[key.name]
    others = [choice for choice in key.choices if choice not in (key.default, None)]
    own = f"{key.name}={written(others[0] if others else key.default)}"
    chosen = key.section in SECTIONS and key.section != key_default(
        ALGORITHM
    )  # a key of a learner needs this learner
    return (own, f"{ALGORITHM}={key.section}") if chosen else (own,)


def configuration_of(key: Key) -> str | None:
    """The configuration that a key's example starts from. None: that of `jaxtrade train` without a
    name.
    """
    return "fx_allocate" if key.section == "allocate" else None


def key_default(name: str) -> object:
    """The default of a key."""
    return all_keys()[name].default


def of(key: Key) -> list[str]:
    """The example as words of a command line, quoted for a shell: --set KEY=VALUE, and what else it
    needs. The name of its configuration, if it needs one, is the first."""
    first = configuration_of(key)
    words = [word for override in overrides_of(key) for word in ("--set", shlex.quote(override))]
    return words if first is None else [first, *words]
