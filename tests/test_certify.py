"""A certificate says that the paths of a policy are one, and fails where they are not."""

import json
import shutil
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade import cli
from jaxtrade.certify import certificate, paths
from jaxtrade.certify.paths import VOID, Watched
from jaxtrade.config import load_config
from jaxtrade.errors import DataError
from jaxtrade.formatting import iso
from jaxtrade.paper.broker import BrokerFill
from jaxtrade.progress.screen import Screen
from jaxtrade.runs.train import run
from jaxtrade.stream import live
from jaxtrade.stream.rows import StreamRows
from tests.paper.made import evaluated, world

NAME = "free"  # EURUSD, five sessions with holes


NAMED: Any = SimpleNamespace(observation_names=["a", "b"], action_names=["HOLD", "BUY"])


def act(seen=(1.0, 2.0), mask=(True, False), action="BUY", fills=((1, 100, "entry"),), equity=-500):
    given = np.float32(seen), np.array(mask), action, [BrokerFill(*each) for each in fills], equity
    return paths.describe(NAMED, *given)


def compared(found, **others):
    return paths.compare(paths.PathComparison(OWN, found, **others))


OWN = {60: act(), 120: act(), 180: act(fills=(), equity=700)}
NEXT = float(np.nextafter(np.float32(2), np.float32(3)))


@pytest.mark.parametrize(
    ("changed", "kind", "expected", "found"),
    [
        (act(seen=(1.0, -2.0)), "observation bits", "b 2.0", "b -2.0"),
        (act(seen=(1.0, NEXT)), "observation bits", "b 2.0", f"b {NEXT!r}"),
        (act(mask=(True, True)), "masks", "BUY False", "BUY True"),
        (act(action="SELL"), "actions", "BUY", "SELL"),
        (act(fills=()), "prices", [1, 100], None),
        (act(fills=((1, 101, "entry"),)), "prices", [1, 100], [1, 101]),
        (act(equity=-501), "mills", -500, -501),
    ],
)
def test_the_first_difference_is_named(changed, kind, expected, found):
    result = compared({**OWN, 120: changed})
    assert result["compared"][kind]["different"] == 1
    first = {"time": iso(120), "kind": kind, "expected": expected, "found": found}
    assert result["first"] == first


def test_counts_of_equal_paths_missing_decisions_and_declared_ones():
    result = compared(dict(OWN))
    numbers = {kind: each["numbers"] for kind, each in result["compared"].items()}
    assert numbers == dict(zip(paths.ROWS, (6, 6, 3, 2, 3), strict=True))
    assert result["first"] is None
    assert not any(each["different"] for each in result["compared"].values())
    more = {**OWN, 240: act()}
    assert compared(more)["first"]["time"] == iso(240)
    declared = compared(more, declared={"a rule": {240}, "unused": set()})
    assert (declared["first"], declared["declared"]) == (None, {"a rule": 1})
    lost = compared({60: OWN[60]})
    assert lost["compared"]["actions"] == {"numbers": 3, "different": 2}
    assert (lost["first"]["time"], lost["first"]["found"]) == (iso(120), None)
    one = compared({60: {"actions": ["BUY"]}}, kinds=("actions",))
    assert one["compared"] == {"actions": {"numbers": 3, "different": 2}}


# --- the paths, on real bars ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected():
    made, (record, _) = world(NAME), evaluated(NAME)
    return paths.acts_of(record, made.env, made.params, made.bars.time, made.policy)


def compare_stream(expected):
    made = world(NAME)
    stream = Watched(made.config, made.history, made.policy)
    paths.trade(stream, made.feed, np.full(len(made.feed), True), [], Screen())
    return paths.compare(paths.stream_path(expected, stream))


def test_a_stream_does_what_the_evaluation_does(expected):
    found = compare_stream(expected)
    assert found["first"] is None
    assert found["compared"]["prices"]["numbers"] > 10
    assert found["declared"][VOID] > 0


def test_a_decision_of_the_evaluation_is_never_void(expected):
    made = {time: (time, True, None) for time in [*expected, 1]}
    lost = max(expected)
    stream = SimpleNamespace(
        made=made, acts={time: expected[time] for time in expected if time < lost}
    )
    path = paths.stream_path(expected, stream)
    assert path.declared == {VOID: {1}}
    assert paths.compare(path)["first"]["time"] == iso(lost)


def test_a_feature_that_is_streamed_otherwise_is_found(expected, monkeypatch):
    own = StreamRows._feature
    since, shown = list(expected)[7:9]  # the window ends with the bar before a decision's

    def feature(self, name, *given):
        return own(self, name, *given) + (name == "rsi" and self.bar.time[0] >= since)

    monkeypatch.setattr(StreamRows, "_feature", feature)
    found = compare_stream(expected)
    first = found["first"]
    assert (first["time"], first["kind"]) == (iso(shown), "observation bits")
    assert first["found"].startswith("rsi[t-1] ")


