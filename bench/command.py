"""`jaxtrade bench`: what is run, where results go, what is printed.

Imports no JAX before a bench starts.

stdout has one JSON line per bench; the table, and the comparison where one is asked for, go to
stderr. A full result is written only where the machine was idle (`idle`), or with `--force`, which
marks it.
"""

import json
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from functools import partial

import yaml

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import did_you_mean

from . import accelerator, catalogue, device, idle, table
from .catalogue import Options

REPEATS, LEAST_REPEATS, QUICK_REPEATS = Options().repeats, 5, 2
# Bench -> its own flags, and what each is called in `Options`.
OWN = yaml.safe_load("""
accelerator: {target: targets, shape: shapes, install: install}
versions: {code: code}
device: {part: parts, again: again}
""")
KNOWN = {"target": accelerator.DEVICES, "shape": accelerator.SHAPES, "part": device.PARTS}
WORKER_DEATH, NOT_IDLE = 70, 1  # exit codes
# After Ctrl-C: the child of a command has less time than the command (`interrupt.GRACE_S`).
CHILD_GRACE_S = 0.3


def request(**given):
    """Check what the command was given: `Options`, the absent ones None or empty.

    No name means every bench that is not run by name alone. Quick results go to a folder of their
    own.

    Raises ConfigError (with a suggestion for an unknown name) and DataError (--compare).
    """
    once = {x: tuple(dict.fromkeys(each)) for x, each in given.items() if isinstance(each, list)}
    told = Options(**{name: value for name, value in (given | once).items() if value})
    for name in told.names:
        if name not in catalogue.BENCHES:
            raise ConfigError(
                f"no bench is called '{name}'{did_you_mean(name, catalogue.BENCHES)} "
                f"(benches: {', '.join(catalogue.BENCHES)})"
            )
    names = told.names or tuple(x for x in catalogue.BENCHES if x not in catalogue.BY_NAME)
    check_flags(told, names)
    least = 1 if told.quick else LEAST_REPEATS
    repeats = given.get("repeats")
    if repeats is None:
        repeats = QUICK_REPEATS if told.quick else REPEATS
    if repeats < least:
        raise ConfigError(
            f"--repeats {repeats}: expected at least {least}"
            + ("" if told.quick else "; fewer say nothing about the spread (--quick allows 1)")
        )
    usual_out = catalogue.COMPILED if names == ("accelerator",) else catalogue.RESULTS
    out = given.get("out") or (usual_out / "quick" if told.quick else usual_out)
    if told.quick:
        table.refuse_full(out / f"{name}.json" for name in names)
    held = told.parts or device.PARTS if names == ("device",) else names
    if told.compare and not any(earlier(told.compare, name) for name in held):
        raise DataError(f"--compare {told.compare}: no result of {', '.join(names)} in it")
    return told._replace(names=names, repeats=repeats, out=out)


def check_flags(told, names):
    """Raise ConfigError for a flag of a bench that is not run, or a value that it does not know."""
    for owner, flags in OWN.items():
        for flag, field in flags.items():
            given, known = getattr(told, field), KNOWN.get(flag)
            if given and names != (owner,):
                raise ConfigError(
                    f"--{flag}: of `jaxtrade bench {owner}`; leave out, or run that bench alone"
                )
            if known and (unknown := [name for name in given if name not in known]):
                raise ConfigError(f"--{flag} {unknown[0]}: expected one of {', '.join(known)}")
    if "versions" in names and not (told.code and (told.code / "bench" / "setting.py").is_file()):
        raise ConfigError(
            "versions: give another checkout of jaxtrade, with its folder `bench`, by --code DIR"
        )
    if told.purejaxrl and not told.purejaxrl.is_dir():
        raise ConfigError(
            f"--purejaxrl {told.purejaxrl}: there is no such folder; give your checkout of PureJaxRL"
        )


def run(asked):
    """Run what is asked for; return the exit code.

    Several benches run in a process each, so that none meets the compiled programs or memory of
    another; where one fails the others still run, and the worst exit code is returned.

    Raises ConfigError, before anything runs, for full benches on a machine that is not idle
    (without `force`).
    """
    load = idle.load()
    timeless = asked.quick or set(asked.names) <= set(catalogue.TIMELESS)
    found = [] if timeless else idle.reasons(load)
    if found and not asked.force:
        raise ConfigError(idle.refusal(found))
    if len(asked.names) == 1:
        return one(asked.names[0], asked, load)
    codes = {}
    for name in asked.names:
        if codes and not asked.quick and not found:
            idle.settle()
        codes[name] = own_process(arguments(name, asked))
    failed = [f"{name} ({code})" for name, code in codes.items() if code]
    if failed:
        print(f"error: failed, with exit code: {', '.join(failed)}", file=sys.stderr)
    return max(codes.values())


