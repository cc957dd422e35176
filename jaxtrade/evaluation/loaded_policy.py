"""A policy that was loaded from its bundle, ready to act on observations of any environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.advisor.host.types import LOGIT_SCALE
from jaxtrade.advisor.table import AdviceSeen, consensus
from jaxtrade.config import AdvisorConfig
from jaxtrade.data.members import COMMON
from jaxtrade.errors import ConfigError
from jaxtrade.networks import distributions
from jaxtrade.rl.acting import select_group
from jaxtrade.rl.state import Policy
from jaxtrade.text import short_repr
from jaxtrade.types import Array, Learner, PyTree

ADVICE = {
    "direction": (-1, 1),
    "confidence": (0, 1),
    "risk": (0, 1),
    "age": (0, np.inf),
}  # keys and their ranges
_OPTIONAL = {"risk": 0.0, "age": 0.0}
Advice = Mapping[str, Any]
Advices = Advice | Sequence[Advice | None]  # of one advisor, or of every member of a panel


class GivenObservation(NamedTuple):
    """A reference that holds the observation itself.

    observation: float32[..., D].
    mask: bool[..., A].
    legs: int32[..., 1, 1], the side held.
    aux: the advice. Both are None without advice. All of them NumPy's or JAX's.
    """

    observation: Any
    mask: Any
    legs: Any = None
    aux: AdviceSeen | None = None


@dataclass(frozen=True)
class GivenEnv:
    """The part of an `Env` that `Learner.act` needs.

    A loaded policy thus uses the act function of its learner.
    """

    num_actions: int
    observation_size: int

    def observe(self, ref: GivenObservation, params: Any) -> Array:
        return ref.observation

    def action_mask(self, ref: GivenObservation) -> Array:
        return ref.mask


class Acts:
    """The compiled act function of a learner.

    plain: the learner.
    advised: the same with the fusion of its policy; None if it takes no advice.
    carry: the memory at the start of an episode.
    """

    def __init__(self, plain: Learner, advised: Learner | None) -> None:
        self.carry = plain.carry
        self._act = _compile_act(plain, False)
        self._listen = _compile_act(advised, True) if advised else self._act

    def __call__(
        self,
        policy: Policy,
        carry: PyTree,
        given: GivenObservation,
        key: Array | None,
        explore: bool,
    ) -> Any:
        """(carry, action, extras), as `Learner.act`. Without a key, `explore` must be False."""
        chosen = self._act if given.aux is None else self._listen
        return chosen(policy, carry, given, key, explore)


def _compile_act(algorithm: Learner, one_by_one: bool) -> Any:
    """Compile `algorithm.act` without parameters of an environment.

    one_by_one: it takes one decision, so B of them are mapped.
    """

    def act(
        policy: Policy, carry: PyTree, given: GivenObservation, key: Array | None, explore: bool
    ) -> Any:
        if not one_by_one or given.mask.ndim == 1:
            return algorithm.act(policy, carry, given, None, key, explore)
        keys = None if key is None else jax.random.split(key, given.mask.shape[0])
        return jax.vmap(
            lambda *each: algorithm.act(policy, each[0], each[1], None, each[2], explore)
        )(carry, given, keys)

    return jax.jit(act, static_argnums=4)


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy that is ready to act.

    policy: first argument of `Learner.act`.
    schema: that of the bundle.

    A policy without memory can use `act`. Any policy can use `step`:

        carry = policy.first_carry()                           # at the start of each episode
        carry, action = policy.step(carry, observation, mask)  # at every bar

    An episode starts with each new account, and every `episode.sessions` sessions.

    With the fusion `slots`, advice is part of the observation. A policy with another fusion (see
    `listens`) takes it as an argument, with the side that is held, and uses the trust that training
    measured. Without that argument it acts as without advice:

        policy.act(observation, mask, advice={"direction": 1, "confidence": 0.7, "risk": 0.2, "age":
        1}, side=0)
    """

    path: Path
    policy: Policy
    schema: dict[str, Any]
    _acts: Acts

    def __repr__(self) -> str:
        return short_repr(
            "LoadedPolicy",
            self.schema.get("algorithm", "ppo"),
            f"{self.schema['network'].get('kind', 'mlp')} network",
            f"trained on {', '.join(self.symbols)}",
            f"{self.schema['observation']['size']} observations",
            f"actions: {', '.join(self.action_names)}",
            "with memory" if self.has_memory else "without memory",
            f"path: {self.path}",
        )

    @property
    def observation_names(self) -> list[str]:
        """Slot names, in order."""
        return [slot["name"] for slot in self.schema["observation"]["slots"]]

    @property
    def action_names(self) -> list[str]:
        """Action names, in id order."""
        return list(self.schema["actions"]["names"])

    @property
    def symbols(self) -> list[str]:
        """The symbols that the policy was trained on."""
        return [each["symbol"] for each in self.schema.get("markets") or [self.schema["market"]]]

    @property
    def _groups(self) -> list[str]:
        """The symbols whose statistics the policy still has to choose from; empty if it can act."""
        normaliser = self.policy.normaliser
        return self.schema["groups"] if normaliser and normaliser.mean.shape[-2] > 1 else []

    def for_symbol(self, symbol: str) -> LoadedPolicy:
        """Return the policy for acting on one symbol, with that symbol's observation statistics.

        A policy with `network.normalise_per_symbol=false` has common ones, and is returned for any
        symbol. Raises ConfigError for a symbol that the policy was not trained on.
        """
        known, wanted = self.symbols, symbol.upper()
        if wanted not in known and self.schema.get("groups") != [COMMON]:
            raise ConfigError(
                f"symbol {symbol}: the policy in {self.path} was trained on {', '.join(known)}, and has "
                "no observation statistics of any other; choose one of these, or train with it "
                "(data.markets), or with common statistics (network.normalise_per_symbol=false)"
            )
        if not self._groups:
            return self
        chosen = select_group(self.policy.normaliser, self._groups.index(wanted))
        return replace(self, policy=self.policy.replace(normaliser=chosen))

    @property
    def listens(self) -> bool:
        """True if advice acted besides the observation in training.

        It did by fusion trust, gate or rules, or a veto.
        """
        return listens(self.schema)

    @property
    def has_memory(self) -> bool:
        """True if an action depends on earlier observations of the episode."""
        return bool(jax.tree.leaves(self._acts.carry))

    def first_carry(self, batch: int | None = None) -> PyTree:
        """Return the memory at the start of an episode.

        float32[H], float32[B, H] for B episodes, or None without a memory.
        """
        lead = () if batch is None else (batch,)
        return jax.tree.map(lambda x: np.zeros((*lead, *x.shape), x.dtype), self._acts.carry)

    def act(
        self,
        observation: Any,
        mask: Any,
        explore: bool = False,
        key: Array | None = None,
        *,
        advice: Advices | None = None,
        side: Any = None,
    ) -> int | np.ndarray:
        """Choose the action for a raw observation, for a policy without memory.

        Arguments and action as in `step`.

        Raises:
            ValueError: as `step`, or the policy has a memory.
        """
        self._check_no_memory()
        return self.step(
            self.first_carry(), observation, mask, explore, key, advice=advice, side=side
        )[1]

    def step(
        self,
        carry: PyTree,
        observation: Any,
        mask: Any,
        explore: bool = False,
        key: Array | None = None,
        *,
        advice: Advices | None = None,
        side: Any = None,
    ) -> tuple[PyTree, int | np.ndarray]:
        """Choose the action for a raw observation.

        It is normalised by the frozen statistics, and the mask is applied.

        Args:
            carry: `first_carry()` at the start of an episode, else the carry that the previous
                call returned.
            observation: float[D] or float[B, D], as `observe` returns it (not normalised).
            mask: bool[A] or bool[B, A], with at least one True per row.
            explore: True samples an action and needs a typed `key`. False takes the best legal
                action: the most probable one, or that of the largest Q.
            advice: what an advisor says, for a policy that `listens`; None acts as without advice.
                Its keys, each a number, or [B] numbers: direction (1 buy, -1 sell, 0 hold),
                confidence and risk (0 to 1), and age (bars since the bar that it is about). risk
                and age may be left out and are then 0. For a panel of advisors, a list with one
                such entry for each member, in the order of `advisor.panel`; None for a silent one.
            side: with advice, the side that is held: 1 long, -1 short, 0 flat; int, or int[B].

        Returns:
            (carry for the next call, int or int32[B]).

        Raises:
            ValueError: a shape is wrong, a number is not finite, a mask allows no action, the key
                is missing, advice is out of range or the policy takes none, side is missing, or the
                policy was trained on several symbols and none was chosen (`for_symbol`).
        """
        if explore and key is None:
            raise ValueError("explore=True needs a key, e.g. jax.random.key(0)")
        given = self._check_arguments(carry, observation, mask, advice, side)
        carry, action, *_ = self._acts(self.policy, carry, given, key if explore else None, explore)
        action = np.asarray(action)
        return carry, action if action.ndim else int(action)

    def act_with_outputs(
        self, carry: PyTree, observation: Any, mask: Any, advice: Any = None, side: Any = None
    ) -> Any:
        """Return (carry, action, extras) as the learner's `act`. Arguments and errors as `step`."""
        given = self._check_arguments(carry, observation, mask, advice, side)
        return self._acts(self.policy, carry, given, None, False)[:3]

    def probabilities(
        self, observation: Any, mask: Any, *, advice: Advices | None = None, side: Any = None
    ) -> np.ndarray:
        """Return the probability with which `explore=True` draws each action.

        float32[A] or float32[B, A], for a policy without memory. That of a Q-learner is
        epsilon-greedy, with the epsilon of the end of training. Arguments as `step`. Raises
        ValueError as `act`, or if the learner does not give its distribution.
        """
        self._check_no_memory()
        found = self.decide(self.first_carry(), observation, mask, advice=advice, side=side)[2]
        if found is None:
            raise ValueError(
                f"the learner {self.schema.get('algorithm')} does not tell its distribution; its act "
                "returns extras without logits and mask"
            )
        return found

    def decide(
        self,
        carry: PyTree,
        observation: Any,
        mask: Any,
        *,
        advice: Advices | None = None,
        side: Any = None,
    ) -> tuple[PyTree, np.ndarray, np.ndarray | None]:
        """Return the best legal action as `step` does, with the `probabilities` of all.

        Arguments and errors as `step`. Returns (carry for the next call, int32[] or int32[B],
        float32[A] or float32[B, A], or None if the learner does not give its distribution).
        """
        carry, action, extras = self.act_with_outputs(carry, observation, mask, advice, side)
        if not (hasattr(extras, "logits") and hasattr(extras, "mask")):
            return carry, np.asarray(action), None
        own = getattr(extras, "probs", None)
        chances = distributions.probs(extras.logits, extras.mask) if own is None else own
        return carry, np.asarray(action), np.asarray(chances)

    def _check_arguments(
        self, carry: PyTree, observation: Any, mask: Any, advice: Advices | None, side: Any
    ) -> GivenObservation:
        """Check the arguments, and return them as a reference. Raises ValueError as `step`."""
        observation, mask = np.asarray(observation, np.float32), np.asarray(mask)
        if self._groups:
            raise ValueError(
                f"this policy was trained on {', '.join(self._groups)}, each with its own observation "
                f"statistics; choose one: policy.for_symbol('{self._groups[0]}')"
            )
        self._check(carry, observation, mask)
        if advice is None:
            return GivenObservation(observation, mask)
        if not self.listens:
            raise ValueError(
                "this policy takes no advice beside its observation (policy.listens is False); leave "
                "advice out"
            )
        lead = observation.shape[:-1]
        sides = _numbers("side", side, (-1, 1), lead, whole=True)
        advisors = AdvisorConfig.model_validate(self.schema["advisor"]).advisors
        seen = advice_seen(advice, lead) if advisors == 1 else panel_seen(advice, advisors, lead)
        return GivenObservation(observation, mask, sides.astype(np.int32)[..., None, None], seen)

    def _check_no_memory(self) -> None:
        if self.has_memory:
            raise ValueError(
                "this policy remembers its episode: carry = policy.first_carry() where one begins, then "
                "carry, action = policy.step(carry, observation, mask) at every bar"
            )

    def _check(self, carry: PyTree, observation: np.ndarray, mask: np.ndarray) -> None:
        size, actions = self.schema["observation"]["size"], len(self.schema["actions"]["names"])
        lead = observation.shape[:-1]
        if observation.ndim not in (1, 2) or observation.shape[-1] != size:
            raise ValueError(
                f"observation has shape {observation.shape}, expected ({size},) or (B, {size})"
            )
        if mask.dtype != np.bool_ or mask.shape != (*lead, actions):
            raise ValueError(
                f"mask is {mask.dtype}{list(mask.shape)}, expected bool{[*lead, actions]}"
            )
        if not np.isfinite(observation).all():
            slot = int(np.argwhere(~np.isfinite(observation))[0, -1])
            raise ValueError(
                f"observation slot {slot} ('{self.observation_names[slot]}') is not finite"
            )
        if not mask.any(axis=-1).all():
            raise ValueError("the mask allows no action")
        expected = jax.tree.map(lambda x: (*lead, *x.shape), self._acts.carry)
        found = jax.tree.map(np.shape, carry)
        if found != expected:
            raise ValueError(
                f"carry has shape {found}, expected {expected}; begin with first_carry(), or "
                "first_carry(B) for B episodes at once"
            )


