"""What an ablation with advisors of known skill must show, or the listener is broken: gates G1 to
G6.

A gate is True or False, or None where the matrix lacks the kinds that it needs. `certain` means
that an interval deflated for all kinds lies on one side of 0: chance alone breaks none of these
gates more than about once in 20 matrices, and a matrix too small to be certain of anything passes
those that look for harm. G2 and G5 look for a gain and fail then; G5 goes by means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxtrade.ablation.kinds import NONE, innermost, is_placebo
from jaxtrade.ablation.results import Ablation, FusionResult, shown
from jaxtrade.evaluation.statistics import MIN_DAYS, Comparison, compare

SIGMAS = 5.0  # how far the oracle must be above no advice
_WITHOUT_DAYS = ("G5", "G6")
LAST = 4  # the last quarter of the updates after a turn must show that the listener has recovered


class Steps(NamedTuple):
    """Kinds in an order in which they should rise: each less the one before, and the last less the
    first.
    """

    each: tuple[Comparison, ...]
    whole: Comparison

    @property
    def wrong(self):
        """Positions of steps that certainly fall."""
        return tuple(i for i, step in enumerate(self.each) if step.certain < 0)

    @property
    def rises(self):
        """No step certainly falls, and the last is certainly above the first."""
        return not self.wrong and self.whole.certain > 0


def steps(nets):
    """`Steps` of float64[S, D] each, at least two, in the order in which they should rise; deflated
    for all of them.

    Means alone always have an order; only what chance cannot explain counts, as a fall or as a
    rise.
    """
    if len(nets) < 2:
        raise ValueError("an order needs two kinds at least")
    pairs = [*zip(nets[1:], nets, strict=False), (nets[-1], nets[0])]
    *each, whole = [compare(net, base, len(pairs)) for net, base in pairs]
    return Steps(tuple(each), whole)


class Gate(NamedTuple):
    """passed: None where it does not apply. found: what was measured, or what is missing."""

    name: str
    about: str
    passed: bool | None
    found: str


def gates(ablation, fusion):
    """All gates of one fusion. Those that compare days need enough of them."""
    days = len(fusion.scores[ablation.split].dates)
    few = _missing(f"{MIN_DAYS} days, there are {days}") if days < MIN_DAYS else None
    return [
        Gate(name, about, *(few if few and name not in _WITHOUT_DAYS else check(ablation, fusion)))
        for name, about, check in _GATES
    ]


Found = tuple[bool | None, str]


def _missing(what):
    return None, f"needs {what}"


def g1_no_skill(ablation, fusion):
    """Random advice and placebos earn nothing: 0 lies in the interval of their difference to no
    advice.
    """
    kinds = [kind for kind in ablation.kinds if kind == "mock:random" or is_placebo(kind)]
    if not kinds:
        return _missing("mock:random or a mock:shifted/...")
    found = {kind: ablation.compared(fusion, kind, NONE) for kind in kinds}
    passed = all(c.deflated is not None and 0.0 in c.deflated for c in found.values())
    return passed, "; ".join(f"{kind} {shown(c)}" for kind, c in found.items())


def g2_skill_pays(ablation, fusion):
    """The more skill, the more it earns: no step from one skill to the next certainly falls, the
    last is certainly above the first, and the oracle is 5 standard errors above no advice."""
    kinds = _numbered(ablation, "mock:skilled")
    kinds += ["mock:oracle"] if "mock:oracle" in ablation.kinds else []
    if len(kinds) < 2 or kinds[-1] != "mock:oracle":
        return _missing("mock:skilled:Q and mock:oracle")
    order = steps([ablation.net(fusion, kind) for kind in kinds])
    oracle = ablation.compared(fusion, "mock:oracle", NONE)
    passed = order.rises and oracle.mean > 0 and (oracle.sigmas is None or oracle.sigmas >= SIGMAS)
    means = ", ".join(f"{kind} {ablation.net(fusion, kind).mean():,.0f}" for kind in kinds)
    return passed, (
        f"{means}; steps that certainly fall: {len(order.wrong)}, last less first {shown(order.whole)}; "
        f"oracle {'no spread' if oracle.sigmas is None else f'{oracle.sigmas:.1f} standard errors'}"
    )


def g3_late_or_rare(ablation, fusion):
    """Advice that comes later, or less often, earns no more: no step towards sooner, or more often,
    certainly falls.
    """
    found, passed = [], True
    for name, sooner_is_lower in (("mock:delayed", True), ("mock:available", False)):
        for other, kinds in _families(ablation, name).items():
            ordered = sorted(
                kinds, key=lambda kind: number_of(kind) or 0.0, reverse=sooner_is_lower
            )
            ordered += [other] if other in ablation.kinds else []
            if len(ordered) < 2:
                continue
            order = steps([ablation.net(fusion, kind) for kind in ordered])
            passed &= not order.wrong
            found.append(f"{' < '.join(ordered)}: {len(order.wrong)} steps certainly fall")
    if not found:
        return _missing("mock:delayed:BARS/X or mock:available:SHARE/X, and X itself")
    return passed, "; ".join(found)


def g4_adversary(ablation, fusion):
    """Advice that is mostly wrong, from the first bar on, does no certain harm: it is ignored, or
    turned around.
    """
    kinds = [kind for kind in ablation.kinds if kind.startswith("mock:adversarial")]
    if not kinds:
        return _missing("mock:adversarial:Q")
    found = {kind: ablation.compared(fusion, kind, NONE) for kind in kinds}
    passed = all(c.deflated is not None and c.certain >= 0 for c in found.values())
    return passed, "; ".join(f"{kind} {shown(c)}" for kind, c in found.items())


def g5_turn(ablation, fusion):
    """An advisor that turns on its listener in mid-run: what listening had earned until then is
    never lost whole, and over the last quarter of the updates after it the listener earns no less
    than without advice. Of training episodes; means, without intervals."""
    kind = next((kind for kind in ablation.kinds if kind.startswith("turn")), None)
    if kind is None or fusion.turned is None:
        return _missing("turn[:Q]")
    profit = fusion.history["episode_profit"]
    each = profit[:, ablation.kinds.index(kind)] - profit[:, ablation.kinds.index(NONE)]  # [U, S]
    each = np.where(np.isnan(each), 0.0, each)  # no episode ended in that update
    mean, turned = each.mean(axis=1), fusion.turned
    before = float(mean[:turned].sum())
    after = np.cumsum(mean[turned:])
    lowest = float(min(0.0, after.min()))
    ending = float(mean[turned + len(after) * (LAST - 1) // LAST :].mean())
    back = next((i for i in range(len(after)) if mean[turned + i :].mean() >= 0), None)
    passed = before > 0 and lowest > -before and ending >= 0
    recovered = "never again" if back is None else f"again from update {turned + back} on"
    return passed, (
        f"summed mean differences per episode: {before:+,.0f} until the turn at update {turned}, lowest "
        f"after it {lowest:+,.0f}; the mean of the rest is not below no advice {recovered}; last quarter "
        f"{ending:+,.0f} per update; {ablation.split}, all answers turned: less none "
        f"{shown(ablation.compared(fusion, kind, NONE))}"
    )


def g6_absence(ablation, fusion):
    """An advisor without any answer is no advisor: every agent's parameters have the same bits."""
    kinds = [
        kind
        for kind in ablation.kinds
        if kind == "mock:failing" or (kind.startswith("mock:available") and number_of(kind) == 0.0)
    ]
    if not kinds:
        return _missing("mock:available:0/X or mock:failing")
    none = fusion.digests[ablation.kinds.index(NONE)]
    same = {
        kind: sum(
            a == b for a, b in zip(fusion.digests[ablation.kinds.index(kind)], none, strict=True)
        )
        for kind in kinds
    }
    return (
        all(count == len(none) for count in same.values()),
        "; ".join(
            f"{kind}: {count} of {len(none)} seeds bit-identical" for kind, count in same.items()
        ),
    )


