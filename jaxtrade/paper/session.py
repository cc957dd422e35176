"""A session of paper trading in a run's folder: it begins, goes on after a kill, and ends."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from itertools import chain, dropwhile
from math import inf
from pathlib import Path
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import Bars
from jaxtrade.data.contracts import Contract
from jaxtrade.errors import ConfigError, DataError, RunLockedError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.formatting import iso
from jaxtrade.paper.broker import Sink
from jaxtrade.paper.engine import Engine, Say
from jaxtrade.paper.feed import Item, RefusedError, check, time_of
from jaxtrade.paper.journal import FORMAT, PaperJournal
from jaxtrade.paper.nautilus import NautilusBroker
from jaxtrade.paper.ninjatrader import NOTE, NinjaTraderFiles
from jaxtrade.paper.rails import NINJATRADER, SIMULATED, PaperConfig
from jaxtrade.runs.decide import read_bar
from jaxtrade.runs.distributed import say as warn
from jaxtrade.storage import digests
from jaxtrade.storage.locks import try_lock
from jaxtrade.stream.live import Stream

JOURNAL, STATUS, KILL = "journal.jsonl", "status.json", "KILL"
# Kind of a journal's line that came in: what takes it.
INPUTS = {
    "start": Engine.begin,
    "bar": Engine.on_bar,
    "fault": Engine.fault,
    "kill": Engine.kill,
    "end": Engine.end,
}


class Session:
    """Paper trading of one policy.

    No other process trades in its folder. What is recorded there is run again first, and has to come
    out as it is recorded. Raises RunLockedError, HaltError.

    folder: of the session. history: the bars before the first one of the feed.
    config, sinks, say: as `Engine`. clock: UTC seconds; None for a file.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        policy: LoadedPolicy,
        history: Bars,
        rails: PaperConfig,
        clock: Callable[[], int] | None = None,
        sinks: Sequence[Sink] = (),
        say: Say = lambda line: None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.clock, self.stopping = folder, clock, ""
        status, self.known = folder / STATUS, -inf
        saved = digests.read_json(status, "delete it") if status.exists() else {}
        with ExitStack() as stack:
            file = stack.enter_context((folder / JOURNAL).open("a+b", buffering=0))
            if not try_lock(file):
                raise RunLockedError(f"{folder}: another process trades here; give another --name")
            journal = PaperJournal(file, saved.get("journal"))
            if resumed := bool(journal.recorded):
                history = cut(history, journal.recorded[0]["history"]["last"])
            stream = Stream(config, history, policy)
            key = policy_digest(policy.policy)
            about = {"format": FORMAT, "policy": key, "symbol": stream.contract.symbol}
            journal.add("header", **about, history=describe(history))
            self.engine = Engine(stream, journal, rails, key, sinks, say)
            run_again(self.engine)
            if resumed and clock is None:  # a file begins with what is known
                self.known = int(stream.rows.bar.time[0])
            for sink in sinks:
                stack.enter_context(closing(sink)).connect()
            now = clock and clock()
            self.engine.reconcile(now)
            self.engine.begin(rails.model_dump(mode="json"), now)
            self._stack = stack.pop_all()

    def take(self, item: Item) -> None:
        """Take what a feed gives."""
        engine, now = self.engine, self.clock and self.clock()
        for sink in engine.sinks:
            sink.poll()
        if not engine.killed and (self.stopping or (self.folder / KILL).exists()):
            engine.kill(self.stopping or KILL)
        try:
            if item is not None:
                engine.on_bar(check(item, engine.stream, now, engine.config.early_seconds), now)
                if now is not None:
                    self.save("running")
                return
        except RefusedError as error:
            engine.fault(*error.args)
        except DataError as error:
            engine.fault("calendar", str(error))
        if now is not None:  # no bar came
            engine.on_time(now)

    def trade(self, items: Iterable[Item]) -> dict[str, Any]:
        """Trade on a feed to its end, or until it is stopped and flat. Returns the summary.

        SIGTERM flattens and stops.
        """
        engine = self.engine

        def stop(number: int, frame: object) -> None:
            self.stopping = "SIGTERM"

        with ExitStack() as stack:
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
            for item in dropwhile(lambda item: (time_of(item) or 0) <= self.known, items):
                self.take(item)
                if engine.killed and not engine.now.held:
                    break
        if engine.open and self.clock is None and not engine.killed:
            engine.end(False)
        self.save("killed" if engine.killed else "ended")
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Describe the session so far as JSON values."""
        engine, now = self.engine, self.engine.now
        return {
            "symbol": engine.stream.contract.symbol,
            "time": iso(engine.stream.rows.bar.time[0]),
            "sessions": engine.sessions,
            "decisions": now.decisions,
            "trades": now.trades,
            "position": now.held,
            "equity": engine.dollars,
            "account": now.number + 1,
            "faults": dict(engine.faults),
            "rails": dict(engine.acted),
        }

    def save(self, state: str) -> None:
        """Write status.json, after the journal that it knows is on disk."""
        journal = self.engine.journal
        journal.sync()
        known = {"lines": journal.lines, "sha256": journal.digest}
        document = json.dumps({"state": state, **self.summary(), "journal": known})
        digests.write_whole(self.folder / STATUS, document + "\n")

    def close(self) -> None:
        """Close the files. What is not recorded is lost; nothing else is."""
        self._stack.close()


def run_again(engine: Engine) -> None:
    """Run what is recorded again. Raises HaltError where it comes out otherwise."""
    journal = engine.journal
    while journal.recorded:
        line = {**journal.recorded[0]}
        kind = line.pop("kind")
        if kind not in INPUTS:
            number = journal.lines - len(journal.recorded) + 1
            raise journal.fault(number, f"nothing explains this {kind}")
        if kind == "bar":
            line["bar"] = read_bar(line["bar"], engine.stream)
        INPUTS[kind](engine, **line)


def cut(history: Bars, last: float) -> Bars:
    """Return the bars up to a time in UTC seconds."""
    return history.rows(slice(0, int((history.time <= last).sum())))


def describe(history: Bars) -> dict[str, Any]:
    """Say which bars a history has."""
    columns = history.time, history.volume, *chain(*history.quotes)
    content = b"".join(column.tobytes() for column in columns)
    digest = hashlib.sha256(content).hexdigest()
    return {"bars": len(history), "last": int(history.time[-1]), "sha256": digest}


def open_sinks(
    engine: str | None, sink: str | None, rails: PaperConfig, contract: Contract, intrabar: str
) -> list[Sink]:
    """Return what `--engine` and `--sink KIND:DIR` name. Raises ConfigError."""
    found: list[Sink] = []
    if engine:
        found.append(NautilusBroker(contract.slippage_ticks, intrabar))
    if sink or rails.broker != SIMULATED:
        kind, _, folder = (sink or "").partition(":")
        if kind != NINJATRADER or not folder:
            raise ConfigError(
                f"--sink {sink}: expected {NINJATRADER}:DIR (--rails: broker = {rails.broker})"
            )
        found.append(NinjaTraderFiles(Path(folder), rails, contract))
        warn(NOTE)
    return found
