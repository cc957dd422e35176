"""Was the machine idle? The load average before a bench, and the steal time during its sides.

A full result is written where the load average of one minute is at most `MOST_LOAD` when the
command starts, and where no side loses more than `MOST_STEAL` of its time to other virtual
machines. `--force` writes it all the same and says so in it. Of several benches in one command,
each later one first waits until the load of the one before has decayed (`settle`), so that the same
rule holds for each.

Steal time is the kernel's count in /proc/stat of the time for which a core was wanted and another
virtual machine had it. Its share is that of the time for which cores were wanted (given or not): a
side that keeps one core of many busy hides nothing behind the idle ones. Other systems do not
report it, which the result says. Imports no JAX.
"""

import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

MOST_LOAD, MOST_STEAL = 0.3, 0.01
LEAST_TICKS = 2  # one tick (10 ms) may be the rounding of a counter: it says nothing
SETTLED = 0.2  # lower than MOST_LOAD: starting the next bench's process adds to the load
PATIENCE, NAP = 300.0, 5.0  # seconds
STAT = Path("/proc/stat")
UNKNOWN_STEAL = "this system does not report steal time (no /proc/stat)"
UNTIMED = "no side was timed"


class Ticks(NamedTuple):
    """Clock ticks of all cores together.

    busy: wanted and given to a process; stolen: wanted, and not given.
    """

    busy: int
    stolen: int

    @property
    def share(self):
        """Stolen of wanted ticks; 0 where too few were stolen to say."""
        return self.stolen / (self.busy + self.stolen) if self.stolen >= LEAST_TICKS else 0.0


def load():
    """Return the load average of one minute; None where the system has none or cannot say."""
    with suppress(AttributeError, OSError):  # the latter if it "was unobtainable"
        return os.getloadavg()[0]
    return None


def ticks(path=STAT):
    """Since the machine started; None where the kernel does not report steal time."""
    if not path.exists():
        return None
    with path.open(encoding="ascii") as lines:
        name, *counts = lines.readline().split()
    if name != "cpu" or len(counts) < 8:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = map(int, counts[:8])
    return Ticks(user + nice + system + interrupts + soft_interrupts, stolen)


class Ledger:
    """Ticks of every side that was timed.

    A side that takes turns in several comparisons counts once in each.
    """

    def __init__(self, read=ticks):
        self._read = read
        self._comparison = 0
        self._spent = {}
        self._blind = False

    def begin(self):
        """Begin a new comparison.

        Its sides are others than those before, even where their names are the same.
        """
        self._comparison += 1

    @contextmanager
    def during(self, side):
        """Add what passes inside to a side of the current comparison.

        Nothing is added where an error ends it.
        """
        before = self._read()
        yield
        after = self._read()
        if before is None or after is None:
            self._blind = True
        else:
            self._add(side, after.busy - before.busy, after.stolen - before.stolen)

    def hand_over(self):
        """Return everything so far as JSON, for `merge` in the process that started this one.

        It is forgotten here.
        """
        sides = [[side, *spent] for (_, side), spent in self._spent.items()]
        said = {"sides": sides, "blind": self._blind}
        self._spent, self._blind = {}, False
        return said

    def merge(self, sides=(), blind=False):
        """Take over what a child handed over.

        Of one child, each call is a comparison of its own.
        """
        self.begin()
        for side in sides:
            self._add(*side)
        self._blind |= blind

    def worst(self):
        """Return the side that lost the greatest share, then forget all.

        It is `share` and `side`, or why that is `unknown`.
        """
        spent, blind = self._spent, self._blind
        self.hand_over()
        if blind or not spent:
            return {"unknown": UNKNOWN_STEAL if blind else UNTIMED}
        (_, side), lost = max(spent.items(), key=lambda item: item[1].share)
        return {"share": float(f"{lost.share:.3g}"), "side": side}

    def _add(self, side, busy, stolen):
        before = self._spent.get((self._comparison, side), Ticks(0, 0))
        self._spent[self._comparison, side] = Ticks(before.busy + busy, before.stolen + stolen)


LEDGER = Ledger()  # of this process


def reasons(before, steal=None):
    """Say why a full result may not be written or quoted.

    Nothing where the machine was idle, or where it does not say.

    Args:
        before: the load average when the command started.
        steal: as `Ledger.worst` gives it, None before the bench.
    """
    found = []
    if before is not None and before > MOST_LOAD:
        found.append(f"load average {before:.2f} at the start")
    if steal and steal.get("share", 0.0) > MOST_STEAL:
        found.append(f"steal time {100 * steal['share']:.3g} % during {steal['side']}")
    return found


def refusal(found):
    """Say what `reasons` found, what was expected, and what to do."""
    return (
        f"the machine is not idle: {'; '.join(found)} (expected: load average at most {MOST_LOAD}, steal time at "
        f"most {MOST_STEAL:.0%}). Wait until other programs have ended, or give --force, which marks the result; "
        "--quick needs no idle machine"
    )


def settle(
    read=load,
    sleep=time.sleep,
    patience=PATIENCE,
):
    """Wait until the load average has fallen to `SETTLED`, at most `patience` seconds.

    What is found then is left to the next bench's own check.
    """
    waited = 0.0
    while (now := read()) is not None and now > SETTLED and waited < patience:
        if waited == 0.0:
            print(
                f"waiting until the load of the last bench has decayed (load average {now:.2f}, until {SETTLED}) ...",
                file=sys.stderr,
                flush=True,
            )
        sleep(NAP)
        waited += NAP
