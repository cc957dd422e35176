"""The certificate: held-out sessions on every path, in a file with a hash chain, and its page."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade.advisor.host.journal import chain_line, read_chain
from jaxtrade.advisor.host.types import canonical
from jaxtrade.certify.paths import (
    ROWS,
    Watched,
    compare,
    describe_weights,
    evaluate,
    run_export,
    trade,
)
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.policy import load_policy, policy_digest
from jaxtrade.export.graph import weights_of
from jaxtrade.export.make import export_policy
from jaxtrade.progress.screen import Screen
from jaxtrade.reporting import page
from jaxtrade.runs import files, rundir
from jaxtrade.runs.decide import choose_policy
from jaxtrade.runs.evaluate import held_out, open_run
from jaxtrade.runs.stored_run import chosen_number, policy_path
from jaxtrade.storage import digests
from jaxtrade.text import several

FORMAT = 1
FILE, PAGE = "certificate.json", "certificate.html"


def digest(run: Path, number: int, config: Any, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what a certificate is about, as digests: policy, bars, rules and code."""
    return {
        "policy": policy_digest(load_policy(policy_path(run, config, number)).policy),
        "bars": manifest["data_sha256"],
        "rules": manifest["config_sha256"],
        "code": files.digest_code(rundir.PACKAGE),
    }


