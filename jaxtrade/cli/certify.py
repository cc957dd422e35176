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
    RUN?  the run's folder
    --split {test,validation,train,all}  whose sessions (default: test)
    --symbol SYMBOL  which symbol, of a run with several
    --seed SEED : int  which policy, of a run with several
    --agent N : int  which policy, by its number in agents.json
    --out FOLDER : Path  where the certificate is written (default: RUN/certificate)
    --verify FILE : Path  only check the hash chain of a certificate, and show what it says
    """,
    MODULES,
    QUIET,
)


def run(args: Namespace) -> int:
    """Handle `certify`. Return the exit code: 1 if anything differs that is not declared."""
    if args.verify:
        refuse(args, CHOICE, "--verify reads a certificate that is there")
    if bool(args.run) == bool(args.verify):
        raise ConfigError("certify: name a run's folder, or else a certificate by --verify FILE")
    if args.run:
        rundir.read_run(Path(args.run))
    import_parts(args.modules)
    with loading(args) as screen:
        from jaxtrade.certify import certificate

        if args.verify:
            entries = certificate.read(args.verify)
        else:
            which = {name: getattr(args, name) for name in CHOICE[1:]}
            entries = certificate.certify(
                Path(args.run), args.split or "test", **which, screen=screen
            )
    print_result(certificate.describe(entries), screen)
    return int(entries[-1]["undeclared"] > 0)
