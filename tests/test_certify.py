"""A certificate says that the paths of a policy are one, and fails where they are not."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade import cli
from jaxtrade.advisor.host.journal import chain_line
from jaxtrade.advisor.host.types import canonical
from jaxtrade.certify import certificate, paths
from jaxtrade.certify.paths import VOID, Watched
from jaxtrade.config import load_config
from jaxtrade.errors import DataError
from jaxtrade.evaluation.policy import load_policy
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


OWN = {60: act(), 120: act(), 180: act(fills=(), equity=700)}
NEXT = float(np.nextafter(np.float32(2), np.float32(3)))


@pytest.mark.parametrize(
    ("changed", "kind", "expected", "found"),
    [
        (act(seen=(1.0, -2.0)), "observation bits", "b 2.0", "b -2.0"),
        (act(seen=(1.0, NEXT)), "observation bits", "b 2.0", f"b {NEXT!r}"),
        (act(mask=(True, True)), "masks", "BUY False", "BUY True"),
        (act(action="SELL"), "actions", "BUY", "SELL"),
        (act(fills=()), "fills", 1, None),
        (act(fills=((1, 101, "entry"),)), "prices", 100, 101),
        (act(equity=-501), "mills", -500, -501),
    ],
)
def test_the_first_difference_is_named(changed, kind, expected, found):
    result = paths.compare(OWN, {**OWN, 120: changed}, {})
    assert result["compared"][kind]["different"] == 1
    first = {"time": iso(120), "kind": kind, "expected": expected, "found": found}
    assert result["first"] == first


def test_counts_of_equal_paths_missing_decisions_and_declared_ones():
    result = paths.compare(OWN, dict(OWN), {})
    numbers = {kind: each["numbers"] for kind, each in result["compared"].items()}
    assert numbers == {
        "decisions": 3,
        "observation bits": 6,
        "masks": 6,
        "actions": 3,
        "fills": 2,
        "prices": 2,
        "mills": 3,
    }
    assert result["first"] is None
    assert not any(each["different"] for each in result["compared"].values())
    more = {**OWN, 240: act()}
    assert paths.compare(OWN, more, {})["first"]["time"] == iso(240)
    declared = paths.compare(OWN, more, {"a rule": {240}, "unused": set()})
    assert (declared["first"], declared["declared"]) == (None, {"a rule": 1})
    lost = paths.compare(OWN, {60: OWN[60]}, {})
    assert lost["compared"]["decisions"] == {"numbers": 3, "different": 2}
    assert lost["first"]["time"] == iso(120)
    assert {*paths.compare(OWN, {60: {"actions": ["BUY"]}}, {})["compared"]} == {
        "decisions",
        "actions",
    }


# --- the paths, on real bars ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected():
    made, (record, _) = world(NAME), evaluated(NAME)
    return paths.acts_of(record, made.env, made.params, made.bars.time, made.policy)[0]


def compare_stream(expected):
    made = world(NAME)
    stream = Watched(made.config, made.history, made.policy)
    dates = np.unique(made.feed.trade_dates)
    found, declared = paths.trade(stream, made.feed, dates, False, False, Screen())
    return paths.compare(expected, found["stream"], declared["stream"])


def test_a_stream_does_what_the_evaluation_does(expected):
    found = compare_stream(expected)
    assert found["first"] is None
    assert found["compared"]["fills"]["numbers"] > 10
    assert found["declared"][VOID] > 0


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
    time = next(time for time, each in expected.items() if each["fills"])
    assert (found["first"]["time"], found["first"]["kind"]) == (iso(time), "mills")
    assert found["first"]["found"] < found["first"]["expected"]


# --- the chain -----------------------------------------------------------------------------------


def chain(folder, entries):
    before, lines = "", []
    for entry in entries:
        line, before = chain_line(before, canonical(entry))
        lines.append(line.decode().strip())
    path = folder / "certificate.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return path


ENTRIES = [
    {"kind": "certificate", "n": 433},
    {"kind": "digests"},
    {"kind": "verdict", "undeclared": 0},
]


@given(st.integers(0, 10**4), st.integers(0, 9))
def test_a_changed_digit_or_letter_is_found(tmp_path_factory, at, digit):
    path = chain(tmp_path_factory.mktemp("chain"), ENTRIES)
    text = path.read_text()
    assert certificate.read(path) == ENTRIES
    assert [entry["kind"] for entry in json.loads(text)] == [entry["kind"] for entry in ENTRIES]
    at %= len(text)
    if not text[at].isalnum() or text[at] == str(digit):
        return
    path.write_text(text[:at] + str(digit) + text[at + 1 :])
    with pytest.raises(DataError):
        certificate.read(path)


def test_a_certificate_that_was_cut_or_reordered_is_found(tmp_path):
    path = chain(tmp_path, ENTRIES)
    opened, one, two, three, closed = path.read_text().splitlines()
    for lines in (
        [opened, one, two.removesuffix(","), closed],
        [opened, two, one, three, closed],
        [opened, one, three, closed],
        [opened, closed],
        [],
    ):
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(DataError):
            certificate.read(path)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_refuses_what_has_no_sense(tmp_path):
    assert cli.main(["certify"]) == 2
    assert cli.main(["certify", str(tmp_path)]) == 2
    assert cli.main(["certify", "--verify", str(tmp_path / "none.json")]) == 2
    assert cli.main(["certify", "--verify", str(tmp_path / "none.json"), "--split", "test"]) == 2


@pytest.mark.slow
def test_a_run_is_certified_and_what_is_changed_is_found(tmp_path, monkeypatch, capsys):
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
    # A weight of the export that is changed.
    shutil.copytree(folder / "export", path / "export" / "npz")
    weights = path / "export" / "npz" / "policy.npz"
    arrays = dict(np.load(weights))
    name = next(iter(arrays))
    arrays[name].flat[3] += 1e-3
    np.savez(weights, **arrays)
    assert cli.main(words) == 1
    changed = certificate.read(file)[-2]
    assert changed["compared"]["weights"]["different"] == 1
    assert changed["first"]["kind"] == "weights"
    assert changed["first"]["found"].startswith(f"{name}[3] ")
    assert changed["compared"]["decisions"]["different"] == 432  # its card refuses it
    assert "weights" in (folder / certificate.PAGE).read_text()
    # Another policy in the run, and another chain.
    bundle = path / "policy"
    policy = load_policy(bundle)
    parameters = jax.tree.map(lambda x: x + 1, policy.policy.parameters)
    monkeypatch.setattr(
        certificate,
        "load_policy",
        lambda at: replace(policy, policy=policy.policy.replace(parameters=parameters)),
    )
    capsys.readouterr()
    assert cli.main(["certify", "--verify", str(file), "--quiet"]) == 1
    assert "policy" in capsys.readouterr().out
    file.write_text(file.read_text().replace("433", "434"))
    assert cli.main(["certify", "--verify", str(file), "--quiet"]) == 2