def certify(
    run: Path,
    split: str = "test",
    symbol: str | None = None,
    seed: int | None = None,
    agent: int | None = None,
    out: Path | None = None,
    screen: Screen | None = None,
) -> list[dict[str, Any]]:
    """Replay held-out sessions on every path, and write the certificate. Returns its entries.

    The last entry is the verdict. No profit is shown, so this is not a look.

    split: whose sessions. symbol, seed, agent: which policy, of a run with several.
    out: folder; default RUN/certificate. An export in RUN/export is certified if there is one;
        else one is made in that folder.

    Raises ConfigError (the choice is not clear, env.task=allocate, env.intrabar=path), DataError
    (no bars, no such sessions), and what `Stream` and `export_policy` refuse.
    """
    screen = screen or Screen()
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
    name = next(each for each in setup.symbols if symbol in (None, each) or each == symbol.upper())
    own = setup.symbols[name]
    sessions = own.splits[split]
    screen.phase("evaluating", split)
    expected, shown = evaluate(setup, loaded, number, name, split)
    market = own.single
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    table = jax.device_get(market.data.sessions)
    first, last = int(table.start[ids.min()]), int(table.last[ids.max()]) + 2
    screen.phase("streaming", name, 1 + (last - first) // 100)
    stream = Watched(config, market.bars.rows(slice(0, first)), loaded)
    bars = market.bars.rows(slice(first, last))
    dates = own.dates(split)
    exchange = find_spec("nautilus_trader") is not None
    acts, declared = trade(stream, bars, dates, bool(table.complete[ids.max()]), exchange, screen)
    symbols = [name] if len(setup.symbols) > 1 else []
    folder = stack.folder((out or run / "certificate").joinpath(*symbols), number)
    folder.mkdir(parents=True, exist_ok=True)
    screen.phase("exporting", "to NumPy")
    export = stack.folder(run / "export" / "-".join(["npz", *symbols]), number)
    if not export.exists():
        export = export_policy(
            run, "npz", folder / "export", seed=seed, agent=agent, symbol=symbol, evaluation=False
        )
    screen.phase("running", "the export in NumPy")
    acts["NumPy export"] = run_export(export, shown, stream.begun)
    expected[min(expected)]["weights"] = describe_weights(weights_of(loaded))
    paths = {path: compare(expected, each, declared.get(path, {})) for path, each in acts.items()}
    about = {
        "format": FORMAT,
        "run": run.resolve().name,
        "symbol": name,
        "policy": number,
        "split": split,
        "sessions": [str(dates[0]), str(dates[-1]), len(dates)],
        "decisions": len(expected),
        "fills": sum(len(each["fills"]) for each in expected.values()),
    }
    known = digest(run, number, setup.config, manifest)
    entries = list_entries(about, known, manifest["git"], paths)
    write(folder, entries)
    return entries


def list_entries(
    about: Mapping[str, Any], known: Mapping[str, str], trained_by: str, paths: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the entries of a certificate. paths: name -> of `compare`."""
    versions = {"trained_by": trained_by, "certified_by": rundir.commit()}
    counts = [each for path in paths.values() for each in path["compared"].values()]
    return [
        {"kind": "certificate", **about},
        {"kind": "digests", **known},
        {"kind": "versions", **versions, **rundir.facts()["versions"]},
        *({"kind": "path", "path": path, **found} for path, found in paths.items()),
        {"kind": "verdict", "undeclared": sum(each["different"] for each in counts)},
    ]


def write(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Write certificate.json, a JSON array of the lines of a hash chain, and its page."""
    before, lines = "", list[str]()
    for entry in entries:
        line, before = chain_line(before, canonical(entry))
        lines.append(line.decode().strip())
    digests.write_whole(folder / FILE, "[\n" + ",\n".join(lines) + "\n]\n")
    by_kind = {each["kind"]: each for each in entries}
    html = page.document(
        "certificate.html",
        ("theme.js",),
        paths=[each for each in entries if each["kind"] == "path"],
        head=before,
        rows=ROWS,
        **{kind: by_kind[kind] for kind in ("certificate", "digests", "versions", "verdict")},
    )
    digests.write_whole(folder / PAGE, html)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the entries of a certificate. Raises DataError for one that was changed or cut."""

    def fault(number: int, why: str) -> DataError:
        return DataError(f"{path}: entry {number}: {why}; certify the run again")

    try:
        opened, *lines, closed = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a certificate ({error})") from None
    raw = [line.removesuffix(",").encode() for line in lines]
    entries = [entry for _, entry, _ in read_chain(raw, fault, "a certificate")]
    whole = (opened, closed) == ("[", "]") and entries and entries[-1]["kind"] == "verdict"
    if not whole:
        raise fault(len(entries) + 1, "is missing: the last one is the verdict")
    return entries


def verify(path: Path, run: Path | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """Check the chain of a certificate, and its digests where the run is there.

    run: default: where the certificate lies, if that is a run.
    Returns its entries, and what differs now, as lines. Raises DataError as `read`.
    """
    entries = read(path)
    about, known = entries[0], entries[1]
    run = run or next(
        (each for each in path.resolve().parents if (each / "config.yaml").is_file()), None
    )
    if run is None:
        return entries, []
    config, manifest = rundir.read_run(run)
    now = digest(run, about["policy"], config, manifest)
    return entries, [
        f"{name}: {run} has {now[name][:16]}..., the certificate {known[name][:16]}..."
        for name in now
        if now[name] != known[name]
    ]


def describe(entries: list[dict[str, Any]]) -> str:
    """Return what a command prints of a certificate."""
    about, lines = entries[0], list[str]()
    first, last, count = about["sessions"]
    lines.append(
        f"{about['symbol']}, {about['split']}: {several(about['decisions'], 'decision')}, "
        f"{several(about['fills'], 'fill')}, {several(count, 'session')} ({first} to {last})"
    )
    for each in entries:
        if each["kind"] != "path":
            continue
        said = ", ".join(
            f"{kind} {found['different']:,} of {found['numbers']:,}"
            for kind in ROWS
            if (found := each["compared"].get(kind))
        )
        lines.append(f"- {each['path']}: different {said}")
        if at := each["first"]:
            lines.append(
                f"  first at {at['time']}: {at['kind']}: expected {at['expected']}, found {at['found']}"
            )
        lines += [f"  declared, {times:,}: {rule}" for rule, times in each["declared"].items()]
    lines.append(f"undeclared differences: {entries[-1]['undeclared']:,}")
    return "\n".join(lines)
