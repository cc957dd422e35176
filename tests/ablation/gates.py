"""What an ablation with advisors of known skill must show, or the listener is broken: gates G1 to
G6.

A gate is True or False, or None where the matrix lacks the kinds that it needs. `certain` means
that an interval deflated for all kinds lies on one side of 0: chance alone breaks none of these
gates more than about once in 20 matrices, and a matrix too small to be certain of anything passes
those that look for harm. G2 and G5 look for a gain and fail then; G5 goes by means.
"""

import numpy as np

from jaxtrade.ablation.kinds import NONE, is_placebo
from jaxtrade.config.service import parts_of
from jaxtrade.evaluation.statistics import MIN_DAYS, compare

SIGMAS = 5.0  # how far the oracle must be above no advice
LAST = 4  # the last quarter of the updates after a turn must show that the listener has recovered


def gates(ablation, fusion):
    """Name -> what `GATES` says of one fusion. Those that compare days need enough of them."""
    enough = len(fusion.scores[ablation.split].dates) >= MIN_DAYS
    return {
        name: check(ablation, fusion) if enough or name in ("G5", "G6") else None
        for name, check in GATES.items()
    }


def ordered(ablation, fusion, kinds):
    """(steps from one kind to the next that certainly fall, whether the last is certainly above the
    first), of at least two kinds in the order in which they should rise; deflated for all of them.

    Means alone always have an order; only what chance cannot explain counts, as a fall or as a
    rise.
    """
    nets = [ablation.net(fusion, kind) for kind in kinds]
    pairs = [*zip(nets[1:], nets, strict=False), (nets[-1], nets[0])]
    *each, whole = [compare(net, base, len(pairs)) for net, base in pairs]
    return sum(step.certain < 0 for step in each), whole.certain > 0


def less_none(ablation, fusion, kinds):
    """Each kind compared with no advice."""
    return [ablation.compare(fusion, kind, NONE) for kind in kinds]


def g1_no_skill(ablation, fusion):
    """Random advice and placebos earn nothing: 0 lies in the interval of their difference to no
    advice.
    """
    kinds = [kind for kind in ablation.kinds if kind == "mock:random" or is_placebo(kind)]
    found = less_none(ablation, fusion, kinds)
    return all(c.deflated is not None and 0.0 in c.deflated for c in found) if found else None


def g2_skill_pays(ablation, fusion):
    """The more skill, the more it earns: no step from one skill to the next certainly falls, the
    last is certainly above the first, and the oracle is 5 standard errors above no advice."""
    skilled = [kind for kind in ablation.kinds if kind.startswith("mock:skilled:")]
    if not skilled or "mock:oracle" not in ablation.kinds:
        return None
    falls, rises = ordered(ablation, fusion, [*sorted(skilled, key=number_of), "mock:oracle"])
    [oracle] = less_none(ablation, fusion, ["mock:oracle"])
    far = oracle.sigmas is None or oracle.sigmas >= SIGMAS
    return not falls and rises and oracle.mean > 0 and far


def g3_late_or_rare(ablation, fusion):
    """Advice that comes later, or less often, earns no more: no step towards sooner, or more often,
    certainly falls.
    """
    found = []
    for name, sooner_is_lower in (("mock:delayed:", True), ("mock:available:", False)):
        families = {}
        for kind in ablation.kinds:
            own, _, other = kind.partition("/")
            if other and parts_of(kind)[-1] != own and own.startswith(name):
                families.setdefault(other, []).append(kind)
        for other, kinds in families.items():
            rising = sorted(kinds, key=number_of, reverse=sooner_is_lower)
            rising += [other] if other in ablation.kinds else []
            if len(rising) > 1:
                found.append(ordered(ablation, fusion, rising)[0])
    return not any(found) if found else None


def g4_adversary(ablation, fusion):
    """Advice that is mostly wrong, from the first bar on, does no certain harm: it is ignored, or
    turned around.
    """
    kinds = [kind for kind in ablation.kinds if kind.startswith("mock:adversarial")]
    found = less_none(ablation, fusion, kinds)
    return all(c.deflated is not None and c.certain >= 0 for c in found) if found else None


def g5_turn(ablation, fusion):
    """An advisor that turns on its listener in mid-run: what listening had earned until then is
    never lost whole, and over the last quarter of the updates after it the listener earns no less
    than without advice. Of training episodes; means, without intervals."""
    kind = next((kind for kind in ablation.kinds if kind.startswith("turn")), None)
    if kind is None or fusion.turned is None:
        return None
    profit, turned = fusion.history["episode_profit"], fusion.turned
    each = profit[:, ablation.kinds.index(kind)] - profit[:, ablation.kinds.index(NONE)]  # [U, S]
    each = np.where(np.isnan(each), 0.0, each)  # no episode ended in that update
    before, after = each.mean(axis=1)[:turned], each.mean(axis=1)[turned:]
    lowest, ending = min(0.0, np.cumsum(after).min()), after[len(after) * (LAST - 1) // LAST :]
    return bool(before.sum() > 0 and lowest > -before.sum() and ending.mean() >= 0)


def g6_absence(ablation, fusion):
    """An advisor without any answer is no advisor: every agent's parameters have the same bits."""
    digests = dict(zip(ablation.kinds, fusion.digests, strict=True))
    silent = [
        found
        for kind, found in digests.items()
        if kind == "mock:failing" or (kind.startswith("mock:available") and number_of(kind) == 0.0)
    ]
    return all(found == digests[NONE] for found in silent) if silent else None


def number_of(kind):
    """The number after a mock's name: 5.0 of mock:delayed:5/..."""
    return float(kind.partition("/")[0].removeprefix("mock:").partition(":")[2])


GATES = {
    "G1": g1_no_skill,
    "G2": g2_skill_pays,
    "G3": g3_late_or_rare,
    "G4": g4_adversary,
    "G5": g5_turn,
    "G6": g6_absence,
}
