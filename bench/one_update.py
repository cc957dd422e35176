"""One whole update of PPO against the same in NumPy, float64, with gradients derived by hand.

The network of the reference has no hidden layer, so that logits are `o W + b` and the value is `o v
+ c`. Everything that an update does between a rollout and new parameters is in the result:
generalised advantages with bootstrapped truncations, the normalisation of advantages, the three
loss terms under the mask, the clipped gradient, Adam.

`Rollout` is one update of the package on the benches' market, with what its rollout saw; `reference` what NumPy makes
of that. tests/bench/test_sb3.py asks Stable-Baselines3 the same question.
"""

from collections import namedtuple
from functools import reduce
from operator import getitem

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from jaxtrade.networks import distributions
from jaxtrade.rl.actor_critic import policy_of
from jaxtrade.rl.ppo import make_ppo

from . import harness, setting
from .learning import learning_of

UPDATE = yaml.safe_load("""
num_envs: 4
num_steps: 64
num_minibatches: 1
num_epochs: 3
num_shards: 1
hidden: [16, 16]
normalise_observations: false
learning_rate: 0.003
learning_rate_end: 0.003
ent_coef: 0.2
gamma: 0.9
clip_eps: 0.02
""")
LOUD = 30.0  # times the first weights of the policy's head, which begins so uniform that masks hardly matter

# Weights are a dict: W [D, A], b [A], v [D], c [].


# Steps of a rollout, arrays [T, N, ...]; `final`: what was observed after the step, whatever ended
# there.
Seen = namedtuple(
    "Seen", "observation mask final first action log_prob value reward terminated truncated"
)


class Rollout:
    """One rollout of ours with truncations, and what our update makes of it.

    seen: the rollout once more, step by step from the same random numbers; last: the observations
        after it. loud: a
    factor of the first weights of the policy's head.
    """

    def __init__(self, loud=1.0, **changed):
        self.world = setting.world(2, ppo={**UPDATE, **changed}, episode={"max_steps": 10})
        env, params = self.world.env, self.world.params
        algorithm = make_ppo(self.world.config, env, 10)
        start = jax.jit(algorithm.init)(jax.random.key(0), params)
        head = start.params["policy_head"]
        louder = {"policy_head": head | {"kernel": loud * head["kernel"]}}
        self.before = start.replace(params=start.params | louder)
        self.after = jax.jit(algorithm.update)(self.before, params, None)[0]
        again = jax.jit(self._again, static_argnums=0)
        self.seen, self.last = jax.device_get(again(algorithm.act, self.before, params))

    def _again(self, act, state, params):
        env, learning, policy = self.world.env, learning_of(self.world.config), policy_of(state)
        of_rollout, _ = jax.random.split(jax.random.fold_in(state.key, state.update))

        def random_of(number):
            keys, count = jax.random.fold_in(of_rollout, number), learning.num_steps
            of_actions, of_steps = jax.random.split(keys)
            return jax.random.uniform(of_actions, (count,)), jax.random.split(of_steps, count)

        def one(random, env_state, ref, first):
            chance, key = random
            _, _, found = act(policy, None, ref, params, None, False)
            action = distributions.sample_by_inverse_cdf(chance, found.logits, found.mask)
            env_state, following, outcome = env.step(key, env_state, action, params)
            ends = outcome.terminated, outcome.truncated
            return (env_state, following, ends[0] | ends[1]), Seen(
                env.observe(ref, params),
                found.mask,
                env.observe(outcome.final_ref, params),
                first,
                action,
                distributions.log_prob(found.logits, found.mask, action),
                found.value,
                outcome.reward,
                *ends,
            )

        (_, ref, _), seen = jax.lax.scan(
            lambda now, random: jax.vmap(one)(random, *now),
            (state.env_state, state.ref, state.first),
            jax.vmap(random_of, out_axes=1)(jnp.arange(learning.num_envs)),
        )
        return seen, jax.vmap(env.observe, (0, None))(ref, params)


def layer(tree, path):
    """Return the layer at a path of the parameters."""
    return reduce(getitem, path, tree)


def distance(rollout, theirs):
    """Return |our step - their step| / |our step| over the weights at these paths.

    theirs: path -> new weights [in, out].
    """
    before, after = (
        {path: layer(state.params, path)["kernel"] for path in theirs}
        for state in (rollout.before, rollout.after)
    )
    return harness.distance(before, theirs, after)


# ------------------------------------------------------------------------------------------------------- in NumPy
# A rollout, float64 or bool [T, N, ...]; next_value: of what follows each step, whatever ended
# there.
Steps = namedtuple(
    "Steps", "observation mask action log_prob value reward next_value terminated truncated"
)


def masked_log_probs(weights, observation, mask):
    """-inf where an action is illegal."""
    logits = np.where(mask, observation @ weights["W"] + weights["b"], -np.inf)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def value_of(weights, observation):
    return observation @ weights["v"] + weights["c"]


def chosen(values, action):
    return np.take_along_axis(values, action[..., None], -1)[..., 0]