def number_of(kind):
    """The number after a mock's name: 5.0 of mock:delayed:5/..., None where there is none."""
    number = kind.partition("/")[0].removeprefix("mock:").partition(":")[2]
    try:
        return float(number)
    except ValueError:
        return None


def _numbered(ablation, name):
    """Kinds of one name that change no other, by their number."""
    kinds = [
        kind
        for kind in ablation.kinds
        if kind.partition("/")[2] == "" and kind.startswith(f"{name}:")
    ]
    return sorted(kinds, key=lambda kind: number_of(kind) or 0.0)


def _families(ablation, name):
    """Kinds of one name, by the kind that they change."""
    found: dict[str, list[str]] = {}
    for kind in ablation.kinds:
        own, _, other = kind.partition("/")
        if other and innermost(kind) != own and own.startswith(f"{name}:"):
            found.setdefault(other, []).append(kind)
    return found


_GATES: tuple[tuple[str, str, Callable[[Ablation, FusionResult], Found]], ...] = (
    ("G1", "advice without skill earns nothing", g1_no_skill),
    ("G2", "gain rises with skill", g2_skill_pays),
    ("G3", "gain falls with delay and absence", g3_late_or_rare),
    ("G4", "an adversary does no harm", g4_adversary),
    ("G5", "an advisor that turns is found out", g5_turn),
    ("G6", "no answers, no difference", g6_absence),
)
