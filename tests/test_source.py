"""A run that begins with another one: the same behaviour, resumed to the same bits, refused with
the fix.
"""

import shutil
from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.config import load_config
from jaxtrade.curriculum.phases import start_check
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.rl.actor_critic import policy_of
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.transfer import check_labels
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.initial_state import adopt, begin_from, label_policy, load_source, require_same
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import resume, run
from tests.messages import refused, refuses
from tests.resuming import cut, leaves

TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=1536",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    "split.validation_sessions=1",
)


def config(task, *more):
    return load_config("quickstart", (*TINY, f"env.task={task}", *more))


@pytest.fixture(scope="module")
def entry(tmp_path_factory):
    return run(config("entry"), tmp_path_factory.mktemp("runs") / "entry").path


@pytest.fixture(scope="module")
def manage(entry):
    return run(config("manage", "transfer.open_until=0.5"), entry.parent / "manage", entry).path


@pytest.mark.slow
def test_the_transferred_policy_does_what_its_source_did(entry):
    """Under another account, other costs and brackets than the source was trained with: they change
    both sides alike. Other weights are reported apart.
    """
    source = load_source(entry)
    other = ("account.drawdown=200", "costs.commission=5.0", "brackets.stop_atr=0.7")
    setup = prepare(adopt(config("manage", *other), source))
    begun = begin_from(setup, source)
    assert begun.coverage.complete
    assert begun.coverage.new_slots == ("can_enter", "can_manage", "has_position")
    assert begun.coverage.new_actions == (
        "MOVE_STOP_TO_BREAKEVEN",
        "ENABLE_TRAIL",
        "DISABLE_TRAIL",
        "CLOSE",
    )
    np.testing.assert_array_equal(begun.state.rewards.stats.variance, source.returns.variance)
    assert source.returns.count[0, 0] == 1536  # every step of the source's training
    check = start_check(source, setup, begun)
    assert (check["sessions"], check["equal"]) == (1, True)
    policy = policy_of(begun.state)
    assert policy.opening.new.tolist() == [False] * 3 + [True] * 4
    assert float(policy.opening.fraction) == 0.0
    negated = begun.state.replace(params=jax.tree.map(lambda x: -x, begun.state.params))
    assert start_check(source, setup, replace(begun, state=negated))["equal"] is False


def test_every_step_of_the_way_adds_names_and_loses_none():
    """entry -> manage -> advised -> advised with an advice block, in both scalings."""
    for scaling in ("relative", "seed"):
        chain = [
            label_policy(config(task, f"env.scaling={scaling}", *more))
            for task, *more in (
                ("entry",),
                ("manage",),
                ("advised",),
                ("advised", "env.advice=true"),
            )
        ]
        assert tuple(len(layout.slots) for layout in chain) == (225, 228, 261, 268)
        assert [len(layout.actions) for layout in chain] == [3, 7, 7, 7]
        for mine, theirs in pairwise(chain):
            check_labels(mine, theirs)
            assert set(mine.slots) < set(theirs.slots)
            assert set(mine.actions) <= set(theirs.actions)
            with refused("scaling"):
                check_labels(mine, theirs._replace(scaling="other"))


@pytest.mark.slow
@pytest.mark.parametrize("update", [0, 2])
def test_resumes_to_the_same_bits(entry, manage, tmp_path, update):
    del entry
    copy = cut(manage, tmp_path / "manage", update)
    resume(copy)
    for x, y in zip(leaves(copy), leaves(manage), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_continue_takes_the_optimiser_along(entry, tmp_path):
    target = tmp_path / "more"
    sets = ("--set", "ppo.learning_rate=1e-5", "--set", "ppo.learning_rate_end=1e-5")
    assert cli.main(["train", "--continue", str(entry), "--run-dir", str(target), *sets]) == 0
    before, after = load_source(entry), load_source(target)
    assert int(after.opt_state[1].count) == 2 * int(before.opt_state[1].count)
    assert history(target)[0]["learning_rate"] == pytest.approx(1e-5)
    with pytest.raises(ConfigError, match=r"actions .*\(3 .*, 7 |slots "):
        require_same(before, config("manage"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("manage", "data.market=NQ", ("data.market=NQ: ", " ES")),
        ("manage", "train.num_seeds=2", ("train.num_seeds=2: ", " 1 ")),
        ("manage", "env.scaling=seed", ("env.scaling=seed: ", " relative")),
        ("manage", "network.hidden=[16]", ("network.hidden=(16,): ", " (8,)")),
        ("manage", "ppo.adapter_freeze=0.2", ("adapter_freeze=0.2 ", "mode=adapter")),
        (
            "manage",
            "data.source=synthetic",
            ("data.source=synthetic: ", " real "),
        ),
    ],
)
def test_what_does_not_fit_is_refused(entry, task, change, message):
    with refused(*message):
        adopt(config(task, change), load_source(entry))


def test_a_freeze_as_long_as_the_run_is_refused():
    with refused("adapter_freeze (1) "):
        config("manage", "ppo.adapter_freeze=1.0")
    with refused("network.adapter: "):
        run(config("manage", "network.adapter=8"))


def test_a_missing_source_is_exit_2(tmp_path, capsys):
    for flag in ("--from", "--continue"):
        refuses(
            capsys,
            ["train", flag, str(tmp_path / "none"), "--run-dir", str(tmp_path / "new")],
            "none: not a run directory",
        )
        assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_run_that_saved_nothing_is_refused(entry, tmp_path):
    copy = tmp_path / "entry"
    shutil.copytree(entry, copy)
    shutil.rmtree(copy / "checkpoints")
    with refused(copy):
        load_source(copy)


@pytest.mark.slow
def test_a_policy_exported_while_opening_acts_as_the_run_does(entry, tmp_path):
    source = load_source(entry)
    setup = prepare(adopt(config("manage"), source))
    policy = policy_of(begin_from(setup, source).state)
    save_policy_bundle(tmp_path / "policy", policy, setup.env, setup.market, setup.config)
    loaded = load_policy(tmp_path)
    assert float(loaded.policy.opening.probability) == pytest.approx(0.01)
    state, ref = setup.env.reset(jax.random.key(0), setup.params)
    del state
    observation, mask = setup.env.observe(ref, setup.params), setup.env.action_mask(ref)
    _, action, extras = setup.algorithm.act(
        policy, setup.algorithm.carry, ref, setup.params, None, False
    )
    assert loaded.act(observation, mask) == int(action)
    probabilities = np.exp(np.asarray(extras.logits)) * np.asarray(mask)
    assert not probabilities[3:].any()  # flat: nothing to manage yet


@pytest.mark.slow
def test_a_source_that_is_still_opening_is_refused(manage, tmp_path):
    copy = cut(manage, tmp_path / "manage", 2)
    with refused("update 2 ", "open_until=0.5 of 6 "):
        load_source(copy)


@pytest.mark.slow
def test_the_ratio_is_one_while_actions_open(entry):
    """The rollout's log-probabilities and the loss's are of the same opened policy, at every stage
    of the opening.
    """
    source = load_source(entry)
    setup = prepare(adopt(config("manage", "transfer.open_until=1.0"), source))
    exact = make_ppo(setup.config, setup.env, setup.plan.total_updates)
    state, update = begin_from(setup, source).state, jax.jit(exact.update)
    for _ in range(3):
        state, metrics = update(state, setup.params, None)
        assert float(metrics["ratio_error"]) < 1e-5
