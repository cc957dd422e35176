"""The section `actor` of a configuration, and what must hold between it and the others."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from jaxtrade.config.base import Section

DELAYED = ("ppo", "dqn")  # the learners that can learn from an older policy's rollouts


class ActorConfig(Section, frozen=True):
    """Which policy acts: the one that learns, or an older one.

    A delay is an experiment about old data. It makes no run faster.
    """

    delay: int = Field(
        default=0,
        ge=0,
        le=256,
        description="updates by which the policy that acts is older than the "
        "one that learns; 0: it is the same one. Each takes the memory of one more policy",
        examples=["2"],
    )
    rho_clip: float = Field(
        default=1.0,
        gt=0,
        description="ppo with a delay: largest weight of a step in V-trace (rho-bar)",
        examples=["2.0", "actor.delay=2"],
    )
    c_clip: float = Field(
        default=1.0,
        gt=0,
        description="ppo with a delay: largest factor by which V-trace passes a "
        "later error on to earlier steps (c-bar)",
        examples=["2.0", "actor.delay=2"],
    )


def check_actor(config: Any) -> None:
    """What must hold between `actor` and the learner. Raises ValueError, which pydantic expects.

    config: a `RunConfig`, which imports this module.
    """
    actor, algorithm = config.actor, config.algorithm
    if actor.delay and algorithm == "pqn":
        raise ValueError(
            f"actor.delay={actor.delay} with algorithm=pqn: its targets, Q(lambda) in Peng's form, take "
            "every action as one of the present policy, and nothing corrects those of an older one: set "
            "actor.delay=0, or algorithm=ppo or dqn"
        )
    if actor.delay and algorithm not in DELAYED:
        raise ValueError(
            f"actor.delay={actor.delay} with algorithm={algorithm}: only {' and '.join(DELAYED)} can act "
            "with an older policy: set actor.delay=0"
        )
    default = type(actor)()
    changed = [
        f"actor.{name}={getattr(actor, name):g}"
        for name in ("rho_clip", "c_clip")
        if getattr(actor, name) != getattr(default, name)
    ]
    if changed and not (actor.delay and algorithm == "ppo"):
        raise ValueError(
            f"{', '.join(changed)}: no effect without V-trace, which algorithm=ppo uses with "
            f"actor.delay above 0 (found algorithm={algorithm}, actor.delay={actor.delay}): leave "
            f"{'it' if len(changed) == 1 else 'them'} out"
        )
