"""Run all checks within a time budget, and report them as text or JSON."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jaxtrade.doctor import checks, storage
from jaxtrade.doctor.child import ChildResult, run_child
from jaxtrade.doctor.finding import Finding, Status
from jaxtrade.doctor.host import Machine, here
from jaxtrade.doctor.layers import LAYERS, Layer, finding_of
from jaxtrade.version import __version__

BUDGET = 18.0  # seconds for all checks, below the documented 20 seconds
Runner = Callable[[str, float, Mapping[str, str]], ChildResult]


def diagnose(
    host: Machine, layers: Sequence[Layer] = LAYERS, run: Runner = run_child, budget: float = BUDGET
) -> list[Finding]:
    """Run all checks. The findings have a fixed order: facts, storage, native layers.

    The children share `budget` seconds. Two run at a time, and each may use the seconds that are
    left, so a child that hangs does not block the others.
    """
    deadline = time.monotonic() + budget

    def examine(layer: Layer) -> Finding:
        left = deadline - time.monotonic()
        if left < 0.5:
            return finding_of(
                layer, ChildResult("hang", 0.0, {}, f"not reached within {budget:.0f} s")
            )
        return finding_of(layer, run(layer.program, left, layer.env))

    with ThreadPoolExecutor(max_workers=2) as pool:
        natives = [pool.submit(examine, layer) for layer in layers if layer.applies(host)]
        facts = [check(host) for check in (*checks.CHECKS, *storage.CHECKS)]
        return facts + [native.result() for native in natives]


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if any check failed, else 0. Warnings are not failures."""
    return int(any(finding.verdict is Status.FAIL for finding in findings))


def to_json(findings: Sequence[Finding]) -> str:
    """All findings as a JSON document."""
    return json.dumps(
        {
            "format": 1,
            "jaxtrade": __version__,
            "exit_code": exit_code(findings),
            "findings": [
                {
                    "name": finding.name,
                    "verdict": str(finding.verdict),
                    "measured": finding.measured,
                    "fix": finding.fix,
                }
                for finding in findings
            ],
        },
        indent=2,
    )


def to_text(findings: Sequence[Finding]) -> str:
    """All findings as lines for the console, and their counts."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.verdict:<4}  {finding.name:<14} {finding.measured}")
        if finding.fix:
            lines.append(f"      {'':<14} fix: {finding.fix}")
    counts = {
        verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Status
    }
    lines.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Entry point of `python -m jaxtrade.doctor`. Returns 0, or 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="jaxtrade doctor", description="Examine this machine; every problem comes with a fix"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--run-dir", metavar="DIR", default="runs", help="folder of runs to examine (default: runs)"
    )
    args = parser.parse_args(argv)
    findings = diagnose(here(Path(os.path.expanduser(args.run_dir))))
    print(to_json(findings) if args.json else to_text(findings))
    return exit_code(findings)
