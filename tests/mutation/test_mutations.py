"""The list of seeded faults stays alive: each still has its one place in the source, and names
tests that exist.
"""

from collections import Counter

from tests.mutation.faults import read_faults
from tests.reading import ROOT

FAULTS = read_faults()
PACKAGES = {"env", "rl", "networks", "evaluation", "data", "transfer", "advisor", "runs"}


def test_every_fault_has_one_place_in_the_source():
    lost = []
    for fault in FAULTS:
        try:
            changed = fault.applied(ROOT)
        except (ValueError, OSError) as error:
            lost.append(str(error))
            continue
        if changed == (ROOT / fault.path).read_text():
            lost.append(f"{fault.id}: changes nothing")
        if fault.path.endswith(".py"):
            compile(
                changed, fault.path, "exec"
            )  # a fault that is no Python would be caught by anything
    assert lost == []


def test_names_are_unique_and_every_package_is_audited():
    assert [
        name for name, count in Counter(fault.id for fault in FAULTS).items() if count > 1
    ] == []
    counts = Counter(fault.package for fault in FAULTS)
    assert set(counts) == PACKAGES
    assert min(counts.values()) >= 5
    assert len(FAULTS) >= 70


def test_every_fault_names_tests_that_exist():
    names = {name.partition("::")[::2] for fault in FAULTS for name in fault.caught_by}
    missing = []
    for path, node in sorted(names):
        file = ROOT / path
        function = node.partition("[")[0]
        if not file.is_file() or (function and f"def {function}(" not in file.read_text()):
            missing.append(f"{path}::{node}" if node else path)
    assert missing == []
    assert all(fault.caught_by or fault.oracle for fault in FAULTS)
