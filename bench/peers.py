"""JAX learners of others on our environment: PureJaxRL's PPO, rejax's and sbx's, as sides for a
bench.

Each runs unchanged, with network, batch, epochs and minibatches of the configuration. What it
computes otherwise is in
`DIFFERENCES` and belongs beside its figures: above all none of them has action masks.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.rl.ppo import make_ppo

from . import harness, purejaxrl, rejax_peer, sbx_peer
from .catalogue import Options
from .harness import Side
from .learning import Learning, learning_of
from .setting import World
from .worker import Worker

DIFFERENCES = {
    "purejaxrl": purejaxrl.DIFFERENCES,
    "rejax": rejax_peer.DIFFERENCES,
    "sbx": sbx_peer.DIFFERENCES,
}


def unlike(config: Learning) -> str | None:
    """Why none of the peers can do the same work, or None."""
    refused = {
        "kind": (config.kind != "mlp", "mlp"),
        "normalise_observations": (config.normalise_observations, "false"),
        "normalise_rewards": (config.normalise_rewards, "false"),
        "normalise_advantages": (not config.normalise_advantages, "true"),
        "target_kl": (config.target_kl != 0, "0"),
    }
    faults = [
        f"ppo.{name} = {getattr(config, name)}, expected {expected}"
        for name, (wrong, expected) in refused.items()
        if wrong
    ]
    return "does not do the same: " + "; ".join(faults) if faults else None


def left_out(config: Learning, options: Options) -> dict[str, str]:
    """Peer -> why it cannot run this configuration here."""
    reasons = {
        "purejaxrl": purejaxrl.left_out(config, options.purejaxrl),
        "rejax": rejax_peer.left_out(),
        "sbx": sbx_peer.left_out(),
    }
    return {name: reason for name, own in reasons.items() if (reason := own or unlike(config))}


def sides(
    config: RunConfig, world: World, updates: int, options: Options, stack: ExitStack | None = None
) -> tuple[dict[str, Side], dict[str, str]]:
    """Peer -> `updates` whole updates (rollout and epochs), compiled and, for sbx, in a child; and
    what is left out.

    Args:
        config: `learning_of(config)` is what is run; the rest is that of `world`.
        stack: closes the child; without it the child ends with this process.
    """
    missing = left_out(learning_of(config), options)
    steps = updates * learning_of(config).num_envs * learning_of(config).num_steps
    made: dict[str, Side] = {}
    if "purejaxrl" not in missing:
        assert options.purejaxrl is not None
        train = purejaxrl.compiled(learning_of(config), world, updates, options.purejaxrl)
        made["purejaxrl"] = harness.side(lambda: train(jax.random.key(0), world.params), steps)
    if "rejax" not in missing:
        learn, algorithm = rejax_peer.compiled(learning_of(config), world, updates)
        made["rejax"] = harness.side(lambda: learn(algorithm, jax.random.key(0)), steps)
    if "sbx" not in missing:
        settings = {"config": config.model_dump(mode="json"), "updates": updates}
        worker = Worker("sbx_peer", "trainer", settings, threads=1)
        if stack is not None:
            stack.callback(worker.close)
        made["sbx"] = Side(lambda: worker.run().sample, steps)
    return made, missing


def compiled_temporaries(
    config: RunConfig, world: World, options: Options
) -> tuple[dict[str, dict[str, int]], dict[str, str]]:
    """Side -> bytes of its compiled training program, by XLA's own account; and what is left out.
    Nothing is run.

    temporaries: what the program needs beside its arguments (environment, training state, market)
        and its results.
    Ours is one update that takes the training state over. The peers' programs are whole runs, of
    two updates, so that the loop over updates is one; their training state is inside, a few MB at
    most.
    """
    missing = left_out(learning_of(config), options)
    missing.pop("sbx", None)  # no program of its own: its buffers are NumPy's
    algorithm = make_ppo(config, world.env, 2)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    programs: dict[str, Any] = {
        "jaxtrade": jax.jit(algorithm.update, donate_argnums=0).lower(state, world.params).compile()
    }
    if "purejaxrl" not in missing:
        assert options.purejaxrl is not None
        programs["purejaxrl"] = purejaxrl.compiled(learning_of(config), world, 2, options.purejaxrl)
    if "rejax" not in missing:
        programs["rejax"], _ = rejax_peer.compiled(learning_of(config), world, 2)
    return {name: _bytes(program.memory_analysis()) for name, program in programs.items()}, missing


def _bytes(found: Any) -> dict[str, int]:
    return {
        "temporaries": found.temp_size_in_bytes,
        "arguments": found.argument_size_in_bytes,
        "outputs": found.output_size_in_bytes,
        "outputs_in_arguments": found.alias_size_in_bytes,
    }
