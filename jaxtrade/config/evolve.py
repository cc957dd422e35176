"""The section `evolve` of a configuration, and what must hold between it and the others."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from jaxtrade.config.base import Section
from jaxtrade.config.learners import SECTIONS

STATIC = (
    "replay_ratio",
)  # floats of a learner's section that decide its program, so they are no tunable floats
FOLLOWS = {
    "learning_rate": "learning_rate_end",
    "ent_coef": "ent_coef_end",
}  # start of a schedule -> its end

Bounds = Annotated[tuple[float, float], Field(strict=False)]


class EvolveConfig(Section, frozen=True):
    """Population-based training: agents whose settings are drawn from ranges, and of which the
    worst go on from the best."""

    keys: dict[str, Bounds] = Field(
        default_factory=dict,
        description="tunable floats of the learner and their ranges, "
        "above 0: {ppo.learning_rate: [1e-4, 1e-2]}. Each agent draws its own, evenly in "
        "the logarithm",
        examples=["{ppo.learning_rate: [1e-4, 1e-2]}", "train.num_seeds=8"],
    )
    every: int = Field(
        default=0,
        ge=0,
        description="chunks between events, in which the worst agents become copies of "
        "the best; 0: never, so the drawn settings stay (random search)",
        examples=["5", "evolve.keys", "split.validation_sessions=1"],
    )
    truncation: float = Field(
        default=0.25,
        gt=0,
        le=0.5,
        description="share of the agents that is replaced, and share "
        "that is copied; at least one agent each",
        examples=["0.5", "evolve.every"],
    )
    perturb: float = Field(
        default=1.2,
        gt=1,
        description="a replaced agent multiplies or divides each of its settings "
        "by this, within the ranges",
        examples=["1.5", "evolve.every"],
    )
    resample: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="probability with which it draws a setting anew instead",
        examples=["0.0", "evolve.every"],
    )

    @property
    def on(self) -> bool:
        """Whether the agents have drawn settings of their own."""
        return bool(self.keys)


def names_of(config: Any) -> dict[str, tuple[float, float]]:
    """The evolved floats by their names in the learner's hyper-parameters, with their ranges, in
    order.
    """
    return {key.partition(".")[2]: bounds for key, bounds in config.evolve.keys.items()}


def followers(config: Any) -> dict[str, tuple[str, float]]:
    """Ends of schedules that move with an evolved start: name of the end -> (name of the start, end
    / start).

    A schedule keeps its shape unless both of its ends are evolved.
    """
    section, names = config.learner, names_of(config)
    found = {}
    for start, end in FOLLOWS.items():
        if start in names and end not in names and hasattr(section, end):
            first, last = getattr(section, start), getattr(section, end)
            found[end] = (start, 1.0 if last is None or not first else last / first)
    return found


def tunable(section: BaseModel) -> list[str]:
    """The floats of a learner's section that are leaves of its training state."""
    return [
        name
        for name, field in type(section).model_fields.items()
        if field.annotation in (float, float | None) and name not in STATIC
    ]


def check_evolve(config: Any) -> None:
    """What must hold between `evolve` and the other sections. Raises ValueError, which pydantic
    expects.

    config: a `RunConfig`, which imports this module.
    """
    evolve = config.evolve
    if not evolve.on:
        default = type(evolve)()
        changed = next((name for name, value in evolve if value != getattr(default, name)), None)
        if changed:
            raise ValueError(
                f"evolve.{changed}={getattr(evolve, changed):g}: no effect without evolve.keys, the "
                "settings to evolve: set evolve.keys={ppo.learning_rate: [1e-4, 1e-2]}, or leave it out"
            )
        return
    if config.algorithm not in SECTIONS:
        raise ValueError(
            f"evolve.keys with algorithm={config.algorithm}: only settings of the built-in learners "
            f"({', '.join(SECTIONS)}) can evolve"
        )
    if config.sweep.on:
        raise ValueError(
            "evolve.keys draws the settings of the agents, and section sweep lists them: use one of them"
        )
    for key, bounds in evolve.keys.items():
        _check_key(config, key, bounds)
    if evolve.every and config.train.num_seeds < 2:
        raise ValueError(
            f"evolve.every={evolve.every} copies agents, and train.num_seeds is "
            f"{config.train.num_seeds}: set train.num_seeds (--population) to at least 2, better 8"
        )
    if evolve.every and (why := config.split.without_validation):
        raise ValueError(
            f"evolve.every={evolve.every} scores agents on the validation sessions, and {why}: hold some "
            "out, e.g. split.validation_sessions=1"
        )


def _check_key(config: Any, key: str, bounds: tuple[float, float]) -> None:
    section, (low, high) = config.learner, bounds
    name = key.partition(".")[2]
    known = [f"{config.algorithm}.{each}" for each in tunable(section)]
    if key not in known:
        raise ValueError(
            f"evolve.keys: {key[:60]} is no tunable float of algorithm={config.algorithm}; expected one "
            f"of {', '.join(known)}"
        )
    if not 0 < low <= high:
        raise ValueError(
            f"evolve.keys: {key}: [{low:g}, {high:g}]: expected [low, high] with 0 < low <= high, because "
            "settings are drawn evenly in the logarithm"
        )
    if key == "dqn.tau" and not section.tau:
        raise ValueError(
            "evolve.keys: dqn.tau with dqn.tau=0: a target network that is copied now and then is another "
            "program than one that moves in each step: set dqn.tau above 0"
        )
    for end in bounds:
        try:
            type(section).model_validate(section.model_dump() | {name: end})
        except ValidationError as error:
            raise ValueError(f"evolve.keys: {key}={end:g}: {error.errors()[0]['msg']}") from None
