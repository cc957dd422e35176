"""What is compared in `ppo_train` is the same work, and ratios pair the right sides."""

from __future__ import annotations

import json

import jax
import pytest

from bench import ppo_train, sb3
from bench.catalogue import Options
from bench.learning import learning_of


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("network", list(ppo_train.NETWORKS))
def test_the_sides_do_the_same(network: str, quick: bool) -> None:
    options = Options(quick=quick)
    chosen = ppo_train.compared(options, network)
    assert tuple(chosen) == (4, 16)
    theirs = ppo_train.stable_baselines(options, network)
    for count, config in chosen.items():
        assert theirs[f"{network}/sb3_dummy/{count}"] == ("dummy", config)
        reported = sb3.arguments(learning_of(config))  # raises where SB3 cannot do the same
        assert reported["batch_size"] == ppo_train.BATCH
        assert reported["n_steps"] * count == ppo_train.update_steps(learning_of(config))
        assert (learning_of(config).hidden, learning_of(config).num_epochs) == {
            "small": ((64, 64), 4),
            "large": ((256, 256, 128), 10),
        }[network]
    assert len({ppo_train.update_steps(learning_of(config)) for config in chosen.values()}) == 1


def test_every_setting_of_stable_baselines_is_one_it_can_do() -> None:
    for _, config in ppo_train.stable_baselines(Options(), "small").values():
        assert sb3.arguments(learning_of(config))["batch_size"] == ppo_train.BATCH


def test_what_a_cpu_would_take_minutes_for_is_left_out_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Device:
        platform = "cpu"

    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    chosen, left_out = ppo_train.own(Options(), "large")
    assert len(chosen) == 2
    assert len(left_out) == 2
    Device.platform = "gpu"
    everything, nothing = ppo_train.own(Options(), "large")
    assert everything.keys() == {*chosen, *left_out}
    assert not nothing
    for config in everything.values():
        assert (
            learning_of(config).num_envs
            * learning_of(config).num_steps
            % learning_of(config).num_minibatches
            == 0
        )


def test_ratios_pair_the_same_network_and_environments() -> None:
    rates = {
        "small/ours/4": 100.0,
        "small/ours/16": 160.0,
        "small/ours/1024x32/batch 4096/4 epochs": 1000.0,
        "small/sb3_dummy/4": 5.0,
        "small/sb3_dummy/16": 16.0,
        "small/sb3_dummy/1": 1.0,
        "small/sb3_subproc/4": 2.0,
        "large/ours/4": 9.0,
        "large/sb3_dummy/4": 3.0,
    }
    results = {
        name: {"steps_per_second": rate, "steps_per_cpu_second": rate / 2}
        for name, rate in rates.items()
    }
    reported = ppo_train.ratios(results)
    assert {name: ratio["wall"] for name, ratio in reported.items()} == {
        "small/sb3_dummy/4": 20.0,
        "small/sb3_dummy/16": 10.0,
        "small/sb3_subproc/4": 50.0,
        "large/sb3_dummy/4": 3.0,
    }


@pytest.mark.slow
@pytest.mark.long
def test_every_side_runs_and_a_side_that_cannot_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ppo_train.peers, "sides", lambda *given: ({}, {"peer": "not now"}))
    options = Options(quick=True, repeats=1)
    reported = ppo_train.measure(options, "small")
    expected = {
        "small/ours/4",
        "small/ours/16",
        *ppo_train.stable_baselines(options, "small"),
        "small/peer/4",
        "small/peer/16",
    }
    assert {*reported["sides"], *reported["left_out"]} == expected
    assert reported["left_out"]["small/peer/4"] == "not now"
    limits = reported["ceiling"]["small"]
    assert limits["ratios"].keys() == reported["ratios"].keys()
    assert limits["flops_per_step"] == 751_616  # `test_products` works it out
    assert all(product["gflops"] > 0 for product in limits["products"].values())
    for name, side in reported["sides"].items():
        assert side["steps_per_second"] > 0
        assert ("collect_share" in side) == ("sb3" in name)
    assert json.dumps(reported)


def test_published_figures_are_labelled_as_not_measured() -> None:
    assert ppo_train.PUBLISHED["measured_here"] is False
    assert ppo_train.share({"collect": 3.0, "update": 1.0}) == 0.75


@pytest.mark.slow
@pytest.mark.long
def test_a_network_is_compared_in_a_process_of_its_own() -> None:
    """Quick shapes, but the whole way: threads tried in children, sides measured in another."""
    options = Options(quick=True, repeats=1)
    threads, seconds = ppo_train.choose_threads(options, "small")
    assert (threads, list(seconds)) == (1, ["1"])
    found = ppo_train.measured_apart(options, "small")
    assert {"small/ours/4", "small/ours/16"} <= found["sides"].keys()
    assert found["threads"]["small"]["chosen"] == 1
    assert all(
        f"small/{side}/{count}" in found["sides"] or f"small/{side}/{count}" in found["left_out"]
        for side in ("sb3_dummy", "rejax", "purejaxrl", "sbx")
        for count in ppo_train.COMPARED
    )
