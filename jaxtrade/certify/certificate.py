"""The certificate: held-out sessions on every path, in a file with a hash chain, and its page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade.advisor.host.journal import chain_line, read_chain
from jaxtrade.advisor.host.types import canonical
from jaxtrade.certify.paths import ROWS, Watched, compare, evaluate, paths_of, trade
from jaxtrade.data.contracts import contract_of
from jaxtrade.data.splits import sessions_of
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.export.make import export_policy
from jaxtrade.paper.nautilus import NautilusBroker
from jaxtrade.progress.screen import Screen
from jaxtrade.reporting import page
from jaxtrade.runs import files, rundir
from jaxtrade.runs.decide import choose_policy
from jaxtrade.runs.evaluate import held_out, open_run
from jaxtrade.runs.stored_run import chosen_number
from jaxtrade.storage import digests
from jaxtrade.text import several

FORMAT = 1
FILE, PAGE = "certificate.json", "certificate.html"


def certify(
    run: Path,
    split: str,
    symbol: str | None,
    seed: int | None,
    agent: int | None,
    out: Path | None,
    screen: Screen,
) -> list[dict[str, Any]]:
    """Replay held-out sessions on every path, and write the certificate. Returns its entries.

    The last entry is the verdict. No profit is shown, so this is not a look.

    split: whose sessions; the first session of the bars is left out, because it is history.
    symbol, seed, agent: which policy, of a run with several.
    out: folder; None: RUN/certificate. An export in RUN/export is certified if there is one;
        else one is made in that folder.

    Raises ConfigError (the choice is not clear, env.task=allocate, env.intrabar=path), DataError
    (no bars, no such sessions), and what `Stream` and `export_policy` refuse.
    """
    config, loaded = choose_policy(run, symbol, seed, agent)
    if config.env.intrabar == "path":
        raise ConfigError(
            "env.intrabar=path orders the fills inside a bar by finer bars, which a stream does not have; "
            "certify a run of env.intrabar=stop_first"
        )
    screen.phase("opening", str(run))
    setup, manifest = open_run(run, advisor=False)
    number, stack = chosen_number(setup.config, seed, agent), setup.stack
    held_out(setup, split)
    name = contract_of(config.data).symbol
    own = setup.symbols[name]
    market, sessions = own.single, own.splits[split]
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    ids = ids[ids > 0]  # the first session is history: a stream begins after a decision
    if not len(ids):
        raise DataError(
            f"{market.bars.source}: split '{split}' has the first session alone, which is the history of a "
            "stream; certify another split (--split), or give more bars"
        )
    dates = market.trade_dates[ids]
    screen.phase("evaluating", split)
    expected = evaluate(setup, loaded, number, name, sessions_of(market, ids))
    bars = market.bars
    trades = np.isin(bars.trade_dates, dates)
    first, *_, last = np.flatnonzero(trades)
    ahead = slice(first, last + 2)  # the bar after the last session shows that it is over
    stream = Watched(config, bars.rows(slice(0, first)), loaded)
    given = stream.contract.slippage_ticks, config.env.intrabar
    sinks = [NautilusBroker(*given)] if find_spec("nautilus_trader") else []
    screen.phase("streaming", name, len(bars.time[ahead]))
    trade(stream, bars.rows(ahead), trades[ahead], sinks, screen)
    symbols = [name] if len(setup.symbols) > 1 else []
    folder = stack.folder((out or run / "certificate").joinpath(*symbols), number)
    folder.mkdir(parents=True, exist_ok=True)
    screen.phase("exporting", "to NumPy")
    export = stack.folder(run / "export" / "-".join(["npz", *symbols]), number)
    if not export.exists():
        which = {"seed": seed, "agent": agent, "symbol": symbol}
        export = export_policy(run, "npz", folder / "export", **which, evaluation=False)
    paths = paths_of(expected, stream, sinks, export)
    about = {
        "format": FORMAT,
        "run": run.resolve().name,
        "symbol": name,
        "policy": number,
        "split": split,
        "sessions": [str(dates[0]), str(dates[-1]), len(dates)],
        "decisions": len(expected),
        "fills": sum(len(each["prices"]) for each in expected.values()),
    }
    known = {
        "policy": policy_digest(loaded.policy),
        "bars": manifest["data_sha256"],
        "rules": manifest["config_sha256"],
        "code": files.digest_code(rundir.PACKAGE),
    }
    versions = {"trained_by": manifest["git"], "certified_by": rundir.commit()}
    found = [{"path": name, **compare(path)} for name, path in paths.items()]
    undeclared = sum(each["different"] for path in found for each in path["compared"].values())
    entries = [
        {"kind": "certificate", **about},
        {"kind": "digests", **known},
        {"kind": "versions", **versions, **rundir.facts()["versions"]},
        *({"kind": "path", **each} for each in found),
        {"kind": "verdict", "undeclared": undeclared},
    ]
    given = {"entries": entries, "head": write(folder / FILE, entries), "rows": ROWS}
    digests.write_whole(folder / PAGE, page.document("certificate.html", ("theme.js",), **given))
    return entries


def write(path: Path, entries: list[dict[str, Any]]) -> str:
    """Write a JSON array of the lines of a hash chain, and return the last digest."""
    before, lines = "", list[str]()
    for entry in entries:
        line, before = chain_line(before, canonical(entry))
        lines.append(line.decode().strip())
    digests.write_whole(path, "[\n" + ",\n".join(lines) + "\n]\n")
    return before


def read(path: Path) -> list[dict[str, Any]]:
    """Read the entries of a certificate. Raises DataError for one that was changed or cut."""

    def fault(number: int, why: str) -> DataError:
        return DataError(f"{path}: entry {number}: {why}; certify the run again")

    try:
        lines = path.read_bytes().splitlines()[1:-1]
    except OSError as error:
        raise DataError(f"{path}: cannot be read as a certificate ({error})") from None
    raw = [line.removesuffix(b",") for line in lines]
    entries = [entry for _, entry, _ in read_chain(raw, fault, "a certificate")]
    if not entries or entries[-1]["kind"] != "verdict":
        raise fault(len(entries) + 1, "is missing: the last one is the verdict")
    return entries


def describe(entries: list[dict[str, Any]]) -> str:
    """Return what a command prints of a certificate."""
    about, _, _, *paths, verdict = entries
    first, last, count = about["sessions"]
    lines = [
        f"{about['symbol']}, {about['split']}: {several(about['decisions'], 'decision')}, "
        f"{several(about['fills'], 'fill')}, {several(count, 'session')} ({first} to {last})"
    ]
    for path in paths:
        counts = [(kind, path["compared"].get(kind)) for kind in ROWS]
        said = [f"{kind} {x['different']:,} of {x['numbers']:,}" for kind, x in counts if x]
        lines.append(f"- {path['path']}: different {', '.join(said)}")
        if at := path["first"]:
            lines.append(
                f"  first at {at['time']}: {at['kind']}: expected {at['expected']}, found {at['found']}"
            )
        lines += [f"  declared, {times:,}: {rule}" for rule, times in path["declared"].items()]
    return "\n".join([*lines, f"undeclared differences: {verdict['undeclared']:,}"])
