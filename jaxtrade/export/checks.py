"""Checks of an export against the policy that it came from: outputs, actions and trades."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.custom_batching import sequential_vmap

from jaxtrade.errors import JaxtradeError
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.export import numpy_policy
from jaxtrade.export.graph import Run, weights_of
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.runs.setup import Setup
from jaxtrade.types import PyTree

ROWS = 10_000
# Of a difference, times max(1, the row's largest |number|). Where the policy itself is further from
# its exact values, because float32 rounds large sums, twice as far as that.
LIMIT = 1e-5
MARGIN = 1e-4  # between the two best legal logits, times the same: below it the action may differ
EXTREME = 1e6


class UnequalError(JaxtradeError):
    """An export that does not act as its policy. Nothing is left of it."""

    exit_code = 1


def draw_rows(loaded: LoadedPolicy) -> tuple[Any, Any, Any]:
    """Return observations float32[N, D], masks bool[N, A] and carries float32[N, H] or None.

    Observations are drawn around the statistics of the policy, three times as wide; some have
    extremes, and half of the slots that were constant in training vary. In every tenth row only
    action 0 is legal.
    """
    random, stats = np.random.default_rng(0), loaded.policy.normaliser
    assert stats is not None
    spread, noise = np.sqrt(stats.variance), random.normal(size=(ROWS, stats.mean.shape[-1]))
    shift = np.where(spread > 0, 3 * spread, random.random(noise.shape) < 0.5)
    share = random.choice([0.0, 0.1, 1.0], (ROWS, 1), p=[0.6, 0.35, 0.05])
    extreme = random.random(noise.shape) < share
    seen = np.where(extreme, np.copysign(EXTREME, noise), stats.mean + shift * noise)
    masks = random.random((ROWS, len(loaded.action_names))) < 0.6
    masks[::10] = False
    masks[:, 0] |= ~masks.any(axis=1)
    carry = loaded.first_carry(ROWS)
    if carry is not None:
        carry[1::2] = random.uniform(-1, 1, carry[1::2].shape)
    return seen.astype(np.float32), masks, carry


def difference(found: Any, own: Any) -> float:
    """Return the largest difference of rows, times 1 / max(1, the row's largest |number|)."""
    found, own = (np.reshape(x, (ROWS, -1)) for x in (found, own))
    return float((np.abs(found - own) / np.maximum(1, np.abs(own).max(1, keepdims=True))).max())


def compare(loaded: LoadedPolicy, run: Run) -> dict[str, Any]:
    """Compare all outputs on `draw_rows`. Return figures. Raises UnequalError."""
    seen, masks, carry = draw_rows(loaded)
    action, logits, value, after = jax.device_get(run(seen, masks, carry))
    own_after, own_action, extras = jax.device_get(loaded.act_with_outputs(carry, seen, masks))
    weights = jax.tree.map(np.float64, weights_of(loaded))
    activation = loaded.schema["network"]["activation"]
    exact = numpy_policy.forward(np, weights, activation, seen, masks, carry)[1]
    own, found, exact = (np.where(masks, x, 0) for x in (extras.logits, logits, exact))
    limit = max(LIMIT, 2 * difference(own, exact))
    errors = {"logits": difference(found, own), "value": difference(value, extras.value)}
    if carry is not None:
        errors["carry"] = difference(after, own_after)
    best = np.sort(np.where(masks, own, -np.inf))
    close = best[:, -1] - best[:, -2] <= MARGIN * np.maximum(1, np.abs(own).max(1))
    other = action != own_action
    wrong = [f"{name} differ by {x:.1e}" for name, x in errors.items() if not x <= limit]
    wrong += [f"{(other & ~close).sum():,} actions differ"] if (other & ~close).any() else []
    wrong += [] if np.array_equal(masks, logits > -np.inf) else ["the mask is not kept"]
    if wrong:
        raise UnequalError(
            f"the export does not act as {loaded.path}: of {ROWS:,} rows, {', '.join(wrong)} (limit "
            f"{limit:.1e}); nothing was written; this is a bug in jaxtrade, please report it"
        )
    return {
        "rows": ROWS,
        "largest_difference": errors,
        "limit": limit,
        "close_margin": MARGIN,
        "close_rows": int(close.sum()),
        "close_rows_with_another_action": int(other.sum()),
    }


def replay(
    setup: Setup, loaded: LoadedPolicy, number: int, symbol: str, run: Run
) -> dict[str, Any]:
    """Evaluate on the held-out sessions by the policy and by its export, advice absent.

    Returns figures. Raises UnequalError unless every number of both passes is the same.
    """
    own, split = setup.symbols[symbol], setup.evaluation_split()
    config, rules = setup.of_agent(number, symbol, jax.device_put(own.params))
    evaluator, learner = evaluator_of(own.env), make_algorithm(config, own.env, 1)

    @sequential_vmap
    def decide(*seen: Any) -> Any:
        return jax.tree.map(lambda x: x[0], run(*jax.tree.map(lambda x: x[None], seen)))

    def act(policy: PyTree, carry: PyTree, ref: PyTree, params: PyTree, *unused: Any) -> Any:
        action, _, _, carry = decide(own.env.observe(ref, params), own.env.action_mask(ref), carry)
        return carry, action, None

    best = evaluator.agents(own.env, own.single, rules, config, learner, loaded.policy)[0]
    by_export: Any = replace(best.act, algorithm_act=act)
    agents = [best, best._replace(name="exported", act=by_export)]
    given = own.env, rules, own.single, own.splits[split], config, agents
    result = evaluator.evaluate(*given, steps=setup.steps(split))
    one, two = ((agent.strategy, agent.account) for agent in result.agents)
    if not all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(two))):
        differ = [int((a.action != b.action).sum()) for a, b in zip(one, two, strict=True)]
        raise UnequalError(
            f"the export trades otherwise than {loaded.path} on split {split}: {differ[0]} of "
            f"{len(one[0].action):,} actions differ, {differ[1]} with the account rules on; nothing was "
            "written. Its choices are too close to call there: train on, or use another format"
        )
    return {
        "split": split,
        "sessions": len(result.dates),
        "bars": len(one[0].action),
        "trades": int(result.agents[0].strategy_figures["trades"]),
    }
