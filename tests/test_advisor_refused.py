"""What a run with an advisor refuses, and what its trust and advice may look at."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.advisor.compose import table_reads_future
from jaxtrade.advisor.host.registry import reads_future
from jaxtrade.advisor.questions import followed_of, mask_to_sessions
from jaxtrade.config import load_config
from jaxtrade.data.market import build_market, load_market
from jaxtrade.env.params import make_params
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy, make_sampling_agent
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.rl.advice import Trust
from jaxtrade.runs.setup import params_shown, policies_of, prepare
from tests.test_advisor_run import (
    CANARY,
    TINY,
)


@pytest.mark.slow
def test_what_cannot_be_is_said_before_anything_runs(tmp_path, capsys):
    def refused(*arguments):
        assert cli.main(["train", "--run-dir", str(tmp_path / "x"), *arguments]) == 2
        assert not (tmp_path / "x").exists()
        return capsys.readouterr().err

    assert "advisor.transport=exchange" in refused(
        "--advisor", "rules", "--set", "advisor.transport=callback", "--set", "train.num_seeds=2"
    )
    assert "env.advice=true" in refused("--advisor", "rules", "--set", "advisor.fusion=slots")
    assert "session has 22 bars" in refused(
        "--advisor", "mock:skilled:0.6", "--market", "EURUSD", "--set", "advisor.template=no_volume"
    )


@pytest.mark.parametrize(
    "given",
    [
        ("--advisor", f"https://user:{CANARY}@host.example/v1"),
        ("--advisor", "https://host.example/v1", "--set", f"advisor.options.api_key={CANARY}"),
        (
            "--advisor",
            "https://host.example/v1",
            "--set",
            "advisor.options.model=m",
            "--set",
            f"advisor.options.key_env={CANARY}",
        ),
    ],
)
def test_a_key_given_where_a_name_belongs_is_written_nowhere(tmp_path, capsys, given):
    assert cli.main(["train", "--run-dir", str(tmp_path / "x"), *given]) == 2
    assert not (tmp_path / "x").exists()
    assert "advisor" in capsys.readouterr().err


def test_an_advisor_reported_the_future_is_labelled_however_it_comes():
    assert reads_future("mock:delayed:5/mock:oracle")
    assert table_reads_future({"advisor": "mock:skilled:0.6"})
    assert table_reads_future({"identity": {"kind": "mock:turning", "then.future": "ab12"}})
    assert not table_reads_future({"advisor": "rules", "identity": {"kind": "rules"}})
    assert not reads_future("mock:random")


@pytest.mark.slow
def test_trust_and_advice_look_at_nothing_later():
    """In evaluation with trust on: what comes after a bar changes no distribution up to it."""
    config = load_config("quickstart", [*TINY, "advisor.kind=rules", "advisor.latency=[1, 3]"])
    es_bars, cut = load_market(config).bars, 5_000
    later = np.random.default_rng(0).integers(-8, 9, len(es_bars) - cut).cumsum()
    moved = {
        name: np.concatenate([getattr(es_bars, name)[:cut], getattr(es_bars, name)[cut:] + later])
        for name in ("open", "high", "low", "close")
    }
    other = dataclasses.replace(es_bars, **moved)
    setup, records = prepare(config), []
    state = jax.jit(setup.algorithm.init)(jax.random.key(0), setup.params)
    policy = policies_of(setup, state)[0].replace(
        fusion=Trust(jnp.array([2.0, -1.0, 0.5, 2.0, 1.0]))
    )
    for bars in (es_bars, other):
        market = build_market(bars, config)
        sessions = setup.splits["train"]
        params = make_params(market, sessions, config).replace(advice=setup.params.advice)
        mine = dataclasses.replace(setup, market=market, params=params)
        shown, known = params_shown(mine, "train", None)
        assert known.advised > 100
        decisions = decision_bars(market.data, sessions)
        records.append(
            [
                backtest(
                    setup.env,
                    make(setup.algorithm, policy, setup.env),
                    shown,
                    decisions,
                    "strategy",
                    jax.random.key(1),
                )
                for make in (greedy, make_sampling_agent)
            ]
        )
    for one, two in zip(*records, strict=True):
        known = one.row < cut
        assert 0 < known.sum() < len(known)
        np.testing.assert_array_equal(one.action[known], two.action[known])
        np.testing.assert_array_equal(
            np.asarray(one.ref.aux.version)[known], np.asarray(two.ref.aux.version)[known]
        )
        np.testing.assert_array_equal(
            np.asarray(one.ref.aux.values)[known], np.asarray(two.ref.aux.values)[known]
        )
    assert (records[0][1].action != records[1][1].action).any()


def test_outcomes_are_those_of_training_sessions_alone():
    setup = prepare(load_config("quickstart", [*TINY, "advisor.kind=none"]))
    followed = followed_of(setup.market, setup.config)
    kept = mask_to_sessions(followed, setup.market, setup.splits["train"])
    test = decision_bars(setup.market.data, setup.splits["test"]).rows
    assert np.any(followed[test])
    assert not np.any(kept[test])
    train_rows = decision_bars(setup.market.data, setup.splits["train"]).rows
    np.testing.assert_array_equal(kept[train_rows], followed[train_rows])
