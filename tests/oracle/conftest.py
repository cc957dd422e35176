"""Hand-worked episodes, played by both engines."""

import pytest

from tests.oracle.engines import ENGINES
from tests.oracle.model import Settings


@pytest.fixture(params=list(ENGINES))
def check(request):
    """Plays actions and compares what is wanted of each step; returns all that is known of them."""

    def check(bars, actions, expected, settings=None):
        records = ENGINES[request.param](bars, settings or Settings(), actions)
        for step, (record, wanted) in enumerate(zip(records, expected, strict=True)):
            found = {key: record[key] for key in wanted}
            assert found == {
                key: (pytest.approx(value, rel=1e-6) if key == "reward" else value)
                for key, value in wanted.items()
            }, f"step {step}"
        return records

    return check
