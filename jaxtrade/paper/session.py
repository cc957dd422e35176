"""A session of paper trading in a run's folder: it begins, goes on after a kill, and ends."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import Bars
from jaxtrade.data.contracts import Contract
from jaxtrade.errors import ConfigError, DataError, RunLockedError
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.formatting import iso
from jaxtrade.paper.broker import HaltError, Sink
from jaxtrade.paper.engine import Engine, Say
from jaxtrade.paper.feed import Message, RefusedError, bars_messages, check, is_live, live, parse
from jaxtrade.paper.journal import FORMAT, PaperJournal
from jaxtrade.paper.nautilus import NautilusBroker
from jaxtrade.paper.ninjatrader import NOTE, NinjaTraderFiles
from jaxtrade.paper.rails import NINJATRADER, SIMULATED, PaperConfig
from jaxtrade.runs.decide import choose_policy, read_bar, read_bars, read_time
from jaxtrade.runs.distributed import say as warn
from jaxtrade.storage import digests
from jaxtrade.storage.locks import try_lock
from jaxtrade.stream.live import Stream
from jaxtrade.text import printable

JOURNAL, STATUS, KILL, LOCK = "journal.jsonl", "status.json", "KILL", "lock"
LINES = (".jsonl", ".ndjson")
Item = str | Message | None
Clock = Callable[[], int] | None


def session_folder(run: Path, name: str) -> Path:
    """Return where a session is kept."""
    return run / "paper" / name


class OpenFeed(NamedTuple):
    """A feed that is open.

    items: lines or messages; None where a live feed is silent.
    first: UTC seconds of its first bar; None of a live feed.
    """

    items: Iterable[Item]
    first: int | None


def open_feed(source: str, config: RunConfig, overrides: Sequence[str] = ()) -> OpenFeed:
    """Open `--feed`: a file of bars, a file of JSON lines, `-` or ws://HOST:PORT.

    Raises ConfigError, and DataError for a file that cannot be read.
    """
    if is_live(source):
        return OpenFeed(live(source), None)
    if Path(source).suffix not in LINES:
        bars = read_bars(config, source, overrides)
        return OpenFeed(bars_messages(bars), int(bars.time[0]))
    lines = Path(source).read_text(encoding="utf-8", errors="replace").splitlines()
    return OpenFeed(lines, next(filter(None, map(time_of, lines)), None))


def time_of(item: Item) -> int | None:
    """Return the time of a message in UTC seconds; None if it has none."""
    try:
        return read_time(parse(item or "")["time"])
    except (RefusedError, DataError, KeyError):
        return None


class Session:
    """Paper trading of one policy.

    It holds the lock of its folder. What is recorded there is run again first, and has to come out
    as it is recorded. Raises RunLockedError, HaltError.

    folder: of the session. history: the bars before the first one of the feed.
    config, clock, sinks, say, fail: as `Engine`; clock: UTC seconds; None for a file.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        policy: LoadedPolicy,
        history: Bars,
        rails: PaperConfig,
        clock: Clock = None,
        sinks: Sequence[Sink] = (),
        say: Say = lambda line: None,
        fail: Callable[[str], object] = lambda place: None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.clock, self.fail, self.stopping = folder, clock, fail, ""
        with ExitStack() as stack:
            if not try_lock(stack.enter_context((folder / LOCK).open("a"))):
                raise RunLockedError(f"{folder}: another process trades here; give another --name")
            journal = PaperJournal(folder / JOURNAL, _read_status(folder))
            stack.callback(journal.close)
            header = journal.recorded[0] if journal.recorded else {}
            history = cut(history, header.get("history", {}).get("last"))
            stream = Stream(config, history, policy)
            key = policy_digest(policy.policy)
            about = {"format": FORMAT, "policy": key, "symbol": stream.contract.symbol}
            journal.add("header", **about, history=describe(history))
            self.engine = Engine(stream, journal, rails, key, sinks, say, fail)
            self.resumed = run_again(self.engine)
            for sink in sinks:
                stack.callback(sink.close)
                sink.connect()
            self.engine.reconcile()
            self.engine.begin(rails.model_dump(mode="json"), clock and clock())
            self._stack = stack.pop_all()

    def take(self, item: Item) -> None:
        """Take what a feed gives."""
        engine, now = self.engine, self.clock and self.clock()
        for sink in engine.sinks:
            sink.poll()
        if not engine.killed and (self.stopping or (self.folder / KILL).exists()):
            engine.kill(self.stopping or KILL)
        if item is None:
            if now is not None:
                engine.on_time(now)
            return
        try:
            bar = check(parse(item), engine.stream, now, engine.config.early_seconds)
        except RefusedError as refusal:
            engine.fault(refusal.kind, printable(str(refusal))[:200])
            return
        self.fail("read")
        try:
            engine.on_bar(bar, now)
        except DataError as error:
            engine.fault("calendar", printable(str(error))[:200])
        if now is not None:
            self.save("running")

    def trade(self, source: OpenFeed) -> dict[str, Any]:
        """Trade on a feed to its end, or until it is stopped and flat. Returns the summary."""
        engine, newest = self.engine, 0
        if self.resumed and source.first is not None:  # a file begins with what is known
            newest = int(engine.stream.rows.bar.time[0])
        with self._signals():
            for item in source.items:
                if newest and (time_of(item) or newest + 1) <= newest:
                    continue
                self.take(item)
                if engine.killed and engine.idle:
                    break
        if engine.open and source.first is not None and not engine.killed:
            engine.end(False)
        self.save("killed" if engine.killed else "ended")
        return self.summary()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM flattens and stops."""

        def stop(number: int, frame: object) -> None:
            self.stopping = "SIGTERM"

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def summary(self) -> dict[str, Any]:
        """Describe the session so far as JSON values."""
        engine, now = self.engine, self.engine.now
        return {
            "symbol": engine.stream.contract.symbol,
            "time": iso(engine.stream.rows.bar.time[0]),
            "sessions": engine.sessions,
            "decisions": now.tally.decisions,
            "trades": now.tally.trades,
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
        known = {"lines": journal.count, "sha256": journal.digest}
        document = json.dumps({"state": state, **self.summary(), "journal": known})
        self.fail("status")
        digests.write_whole(self.folder / STATUS, document + "\n")

    def close(self) -> None:
        """Close the files. What is not recorded is lost; nothing else is."""
        self._stack.close()


def run_again(engine: Engine) -> bool:
    """Run what is recorded again, and return whether there was a bar."""
    journal, found = engine.journal, False
    while journal.recorded:
        line = journal.recorded[0]
        match line["kind"]:
            case "start":
                engine.begin(line["rails"], line["now"])
            case "bar":
                found = True
                engine.on_bar(read_bar(line["bar"], engine.stream), line["now"])
            case "fault":
                engine.fault(line["fault"], line["why"])
            case "kill":
                engine.kill(line["why"])
            case "end":
                engine.end(line["complete"])
            case kind:
                raise HaltError(f"{journal.path}: a line of kind {kind} that nothing explains")
    return found


def cut(history: Bars, last: int | None) -> Bars:
    """Return the bars up to a time."""
    return history if last is None else history.rows(slice(0, int((history.time <= last).sum())))


def describe(history: Bars) -> dict[str, Any]:
    """Say which bars a history has."""
    columns = [history.time, history.volume, *(p for side in history.quotes for p in side)]
    content = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in columns))
    return {
        "bars": len(history),
        "last": int(history.time[-1]) if len(history) else None,
        "sha256": content.hexdigest(),
    }


def _read_status(folder: Path) -> dict[str, Any] | None:
    try:
        return json.loads((folder / STATUS).read_text(encoding="utf-8"))["journal"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise HaltError(f"{folder / STATUS}: damaged; delete it if the journal is whole") from None


def trade_run(
    run: Path,
    feed: str,
    name: str,
    rails: PaperConfig,
    clock: Callable[[], int],
    say: Say,
    history: str | None = None,
    symbol: str | None = None,
    seed: int | None = None,
    agent: int | None = None,
    set: Sequence[str] = (),
    engine: str | None = None,
    sink: str | None = None,
) -> dict[str, Any]:
    """Trade a run's policy on paper (`jaxtrade paper`), and return the summary.

    history: a file of the bars before; None: the run's own. Those of a feed that is a file begin
    where the history ends.
    engine, sink: of `open_sinks`.
    Raises as `jaxtrade.runs.decide.open_stream`, `open_feed` and `Session`.
    """
    if not name or Path(name).name != name:
        raise ConfigError(f"--name {name}: expected the name of a folder, without /")
    config, policy = choose_policy(run, symbol, seed, agent)
    source = open_feed(feed, config, set)
    bars = cut(read_bars(config, history, set), None if source.first is None else source.first - 1)
    sinks = open_sinks(engine, sink, rails, bars.contract.under(config), config.env.intrabar)
    session = Session(
        session_folder(run, name),
        config,
        policy,
        bars,
        rails,
        clock if is_live(feed) else None,
        sinks,
        say,
    )
    try:
        found = session.trade(source)
        counts = [sink.counts() for sink in sinks if isinstance(sink, NautilusBroker)]
        return found | ({"engine": counts[0]} if counts else {})
    finally:
        session.close()


def open_sinks(
    engine: str | None, sink: str | None, rails: PaperConfig, contract: Contract, intrabar: str
) -> list[Sink]:
    """Return what `--engine` and `--sink KIND:DIR` name. Raises ConfigError."""
    found: list[Sink] = []
    if engine:
        found.append(NautilusBroker(contract.slippage_ticks, intrabar))
    kind, _, folder = (sink or "").partition(":")
    if sink and not (kind == NINJATRADER and folder):
        raise ConfigError(f"--sink {sink}: expected {NINJATRADER}:DIR")
    if sink:
        found.append(NinjaTraderFiles(Path(folder), rails, contract))
        warn(NOTE)
    elif rails.broker != SIMULATED:
        raise ConfigError(f"--rails: broker = {rails.broker} needs --sink {rails.broker}:DIR")
    return found


def flatten(run: Path, name: str) -> Path:
    """Write KILL for a session: it flattens and stops. Raises ConfigError if there is none."""
    folder = session_folder(run, name)
    if not (folder / JOURNAL).is_file():
        raise ConfigError(f"{folder}: no session of paper trading; name it by --name")
    (folder / KILL).touch()
    return folder / KILL
