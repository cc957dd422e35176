"""`jaxtrade bench`: what is run, where results go, what is printed. Imports no JAX before a bench
starts.

stdout has one JSON line per bench; the table, and the comparison where one is asked for, go to
stderr. A full result is written only where the machine was idle (`idle`), or with `--force`, which
marks it.
"""

from __future__ import annotations

import difflib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError, DataError

from . import accelerator, catalogue, device, idle, table

REPEATS, LEAST_REPEATS, QUICK_REPEATS = catalogue.Options().repeats, 5, 2
WORKER_DEATH, NOT_IDLE = 70, 1  # exit codes
# After Ctrl-C: the child of a command has less time than the command (`interrupt.GRACE_S`).
CHILD_GRACE_S = 0.3


class Request(NamedTuple):
    """The command's arguments, checked."""

    names: tuple[str, ...]
    options: catalogue.Options
    out: Path
    compare: Path | None
    force: bool = False
    again: bool = False


def request(
    names: Sequence[str] = (),
    quick: bool = False,
    repeats: int | None = None,
    out: Path | None = None,
    compare: Path | None = None,
    purejaxrl: Path | None = None,
    force: bool = False,
    targets: Sequence[str] = (),
    shapes: Sequence[str] = (),
    install: bool = False,
    code: Path | None = None,
    parts: Sequence[str] = (),
    again: bool = False,
) -> Request:
    """Check the arguments; no name means every bench that is not run by name alone. Quick results
    go to a folder of their own.

    Raises ConfigError (with a suggestion for an unknown name) and DataError (--compare).
    """
    for name in names:
        if name not in catalogue.BENCHES:
            near = difflib.get_close_matches(name, catalogue.BENCHES, n=1)
            raise ConfigError(
                f"no bench is called '{name}'{f'; did you mean {near[0]!r}?' if near else ''} "
                f"(benches: {', '.join(catalogue.BENCHES)})"
            )
    usual = [name for name in catalogue.BENCHES if name not in catalogue.BY_NAME]
    chosen = tuple(dict.fromkeys(names or usual))
    for owner, given, flags in (
        ("accelerator", targets or shapes or install, "--target, --shape and --install"),
        ("versions", code, "--code"),
        ("device", parts or again, "--part and --again"),
    ):
        if given and chosen != (owner,):
            raise ConfigError(
                f"{flags}: of `jaxtrade bench {owner}`; leave out, or run that bench alone"
            )
    if "versions" in chosen and (code is None or not (code / "bench" / "setting.py").is_file()):
        raise ConfigError(
            "versions: give another checkout of jaxtrade, with its folder `bench`, by --code DIR"
        )
    for flag, told, known in (
        ("--target", targets, accelerator.DEVICES),
        ("--shape", shapes, accelerator.SHAPES),
        ("--part", parts, device.PARTS),
    ):
        if unknown := [name for name in told if name not in known]:
            raise ConfigError(f"{flag} {unknown[0]}: expected one of {', '.join(known)}")
    least = 1 if quick else LEAST_REPEATS
    if repeats is not None and repeats < least:
        raise ConfigError(
            f"--repeats {repeats}: expected at least {least}"
            + ("" if quick else "; fewer say nothing about the spread (--quick allows 1)")
        )
    if purejaxrl is not None and not purejaxrl.is_dir():
        raise ConfigError(
            f"--purejaxrl {purejaxrl}: there is no such folder; give your checkout of PureJaxRL"
        )
    usual_out = catalogue.COMPILED if chosen == ("accelerator",) else catalogue.RESULTS
    folder = out or (usual_out / "quick" if quick else usual_out)
    for path in [folder / f"{name}.json" for name in chosen] if quick else []:
        if path.exists() and not table.read(path)["quick"]:
            raise ConfigError(
                f"{path} is a full result, which --quick would replace; give another --out"
            )
    held = parts or device.PARTS if chosen == ("device",) else chosen
    if compare is not None and not any(earlier(compare, name) for name in held):
        raise DataError(f"--compare {compare}: no result of {', '.join(chosen)} in it")
    options = catalogue.Options(
        quick,
        repeats or (QUICK_REPEATS if quick else REPEATS),
        purejaxrl,
        tuple(targets),
        tuple(shapes),
        install,
        code,
        tuple(dict.fromkeys(parts)),
    )
    return Request(chosen, options, folder, compare, force, again)


