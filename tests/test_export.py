"""Exports of policies act as the policies, and what does not is refused and leaves nothing."""

import dataclasses
import functools
import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade import cli
from jaxtrade.config import load_config
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.export import check_format, checks, graph, make, numpy_policy
from jaxtrade.export.graph import CARD, read, require_known, weights_of, write
from jaxtrade.export.make import PAGE, card_of
from jaxtrade.rl.algorithms import first_policy
from jaxtrade.runs.stored_run import open_run
from jaxtrade.runs.train import run
from tests.evaluation.tiny import TWO_DAYS as MARKET
from tests.evaluation.tiny import setup

SMALL = {"hidden": [8, 6], "rnn_width": 5}
KINDS = {
    "mlp": {"network": SMALL | {"activation": "relu", "adapter": 7}},
    "gru": {"network": SMALL | {"kind": "gru"}},
    "raw": {"network": SMALL | {"normalise_observations": False}},
    "dqn": {"algorithm": "dqn", "network": SMALL, "dqn": {"dueling": True}},
    "pqn": {
        "algorithm": "pqn",
        "network": SMALL | {"kind": "gru"},
        "pqn": {"dueling": True, "layer_norm": True},
    },
}
CONSTANT = 3  # a slot that never varied
FORMATS = {"npz": "numpy", "onnx": "onnxruntime", "stablehlo": "flatbuffers"}


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """Loaded policies whose weights are all different from zero, by kind."""

    @functools.cache
    def make_one(kind):
        env, _, config = setup(MARKET, MARKET.every, **KINDS[kind])
        rng = np.random.default_rng(3)
        policy = first_policy(config, env.num_actions, env.observation_size, jax.random.key(1))
        policy = policy.replace(
            parameters=jax.tree.map(
                lambda x: x + rng.normal(size=x.shape).astype(np.float32) / 20, policy.parameters
            ),
            normaliser=jax.tree.map(
                lambda x: rng.uniform(0.5, 2.0, x.shape).astype(np.float32), policy.normaliser
            ),
        )
        policy.normaliser.variance[0, CONSTANT] = 0
        folder = tmp_path_factory.mktemp(kind)
        save_policy_bundle(folder / "policy", policy, env, MARKET, config)
        return load_policy(folder), config

    return make_one


def written(policies, kind, folder, form="npz", change=lambda weights: weights):
    """The export of a policy without its checks, and the policy."""
    pytest.importorskip(FORMATS[form], reason=f'pip install "jaxtrade[export]" for {form}')
    loaded, config = policies(kind)
    card = card_of(form, "run", config, loaded, "ES")
    return write(folder, change(weights_of(loaded)), card), loaded


@pytest.fixture(scope="module", params=KINDS)
def pair(request, policies, tmp_path_factory):
    written(policies, request.param, folder := tmp_path_factory.mktemp("npz"))
    return numpy_policy.NumpyPolicy(folder), policies(request.param)[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 100.0, 1e6]))
def test_numpy_acts_as_the_policy_over_an_episode(pair, seed, size):
    policy, loaded = pair
    rng, actions = np.random.default_rng(seed), len(policy.action_names)
    carry, own = policy.first_carry(4), loaded.first_carry(4)
    for _ in range(3):
        seen = (size * rng.normal(size=(4, 228))).astype(np.float32)
        mask = rng.random((4, actions)) < 0.4
        mask[:, 0] |= ~mask.any(axis=1)
        action, logits, value, carry = policy.scores(seen, mask, carry)
        own, own_action, extras = loaded.act_with_outputs(own, seen, mask)
        best = np.sort(np.where(mask, extras.logits, -np.inf))
        scale = np.maximum(1, np.abs(extras.logits).max(axis=1))
        clear = best[:, -1] - best[:, -2] > 1e-4 * scale
        assert np.array_equal(action[clear], np.asarray(own_action)[clear])
        assert np.array_equal(logits > -np.inf, mask)
        difference = np.where(mask, logits - np.asarray(extras.logits), 0) / scale[:, None]
        assert np.abs(difference).max() <= 1e-5
        assert np.abs(value - extras.value).max() <= 1e-5 * max(1, np.abs(value).max())
        assert action.dtype == np.int32
        assert {logits.dtype, value.dtype} == {np.dtype(np.float32)}
        if carry is not None:
            assert np.abs(carry - own).max() <= 1e-5
    one = policy.step(policy.first_carry(), seen[0], mask[0])[1]
    assert one == policy.step(policy.first_carry(4), seen, mask)[1][0]


