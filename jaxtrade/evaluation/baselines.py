"""Agents of an evaluation: policies, and the baselines against which they are judged."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.env import actions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef, Order
from jaxtrade.env.tasks.base import HOLD
from jaxtrade.env.tasks.guards import may_open
from jaxtrade.errors import ConfigError
from jaxtrade.networks.torso import forget
from jaxtrade.types import Array, Learner, MarketData, PyTree

NO_ACTION = -1  # an order that matches no action of the task (a baseline that flips its side)


Decision = tuple[PyTree, Order, Array]  # carry, order, id of the action


class Act(Protocol):
    """One decision. Pure and hashable: it is a static argument of the compiled evaluation."""

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        """Decide: return (carry, order, action).

        carry: memory or knowledge of the agent, with constant shapes.
        ref: observation reference of `state`. A policy may read nothing else, so that it sees
            exactly what it saw in training.
        key: typed key, one per market bar, the same in both passes.
        action: int32[] id of the chosen action, or NO_ACTION.
        """
        ...


class Forget(Protocol):
    """Resets the memory of an agent at the start of an episode. Pure and hashable, as `Act`."""

    def __call__(self, carry: PyTree, first: Array) -> PyTree:
        """Return the carry for this bar; called at every bar.

        first: bool[], True if an episode starts at this bar.
        """
        ...


def keep_carry(carry: PyTree, first: Array) -> PyTree:
    """Return the carry unchanged. For agents whose carry is fixed knowledge, not memory."""
    del first
    return carry


class Agent(NamedTuple):
    """A named agent.

    `carry` is its initial carry. It is traced, so new weights do not compile a new program.
    """

    name: str
    act: Act
    carry: PyTree
    about: str  # one-line description for reports
    forget: Forget = keep_carry


@dataclass(frozen=True)
class PolicyAct:
    """`Learner.act`, then the decoder of the task. Carry: (policy, its memory).

    `act` samples from the same masked distribution as in training. An illegal action is executed as
    HOLD and counted, as in `TradingEnv.step`.
    """

    env: TradingEnv
    algorithm_act: Any
    explore: bool

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        policy, memory = carry
        memory, action, _ = self.algorithm_act(policy, memory, ref, params, key, self.explore)
        order = self.env.decode(jnp.where(ref.mask[action], action, 0), state, params)
        return (policy, memory), order, action


def forget_episode(carry: PyTree, first: Array) -> PyTree:
    """Reset the memory where `first`, and keep the policy. Carry: (policy, its memory)."""
    policy, memory = carry
    return policy, forget(memory, first)


def _policy_agent(
    name: str, algorithm: Learner, policy: PyTree, env: TradingEnv, about: str, of_q: str
) -> Agent:
    """Make an agent that acts by a policy: its best action as `greedy`, else one that it draws.

    of_q: describes a policy that explores by an epsilon, a Q-policy.
    """
    act = PolicyAct(env, algorithm.act, name != "greedy")
    said = about if getattr(policy, "epsilon", None) is None else of_q
    return Agent(name, act, (policy, algorithm.carry), said, forget_episode)


def greedy(algorithm: Learner, policy: PyTree, env: TradingEnv) -> Agent:
    """Make an agent that takes the policy's best legal action at every bar.

    It is the most probable one, or that of largest Q.
    """
    about = "most probable legal action", "legal action with the largest Q"
    return _policy_agent("greedy", algorithm, policy, env, *about)


def make_sampling_agent(algorithm: Learner, policy: PyTree, env: TradingEnv) -> Agent:
    """Make an agent that draws from the policy's masked distribution at every bar.

    For a Q-policy, the draw is epsilon-greedy.
    """
    about = "drawn from the policy", "epsilon-greedy, with the policy's own epsilon"
    return _policy_agent("sampled", algorithm, policy, env, *about)


def _action(env: TradingEnv, name: str) -> int:
    """Return the id of an action, or NO_ACTION if the task has no such action.

    Either way the order is executed.
    """
    return env.actions.index(name) if name in env.actions else NO_ACTION


def _hold_flat(
    carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
) -> Decision:
    del ref, params, key
    return carry, actions.hold(state), jnp.int32(HOLD)


def flat() -> Agent:
    """Make an agent that never trades."""
    return Agent("flat", _hold_flat, None, "never trades")


def random_legal(ref: ObservationRef, key: Array) -> Array:
    """Draw one of the legal actions, each as likely as the others (int32[]). ref.mask: bool[A]."""
    # Draw k below the number of legal actions, then take the k-th legal action.
    rank = jax.random.randint(key, (), 0, jnp.sum(ref.mask))
    return jnp.argmax(jnp.cumsum(ref.mask) > rank).astype(jnp.int32)


@dataclass(frozen=True)
class RandomMasked:
    """Draws one of the legal actions of the task at each bar, uniformly."""

    env: TradingEnv

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        action = random_legal(ref, key)
        return carry, self.env.decode(action, state, params), action


def random_masked(env: TradingEnv) -> Agent:
    """Make an agent that draws uniformly from the legal actions, by the key of the evaluation."""
    return Agent("random", RandomMasked(env), None, "uniform over the legal actions")


@dataclass(frozen=True)
class BuyAndHold:
    """Buys whenever it is flat and may open.

    This is once per session, because a liquidation locks or ends the account.

    buy: id of the action.
    """

    config: EnvConfig
    buy: int

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        del ref, key
        buy = (state.position.quantity == 0) & may_open(self.config, state, params)
        order = actions.hold(state)
        order = order.replace(quantity=jnp.where(buy, self.config.quantity, order.quantity))
        return carry, order, jnp.where(buy, self.buy, HOLD).astype(jnp.int32)


def buy_and_hold(env: TradingEnv) -> Agent:
    """Make an agent that buys at the first decision bar of each session at which it may open.

    It sets no bracket and leaves at the flat bar.
    """
    return Agent(
        "buy_hold",
        BuyAndHold(env.config, _action(env, "BUY")),
        None,
        "buys each session's first decision bar, no stop or target, out at the flat bar",
    )


@dataclass(frozen=True)
class SignFollower:
    """Holds the side given by a column of signs.

    Carry: int32[T], by market row: 1 long, -1 short, 0 keep the position.

    buy, sell: ids of the actions.
    """

    config: EnvConfig
    buy: int
    sell: int

    def __call__(
        self, carry: Array, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        del ref, key
        held = state.position.quantity
        sign = carry[state.row]
        other = (sign != 0) & (sign != jnp.sign(held))
        opened = jnp.where(may_open(self.config, state, params), sign * self.config.quantity, 0)
        order = actions.hold(state)
        order = order.replace(quantity=jnp.where(other, opened, held).astype(jnp.int32))
        acts = order.quantity != held
        entry = jnp.where(sign > 0, self.buy, self.sell)
        action = jnp.where(~acts, HOLD, jnp.where(held == 0, entry, NO_ACTION))
        return carry, order, action.astype(jnp.int32)


def sma_signs(market: MarketData, fast: int, slow: int) -> np.ndarray:
    """Return sign(SMA_fast - SMA_slow) of the closes in exact integers (int32[T]).

    Each bar's own close is included. The sign is 0 where the averages are equal. It is also 0 where
    `tr_sum` is not yet known at all of the last `slow` bars, so that no average crosses a splice of
    the data.
    """
    close = np.asarray(market.mid_close, np.int64)
    total = np.append(0, np.cumsum(close))
    warm = np.append(0, np.cumsum(np.asarray(market.tr_sum) >= 0))
    signs = np.zeros(len(close), np.int32)
    if len(close) >= slow:
        end = np.arange(slow, len(close) + 1)
        fast_sum, slow_sum = total[end] - total[end - fast], total[end] - total[end - slow]
        whole = warm[end] - warm[end - slow] == slow
        signs[slow - 1 :] = np.where(whole, np.sign(fast_sum * slow - slow_sum * fast), 0)
    return signs


def sma_cross(env: TradingEnv, market: MarketData, fast: int, slow: int) -> Agent:
    """Make an agent that follows two moving averages of closes.

    It is long while the fast average is above the slow one, and short while it is below. It flips
    at the next open and sets no bracket. It leaves only by a flip, at the flat bar, or by a
    liquidation (account pass).

    fast, slow: bars. Raises ConfigError unless 0 < fast < slow.
    """
    if not 0 < fast < slow:
        raise ConfigError(
            f"evaluation.sma_fast = {fast}, evaluation.sma_slow = {slow}: expected 0 < fast < slow"
        )
    signs = jnp.asarray(sma_signs(market, fast, slow))
    return Agent(
        "sma_cross",
        SignFollower(env.config, _action(env, "BUY"), _action(env, "SELL")),
        signs,
        f"long while SMA {fast} > SMA {slow}, short while below, no bracket",
    )


# Agents of a user's own, from a function of the observation.

ASKED = ("mask", "key")  # what a function of an agent may ask for besides the observation


@dataclass(frozen=True)
class FunctionAct:
    """Asks a function for the action at each bar.

    asked: which of `ASKED` it takes too. host: whether it is called outside of the compiled
    program, with NumPy arrays.
    """

    env: TradingEnv
    name: str
    function: Callable[..., Any]
    asked: tuple[str, ...]
    host: bool

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        seen, more = self.env.observe(ref, params), {"mask": ref.mask, "key": key}
        given = {name: more[name] for name in self.asked}
        action = (self._on_host if self.host else self._call)(seen, given)
        # A number that is no action's id counts as an illegal action, if there is one.
        known = (action >= 0) & (action < len(ref.mask))
        action = jnp.where(known, action, jnp.argmin(ref.mask).astype(jnp.int32))
        legal = known & ref.mask[action]
        return carry, self.env.decode(jnp.where(legal, action, HOLD), state, params), action

    def _call(self, seen: Array, given: dict[str, Array]) -> Array:
        try:
            return self._check_action(jnp.asarray(self.function(seen, **given)))
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            raise ConfigError(
                f"agent '{self.name}': its function needs the numbers themselves (NumPy, or an `if` "
                "about a value), but it is compiled: write it with jax.numpy and jnp.where, or call it "
                f"bar by bar, which is slower: jt.agent({self.name}, host=True)"
            ) from error

    def _on_host(self, seen: Array, given: dict[str, Array]) -> Array:
        def call(seen: Array, given: dict[str, Array]) -> np.ndarray:
            plain = {name: np.asarray(value) for name, value in given.items()}
            return self._check_action(np.asarray(self.function(np.asarray(seen), **plain)))

        if "key" in given:
            given = given | {"key": jax.random.key_data(given["key"])}
        like = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.pure_callback(call, like, seen, given, vmap_method="sequential")

    def _check_action(self, action: Any) -> Any:
        """Return the action as int32[]. Raises ConfigError for anything but one whole number."""
        if action.shape != () or not jnp.issubdtype(action.dtype, jnp.integer):
            raise ConfigError(
                f"agent '{self.name}': its function must return one whole number, the id of an action "
                f"(0 to {len(self.env.actions) - 1}: {', '.join(self.env.actions)}), but returned "
                f"{action.dtype}{list(action.shape)}; of scores take jnp.argmax(scores)"
            )
        return action.astype(np.int32)


@dataclass(frozen=True)
class FunctionAgent:
    """An agent that is not yet of an environment; `evaluate` takes it beside others."""

    name: str
    function: Callable[..., Any]
    asked: tuple[str, ...]
    host: bool

    def on(self, env: TradingEnv) -> Agent:
        """Make the agent in an environment."""
        act = FunctionAct(env, self.name, self.function, self.asked, self.host)
        return Agent(self.name, act, None, "a function of the observation")


def agent(
    function: Callable[..., Any], name: str | None = None, *, host: bool = False
) -> FunctionAgent:
    """Make an agent of any function of the observation, to be evaluated beside the baselines.

        now, before = map(env.observation_spec.names.index, ("close[t-1]", "close[t-2]"))

        def fade(observation):  # SELL after a rise, else BUY
            return jnp.where(observation[now] > observation[before], 2, 1)

        agents = [jaxtrade.agent(fade), *jaxtrade.standard_agents(env, market, config)]
        jaxtrade.evaluate(env, params, market, splits["test"], config, agents)

    Args:
        function: (observation) -> the id of an action (a place in `env.actions`), one whole number.
            observation: float32[D]; `env.observation_spec.names` names its slots. It may have two
            more parameters, by these names: `mask` bool[A], the legal actions, and `key`, a random
            key of this bar. An illegal action is executed as HOLD, and counted. The function is
            compiled, so write it with `jax.numpy`.
        name: in the table. Default: that of the function.
        host: call the function bar by bar outside of the compiled program, with NumPy arrays (the
            key as its uint32 words). It may then be any Python, and must depend on its arguments
            alone.
    Raises ConfigError for a function that takes something else.
    """
    parameters = list(inspect.signature(function).parameters)
    called = name or getattr(function, "__name__", type(function).__name__)
    if not parameters or not set(parameters[1:]) <= set(ASKED):
        raise ConfigError(
            f"agent '{called}': its function takes ({', '.join(parameters)}); expected the observation, "
            "and if it needs them `mask` (the legal actions) and `key` (a random key), by these names"
        )
    return FunctionAgent(called, function, tuple(parameters[1:]), host)
