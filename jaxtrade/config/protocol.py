"""The default protocol: which sessions are held out, and which policy is kept, where the
configuration does not say.

With enough sessions a run trains on the oldest ones, chooses its policy on validation sessions
after them, and tests it on the newest ones, which nothing has seen. With fewer, a run holds out its
last session and chooses nothing: the parts would be too small to say anything.

Imports neither JAX nor NumPy.
"""

from __future__ import annotations

from jaxtrade.config.market import SplitConfig
from jaxtrade.config.run import RunConfig

ENOUGH = (
    100  # sessions from which three parts are made; a fifth of them is a test of at least 20 days
)
TEST_SHARE, VALIDATION_SHARE = 5, 10  # one session in so many
# The sessions dropped before each held-out part. No episode and no label reaches past its own part,
# so one is enough to keep the first day of a part from being the day after one that the policy was
# fitted to.
PURGE = 1
VALIDATION_MOST = 40  # sessions: more cost training time, and choose little better
# Evaluations on the validation sessions in a whole run: as many as keep their bars below a share of
# the training steps, since a bar of the evaluation, in both of its passes, takes about as long as a
# step of training (`jaxtrade bench evaluation`), but not outside of these limits. The least number
# can cost a short run more than that share.
FEWEST, MOST, SHARE = 3, 10, 0.03


def split_of(split: SplitConfig, sessions: int) -> SplitConfig:
    """The split with every number known.

    If one of its numbers is given, the others are 1 test session and 0 for the rest. If none is,
    they follow from the number of sessions, as this module says.
    """
    given = {name: value for name, value in split if value is not None}
    if given or sessions < ENOUGH:
        known = {"validation_sessions": 0, "test_sessions": 1, "embargo_sessions": 0} | given
    else:
        known = {
            "validation_sessions": min(sessions // VALIDATION_SHARE, VALIDATION_MOST),
            "test_sessions": sessions // TEST_SHARE,
            "embargo_sessions": PURGE,
        }
    return split.model_copy(update=known)


def split_note(split: SplitConfig, sessions: int) -> str | None:
    """What a split that names some of its numbers gives up of the default protocol; None if it
    gives up nothing.

    The numbers that are not named keep their small values, so that a run whose split names one of
    them stays what it was; a user who wants the rest of the protocol has to know that it is off.
    """
    given = [name for name, value in split if value is not None]
    if not given or sessions < ENOUGH:
        return None
    usual = dict(split_of(SplitConfig(), sessions))
    changed = [
        f"{name} is {value} (by default {usual[name]})"
        for name, value in split_of(split, sessions)
        if name not in given and value != usual[name]
    ]
    if not changed:
        return None
    return (
        f"split names {' and '.join(given)} alone, so the default split of {sessions:,} sessions is off: "
        f"{', '.join(changed)}; give {'this number' if len(changed) == 1 else 'these numbers'} too, or leave the "
        "section split out"
    )


def with_split(config: RunConfig, sessions: int) -> RunConfig:
    """The configuration with every number of its split known, and the validation set up where it
    chose one itself.

    sessions: of the market; of several symbols, the trade dates that all of them share.
    """
    return config.model_copy(update={"split": split_of(config.split, sessions)})


def chooses(asked: RunConfig, config: RunConfig) -> bool:
    """Whether the run scores its policy on validation sessions without having been told to.

    It does so if the default protocol has found them (`asked` names no split, `config` has one),
    unless an advisor would have to be asked about them, the agents meet in one market, or they are
    compared with each other anyway.
    """
    own = asked.split.automatic and bool(config.split.validation_sessions)
    return own and not (asked.advisor.on or asked.shared.on or asked.sweep.on or asked.evolve.on)


def evaluations(steps: int, bars: int) -> int:
    """How often a run scores its policy. steps: of its training. bars: decision bars of the
    validation sessions.
    """
    return min(max(int(SHARE * steps / bars), FEWEST), MOST)


def with_control(config: RunConfig, chunks: int, times: int) -> RunConfig:
    """The configuration with `control.evaluate_every` and `control.keep` known.

    chunks: of the whole run. times: how often the policy is scored, spread over them; the best is
        then kept. 0: never.
    A value that is given stays.
    """
    control = config.control
    every, keep = control.evaluate_every, control.keep
    if every is None:
        every = -(-chunks // times) if times else 0
        keep = keep or ("best" if every else "last")
    return config.model_copy(
        update={
            "control": control.model_copy(update={"evaluate_every": every, "keep": keep or "last"})
        }
    )
