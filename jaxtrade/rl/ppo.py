"""Proximal policy optimisation (Schulman et al. 2017) with action masks, as three pure functions.

The rollout stores references; observations and masks are rebuilt from them for each minibatch by the same function
that acted, with the same observation statistics, so the probability ratio is 1 until the first gradient step
(metric `ratio_error`). So is the memory of a recurrent policy: from what it was when the rollout began, through all of
the rollout's steps, forgotten where an episode begins; gradients flow as far back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxtrade.advisor.fusion import Fused, Fusion, Heard, figures, visits
from jaxtrade.config import PPOConfig
from jaxtrade.networks import distributions
from jaxtrade.networks.heads import ActorCritic
from jaxtrade.networks.memory import recall
from jaxtrade.networks.normalize import RunningStats, init_stats, merge, normalise
from jaxtrade.rl import losses
from jaxtrade.rl.minibatches import minibatch_rows, take_rows
from jaxtrade.rl.opening import opened
from jaxtrade.rl.returns import gae, next_values
from jaxtrade.rl.rollout import count_episodes, count_illegal, final_values, reset_all, unroll
from jaxtrade.rl.schedules import linear, optimiser, progress
from jaxtrade.rl.state import EpisodeTotals, HParams, Policy, TrainState, policy_of, strong_types
from jaxtrade.types import Algorithm, Array, Env, PyTree, Stage, Summary, Transition


class Judged(NamedTuple):
    """What a policy makes of B references: float32[B, A], float32[B], bool[B, A], and what listening to advice costs,
    float32[B]; () without a fusion."""

    logits: Array
    value: Array
    mask: Array
    cost: Any


# (policy, carry [S, H], refs [B, ...], first bool[B], heard [B, ...], environment params) -> Judged; rows as in `Batch`
Forward = Callable[[Policy, PyTree, PyTree, Array, PyTree, PyTree], Judged]


class ActExtras(NamedTuple):
    """What `act` knows beside the action: float32[], float32[], float32[A], bool[A]; and with a fusion, where it
    explores, whether another action would have been drawn without advice, bool[], else ()."""

    log_prob: Array
    value: Array
    logits: Array
    mask: Array
    overridden: Any = ()


class Batch(NamedTuple):
    """Rows of a rollout that the loss reads, [B, ...]; with a memory they are steps of S sequences, time first, and
    `carry` [S, H] is what the policy remembered when these began. heard: what a fusion made of their advice, or ().
    """

    carry: PyTree
    ref: PyTree
    first: Array
    heard: PyTree
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array


def make_hparams(config: PPOConfig) -> HParams:
    """The tunable floats of `config` as float32 leaves."""
    values = {name: getattr(config, name) for name in HParams.__dataclass_fields__}
    if values["ent_coef_end"] is None:
        values["ent_coef_end"] = config.ent_coef
    return HParams(**{name: jnp.float32(value) for name, value in values.items()})


def standardised(advantage: Array) -> Array:
    """Less their mean, over their standard deviation."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def ppo_loss(parameters: PyTree, policy: Policy, forward: Forward, batch: Batch, params: PyTree,
             hparams: HParams, ent_coef: Array, normalise_advantages: bool) -> tuple[Array, dict[str, Array]]:
    """Clipped surrogate + vf_coef * value loss - ent_coef * entropy over one minibatch -> (loss, diagnostics).

    policy: the one that acted, but for its parameters.
    """
    logits, value, mask, cost = forward(policy.replace(parameters=parameters), batch.carry, batch.ref, batch.first,
                                        batch.heard, params)
    log_prob = distributions.log_prob(logits, mask, batch.action)
    advantage = standardised(batch.advantage) if normalise_advantages else batch.advantage
    terms = {
        "policy_loss": losses.clipped_surrogate(log_prob, batch.log_prob, advantage, hparams.clip_eps),
        "value_loss": losses.value_loss(value, batch.value, batch.target, hparams.vf_clip_eps),
        "entropy": distributions.entropy(logits, mask).mean(),
    }
    loss = terms["policy_loss"] + hparams.vf_coef * terms["value_loss"] - ent_coef * terms["entropy"]
    loss = loss if isinstance(cost, tuple) else loss + cost.mean()
    return loss, terms | {
        "approx_kl": losses.approx_kl(log_prob, batch.log_prob),
        "clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, hparams.clip_eps),
        "ratio_error": jnp.max(jnp.abs(jnp.expm1(log_prob - batch.log_prob))),
    }


