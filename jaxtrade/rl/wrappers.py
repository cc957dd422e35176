"""What wraps a learner, which knows nothing of it: stages, symbol shares, advice, an older actor.

Stages are those of the environment.

A learner's own functions are `Init` and `Update`. `compose` puts around them what a configuration
has, so that a run without a feature has no trace of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.config import SamplerConfig
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl import returns
from jaxtrade.rl.advice import AdviceState, Fusion, advice_metrics, visits
from jaxtrade.rl.context import Context
from jaxtrade.rl.optim import progress
from jaxtrade.rl.rollout import Rollout, merge_metrics
from jaxtrade.rl.state import Policy, first_delayed, lag_metrics
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, Metrics, PyTree, Stage


class Experience(NamedTuple):
    """What an update tells its wrappers about its rollout.

    need, errors: () -> float32[T, N], how much each step needed advice (`listening.visits`), and
        the size of the learner's error at it.
    log_prob: float32[T, N], of the actions by the policy that learns; None for a learner without
        a distribution.
    """

    rollout: Rollout
    need: Callable[[], Array]
    errors: Callable[[], Array]
    log_prob: Array | None = None


Init = Callable[[Array, PyTree], TrainState]
# (state, policy that learns, params of the environment) -> (state after one update, metrics, ...)
Update = Callable[[TrainState, Policy, PyTree], tuple[TrainState, Metrics, Experience]]


def compose(
    ctx: Context, init: Init, own: Update, policy_of: Callable[[Any], Policy]
) -> tuple[Init, Callable[..., tuple[TrainState, Metrics]]]:
    """Wrap a learner's own functions with what the configuration puts around them.

    Returns:
        (`Learner.init`, `Learner.update`).
    """
    if ctx.actor.delay:
        init, own = with_delay(ctx, init, own)
    if ctx.sampler.kind not in UNWEIGHTED:
        init, own = with_shares(ctx, init, own)
    if ctx.stage is not None:
        init, own = with_stage(ctx.stage, init, own)
    if ctx.fusion is not None:
        return init, with_advice(ctx.fusion, ctx.reduce, own, policy_of)

    def update(
        state: TrainState, params: PyTree, inputs: None = None
    ) -> tuple[TrainState, Metrics]:
        """Implement `Learner.update`. Raises ValueError if `inputs` are given."""
        if jax.tree.leaves(inputs):
            raise ValueError(
                f"the learner takes no inputs without a fusion, got {jax.tree.structure(inputs)}"
            )
        new, metrics, experience = own(state, policy_of(state), params)
        return new, metrics | lag_metrics(state.update, experience.rollout.version)

    return init, update


# --- Advice: the policy's trust in it, and what the environment shows of it


def with_advice(
    fusion: Fusion, reduce: Reduce, own: Update, policy_of: Callable[[Any], Policy]
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Build `Learner.update` of a learner with an advisor."""

    def update_advice(state: TrainState, params: PyTree, inputs: AdviceState) -> Any:
        policy = policy_of(state).replace(fusion=fusion.trust(inputs.outcomes))
        new, metrics, experience = own(state, policy, params.replace(advice=inputs.view))
        seen, version = experience.rollout.seen, experience.rollout.version
        metrics = metrics | lag_metrics(state.update, version)
        metrics |= advice_metrics(
            fusion.env, seen, seen.extras.overridden, policy.fusion, inputs.outcomes, reduce
        )
        need = experience.need()
        return new, metrics | {"visits": visits(seen.ref, need, inputs.view, reduce)}

    return update_advice


# --- Stages: the environment's parameters change as the run goes on


def with_stage(stage: Stage, init: Init, update: Update) -> tuple[Init, Update]:
    """Wrap a learner so that a stage changes its environment."""

    def first(key: Array, params: PyTree) -> TrainState:
        return init(key, stage(params, jnp.float32(0))[0])

    def update_stage(state: TrainState, policy: Policy, params: PyTree) -> Any:
        fraction = progress(state.update, state.total_updates)
        params, figures = stage(params, fraction)
        new, metrics, experience = update(state, policy, params)
        return new, merge_metrics(metrics, figures), experience

    return first, update_stage


# --- An older actor (`rl.state`; PPO corrects for it by V-trace)