def listens(schema: Mapping[str, Any]) -> bool:
    """Return whether the policy of a bundle's schema takes advice besides its observation."""
    advisor = AdvisorConfig.model_validate(schema.get("advisor", {}))
    return advisor.on and (advisor.fusion not in ("slots", "none") or advisor.veto <= 1)


def panel_seen(advice: Advices, advisors: int, lead: tuple[int, ...]) -> AdviceSeen:
    """Convert advice of a panel to what a fusion reads.

    Raises ValueError as `LoadedPolicy.step`.
    """
    if isinstance(advice, Mapping) or len(advice) != advisors:
        found = "one mapping" if isinstance(advice, Mapping) else f"{len(advice)} entries"
        raise ValueError(
            f"advice holds {found}; this policy listens to a panel, so give a list of {advisors} entries, "
            "None for a silent advisor"
        )
    silent = AdviceSeen(jnp.zeros((*lead, 6), jnp.float32), jnp.zeros(lead, jnp.int32))
    seen = [silent if each is None else advice_seen(each, lead) for each in advice]
    values = jnp.stack([each.values for each in seen], axis=-2)
    scale = jnp.where(jnp.arange(6) < 3, LOGIT_SCALE * values[..., 3:4], 1.0)  # as in live answers
    every = AdviceSeen(values * scale, jnp.stack([each.version for each in seen], axis=-1))
    return jax.vmap(consensus)(every) if lead else consensus(every)


