"""Checks of an export against the policy that it came from: outputs, actions and trades."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap

from jaxtrade.errors import JaxtradeError
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.export.graph import Run
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.runs.setup import Setup
from jaxtrade.types import Array, PyTree

ROWS = 10_000
LIMIT = 1e-5  # of a difference, times max(1, the largest legal |logit| of the row)
MARGIN = 1e-4  # between the two best legal logits, times the same: below it the action may differ
EXTREME = 1e6


class UnequalError(JaxtradeError):
    """An export that does not act as its policy. Nothing is left of it."""

    exit_code = 1


def draw_rows(loaded: LoadedPolicy, held_out: np.ndarray) -> tuple[Any, Any, Any]:
    """Return (observations float32[N, D], masks bool[N, A], carries float32[N, H] or None).

    The first rows are held-out observations, up to half of all. The others are drawn around the
    statistics of the policy, three times as wide, with extremes and with changes of slots that were
    constant in training. In every tenth row only action 0 is legal.
    """
    random, stats = np.random.default_rng(0), loaded.policy.normaliser
    spread = np.sqrt(np.asarray(stats.variance[0]))
    seen = np.asarray(stats.mean[0]) + 3 * spread * random.normal(size=(ROWS, len(spread)))
    varied = (spread > 0) | (random.random(seen.shape) < 0.5)
    seen = np.where(varied, seen, random.normal(size=seen.shape))
    share = random.choice([0.0, 0.1, 1.0], size=(ROWS, 1), p=[0.6, 0.35, 0.05])
    signs = random.choice([-EXTREME, EXTREME], size=seen.shape)
    seen = np.where(random.random(seen.shape) < share, signs, seen).astype(np.float32)
    real = random.permutation(held_out)[: ROWS // 2]
    seen[: len(real)] = real
    masks = random.random((ROWS, len(loaded.action_names))) < 0.6
    masks[:, 0] |= ~masks.any(axis=1)
    masks[::10] = np.arange(masks.shape[1]) == 0
    carry = loaded.first_carry(ROWS)
    if carry is not None:
        carry[1::2] = random.uniform(-1, 1, carry[1::2].shape)
    return seen, masks, carry


def compare(loaded: LoadedPolicy, run: Run, held_out: np.ndarray) -> dict[str, Any]:
    """Compare all outputs on `draw_rows`. Return figures. Raises UnequalError."""
    seen, masks, carry = draw_rows(loaded, held_out)
    action, logits, value, after = jax.tree.map(np.asarray, run(seen, masks, carry))
    own_after, own_action, extras = jax.tree.map(np.asarray, loaded.decide(carry, seen, masks))
    own_logits = np.where(masks, extras.logits, -np.inf)
    legal = np.where(masks, extras.logits, 0.0)
    scale = np.maximum(1.0, np.abs(legal).max(axis=-1))
    best = np.sort(own_logits, axis=-1)
    with np.errstate(invalid="ignore"):  # -inf - -inf
        margin = np.where(masks.sum(axis=-1) > 1, best[:, -1] - best[:, -2], np.inf) / scale
    pairs = {
        "logits": (np.where(masks, logits, 0.0), legal, scale[:, None]),
        "value": (value, extras.value, np.maximum(1.0, np.abs(extras.value))),
        **({} if carry is None else {"carry": (after, own_after, 1.0)}),
    }
    errors = {name: float((np.abs(a - b) / size).max()) for name, (a, b, size) in pairs.items()}
    close, other = margin <= MARGIN, action != own_action
    figures = {
        "rows": ROWS,
        "held_out_rows": min(len(held_out), ROWS // 2),
        "largest_difference": errors,
        "limit": LIMIT,
        "close_rows": int(close.sum()),
        "close_margin": MARGIN,
        "close_rows_with_another_action": int((close & other).sum()),
    }
    wrong = [
        *(f"{name} differ by {error:.1e}" for name, error in errors.items() if not error <= LIMIT),
        *([f"{(other & ~close).sum()} actions differ"] if (other & ~close).any() else []),
        *(["the mask is not kept"] if not np.array_equal(masks, logits > -np.inf) else []),
    ]
    if wrong:
        raise UnequalError(
            f"the export does not act as {loaded.path}: of {ROWS:,} rows, {', '.join(wrong)} (allowed: "
            f"{LIMIT:g}); nothing was written; this is a bug in jaxtrade, please report it"
        )
    return figures


# The held-out evaluation, once by the policy and once by its export.


@dataclass(frozen=True, eq=False)  # equal only to itself: a static argument of the evaluation
class ExportedAct:
    """`Learner.act` by an export.

    host: whether it runs outside of the compiled program.
    """

    env: Any
    run: Run
    host: bool

    def __call__(
        self, policy: PyTree, carry: PyTree, ref: PyTree, params: PyTree, key: Any, explore: bool
    ) -> tuple[PyTree, Array, None]:
        del policy, key, explore
        seen, mask = self.env.observe(ref, params), self.env.action_mask(ref)
        return *self._decide(carry, seen, mask), None

    @property
    def _decide(self) -> Any:
        @custom_vmap
        def decide(carry: PyTree, seen: Array, mask: Array) -> tuple[PyTree, Array]:
            lead = mask.shape[:-1]
            rows = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), (seen, mask, carry))
            found = self._on_host(*rows) if self.host else self.run(*rows)
            return jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), (found[3], found[0]))

        @decide.def_vmap
        def batched(size: int, batch: Any, *given: Any) -> Any:
            whole = jax.tree.map(
                lambda x, mapped: x if mapped else jax.numpy.broadcast_to(x, (size, *x.shape)),
                given,
                tuple(batch),
            )
            return decide(*whole), jax.tree.map(lambda _: True, (given[0], 0))

        return decide

    def _on_host(self, seen: Array, mask: Array, carry: PyTree) -> Any:
        like = jax.ShapeDtypeStruct(mask.shape[:1], np.int32), carry

        def call(*rows: Any) -> Any:
            found = self.run(*jax.tree.map(np.asarray, rows))
            return found[0], found[3]

        action, carry = jax.pure_callback(call, like, seen, mask, carry)
        return action, None, None, carry


def replay(
    setup: Setup, loaded: LoadedPolicy, number: int, symbol: str, run: Run, host: bool
) -> tuple[dict[str, Any], np.ndarray]:
    """Evaluate on the held-out sessions by the policy and by its export.

    Advice is absent in both. Returns figures, and the observations float32[L, D] of the policy
    (none of `allocate`, which records none). Raises UnequalError unless every number of both passes
    is the same.
    """
    own, split = setup.symbols[symbol], setup.evaluation_split()
    config, rules = setup.of_agent(number, symbol, jax.device_put(own.params))
    evaluator, learner = evaluator_of(own.env), make_algorithm(config, own.env, 1)
    best = evaluator.agents(own.env, own.single, rules, config, learner, loaded.policy)[0]
    exported = best._replace(
        name="exported", act=replace(best.act, algorithm_act=ExportedAct(own.env, run, host))
    )
    result = evaluator.evaluate(
        own.env, rules, own.single, own.splits[split], config, [best, exported],
        steps=setup.steps(split),
    )  # fmt: skip
    one, other = result.agents
    for which in ("strategy", "account"):
        pair = [jax.tree.leaves(getattr(agent, which)) for agent in (one, other)]
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*pair, strict=True)):
            actions = [getattr(agent, which).action for agent in (one, other)]
            raise UnequalError(
                f"the export trades otherwise than {loaded.path}: in the {which} pass of split {split}, "
                f"{(actions[0] != actions[1]).sum()} of {len(actions[0]):,} actions differ; nothing was "
                "written. If these choices were close, train on; else it is a bug, please report it"
            )
    figures = {
        "split": split,
        "sessions": len(result.dates),
        "bars": len(one.strategy.action),
        "trades": int(one.strategy_figures["trades"]),
        "same_trades": True,
    }
    refs = getattr(one.strategy, "ref", None)
    if refs is None:
        return figures, np.zeros((0, loaded.schema["observation"]["size"]), np.float32)
    return figures, np.asarray(jax.jit(jax.vmap(own.env.observe, (0, None)))(refs, rules))
