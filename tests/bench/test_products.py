"""Operations of a network's products and the ceilings that follow, worked by hand."""

from __future__ import annotations

from bench import ppo_train, products
from bench.harness import Sample
from bench.learning import Learning, learning_of
from bench.products import Product

TINY = Learning(num_envs=2, num_steps=6, num_minibatches=3, num_epochs=2, hidden=(4, 5))


def test_operations_of_a_step_by_hand() -> None:
    """Three slots, hidden layers of 4 and 5, two actions. Policy 3x4, 4x5, 5x2 and value 3x4, 4x5,
    5x1 have 12 + 20 + 10 + 12 + 20 + 5 = 79 weights, two operations each: 158 forward. Back twice
    as many, but for the input gradient of the two first layers, 2 x 12 x 2 = 48: 3 x 158 - 48 = 426
    in an epoch."""
    assert products.forward_flops(TINY, 3, 2) == 158
    assert products.epoch_flops(TINY, 3, 2) == 426
    assert products.step_flops(TINY, 3, 2) == 158 + 2 * 426
    assert products.learn_flops(TINY, 3, 2) == 2 * 426 * 2 * 6


def test_operations_of_the_compared_networks() -> None:
    """228 slots and seven actions. small: policy 228x64 + 64x64 + 64x7 = 19,136 weights and value
    228x64 + 64x64 + 64 = 18,752, so 75,776 forward, 3 x 75,776 - 4 x 14,592 = 168,960 in each of
    four epochs. large: 228x256 + 256x256 + 256x128 = 156,672 and heads of 896 and 128, so 628,736
    forward, 3 x 628,736 - 4 x 58,368 in each of ten."""
    small, large = (learning_of(ppo_train.config_of(name, 4, 64)) for name in ("small", "large"))
    assert products.step_flops(small, 228, 7) == 75_776 + 4 * 168_960 == 751_616
    assert products.step_flops(large, 228, 7) == 628_736 + 10 * 1_652_736 == 17_156_096


def test_the_products_of_a_step_by_shape_by_hand() -> None:
    """Minibatches of four rows, two epochs. Through 3x4, of 4 x 12 operations a row in both
    networks: to act and in two epochs, no input gradient, 3 x 48; its weights' gradient in two
    epochs, 2 x 48. Through 4x5, of 80: to act, forward and back, 5 x 80; its weights' gradient has
    the same shape on four rows, 2 x 80 more. Heads of 5x2 and 5x1, 30
    operations: once to act and three times in each epoch."""
    found = products.step_products(TINY, 3, 2)
    assert found == {"4x3x4": 3 * 48, "3x4x4": 2 * 48, "4x4x5": 5 * 80 + 2 * 80, None: 7 * 30}
    assert sum(found.values()) == products.step_flops(TINY, 3, 2)
    for network in ppo_train.NETWORKS:
        config = learning_of(ppo_train.config_of(network, 16, 256))
        assert sum(products.step_products(config, 228, 7).values()) == products.step_flops(
            config, 228, 7
        )
        named = [product.name for product in products.shapes(config, 228)]
        assert list(products.step_products(config, 228, 7)) == [None, *named]


def test_the_shapes_are_those_of_a_minibatch() -> None:
    """Four rows: through 3x4 and 4x5, and the gradients of their weights."""
    assert products.shapes(TINY, 3) == [
        Product(4, 3, 4),
        Product(3, 4, 4),
        Product(4, 4, 5),
    ]  # 4x4x5 is in it twice
    chains = products.chains(TINY, 3, quick=True)
    assert list(chains) == ["4x3x4", "3x4x4", "4x4x5"]
    for name, chain in chains.items():
        rows, inner, outer = map(int, name.split("x"))
        assert chain.flops % (4 * rows * inner * outer) == 0
        assert products.QUICK_CHAIN_FLOPS * 0.99 < chain.flops <= products.QUICK_CHAIN_FLOPS


def test_a_ceiling_by_hand() -> None:
    """Best repeats: `wide` 200 GF/s by the clock and 100 per CPU second, `narrow` 1 and 1. A step
    of 0.6 million operations of `wide`, 0.001 million of `narrow` and 0.2 million of no shape,
    which run at the best rate, takes 3 + 1 + 1 microseconds by the clock and 6 + 1 + 2 of a CPU.
    The other side makes 5,000 and 4,000 steps a second."""
    samples = {
        "wide": [Sample(0.02, 0.04), Sample(0.01, 0.02), Sample(0.005, 0.01)],
        "narrow": [Sample(1.0, 1.0)],
    }
    rates = products.rates(samples, {"wide": 10**9, "narrow": 10**9})
    assert rates["wide"] == {
        "gflops": 100,
        "gflops_range": [50, 200],
        "gflops_per_cpu_second": 50,
        "gflops_per_cpu_second_range": [25, 100],
    }
    assert rates["narrow"]["gflops"] == 1
    needed = {"wide": 600_000, "narrow": 1_000, None: 200_000}
    found = products.ceiling(
        needed, rates, {"peer": {"steps_per_second": 5_000, "steps_per_cpu_second": 4_000}}
    )
    assert (found["most_steps_per_second"], found["most_steps_per_cpu_second"]) == (
        200_000,
        111_100,
    )
    assert found["flops_per_step"] == 801_000
    assert found["ratios"] == {"peer": {"wall": 40, "cpu": 27.78}}


def test_a_networks_ceiling_covers_every_ratio() -> None:
    class World:
        class env:  # noqa: N801
            observation_size, num_actions = 228, 7

    same = ppo_train.compared(ppo_train.Options(), "small")
    side = {"steps_per_second": 1_000.0, "steps_per_cpu_second": 1_000.0}
    names = (
        "small/ours/4",
        "small/ours/16",
        "small/rejax/4",
        "small/sb3_dummy/16",
        "small/sb3_dummy/8",
    )
    results = dict.fromkeys(names, side)
    rates = {
        product.name: {
            "gflops_range": [1.0, 75.1616],
            "gflops_per_cpu_second_range": [1.0, 75.1616],
        }
        for product in products.shapes(learning_of(same[4]), 228)
    }
    found = ppo_train.ceiling(same, World, rates, results)
    assert found["ratios"] == {
        name: {"wall": 100, "cpu": 100} for name in ("small/rejax/4", "small/sb3_dummy/16")
    }