@pytest.mark.parametrize("form", FORMATS)
def test_outputs_agree_and_a_slot_that_never_varied_is_not_seen(policies, tmp_path, form):
    for kind in ("mlp", "pqn"):
        act, loaded = written(policies, kind, tmp_path, form)
        figures = checks.compare(loaded, act)
        assert max(figures["largest_difference"].values()) <= checks.LIMIT
        seen, masks, carry = checks.draw_rows(loaded)
        few = [None if x is None else x[:50] for x in (seen, masks, carry)]
        before = np.asarray(act(*few)[1])
        few[0][:, CONSTANT] = 1e6
        assert np.array_equal(before, np.asarray(act(*few)[1]))


def test_drawn_rows_have_extremes_changed_constants_and_masks_of_one_action(policies):
    seen, masks, carry = checks.draw_rows(policies("gru")[0])
    assert len(seen) == 10_000
    assert {-1e6, 1e6} <= {*seen.ravel()}
    assert len(np.unique(seen[:, CONSTANT])) > 100
    assert masks[::10, 0].all()
    assert not masks[::10, 1:].any()
    assert masks.any(axis=1).all()
    assert (np.abs(carry[::2]).max(), np.abs(carry).max() > 0.9) == (0, True)
    assert (seen.dtype, masks.dtype) == (np.float32, np.bool_)


@pytest.mark.parametrize("form", FORMATS)
def test_the_lowest_of_equal_actions_is_taken(policies, tmp_path, form):
    def even(weights):
        return {name: 0 * x if "policy_head" in name else x for name, x in weights.items()}

    act, loaded = written(policies, "mlp", tmp_path, form, even)
    seen, masks, _ = checks.draw_rows(loaded)
    action, logits, *_ = act(seen, masks, None)
    assert np.array_equal(action, masks.argmax(axis=1))
    assert np.array_equal(np.asarray(logits) == 0, masks)


def test_another_policy_is_found_out(policies, tmp_path):
    def other(weights):
        return weights | {"policy_head.bias": weights["policy_head.bias"] + 1e-3}

    act, loaded = written(policies, "mlp", tmp_path, change=other)
    with pytest.raises(checks.UnequalError, match="logits differ") as caught:
        checks.compare(loaded, act)
    assert caught.value.exit_code == 1