def advantages(config, steps):
    """float64[T, N], by the recursion of Schulman et al. 2016."""
    out, after = np.zeros_like(steps.reward), np.zeros(config.num_envs)
    for t in reversed(range(config.num_steps)):
        delta = (
            steps.reward[t]
            + config.gamma * ~steps.terminated[t] * steps.next_value[t]
            - steps.value[t]
        )
        goes_on = ~(steps.terminated[t] | steps.truncated[t])
        out[t] = after = delta + config.gamma * config.gae_lambda * goes_on * after
    return out


def gradient(
    config,
    weights,
    batch,
    advantage,
    target,
    ent_coef,
):
    """Return the gradient of the loss over B rows, by hand.

    d log p(a) / d logits = onehot(a) - p, dH / d logits = -p (log p + H).
    """
    count = len(advantage)
    log_probs = masked_log_probs(weights, batch.observation, batch.mask)
    p, finite = np.exp(log_probs), np.where(batch.mask, log_probs, 0.0)
    entropy = -(p * finite).sum(-1)
    ratio = np.exp(chosen(log_probs, batch.action) - batch.log_prob)
    near_one = np.clip(ratio, 1 - config.clip_eps, 1 + config.clip_eps)
    plain, clipped = ratio * advantage, near_one * advantage
    pushed = np.where(plain <= clipped, plain, 0.0)
    of_logits = -pushed[:, None] * (np.eye(p.shape[1])[batch.action] - p)
    of_logits += ent_coef * p * (finite + entropy[:, None])

    value = value_of(weights, batch.observation)
    near = batch.value + np.clip(value - batch.value, -config.vf_clip_eps, config.vf_clip_eps)
    near = near if config.vf_clip_eps else value
    error, near_error = np.square(value - target), np.square(near - target)
    of_value = config.vf_coef * np.where(
        (near == value) | (error >= near_error), 2 * (value - target), 0.0
    )
    grads = {
        "W": batch.observation.T @ of_logits,
        "b": of_logits.sum(0),
        "v": batch.observation.T @ of_value,
        "c": of_value.sum(),
    }
    figures = {
        "policy_loss": -np.minimum(plain, clipped).mean(),
        "entropy": entropy.mean(),
        "value_loss": np.maximum(error, near_error).mean(),
    }
    return {name: grad / count for name, grad in grads.items()}, figures


def learned(
    config,
    weights,
    steps,
    minibatches,
    learning_rate,
    ent_coef,
):
    """Return new weights after all minibatches of all epochs, and the figures.

    The figures are means over the gradient steps.

    minibatches: the rows of each, as numbers of step * environments + environment.
    """
    advantage = advantages(config, steps)
    target = advantage + steps.value
    flat = Steps(*(x.reshape(-1, *x.shape[2:]) for x in steps))
    first, second = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    every = []
    for rows in minibatches:
        batch, picked = Steps(*(x[rows] for x in flat)), advantage.reshape(-1)[rows]
        scaled, aim = (picked - picked.mean()) / picked.std(), target.reshape(-1)[rows]
        grads, figures = gradient(config, weights, batch, scaled, aim, ent_coef)
        norm = np.sqrt(sum(np.square(grad).sum() for grad in grads.values()))
        every.append(figures | {"grad_norm": norm})
        at = len(every)
        for name, grad in grads.items():
            grad = grad * min(1.0, config.max_grad_norm / norm)
            first[name] = 0.9 * first[name] + 0.1 * grad
            second[name] = 0.999 * second[name] + 0.001 * np.square(grad)
            step = first[name] / (1 - 0.9**at) / (np.sqrt(second[name] / (1 - 0.999**at)) + 1e-5)
            weights = weights | {name: weights[name] - learning_rate * step}
    means = {name: float(np.mean([each[name] for each in every])) for name in every[0]}
    return weights, means


def reference(rollout):
    """Return NumPy's weights after the update of a rollout, for `distance`.

    The network has no hidden layers, and the update one minibatch.
    """
    config, seen = learning_of(rollout.world.config), rollout.seen
    before = jax.tree.map(lambda x: np.asarray(x, np.float64), rollout.before.params)
    policy, value = before["policy_head"], before["value_head"]
    weights = {"W": policy["kernel"], "b": policy["bias"]}
    weights |= {"v": value["kernel"][:, 0], "c": value["bias"][0]}
    observation, final, reward = map(np.float64, (seen.observation, seen.final, seen.reward))
    log_probs = masked_log_probs(weights, observation, seen.mask)
    known = chosen(log_probs, seen.action), value_of(weights, observation), reward
    following = value_of(weights, final), seen.terminated, seen.truncated
    steps = Steps(observation, seen.mask, seen.action, *known, *following)
    epochs = [np.arange(config.num_envs * config.num_steps)] * config.num_epochs
    after, _ = learned(config, weights, steps, epochs, config.learning_rate, config.ent_coef)
    return {("policy_head",): after["W"], ("value_head",): after["v"][:, None]}