def with_delay(ctx: Context, init: Init, update: Update) -> tuple[Init, Update]:
    """Wrap a learner with an actor that is `actor.delay` updates older.

    A learner with a distribution reports how far the policy that acted is from the one that learns,
    before the first gradient step. `behaviour_kl`: estimate of KL(acted || learns), as `approx_kl`.
    `rho`: mean weight of a step in V-trace, at most `actor.rho_clip`; its distance from the mean
    ratio, 1, is what the clip takes away.
    """

    def first(key: Array, params: PyTree) -> TrainState:
        state = init(key, params)
        return state.replace(actor=first_delayed(ctx.actor, state.params, state.normaliser))

    def update_delayed(state: TrainState, policy: Policy, params: PyTree) -> Any:
        new, metrics, experience = update(state, policy, params)
        if experience.log_prob is not None:
            acted = experience.rollout.seen.extras.log_prob.reshape(-1)
            learns = experience.log_prob.reshape(-1)
            rho = jnp.minimum(jnp.exp(learns - acted), ctx.actor.rho_clip)
            metrics |= {
                "behaviour_kl": ctx.reduce.mean(returns.approx_kl(learns, acted)),
                "rho": ctx.reduce.mean(rho),
            }
        return new, metrics, experience

    return first, update_delayed


# --- How much a learner errs on each symbol of a set, and the share of episodes that each symbol
# gets for it. Only for samplers that read weights (`sampler.kind: prioritised`, or one of your own).


UNWEIGHTED = ("uniform", "balanced", "round_robin")  # samplers that read no weights


def first_errors(config: SamplerConfig, params: PyTree) -> Array | None:
    """Return zeros, as no error is known yet (float32[M]).

    The result is None with one symbol or a sampler that reads no weights.
    """
    if config.kind in UNWEIGHTED or params.sessions.offsets is None:
        return None
    return jnp.zeros(params.sessions.offsets.shape[0] - 1)


def update_errors(
    errors: Array, sizes: Array, symbols: Array, rate: float, reduce: Reduce = LOCAL
) -> Array:
    """Update the exponential moving average of a learner's mean error size, by symbol.

    Args:
        errors: float32[M], before the update; 0 for a symbol that was never seen.
        sizes: float32 >= 0, of any shape: |advantage| or |TD error| of each step.
        symbols: int8, same shape: the symbol of each step, `market.symbol[ref.row[..., 0]]`.
        rate: weight of this update. The first mean of a symbol is taken as it is.

    Returns:
        float32[M]. A symbol without a step in this update keeps its error. An error that is not
        finite changes nothing.
    """
    own = symbols.reshape(-1, 1) == jnp.arange(errors.shape[0], dtype=symbols.dtype)
    count = reduce.sum(own, 0, jnp.float32)
    mean = reduce.sum(jnp.where(own, sizes.reshape(-1, 1), 0.0), 0) / jnp.maximum(count, 1.0)
    moved = jnp.where(errors == 0.0, mean, errors + rate * (mean - errors))
    return jnp.where((count > 0) & jnp.isfinite(moved), moved, errors)


def symbol_shares(errors: Array, even_share: float) -> Array:
    """Return the share of episodes of each symbol, in proportion to its error (float32[M], sum 1).

    `even_share` of the episodes is spread evenly. A symbol without a known error counts as the mean
    of the others.
    """
    known = errors > 0.0
    mean = errors.sum() / jnp.maximum(known.sum(), 1)
    filled = jnp.where(known, errors, jnp.where(mean > 0.0, mean, 1.0))
    return even_share / errors.shape[0] + (1.0 - even_share) * filled / filled.sum()


def with_shares(ctx: Context, init: Init, update: Update) -> tuple[Init, Update]:
    """Wrap a learner so that its error on a symbol decides the symbol's share of episodes.

    The shares are in `params.symbol_weights`.
    """

    def first(key: Array, params: PyTree) -> TrainState:
        return init(key, params).replace(errors=first_errors(ctx.sampler, params))

    def update_shares(state: TrainState, policy: Policy, params: PyTree) -> Any:
        if state.errors is None:
            return update(state, policy, params)
        params = params.replace(symbol_weights=symbol_shares(state.errors, ctx.sampler.even_share))
        new, metrics, experience = update(state, policy, params)
        symbols = params.market.symbol[experience.rollout.seen.ref.row[..., 0]]
        errors = update_errors(
            state.errors, experience.errors(), symbols, ctx.sampler.rate, ctx.reduce
        )
        metrics = merge_metrics(metrics, {"symbol_share": params.symbol_weights})
        return new.replace(errors=errors), metrics, experience

    return first, update_shares