def run(asked: Request) -> int:
    """Run what is asked for; the exit code. Several benches run in a process each, so that none
    meets the compiled programs or memory of another; where one fails the others still run, and the
    worst exit code is returned.

    Raises ConfigError, before anything runs, for full benches on a machine that is not idle
    (without `force`).
    """
    load = idle.load()
    timeless = asked.options.quick or set(asked.names) <= set(catalogue.TIMELESS)
    found = [] if timeless else idle.reasons(load)
    if found and not asked.force:
        raise ConfigError(idle.refusal(found))
    if len(asked.names) == 1:
        return one(asked.names[0], asked, load)
    codes: dict[str, int] = {}
    for name in asked.names:
        if codes and not asked.options.quick and not found:
            idle.settle()
        codes[name] = own_process(arguments(name, asked))
    failed = [f"{name} ({code})" for name, code in codes.items() if code]
    if failed:
        print(f"error: failed, with exit code: {', '.join(failed)}", file=sys.stderr)
    return max(codes.values())


def arguments(name: str, asked: Request) -> list[str]:
    """The command line that runs one bench of a request."""
    compare = asked.compare if asked.compare and earlier(asked.compare, name) else None
    words = ["bench", name]
    words += ["--quick"] * asked.options.quick + ["--force"] * asked.force
    words += ["--repeats", str(asked.options.repeats), "--out", str(asked.out)]
    for flag, path in (("--compare", compare), ("--purejaxrl", asked.options.purejaxrl)):
        words += [flag, str(path)] if path else []
    return words


def stamped(name: str, options: catalogue.Options) -> list[str]:
    """The command that a result names: what changes the measurement, and no folder of this
    machine.
    """
    words = ["jaxtrade", "bench", name] + ["--quick"] * options.quick
    if options.repeats != REPEATS and not options.quick:
        words += ["--repeats", str(options.repeats)]
    words += ["--purejaxrl", "DIR"] if options.purejaxrl else []
    for flag in ("target", "shape", "part"):
        words += [word for each in getattr(options, f"{flag}s") for word in (f"--{flag}", each)]
    return words + (["--code", "DIR"] if options.code else [])


def one(name: str, asked: Request, load: float | None) -> int:
    """Run, print and write one bench; the exit code. load: the load average before."""
    words = stamped(name, asked.options)
    if name == "device":
        keep = partial(kept, asked, load)
        told = " ".join(words)
        return device.run(
            device.Asked(asked.options, asked.out, load, asked.again, asked.force, told, keep)
        )
    if name in catalogue.WITH_PUREJAXRL and asked.options.purejaxrl is None:
        print(f"note: PureJaxRL is left out: it {catalogue.NO_CHECKOUT}", file=sys.stderr)
    print(f"bench {name} ...", file=sys.stderr, flush=True)
    result = catalogue.run(name, asked.options, words, load)
    return kept(asked, load, result, asked.out)


def kept(asked: Request, load: float | None, result: dict[str, Any], folder: Path) -> int:
    """Print a result, compare it with an earlier one, and write it to `folder` where the machine
    was idle; the exit code."""
    name = result["bench"]
    before = earlier(asked.compare, name)  # `folder` may hold it, and then it is replaced
    timed = not asked.options.quick and name not in catalogue.TIMELESS
    found = idle.reasons(load, result["stamp"]["steal"]) if timed else []
    result |= {"forced": bool(found) and asked.force, "reasons": found}
    print(json.dumps(result), flush=True)  # before writing: a full disk loses no measurement
    path = None if found and not asked.force else catalogue.write(result, folder)
    print(f"\n{table.text(result)}\n", file=sys.stderr)
    if before is not None:
        print(f"{table.comparison(before, result)}\n", file=sys.stderr)
    if path is None:
        print(
            f"error: bench {name}: not written (its JSON line is on stdout): {idle.refusal(found)}",
            file=sys.stderr,
        )
        return NOT_IDLE
    print(f"written: {path}", file=sys.stderr, flush=True)
    return 0


def earlier(compare: Path | None, name: str) -> dict[str, Any] | None:
    """The earlier result of a bench: from the one file, or from its file in the folder; None where
    it has none.
    """
    if compare is None:
        return None
    path = compare / f"{name}.json" if compare.is_dir() else compare
    if compare.is_dir() and not path.exists():
        return None
    result = table.read(path)
    return result if result["bench"] == name else None


def _child(command: list[str]) -> None:
    from jaxtrade.cli import main

    sys.exit(interrupt.run(partial(main, command), grace_s=CHILD_GRACE_S, quiet=True))


def stop(child: BaseProcess) -> None:
    """End a child by Ctrl-C, so that it ends its own children. The terminal may have sent it one
    already.
    """
    if child.pid is not None and child.is_alive():
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(child.pid, signal.SIGINT)
        child.join(3 * CHILD_GRACE_S)
        child.kill()


def own_process(command: list[str], work: Callable[[list[str]], None] = _child) -> int:
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
    if child.exitcode is None or child.exitcode < 0:
        print(
            f"error: bench {command[1]}: its process was ended by signal {-(child.exitcode or 0)}",
            file=sys.stderr,
        )
        return WORKER_DEATH
    return child.exitcode
