"""A GPU or TPU measured by one command: part after part, each saved as it ends.

First whether the device computes right, then our own sides of other benches, at the sizes of a GPU
(`device_parts`). Results go to `OUT/DEVICE/PART.json`, DEVICE a short name of the device. Run again
after an interruption, the command skips the parts whose result is there already: of this commit,
device, versions, sizes and repeats. This process never starts JAX, because one job after the other
needs the device for itself. On an accelerator the whole takes at most SECONDS; what is not done by
then is left to the next run.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade import interrupt
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.storage.programs import cache_folder

from . import device_parts, figures, idle, job
from .device_parts import FAILED, PASSED, UNKNOWN, Context, Machine, Part

if TYPE_CHECKING:
    from .command import Request

SECONDS = 540.0  # of a full run on an accelerator
PATIENT = (
    10.0  # times a part's limit, where a limit only ends what hangs: on a CPU, and with small sizes
)
LEAST = 10.0  # seconds: a part is not begun with fewer left
PROBE = 180.0  # seconds until the device has answered
UNFINISHED, BROKEN, ENDED = 1, 70, 143  # exit codes
KNOWN = {
    "h200": r"\bh200\b",
    "h100": r"\bh100\b",
    "a100": r"\ba100\b",
    "v5e": r"\btpu v5(e| lite)\b",
    "v6e": r"\btpu v6(e| lite)\b",
}
OTHERS = r"\b(mig|pcie|nvl)\b"  # a part of a GPU, or one of other rates than `described` has
LOUD = "=" * 88


def folder_of(platform: str, kind: str) -> str:
    """A short name for a device that is safe in paths: `h200`, `cpu`, or its kind in small letters
    and hyphens.
    """
    if platform == "cpu":
        return "cpu"
    said = kind.lower()
    if not re.search(OTHERS, said):
        for name, pattern in KNOWN.items():
            if re.search(pattern, said):
                return name
    return re.sub(r"[^a-z0-9]+", "-", said).strip("-") or platform


class Suite:
    """One run of the command. stamp: of the probe. correctness: what is known of it so far."""

    def __init__(
        self,
        asked: Request,
        load: float | None,
        machine: Machine,
        stamp: Mapping[str, Any],
        parts: Mapping[str, Part],
    ) -> None:
        self.asked, self.load, self.machine, self.stamp = asked, load, machine, stamp
        self.parts = {name: parts[name] for name in asked.options.parts or parts}
        self.folder = asked.out / machine.folder
        self.patient = asked.options.quick or machine.platform == "cpu"
        self.end = time.monotonic() + (float("inf") if self.patient else SECONDS)
        self.correctness = UNKNOWN
        self.codes: dict[str, int] = {}
        self.said: dict[str, str] = {}  # part -> what became of it
        if "correctness" in parts and self.why_again("correctness", parts["correctness"]) is None:
            self.correctness = figures.read(self.path("correctness"))["correctness"]

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def config(self, part: Part) -> dict[str, Any]:
        """What is run: the part of a result that decides whether it answers this command."""
        options = self.asked.options
        return {
            "device": self.machine.folder,
            "repeats": options.repeats,
            "xla_flags": [flag for flag in device_parts.flags().split() if "/" not in flag],
            "sizes": device_parts.as_json(part.sizes(options.quick, self.machine.platform)),
        }

    def why_again(self, name: str, part: Part) -> str | None:
        """Why a part has to be measured: what is there is of something else; None where it can be
        skipped.
        """
        path = self.path(name)
        if self.asked.again or not path.exists():
            return "--again" if path.exists() else "not measured yet"
        try:
            there = figures.read(path)
        except DataError as error:
            return str(error)
        stamp = there["stamp"]
        for key in ("commit", "device", "versions"):
            if stamp.get(key) != self.stamp[key]:
                return f"its {key} is another"
        if str(stamp["commit"]).endswith("+"):
            return "the commit has changes, which may be others now"
        if (there["quick"], there.get("config")) != (self.asked.options.quick, self.config(part)):
            return "its sizes are others"
        if there.get("forced") and not self.asked.force:
            return "the machine was not idle"
        if name == "correctness":
            return None if there.get("correctness") == PASSED else "it did not pass"
        return (
            None
            if there.get("correctness") == self.correctness
            else "it stands beside another correctness"
        )

    def refuse(self) -> None:
        """Raises ConfigError: a quick run that would replace a full result."""
        for path in map(self.path, self.parts) if self.asked.options.quick else ():
            if path.exists() and not figures.read(path)["quick"]:
                raise ConfigError(
                    f"{path} is a full result, which --quick would replace; give another --out"
                )

    def one(self, name: str) -> None:
        """Measure a part, or say why not."""
        part = self.parts[name]
        if absent := part.absent(self.machine.platform):
            self.told(name, 0, f"left out: {absent}")
            return
        reason = self.why_again(name, part)
        if reason is None:
            self.told(
                name,
                0,
                "skipped: measured already, with this commit, device and sizes (--again measures anew)",
            )
            return
        left = self.end - time.monotonic()
        if left < LEAST:
            self.told(
                name,
                UNFINISHED,
                f"not begun: the {SECONDS / 60:.0f} minutes are over; run the command again",
            )
            return
        print(f"device {self.machine.folder}: {name} ({reason}) ...", file=sys.stderr, flush=True)
        started = time.monotonic()
        limit = min(part.seconds * (PATIENT if self.patient else 1), left)
        try:
            result = self.measured(name, part, started + limit)
        except job.JobError as error:
            self.told(name, BROKEN, f"failed: {error}")
            return
        self.kept(name, result, time.monotonic() - started)

    def measured(self, name: str, part: Part, deadline: float) -> dict[str, Any]:
        """The result of a part, stamped. Raises JobError."""
        from .command import stamped

        config = self.config(part)
        cache = str(programs_folder())
        idle.LEDGER.worst()  # what an earlier part left
        context = Context(
            self.machine,
            config["sizes"],
            self.asked.options.repeats,
            lambda: deadline - time.monotonic(),
            [],
            cache,
        )
        found = part.measure(context)
        stamp = dict(context.done[-1].stamp if context.done else self.stamp) | {
            "command": " ".join(stamped("device", self.asked.options)),
            "load_before": self.load,
            "steal": idle.LEDGER.worst(),
        }
        return {
            "bench": name,
            "about": part.about,
            "quick": self.asked.options.quick,
            "stamp": stamp,
            "config": config,
            "correctness": self.correctness,
        } | found

    def kept(self, name: str, result: dict[str, Any], seconds: float) -> None:
        """Print and write a result; a failed correctness is said at once."""
        from .command import earlier, keep

        code = keep(result, self.asked, self.load, self.folder, earlier(self.asked.compare, name))
        if name == "correctness":
            self.correctness = result["correctness"]
            if self.correctness == FAILED:
                shout(failures(result))
                code = max(code, UNFINISHED)
        self.told(
            name,
            code,
            f"{'done' if not code else 'measured, exit code ' + str(code)} in {seconds:.0f} s",
        )

    def told(self, name: str, code: int, text: str) -> None:
        self.codes[name], self.said[name] = code, text
        print(f"device {self.machine.folder}: {name}: {text}", file=sys.stderr, flush=True)


def failures(result: Mapping[str, Any]) -> list[str]:
    """The checks of `correctness` that failed, each in a line."""
    return [
        f"{name}: {each}" for name, each in result.get("checks", {}).items() if not each["passed"]
    ]


def shout(lines: list[str]) -> None:
    """What nobody may overlook."""
    print(
        "\n".join(
            [
                LOUD,
                "CORRECTNESS FAILED: this device does not compute what it should. No figure below counts.",
                *lines,
                LOUD,
            ]
        ),
        file=sys.stderr,
        flush=True,
    )


def programs_folder() -> Path:
    """Of the compiled programs that the parts share, so that what an interrupted run compiled is
    not lost.
    """
    try:
        folder = cache_folder() / "device"
    except RuntimeError as error:
        raise ConfigError(
            f"no folder for compiled programs ({error}); set {device_parts.CACHE}"
        ) from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def ended_by_a_signal() -> Iterator[None]:
    """SIGTERM ends this process as an exception does, so that the running job ends with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        sys.exit(ENDED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def probed() -> tuple[Machine, dict[str, Any]]:
    """The device, and a stamp of what would measure it. Raises ConfigError."""
    try:
        found = job.run("device_jobs.about", {}, PROBE)
    except job.JobError as error:
        raise ConfigError(
            f"no device answered: {error}; `jaxtrade doctor` examines the machine"
        ) from None
    about = found.answer
    return Machine(
        about["platform"], about["name"], folder_of(about["platform"], about["kind"])
    ), found.stamp


def run(
    asked: Request,
    load: float | None,
    parts: Mapping[str, Part] = device_parts.PARTS,
    probe: Callable[[], tuple[Machine, dict[str, Any]]] = probed,
) -> int:
    """Run the chosen parts in their order; the worst exit code.

    Raises ConfigError: no device, or a quick run that would replace full results.
    """
    with ended_by_a_signal():
        machine, stamp = probe()
        suite = Suite(asked, load, machine, stamp, parts)
        suite.refuse()
        print(
            f"device {machine.folder} ({machine.name}): {', '.join(suite.parts)} -> {suite.folder}",
            file=sys.stderr,
            flush=True,
        )
        with interrupt.hint(
            lambda: f"what is finished is in {suite.folder}; the same command goes on from there"
        ):
            for name in suite.parts:
                suite.one(name)
    print(
        "\n".join(
            [
                f"device {machine.folder}, correctness {suite.correctness}:",
                *(f"  {name}: {text}" for name, text in suite.said.items()),
            ]
        ),
        file=sys.stderr,
        flush=True,
    )
    return max(suite.codes.values(), default=0)
