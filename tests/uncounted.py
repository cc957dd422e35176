"""Reports without what they say of the trial log: an evaluation that is repeated opens the test
sessions once more.
"""

from jaxtrade.evaluation.test_set_history import ABSENT, PREFIX


def document(found):
    """The content of an `evaluation.json` without its count, which it must have."""
    assert found["trials"]["opened"] >= 1
    return {name: value for name, value in found.items() if name != "trials"}


def table(text):
    """A table without its lines about the count, of which it must have one."""
    lines = text.splitlines()
    kept = [line for line in lines if not line.startswith((PREFIX, ABSENT))]
    assert len(kept) < len(lines)
    return "\n".join(kept)
