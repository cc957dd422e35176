"""Where the files of this checkout are, and those that runs leave."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
OLD = FIXTURES / "run_0_1_0"  # of an earlier version


def read_json(path):
    """The document in a file."""
    return json.loads(path.read_text(encoding="utf-8"))
