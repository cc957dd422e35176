"""One whole update of PPO against the same update written in NumPy, float64, with its gradients derived by hand.

The network has no hidden layer, so that logits are `o W + b` and the value is `o v + c`. Everything that an update does
between a rollout and new parameters is in the result: generalised advantages with bootstrapped truncations, the
minibatches of each epoch, the normalisation of advantages, the three loss terms under the mask, the clipped gradient,
Adam, and both schedules. Only the rows of the minibatches and the environment come from the package and the probes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.rl.minibatches import minibatch_rows
from jaxtrade.rl.ppo import make_ppo
from tests.rl.probes import Probe, probe_params

CONFIG = Learning(num_envs=4, num_steps=12, num_minibatches=4, num_epochs=3, num_shards=2, hidden=(),
                  normalise_observations=False, learning_rate=0.03, learning_rate_end=0.01, gamma=0.9, gae_lambda=0.8,
                  clip_eps=0.05, vf_clip_eps=0.1, ent_coef=0.4, ent_coef_end=0.1, vf_coef=0.3, max_grad_norm=0.6)
UPDATES = 4
ENV = Probe((lambda ref, action: ref.cue * action + 0.3 * ref.time,))

Weights = dict[str, np.ndarray]  # W [D, A], b [A], v [D], c []


class Steps(NamedTuple):
    """A rollout, float64 or bool [T, N, ...]; next_value: of what follows each step, whatever ended there."""

    observation: np.ndarray
    mask: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    reward: np.ndarray
    next_value: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def first_weights() -> Weights:
    """Far from the uniform policy that learning begins with, where an entropy without a mask has the same gradient."""
    draw = np.random.default_rng(4)
    return {"W": draw.normal(0, 1, (2, 4)), "b": draw.normal(0, 1, 4), "v": draw.normal(0, 1, 2),
            "c": np.array(0.2)}


def as_parameters(weights: Weights) -> dict[str, Any]:
    """The same weights as the package holds them."""
    layers = {"policy_head": {"kernel": weights["W"], "bias": weights["b"]},
              "value_head": {"kernel": weights["v"][:, None], "bias": weights["c"][None]}}
    return jax.tree.map(jnp.float32, layers)


def masked_log_probs(weights: Weights, observation: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """-inf where an action is illegal."""
    logits = np.where(mask, observation @ weights["W"] + weights["b"], -np.inf)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def value_of(weights: Weights, observation: np.ndarray) -> np.ndarray:
    return observation @ weights["v"] + weights["c"]


def chosen(values: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, action[..., None], -1)[..., 0]


@jax.jit
def stepped(keys: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
    return jax.vmap(ENV.step, (0, 0, 0, None))(keys, state, action, params)


def rollout(weights: Weights, state: Any, params: Any, key: jax.Array) -> Steps:
    """Environment i draws from `fold_in(key, i)`: half of it for its actions, half for its steps."""
    keys = [jax.random.split(jax.random.fold_in(key, i)) for i in range(CONFIG.num_envs)]
    chance = np.stack([jax.random.uniform(of_actions, (CONFIG.num_steps,)) for of_actions, _ in keys], 1)
    step_keys = jnp.stack([jax.random.split(of_steps, CONFIG.num_steps) for _, of_steps in keys], 1)
    env_state, rows = state.env_state, []

    def seen(ref: Any) -> tuple[np.ndarray, np.ndarray]:
        return (np.asarray(jax.vmap(ENV.observe, (0, None))(ref, params), np.float64),
                np.asarray(jax.vmap(ENV.action_mask)(ref)))

    for t in range(CONFIG.num_steps):
        observation, mask = seen(env_state)
        log_probs = masked_log_probs(weights, observation, mask)
        action = (np.cumsum(np.exp(log_probs), -1) > chance[t][:, None]).argmax(-1)
        env_state, _, outcome = stepped(step_keys[t], env_state, jnp.asarray(action, jnp.int32), params)
        rows.append((observation, mask, action, chosen(log_probs, action), value_of(weights, observation),
                     np.asarray(outcome.reward, np.float64), value_of(weights, seen(outcome.final_ref)[0]),
                     np.asarray(outcome.terminated), np.asarray(outcome.truncated)))
    return Steps(*(np.stack(column) for column in zip(*rows, strict=True)))


def advantages(steps: Steps) -> np.ndarray:
    """float64[T, N], by the recursion of Schulman et al. 2016."""
    out, after = np.zeros_like(steps.reward), np.zeros(CONFIG.num_envs)
    for t in reversed(range(CONFIG.num_steps)):
        delta = steps.reward[t] + CONFIG.gamma * ~steps.terminated[t] * steps.next_value[t] - steps.value[t]
        goes_on = ~(steps.terminated[t] | steps.truncated[t])
        out[t] = after = delta + CONFIG.gamma * CONFIG.gae_lambda * goes_on * after
    return out


def gradient(weights: Weights, batch: Steps, advantage: np.ndarray, target: np.ndarray,
             ent_coef: float) -> tuple[Weights, dict[str, float]]:
    """Of the loss over B rows, by hand: d log p(a) / d logits = onehot(a) - p, dH / d logits = -p (log p + H)."""
    count = len(advantage)
    log_probs = masked_log_probs(weights, batch.observation, batch.mask)
    p, finite = np.exp(log_probs), np.where(batch.mask, log_probs, 0.0)
    entropy = -(p * finite).sum(-1)
    ratio = np.exp(chosen(log_probs, batch.action) - batch.log_prob)
    plain, clipped = ratio * advantage, np.clip(ratio, 1 - CONFIG.clip_eps, 1 + CONFIG.clip_eps) * advantage
    pushed = np.where(plain <= clipped, plain, 0.0)
    of_logits = -pushed[:, None] * (np.eye(4)[batch.action] - p)
    of_logits += ent_coef * p * (finite + entropy[:, None])

    value = value_of(weights, batch.observation)
    near = batch.value + np.clip(value - batch.value, -CONFIG.vf_clip_eps, CONFIG.vf_clip_eps)
    error, near_error = np.square(value - target), np.square(near - target)
    of_value = CONFIG.vf_coef * np.where((near == value) | (error >= near_error), 2 * (value - target), 0.0)
    grads = {"W": batch.observation.T @ of_logits, "b": of_logits.sum(0), "v": batch.observation.T @ of_value,
             "c": of_value.sum()}
    figures = {"policy_loss": -np.minimum(plain, clipped).mean(), "entropy": entropy.mean(),
               "value_loss": np.maximum(error, near_error).mean()}
    return {name: grad / count for name, grad in grads.items()}, figures


def learned(weights: Weights, steps: Steps, keys: jax.Array, learning_rate: float,
            ent_coef: float) -> tuple[Weights, dict[str, float]]:
    """New weights after all epochs, and the figures as means over the gradient steps."""
    advantage = advantages(steps)
    target = advantage + steps.value
    flat = Steps(*(x.reshape(-1, *x.shape[2:]) for x in steps))
    first, second = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    every: list[dict[str, float]] = []
    for key in keys:
        for rows in np.asarray(minibatch_rows(key, CONFIG.num_steps, CONFIG.num_envs, CONFIG.shards,
                                              CONFIG.num_minibatches)):
            picked = advantage.reshape(-1)[rows]
            grads, figures = gradient(weights, Steps(*(x[rows] for x in flat)),
                                      (picked - picked.mean()) / picked.std(), target.reshape(-1)[rows], ent_coef)
            norm = np.sqrt(sum(np.square(grad).sum() for grad in grads.values()))
            every.append(figures | {"grad_norm": norm})
            at = len(every)
            for name, grad in grads.items():
                grad = grad * min(1.0, CONFIG.max_grad_norm / norm)
                first[name] = 0.9 * first[name] + 0.1 * grad
                second[name] = 0.999 * second[name] + 0.001 * np.square(grad)
                step = first[name] / (1 - 0.9**at) / (np.sqrt(second[name] / (1 - 0.999**at)) + 1e-5)
                weights = weights | {name: weights[name] - learning_rate * step}
    return weights, {name: float(np.mean([figures[name] for figures in every])) for name in every[0]}


@pytest.fixture(scope="module")
def compiled() -> tuple[Any, Any]:
    """(init, update)"""
    algorithm = make_ppo(CONFIG.run, ENV, UPDATES)
    return jax.jit(algorithm.init), jax.jit(algorithm.update)


@pytest.mark.parametrize(("update", "truncates"), [(0, False), (1, True), (3, False)])
def test_an_update_is_what_numpy_computes(compiled: tuple[Any, Any], update: int,
                                            truncates: bool) -> None:
    """In the first update, after a third of the schedules, and in the last; episodes of five steps."""
    params = probe_params(length=5, truncates=truncates)
    weights = first_weights()
    init, learn = compiled
    state = init(jax.random.key(2), params).replace(params=as_parameters(weights), update=jnp.int32(update))
    after, metrics = learn(state, params, None)

    of_rollout, of_epochs = jax.random.split(jax.random.fold_in(state.key, update))
    steps = rollout(weights, state, params, of_rollout)
    assert (steps.truncated if truncates else steps.terminated).sum() >= 8
    done = update / (UPDATES - 1)
    learning_rate, ent_coef = 0.03 + done * (0.01 - 0.03), 0.4 + done * (0.1 - 0.4)
    expected, figures = learned(weights, steps, jax.random.split(of_epochs, CONFIG.num_epochs), learning_rate, ent_coef)

    np.testing.assert_allclose([metrics["learning_rate"], metrics["ent_coef"]], [learning_rate, ent_coef], rtol=1e-6)
    for name, figure in figures.items():
        np.testing.assert_allclose(metrics[name], figure, rtol=2e-4, atol=1e-6, err_msg=name)
    moved = jax.tree.map(lambda new, old: np.asarray(new - old), after.params, state.params)
    wanted = jax.tree.map(lambda new, old: np.asarray(new - old), as_parameters(expected), as_parameters(weights))
    for (path, ours), theirs in zip(jax.tree_util.tree_flatten_with_path(moved)[0], jax.tree.leaves(wanted),
                                    strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-5, err_msg=jax.tree_util.keystr(path))
