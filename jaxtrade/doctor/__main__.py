"""`python -m jaxtrade.doctor`. It works even if the `jaxtrade` command cannot start, for example
without pydantic.
"""

import sys

from jaxtrade.doctor.examine import main

sys.exit(main(sys.argv[1:]))
