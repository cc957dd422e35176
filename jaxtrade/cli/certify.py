"""`jaxtrade certify`: what a run's policy does on every path, compared decision by decision."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from jaxtrade.cli.shared import MODULES, QUIET, loading, print_result, refuse
from jaxtrade.errors import ConfigError
from jaxtrade.registry import import_parts
from jaxtrade.runs import rundir

CHOICE = ("split", "symbol", "seed", "agent", "out")
CERTIFY = (
    "compare what a policy does in evaluation, on streamed bars and as an export, and certify it",
    """
    RUN?  the run's folder; with --verify that of the certificate by default
    --split {test,validation,train,all}  whose sessions (default: test)
    --symbol SYMBOL  which symbol, of a run with several
    --seed SEED : int  which policy, of a run with several
    --agent N : int  which policy, by its number in agents.json
    --out FOLDER : Path  where the certificate is written (default: RUN/certificate)
    --verify FILE : Path  only check a certificate: its chain, and whether the run is still the same
    """,
    MODULES,
    QUIET,
)


def run(args: Namespace) -> int:
    """Handle `certify`. Return the exit code: 1 if anything differs that is not declared."""
    run = None if args.run is None else Path(args.run)
    if args.verify:
        refuse(args, CHOICE, "--verify reads a certificate that is there")
    elif run is None:
        raise ConfigError("certify: name a run's folder, or a certificate by --verify FILE")
    import_parts(args.modules)
    if run is not None:
        rundir.read_run(run)
    with loading(args) as screen:
        from jaxtrade.certify import certificate

        changed: list[str] = []
        if run is None or args.verify:
            entries, changed = certificate.verify(args.verify, run)
        else:
            which = {name: getattr(args, name) for name in ("symbol", "seed", "agent", "out")}
            entries = certificate.certify(run, args.split or "test", **which, screen=screen)
        text = "\n".join([certificate.describe(entries), *changed])
    print_result(text, screen)
    return int(bool(changed or entries[-1]["undeclared"]))