def update_statistics(env: Env, stats: RunningStats, refs: PyTree, params: PyTree) -> RunningStats:
    """Add the observations of a rollout, refs [T, N, ...], one time step at a time."""

    def at(stats: RunningStats, ref: PyTree) -> tuple[RunningStats, None]:
        return merge(stats, jax.vmap(env.observe, (0, None))(ref, params)), None

    return jax.lax.scan(at, stats, refs)[0]


def block_count(rows: int, config: PPOConfig) -> int:
    """Into how many equal blocks a minibatch of `rows` rows is cut, none larger than `config.gradient_rows`.

    1 for sequences, which stay whole, and where only far more blocks than necessary would be equal.
    """
    least = -(-rows // config.gradient_rows)
    return 1 if config.sequence > 1 else next((n for n in range(least, 2 * least + 1) if rows % n == 0), 1)


def learning_rates(parameters: PyTree, learning_rate: Array, fraction: Array, hparams: HParams,
                   config: PPOConfig) -> PyTree:
    """The learning rate of every parameter, float32[] each: behind an adapter 0 until `adapter_freeze` of the run."""
    if not config.adapter:
        return jax.tree.map(lambda _: learning_rate, parameters)
    base = jnp.where(fraction < hparams.adapter_freeze, 0.0, learning_rate)
    return {name: jax.tree.map(lambda _, rate=learning_rate if name == "adapter" else base: rate, part)
            for name, part in parameters.items()}


def make_network(config: PPOConfig, num_actions: int, precision: str | None = None) -> ActorCritic:
    """The network that `config` describes."""
    memory = config.rnn_width if config.network == "gru" else 0
    return ActorCritic(num_actions, config.hidden, config.activation, precision, memory, config.adapter)


def first_parameters(config: PPOConfig, num_actions: int, size: int, key: Array,
                     fusion: Fusion | None = None) -> dict[str, PyTree]:
    """The parameters that learning begins with: the network's, and what a fusion learns beside them."""
    network = make_network(config, num_actions)
    parameters = dict(network.init(key, network.first_carry(), jnp.zeros(size))["params"])
    return parameters | ({} if fusion is None else fusion.init(jax.random.fold_in(key, 1), size))


def make_ppo(config: PPOConfig, env: Env, total_updates: int, *, summarise: Summary | None = None,
             precision: str | None = None, stage: Stage | None = None, fusion: Fusion | None = None) -> Algorithm:
    """PPO on `env` for a run of `total_updates` updates, the length that the schedules span.

    Args:
        config: static counts, and start values of the tunable floats.
        summarise: extra metrics (what an environment tells in `info`).
        precision: precision of matrix products, e.g. "highest" (float32 also where the platform's default is less).
        stage: what `params` become as the run goes on. Everything in an update sees them so, and its figures are
            metrics; `act` does not apply it.
        fusion: how the policy listens to advice; `params.advice` then says what there is to hear.
    Returns:
        `Algorithm`. init(key, params) -> TrainState. update(state, params, inputs) -> (TrainState, metrics), `inputs`
        an empty tuple, or with a fusion the `rl.advised.AdviceState` whose table and trust hold in this update (then
        metric `visits` is float32[T bars], see `fusion.visits`). act(policy, carry, ref, params, key, explore) ->
        (carry, action, ActExtras) for one environment (vmap it over many); `explore` is a Python bool: True samples,
        False takes the most probable legal action and reads no key; `carry` is () unless `config.network` has a memory.
        All three work under vmap over states, with `params` shared.
    """
    network = make_network(config, env.num_actions, precision)
    first_carry = network.first_carry()
    num_envs, num_steps, groups = config.num_envs, config.num_steps, config.shards

    def see(policy: Policy, ref: PyTree, params: PyTree) -> Array:
        observation = env.observe(ref, params)
        return normalise(policy.normaliser, observation) if config.normalise_observations else observation

    def hear(policy: Policy, ref: PyTree) -> Heard | tuple[()]:
        return () if fusion is None else fusion.hear(policy.fusion, ref)

    def fused(policy: Policy, observation: Array, ref: PyTree, heard: Any, logits: Array, mask: Array) -> Fused:
        """Logits and mask as the policy acts on them; observation: as the network reads it."""
        if fusion is None:
            return Fused(logits, mask, ())
        return fusion.fuse(heard, policy.parameters, observation, ref, logits, mask)

    def forward(policy: Policy, carry: PyTree, refs: PyTree, first: Array, heard: PyTree, params: PyTree) -> Judged:
        observations = jax.vmap(see, (None, 0, None))(policy, refs, params)
        carries = recall(network, policy.parameters, carry, observations, first)

        def judge(carry: PyTree, observation: Array) -> Any:
            return network.apply({"params": policy.parameters}, carry, observation, method="judge")

        logits, values = jax.vmap(judge)(carries, observations)
        logits, masks = opened(policy.opening, logits, jax.vmap(env.action_mask)(refs))
        logits, masks, costs = jax.vmap(fused, (None, 0, 0, 0, 0, 0))(policy, observations, refs, heard, logits, masks)
        return Judged(logits, values, masks, costs)

    def value_of(policy: Policy, params: PyTree) -> Callable[[PyTree, PyTree], Array]:
        def value(carry: PyTree, ref: PyTree) -> Any:
            variables, observation = {"params": policy.parameters}, see(policy, ref, params)
            carry = network.apply(variables, carry, observation, method="remember")
            return network.apply(variables, carry, observation, method="value")

        return value

    def act_on(policy: Policy, carry: PyTree, ref: PyTree, params: PyTree,
               chance: Array | None) -> tuple[PyTree, Array, ActExtras]:
        """`chance`: float32 in [0, 1) that picks the action; None for the most probable one."""
        observation = see(policy, ref, params)
        made: Any = network.apply({"params": policy.parameters}, carry, observation)
        carry, own, value = made
        own, legal = opened(policy.opening, own, env.action_mask(ref))
        logits, mask, _ = fused(policy, observation, ref, hear(policy, ref), own, legal)
        action = distributions.mode(logits, mask) if chance is None else distributions.pick(chance, logits, mask)
        overridden = () if fusion is None or chance is None else action != distributions.pick(chance, own, legal)
        return carry, action, ActExtras(distributions.log_prob(logits, mask, action), value, logits, mask, overridden)

    def act(policy: Policy, carry: PyTree, ref: PyTree, params: PyTree, key: Array | None,
            explore: bool) -> tuple[PyTree, Array, ActExtras]:
        if not explore:
            return act_on(policy, carry, ref, params, None)
        if key is None:
            raise ValueError("act explores by a key, and none is given; give one, or set explore to False")
        return act_on(policy, carry, ref, params, jax.random.uniform(key, env.action_mask(ref).shape[:-1]))

    def init(key: Array, params: PyTree) -> TrainState:
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            raise TypeError("init needs a typed key: jax.random.key(seed), not jax.random.PRNGKey(seed)")
        if stage is not None:
            params, _ = stage(params, jnp.float32(0))
        key_network, key_reset, key_run = jax.random.split(key, 3)
        env_state, ref = reset_all(env, key_reset, params, num_envs)
        parameters = first_parameters(config, env.num_actions, env.observation_size, key_network, fusion)
        stats = init_stats(env.observation_size)
        if config.normalise_observations:
            # Otherwise the first rollout would see raw values, all clipped to the same number where they are prices.
            stats = merge(stats, jax.vmap(env.observe, (0, None))(ref, params))
        return strong_types(TrainState(
            params=parameters, opt_state=optimiser(1.0).init(parameters), normaliser=stats, env_state=env_state,
            ref=ref, first=jnp.ones(num_envs, bool),
            carry=jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), first_carry),
            episodes=EpisodeTotals(jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)), key=key_run,
            update=jnp.int32(0), total_updates=jnp.int32(total_updates), hparams=make_hparams(config),
            rollbacks=jnp.int32(0),
        ))

    def collect(state: TrainState, policy: Policy, params: PyTree,
                key: Array) -> tuple[TrainState, Transition, Batch]:
        """One rollout, its advantages and targets."""

        def explore(carry: PyTree, ref: PyTree, chance: Array) -> tuple[PyTree, Array, Array, Array, PyTree]:
            carry, action, extras = act_on(policy, carry, ref, params, chance)
            return carry, action, extras.log_prob, extras.value, extras.overridden

        (env_state, ref, first, carry), seen = unroll(env, explore, state.env_state, state.ref, state.first,
                                                      state.carry, params, key, num_steps, state.update,
                                                      draw=lambda key, count: jax.random.uniform(key, (count,)),
                                                      tell=summarise.tell if summarise else lambda seen: ())
        value = value_of(policy, params)
        # Where an episode has just ended, the value of `ref` is not read: nothing needs to be forgotten before it.
        following = next_values(seen.value, jax.vmap(value)(carry, ref), final_values(value, seen), seen.truncated)
        advantage = gae(seen.reward, seen.value, following, seen.terminated, seen.truncated, state.hparams.gamma,
                        state.hparams.gae_lambda)
        heard = jax.vmap(jax.vmap(hear, (None, 0)), (None, 0))(policy, seen.ref)
        batch = Batch(state.carry, seen.ref, seen.first, heard, seen.action, seen.log_prob, seen.value, advantage,
                      advantage + seen.value)
        return state.replace(env_state=env_state, ref=ref, first=first, carry=carry), seen, batch

    def pick(batch: Batch, rows: Array) -> Batch:
        """A minibatch. Sequences begin where the rollout does, so their first rows are their environments' numbers."""
        envs = rows[:num_envs // config.num_minibatches]
        picked = take_rows(batch._replace(carry=()), rows)
        return picked._replace(carry=jax.tree.map(lambda x: x[envs], batch.carry))

    def learn(state: TrainState, policy: Policy, params: PyTree, batch: Batch, key: Array, learning_rate: Array,
              ent_coef: Array, fraction: Array) -> tuple[TrainState, dict[str, Array]]:
        """All epochs over one rollout. policy: the one that acted."""
        hparams = state.hparams
        optimise = optimiser(hparams.max_grad_norm)
        step_of = learning_rates(state.params, learning_rate, fraction, hparams, config)

        def gradient_of(parameters: PyTree, batch: Batch, normalise_advantages: bool) -> tuple[Array, Any, PyTree]:
            (loss, terms), grads = jax.value_and_grad(ppo_loss, has_aux=True)(
                parameters, policy, forward, batch, params, hparams, ent_coef, normalise_advantages)
            return loss, terms, grads

        def gradient(parameters: PyTree, rows: Array) -> tuple[Array, Any, PyTree]:
            """Loss, diagnostics and gradient of a minibatch; of a large one as the mean over its blocks."""
            blocks = block_count(len(rows), config)
            if blocks == 1:
                return gradient_of(parameters, pick(batch, rows), config.normalise_advantages)
            advantage = take_rows(batch.advantage, rows)
            advantage = standardised(advantage) if config.normalise_advantages else advantage

            def of_block(block: tuple[Array, Array]) -> tuple[Array, Any, PyTree]:
                rows, advantage = block
                return gradient_of(parameters, pick(batch, rows)._replace(advantage=advantage), False)

            def add(total: Any, block: tuple[Array, Array]) -> tuple[Any, None]:
                loss, terms, grads = of_block(block)
                worst = jnp.maximum(total[1]["ratio_error"], terms["ratio_error"])
                loss, terms, grads = jax.tree.map(jnp.add, total, (loss, terms, grads))
                return (loss, terms | {"ratio_error": worst}, grads), None

            parts = (rows.reshape(blocks, -1), advantage.reshape(blocks, -1))
            first = jax.tree.map(lambda x: x[0], parts)
            zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(of_block, first))
            (loss, terms, grads), _ = jax.lax.scan(add, zero, parts)
            loss, means, grads = jax.tree.map(lambda x: x / blocks, (loss, terms, grads))
            return loss, means | {"ratio_error": terms["ratio_error"]}, grads

        def minibatch(carry: tuple[PyTree, PyTree, Array], rows: Array) -> tuple[Any, dict[str, Array]]:
            parameters, opt_state, stopped = carry
            loss, terms, grads = gradient(parameters, rows)
            grad_norm = optax.tree.norm(grads)
            finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
            stopped |= (hparams.target_kl > 0.0) & (terms["approx_kl"] > hparams.target_kl)
            # A step that is not finite is never taken: `finite` stops the run, with the parameters still usable.
            applied = finite & ~stopped
            direction, new_opt_state = optimise.update(grads, opt_state)
            new_parameters = jax.tree.map(lambda p, rate, d: p - rate * d, parameters, step_of, direction)
            parameters, opt_state = jax.tree.map(lambda new, old: jnp.where(applied, new, old),
                                                 (new_parameters, new_opt_state), (parameters, opt_state))
            return (parameters, opt_state, stopped), terms | {
                "grad_norm": grad_norm, "finite": finite, "applied": applied}

        def epoch(carry: Any, key: Array) -> tuple[Any, dict[str, Array]]:
            return jax.lax.scan(minibatch, carry, minibatch_rows(
                key, num_steps, num_envs, groups, config.num_minibatches, config.sequence))

        (parameters, opt_state, _), history = jax.lax.scan(
            epoch, (state.params, state.opt_state, jnp.bool_(False)), jax.random.split(key, config.num_epochs))
        return state.replace(params=parameters, opt_state=opt_state), history

    def update(state: TrainState, params: PyTree, inputs: PyTree = ()) -> tuple[TrainState, dict[str, Array]]:
        if fusion is None and jax.tree.leaves(inputs):
            raise ValueError(f"PPO takes no inputs without a fusion, got {jax.tree.structure(inputs)}")
        hparams, policy = state.hparams, policy_of(state)
        if fusion is not None:
            params, policy = params.replace(advice=inputs.view), policy.replace(fusion=fusion.trust(inputs.outcomes))
        key_rollout, key_epochs = jax.random.split(jax.random.fold_in(state.key, state.update))
        fraction = progress(state.update, state.total_updates)
        learning_rate = linear(hparams.learning_rate, hparams.learning_rate_end, fraction)
        ent_coef = linear(hparams.ent_coef, hparams.ent_coef_end, fraction)
        staged: dict[str, Array] = {}
        if stage is not None:
            params, staged = stage(params, fraction)

        collected, seen, batch = collect(state, policy, params, key_rollout)
        learnt, history = learn(collected, policy, params, batch, key_epochs, learning_rate, ent_coef, fraction)
        stats = state.normaliser
        if config.normalise_observations:
            stats = update_statistics(env, stats, seen.ref, params)
        episodes, metrics = count_episodes(state.episodes, seen)
        new = learnt.replace(normaliser=stats, episodes=episodes, update=state.update + 1)

        applied = history.pop("applied").astype(jnp.float32)
        metrics["finite"] = history.pop("finite").all()
        metrics["ratio_error"] = history.pop("ratio_error")[0, 0]
        metrics["applied"] = applied.mean()
        for name, values in history.items():  # averages over the gradient steps taken
            metrics[name] = jnp.where(applied > 0, values, 0.0).sum() / jnp.maximum(applied.sum(), 1.0)
        metrics |= {
            "learning_rate": learning_rate,
            "ent_coef": ent_coef,
            "explained_variance": losses.explained_variance(batch.value, batch.target),
            "param_delta": optax.tree.norm(jax.tree.map(jnp.subtract, new.params, state.params)),
            "illegal": count_illegal(env, seen),
            "action_share": jnp.mean(seen.action[..., None] == jnp.arange(env.num_actions), axis=(0, 1)),
        }
        if fusion is not None:
            metrics |= figures(fusion.env, seen, policy.fusion, inputs.outcomes)
            metrics["visits"] = visits(seen, inputs.view)
        extra = dict(summarise.figures(seen.info)) if summarise else {}
        if clash := (metrics.keys() | staged.keys()) & extra.keys() | metrics.keys() & staged.keys():
            raise ValueError(f"summarise or stage returned metrics that are reported already: {sorted(clash)}")
        return new, metrics | staged | extra

    return Algorithm(init=init, update=update, act=act, env=env, config=config, carry=first_carry)
