"""What is compared in `ppo_train` is the same work, and ratios pair the right sides."""

import pytest

from bench import ppo_train, sb3
from bench.learning import learning_of


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("network", list(ppo_train.NETWORKS))
def test_the_sides_do_the_same(network, quick):
    chosen = ppo_train.compared(quick, network)
    assert tuple(chosen) == (4, 16)
    for count, config in chosen.items():
        reported = sb3.arguments(learning_of(config))  # raises where SB3 cannot do the same
        assert reported["batch_size"] == ppo_train.BATCH
        assert reported["n_steps"] * count == ppo_train.update_steps(learning_of(config))
        assert (learning_of(config).hidden, learning_of(config).num_epochs) == {
            "small": ((64, 64), 4),
            "large": ((256, 256, 128), 10),
        }[network]
    assert len({ppo_train.update_steps(learning_of(config)) for config in chosen.values()}) == 1


def test_ratios_pair_the_same_network_and_environments():
    rates = {
        "small/ours/4": 100.0,
        "small/ours/16": 160.0,
        "small/sb3_dummy/4": 5.0,
        "small/sb3_dummy/16": 16.0,
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
        "large/sb3_dummy/4": 3.0,
    }