def test_another_commission_is_found_at_the_first_fill(expected, monkeypatch):
    own = live.make_params

    def dearer(*given):
        params = own(*given)
        contract = params.contract
        return params.replace(contract=contract.replace(commission=contract.commission + 1))

    monkeypatch.setattr(live, "make_params", dearer)
    found = compare_stream(expected)
    time = next(time for time, each in expected.items() if each["prices"])
    assert (found["first"]["time"], found["first"]["kind"]) == (iso(time), "mills")
    assert found["first"]["found"] < found["first"]["expected"]


# --- the chain -----------------------------------------------------------------------------------

ENTRIES = [
    *({"kind": kind} for kind in ("certificate", "digests", "versions")),
    {"kind": "verdict", "undeclared": 0},
]


@given(st.integers(0, 10**4), st.integers(0, 9))
def test_a_certificate_that_was_changed_cut_or_reordered_is_found(tmp_path_factory, at, digit):
    path = tmp_path_factory.mktemp("chain") / "certificate.json"
    certificate.write(path, ENTRIES)
    text = path.read_text()
    assert certificate.read(path) == ENTRIES
    assert [entry["kind"] for entry in json.loads(text)] == [entry["kind"] for entry in ENTRIES]
    at %= len(text)
    opened, one, two, three, four, closed = text.splitlines()
    damaged = [
        [opened, one, two, three.removesuffix(","), closed],
        [opened, two, one, three, four, closed],
        [opened, one, three, four, closed],
        [opened, closed],
        [],
    ]
    if text[at].isalnum() and text[at] != str(digit):
        damaged.append([text[:at] + str(digit) + text[at + 1 :]])
    for lines in damaged:
        path.write_text("\n".join(lines))
        with pytest.raises(DataError):
            certificate.read(path)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_refuses_what_has_no_sense(tmp_path):
    run, none = str(tmp_path), ["--verify", str(tmp_path / "none.json")]
    for words in ([], [run], none, [run, *none], [*none, "--split", "test"]):
        assert cli.main(["certify", *words]) == 2


@pytest.mark.slow
def test_a_run_is_certified_and_what_is_changed_is_found(tmp_path, capsys):
    tiny = {
        "train": {"total_timesteps": 4096},
        "rollout": {"num_envs": 16, "num_steps": 128},
        "network": {"hidden": [16]},
    }
    path = run(load_config("quickstart", tiny), tmp_path / "run").path
    words = ["certify", str(path), "--quiet"]
    assert cli.main(words) == 0
    folder = path / "certificate"
    file = folder / certificate.FILE
    entries = certificate.read(file)
    first, known, verdict = entries[0], entries[1], entries[-1]
    assert (first["decisions"], first["sessions"][2], verdict["undeclared"]) == (433, 1, 0)
    by_name = {entry["path"]: entry["compared"] for entry in entries if entry["kind"] == "path"}
    assert by_name["stream"]["observation bits"]["numbers"] == 433 * 228
    assert by_name["NumPy export"]["actions"] == {"numbers": 433, "different": 0}
    assert ("NautilusTrader" in by_name) == (find_spec("nautilus_trader") is not None)
    html = (folder / certificate.PAGE).read_text()
    assert known["policy"] in html
    assert cli.main(["certify", "--verify", str(file), "--quiet"]) == 0
    # Of the four days of training the first is history.
    assert cli.main([*words, "--split", "train", "--out", str(tmp_path / "train")]) == 0
    entries = certificate.read(tmp_path / "train" / certificate.FILE)
    assert (entries[0]["sessions"][2], entries[-1]["undeclared"]) == (3, 0)
    # A weight of the export that is changed: its card refuses it.
    shutil.copytree(folder / "export", path / "export" / "npz")
    weights = path / "export" / "npz" / "policy.npz"
    arrays = dict(np.load(weights, allow_pickle=False))
    next(iter(arrays.values())).flat[3] += 1e-3
    np.savez(weights, allow_pickle=False, **arrays)
    capsys.readouterr()
    assert cli.main(words) == 1
    assert str(weights.parent) in capsys.readouterr().err
    changed = certificate.read(file)[-2]
    assert changed["compared"]["actions"] == {"numbers": 433, "different": 433}
    assert cli.main(["certify", "--verify", str(file), "--quiet"]) == 1
    file.write_text(file.read_text().replace("433", "434"))
    assert cli.main(["certify", "--verify", str(file), "--quiet"]) == 2