def advice_seen(advice: Advices, lead: tuple[int, ...]) -> AdviceSeen:
    """Convert advice of one advisor to what a fusion reads, with leading axes `lead`.

    Raises ValueError as `LoadedPolicy.step`.
    """
    if not isinstance(advice, Mapping):
        raise ValueError(
            "advice is a list, and this policy listens to one advisor; give one mapping"
        )
    if unknown := sorted(advice.keys() - ADVICE.keys()):
        raise ValueError(f"advice has '{unknown[0]}', expected {', '.join(ADVICE)}")
    given = {**_OPTIONAL, **advice}
    numbers = {
        name: _numbers(name, given.get(name), within, lead, whole=name == "direction")
        for name, within in ADVICE.items()
    }
    direction = numbers["direction"]
    logits = [
        direction == 0,
        direction > 0,
        direction < 0,
    ]  # hold, buy, sell; a fusion reads which one is the largest
    values = np.stack(
        [*logits, numbers["confidence"], numbers["risk"], numbers["age"]], axis=-1
    ).astype(np.float32)
    return AdviceSeen(jnp.asarray(values), jnp.ones(lead, jnp.int32))


def _numbers(
    name: str, value: Any, within: tuple[float, float], lead: tuple[int, ...], whole: bool
) -> np.ndarray:
    """Return one number for all rows, or one for each (float64[lead]). Raises ValueError."""
    if value is None:
        raise ValueError(
            f"{name} is missing: advice needs direction and confidence, and the side that is held now "
            "(1 long, -1 short, 0 flat)"
        )
    try:
        found, (low, high) = np.asarray(value, np.float64), within
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is {value!r}, expected a number from {within[0]:g} to {within[1]:g}"
            + (" (1 buy, -1 sell, 0 hold)" if name == "direction" else "")
        ) from None
    if found.shape not in ((), lead):
        raise ValueError(f"{name} has shape {found.shape}, expected {lead} or one number")
    fits = np.isfinite(found) & (found >= low) & (found <= high)
    if not fits.all() or (whole and (found != np.round(found)).any()):
        kind = "whole number" if whole else "finite number"
        raise ValueError(f"{name} is {value}, expected a {kind} from {low:g} to {high:g}")
    return np.broadcast_to(found, lead)
