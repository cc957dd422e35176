"""`python -m jaxtrade.doctor`. It works even if the `jaxtrade` command cannot start, for example
without pydantic.
"""

import argparse
import sys

from jaxtrade.doctor.examine import examine

parser = argparse.ArgumentParser(
    prog="jaxtrade doctor", description="Examine this machine; every problem comes with a fix"
)
parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
parser.add_argument(
    "--run-dir", metavar="DIR", default="runs", help="folder of runs to examine (default: runs)"
)
given = parser.parse_args()
sys.exit(examine(given.run_dir, given.json))
