"""`python -m jaxtrade.doctor`: works where the `jaxtrade` command itself cannot start (pydantic missing, say)."""

import sys

from jaxtrade.doctor.report import main

sys.exit(main(sys.argv[1:]))
