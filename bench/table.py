"""The readable table of a result, two results side by side, and how a figure is written.

A result is a tree of dicts. A dict with `NAME` and `NAME_range` holds a measured figure, its least
and its greatest repeat; every other value is a figure of its own. Imports no JAX.
"""

import json
from collections.abc import Mapping

from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import align

ABOUT = ("bench", "about", "quick", "stamp", "config", "forced", "reasons")  # not what was found
STAMPED = ("device", "platform", "devices", "cores", "commit")
WIDEST = 60  # characters of a value in the table; a longer one has a line of its own
LEVEL = 1.05  # up to here a ratio is called level: repeats of one program differ as much
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def read(path):
    """One result. Raises DataError: no such file, not JSON, not the result of a bench."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(
            f"{path}: not JSON ({error}); expected a result of `jaxtrade bench`"
        ) from None
    keys = result if isinstance(result, dict) else {}
    if missing := [key for key in ("bench", "quick", "stamp") if key not in keys]:
        raise DataError(
            f"{path}: no {', '.join(missing)} in it; expected a result of `jaxtrade bench`"
        )
    return result


def refuse_full(paths):
    """Raise ConfigError: a full result stands where a quick one would go."""
    for path in paths:
        if path.exists() and not read(path)["quick"]:
            raise ConfigError(
                f"{path} is a full result, which --quick would replace; give another --out"
            )


def number(value, digits=3):
    """Write a number to significant digits, with G, M or k from 10,000 on.

    E.g. 5.21M, 12.4k, 1,230, 0.74. Small whole numbers whole.
    """
    if isinstance(value, int) and abs(value) < 10_000:
        return f"{value:,}"
    short = float(f"{value:.{digits}g}")
    for scale, letter in SCALES:
        if abs(short) >= max(scale, 10_000):
            return f"{short / scale:.{digits}g}{letter}"
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:.{digits}g}"


def size(value):
    """Bytes in powers of a thousand: 212 B, 1.3 kB, 4.1 MB."""
    for scale, letter in SCALES:
        if abs(float(f"{value:.3g}")) >= scale:
            return f"{value / scale:.3g} {letter}B"
    return f"{value:.3g} B"


def rounded(value, digits=4):
    """To significant digits: more would claim a precision that a shared machine has not."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) >= 10 ** (digits - 1) else short


def shortened(node):
    """Return a result with every float `rounded`."""
    if isinstance(node, Mapping):
        return {key: shortened(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return list(map(shortened, node))
    return rounded(node) if isinstance(node, float) else node


def ratio(results, ours, theirs):
    """Return how many times as many steps per second `ours` makes, by wall and by CPU seconds.

    Both are medians over medians.
    """
    return {
        clock: results[ours][key] / results[theirs][key]
        for clock, key in (("wall", "steps_per_second"), ("cpu", "steps_per_cpu_second"))
    }


def sooner(ours, theirs, times=1):
    """Return how many times as long `theirs`, `times` in a row, take as `ours`, by both clocks.

    Both are `harness.durations`.
    """
    return {
        clock: times * theirs[key] / ours[key]
        for clock, key in (("wall", "seconds"), ("cpu", "cpu_seconds"))
    }


def compared(ratio, interval=None):
    """Say what a ratio of speeds means, as it is shown.

    With an interval that holds one it is level; without an interval, below one is slower, however
    little, and a little above is level.
    """
    seen = float(f"{ratio:.3g}")
    if interval:
        low, high = interval
        return "slower" if high < 1 else "faster" if low > 1 else "level"
    return "slower" if seen < 1 else "level" if seen <= LEVEL else "faster"


def flat(node, joint=" / ", place=()):
    """Place -> plain value, of a tree of dicts; the keys of a place are joined."""
    if not isinstance(node, Mapping):
        yield joint.join(place), node
        return
    for key, child in node.items():
        yield from flat(child, joint, (*place, str(key)))


def found(result):
    """Return what a result has found, by place; the ranges of measured figures among it."""
    return dict(flat({key: value for key, value in result.items() if key not in ABOUT}))


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value, place):
    """Return a value in one line, with the unit that its name tells."""
    if not is_number(value):
        return value if isinstance(value, str) else json.dumps(value)
    return size(value) if "bytes" in place.rpartition(" / ")[2] else number(value)


def text(result):
    """Everything that a result says, for a terminal."""
    values = found(result)
    lines = [f"{result['bench']}: {result['about']}"]
    lines[0] += " (quick: to see that it works, not to quote)" if result["quick"] else ""
    if busy := result.get("reasons"):
        lines.append(f"  NOT IDLE: {'; '.join(busy)}")
    lines += ["  " + ", ".join(f"{key} {result['stamp'].get(key)}" for key in STAMPED), ""]
    rows, long = [("figure", "value", "range")], []
    for place, value in values.items():
        if place.endswith("_range") and place.removesuffix("_range") in values:
            continue
        said, ends = shown(value, place), values.get(f"{place}_range", ())
        if len(said) > WIDEST:
            long.append(f"  {place}: {said}")
        else:
            rows.append((place, said, " to ".join(shown(end, place) for end in ends)))
    return "\n".join([*lines, *(f"  {row}" for row in align(rows, [0])), *long])


def differences(old, new):
    """List what makes two results hard to compare: machine, versions, settings, a quick run."""

    def about(result):
        stamp = {key: result["stamp"].get(key) for key in (*STAMPED, "versions")}
        told = {"quick": result["quick"], **stamp, "config": result.get("config", {})}
        return dict(flat(told, "."))

    before, after = about(old), about(new)
    for place in dict.fromkeys((*before, *after)):
        if (one := before.get(place)) != (other := after.get(place)):
            yield f"{place}: {json.dumps(one)} -> {json.dumps(other)}"


def comparison(old, new):
    """Return new over old for every number that both have.

    First comes what else differs between them, last what one lacks.
    """
    before, after = found(old), found(new)
    lines = [f"  differs: {line}" for line in differences(old, new)]
    lines = lines or ["  same device, commit, versions and configuration"]
    rows = [("figure", "old", "new", "new/old", "")]
    for place, value in after.items():
        was = before.get(place)
        if not (is_number(value) and is_number(was)):
            continue
        one, other = (each.get(f"{place}_range") for each in (before, after))
        same = one and other and one[0] <= other[1] and other[0] <= one[1]
        over = f"{value / was:.3f}" if was else "-"
        told = "ranges overlap" if same else ""
        rows.append((place, shown(was, place), shown(value, place), over, told))
    lines += [f"  {row}" for row in align(rows, [0, 4])]
    for name, one, other in (("old", before, after), ("new", after, before)):
        alone = [place for place in one if place not in other]
        lines += [f"  only in {name}: {', '.join(alone)}"] if alone else []
    return "\n".join([f"{new['bench']}: new against old", *lines])