def test_numpy_refuses_other_weights_and_wrong_arguments(policies, tmp_path):
    written(policies, "gru", tmp_path)
    policy = numpy_policy.NumpyPolicy(tmp_path)
    seen, mask, carry = np.zeros(228), np.ones(7, bool), policy.first_carry()
    for wrong in (
        (seen[1:], mask, carry),
        (seen, mask[1:], carry),
        (seen, mask, carry[1:]),
        (seen, mask, None),
        (seen + np.nan, mask, carry),
        (seen, ~mask, carry),
        (seen[None], mask, carry),
    ):
        with pytest.raises((ValueError, TypeError)):
            policy.scores(*wrong)
    content = bytearray((tmp_path / "policy.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "policy.npz").write_bytes(content)
    with pytest.raises(ValueError, match="sha256"):
        numpy_policy.NumpyPolicy(tmp_path)


ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
from numpy_policy import NumpyPolicy
import numpy as np
policy = NumpyPolicy()
carry, action = policy.step(policy.first_carry(), np.ones(228), np.ones(7, bool))
top = {name.partition(".")[0] for name in sys.modules}
print(action, *sorted(top & {"jax", "jaxlib", "jaxtrade", "flax", "onnx", "pandas"}))
"""


def test_numpy_needs_no_jax(policies, tmp_path):
    written(policies, "gru", tmp_path)
    with open(numpy_policy.__file__, encoding="utf-8") as file:
        (tmp_path / "numpy_policy.py").write_text(file.read())
    found = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, tmp_path], capture_output=True, text=True, check=True
    )
    policy = numpy_policy.NumpyPolicy(tmp_path)
    action = policy.step(policy.first_carry(), np.ones(228), np.ones(7, bool))[1]
    assert found.stdout.split() == [str(action)]


def test_onnx_holds_the_card_and_says_what_it_needs(policies, tmp_path):
    written(policies, "gru", tmp_path, "onnx")
    onnx = pytest.importorskip("onnx")
    model, loaded = onnx.load(tmp_path / "policy.onnx"), policies("gru")[0]
    about = {each.key: each.value for each in model.metadata_props}
    assert about["observation_sha256"] == loaded.schema["observation_sha256"]
    assert json.loads(about["card"])["actions"] == loaded.action_names
    assert (model.ir_version, [each.version for each in model.opset_import]) == (10, [17])
    assert [each.name for each in model.graph.input] == ["observation", "mask", "carry"]
    assert [x.name for x in model.graph.output] == ["action", "logits", "value", "next_carry"]


def test_stablehlo_is_for_three_platforms_and_any_batch(policies, tmp_path):
    act, loaded = written(policies, "gru", tmp_path, "stablehlo")
    exported = jax.export.deserialize(bytearray((tmp_path / "policy.stablehlo").read_bytes()))
    assert {*exported.platforms} == {"cpu", "cuda", "tpu"}
    for rows in (1, 3):
        args = np.ones((rows, 228), np.float32), np.ones((rows, 7), bool), loaded.first_carry(rows)
        assert act(*args)[1].shape == (rows, 7)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"opening": True}, "fully open"),
        ({"algorithm": "mine"}, "algorithm=mine"),
        ({"network": {"kind": "mine"}}, "network.kind=mine"),
    ],
)
def test_what_an_export_cannot_carry_is_refused(policies, change, key):
    loaded = policies("mlp")[0]
    require_known(loaded)
    with pytest.raises(ConfigError, match=key):
        require_known(dataclasses.replace(loaded, schema=loaded.schema | change))


def test_an_absent_package_is_named(monkeypatch):
    monkeypatch.setattr("jaxtrade.export.find_spec", lambda name: None)
    check_format("npz")
    for form, package in (("onnx", "onnxruntime"), ("stablehlo", "flatbuffers")):
        with pytest.raises(ConfigError, match=rf"{package}.*jaxtrade\[export\]"):
            check_format(form)
    with pytest.raises(ConfigError, match="npz, onnx, stablehlo"):
        check_format("torch")


TINY = (
    "network.hidden=[16]",
    "network.kind=gru",
    "rollout.num_envs=16",
    "rollout.num_steps=16",
    "rollout.num_shards=1",
    "ppo.num_minibatches=1",
    "train.total_timesteps=1024",
    "train.num_seeds=2",
    "train.tensorboard=false",
)


@pytest.mark.slow
def test_a_run_is_exported_in_every_format_and_trades_the_same(tmp_path, monkeypatch, capsys):
    path = run(load_config("quickstart", TINY), tmp_path / "run").path
    for form, package in FORMATS.items():
        pytest.importorskip(package)
        words = ["export", str(path), "--format", form, "--seed", "1", "--quiet"]
        assert cli.main(words) == 0
        folder = path / "export" / form / "seed_1"
        card = json.loads((folder / CARD).read_text())
        trades = open_run(path).evaluations["test/seed_1"].trades
        found = {"split": "test", "sessions": 1, "bars": 433, "trades": len(trades)}
        assert card["checks"]["evaluation"] == found
        assert len(card["training_days"]) == 4
        assert card["evaluation"]["labels"]
        assert (folder / PAGE).read_text().count("\n    ") >= 228
        assert not [*folder.parent.glob(".jaxtrade-*")]
    assert numpy_policy.NumpyPolicy(path / "export" / "npz" / "seed_1").card["format"] == "npz"
    capsys.readouterr()
    # Several policies, a folder that is no export, and checks that fail.
    assert cli.main(["export", str(path), "--format", "npz"]) == 2
    npz = ["export", str(path), "--format", "npz", "--seed", "0", "--no-evaluation"]
    assert cli.main([*npz, "--out", str(path / "policy")]) == 2
    out = tmp_path / "out"
    assert cli.main([*npz, "--out", str(out)]) == 0
    card = json.loads((out / CARD).read_text())
    assert (card["checks"]["evaluation"], card["training_days"]) == (None, None)
    monkeypatch.setattr(checks, "difference", lambda *given: np.nan)
    assert cli.main([*npz, "--out", str(tmp_path / "other")]) == 1
    assert cli.main([*npz, "--out", str(out)]) == 1
    assert not [*tmp_path.glob("other"), *tmp_path.glob(".jaxtrade-*")]
    assert json.loads((out / CARD).read_text()) == card

    def contrary(file):
        act = read(file)

        def wrong(seen, mask, carry):
            action, *rest = act(seen, mask, carry)
            return (mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)).astype(action.dtype), *rest

        return wrong

    monkeypatch.setattr(graph, "read", contrary)
    with pytest.raises(checks.UnequalError, match="actions differ"):
        make.export_policy(path, "npz", tmp_path / "third", seed=0)
    assert not (tmp_path / "third").exists()