def arguments(name, asked):
    """Return the command line that runs one bench of several."""
    compare = asked.compare if asked.compare and earlier(asked.compare, name) else None
    words = ["bench", name]
    words += ["--quick"] * asked.quick + ["--force"] * asked.force
    words += ["--repeats", str(asked.repeats), "--out", str(asked.out)]
    for flag, path in (("--compare", compare), ("--purejaxrl", asked.purejaxrl)):
        words += [flag, str(path)] if path else []
    return words


def stamped(name, options):
    """Return the command that a result names.

    It holds what changes the measurement, and no folder of this machine.
    """
    words = ["jaxtrade", "bench", name] + ["--quick"] * options.quick
    if options.repeats != REPEATS and not options.quick:
        words += ["--repeats", str(options.repeats)]
    words += ["--purejaxrl", "DIR"] if options.purejaxrl else []
    for flag in KNOWN:
        words += [word for each in getattr(options, f"{flag}s") for word in (f"--{flag}", each)]
    return words + (["--code", "DIR"] if options.code else [])


def one(name, asked, load):
    """Run, print and write one bench; the exit code. load: the load average before."""
    words = stamped(name, asked)
    if name == "device":
        return device.run(asked, " ".join(words), load, partial(kept, asked, load))
    if name in catalogue.WITH_PUREJAXRL and asked.purejaxrl is None:
        print(f"note: PureJaxRL is left out: it {catalogue.NO_CHECKOUT}", file=sys.stderr)
    print(f"bench {name} ...", file=sys.stderr, flush=True)
    return kept(asked, load, catalogue.run(name, asked, words, load), asked.out)


def kept(asked, load, result, folder):
    """Print a result, compare it with an earlier one, and write it; return the exit code.

    It is written to `folder`, where the machine was idle.
    """
    name, result = result["bench"], table.shortened(result)
    before = earlier(asked.compare, name) if asked.compare else None  # it may be replaced below
    timed = not asked.quick and name not in catalogue.TIMELESS
    found = idle.reasons(load, result["stamp"]["steal"]) if timed else []
    result |= {"forced": bool(found) and asked.force, "reasons": found}
    print(json.dumps(result), flush=True)  # before writing: a full disk loses no measurement
    path, refused = folder / f"{name}.json", found and not asked.force
    if not refused:
        catalogue.write(result, path)
    print(f"\n{table.text(result)}\n", file=sys.stderr)
    if before is not None:
        print(f"{table.comparison(before, result)}\n", file=sys.stderr)
    if refused:
        print(
            f"error: bench {name}: not written (its JSON line is on stdout): {idle.refusal(found)}",
            file=sys.stderr,
        )
        return NOT_IDLE
    print(f"written: {path}", file=sys.stderr, flush=True)
    return 0


def earlier(compare, name):
    """Return the earlier result of a bench, None where it has none.

    It comes from the one file, or from the bench's file in the folder.
    """
    path = compare / f"{name}.json" if compare.is_dir() else compare
    if compare.is_dir() and not path.exists():
        return None
    result = table.read(path)
    return result if result["bench"] == name else None


def _child(command):
    from jaxtrade.cli import main

    sys.exit(interrupt.run(partial(main, command), grace_s=CHILD_GRACE_S, quiet=True))


def stop(child):
    """End a child by Ctrl-C, so that it ends its own children.

    The terminal may have sent it one already.
    """
    if child.pid is not None and child.is_alive():
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(child.pid, signal.SIGINT)
        child.join(3 * CHILD_GRACE_S)
        child.kill()


def own_process(command, work=_child):
    """Exit code of a command in a fresh interpreter with this one's search path."""
    child = multiprocessing.get_context("spawn").Process(target=work, args=(command,))
    with interrupt.held_back():
        child.start()
    with interrupt.cleanup(partial(stop, child)):
        try:
            child.join()
        except KeyboardInterrupt:
            stop(child)
            raise
    code = child.exitcode or 0
    if code < 0:
        said = f"error: bench {command[1]}: its process was ended by signal {-code}"
        print(said, file=sys.stderr)
        return WORKER_DEATH
    return code
