"""A trained policy in NumPy: copy this file and its folder wherever you trade.

    policy = NumpyPolicy("folder of the export")
    carry = policy.first_carry()                           # where an episode begins
    carry, action = policy.step(carry, observation, mask)  # at every bar
    policy.action_names[action]

It needs NumPy and the standard library alone, and Python 3.9 or newer.

observation: float32[D], raw: as the environment gives it. `card.json` names its slots and units.
mask: bool[A], the legal actions.
carry: float32[H], the memory; None without one. It is zero where an episode begins.
With B rows at once, all of them have a leading axis [B].
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

CLIP = 10.0  # of normalised observations
LOWEST = float(np.finfo(np.float32).min)
LAYER_NORM_EPSILON = 1e-6


def _dense(w: Any, name: str, x: Any) -> Any:
    return x @ w[f"{name}.kernel"] + w[f"{name}.bias"]


def _torso(xp: Any, w: Any, activation: str, name: str, x: Any) -> Any:
    layer = 0
    while f"{name}.Dense_{layer}.kernel" in w:
        x = _dense(w, f"{name}.Dense_{layer}", x)
        norm = f"{name}.LayerNorm_{layer}"
        if f"{norm}.scale" in w:
            x = x - xp.mean(x, axis=-1, keepdims=True)
            variance = xp.mean(x * x, axis=-1, keepdims=True)
            x = x / xp.sqrt(variance + LAYER_NORM_EPSILON)
            x = x * w[f"{norm}.scale"] + w[f"{norm}.bias"]
        x = xp.tanh(x) if activation == "tanh" else xp.maximum(x, 0.0)
        layer += 1
    return x


def _remember(xp: Any, w: Any, carry: Any, x: Any) -> Any:
    """Compute the next carry of a GRU."""

    def sigmoid(x: Any) -> Any:
        return xp.tanh(x * 0.5) * 0.5 + 0.5  # never overflows

    read_r, read_z, read_n = xp.split(_dense(w, "gru.input", x), 3, axis=-1)
    own_r, own_z, own_n = xp.split(_dense(w, "gru.recurrent", carry), 3, axis=-1)
    update = sigmoid(read_z + own_z)
    new = xp.tanh(read_n + sigmoid(read_r + own_r) * own_n)
    return (1.0 - update) * new + update * carry


def forward(
    xp: Any, w: Any, activation: str, observation: Any, mask: Any, carry: Any = None
) -> Any:
    """Compute (action int32[B], logits float32[B, A], value float32[B], next carry or None).

    The logits of illegal actions are -inf. A Q-learner's logits are its Q values, and its value is
    the largest legal one. Of equal logits the lowest action is taken.

    Args:
        xp: NumPy, or what has its functions.
        w: name -> array, as `policy.npz`.
        observation, mask, carry: float32[B, D], bool[B, A], and float32[B, H] or None.
    """
    x = observation
    if "normaliser.mean" in w:  # the scale of a slot that never varied is 0
        x = xp.clip((x - w["normaliser.mean"]) * w["normaliser.scale"], -CLIP, CLIP)
    if "adapter.kernel" in w:
        x = _dense(w, "adapter", x)
    if carry is not None:
        carry = _remember(xp, w, carry, x)
        x = xp.concatenate([x, carry], axis=-1)
    if "q_head.kernel" in w:
        x = _torso(xp, w, activation, "q_torso", x)
        logits = value = _dense(w, "q_head", x)
        if "value_head.kernel" in w:  # dueling
            logits = _dense(w, "value_head", x) + logits - xp.mean(logits, axis=-1, keepdims=True)
    else:
        logits = _dense(w, "policy_head", _torso(xp, w, activation, "policy_torso", x))
        value = _dense(w, "value_head", _torso(xp, w, activation, "value_torso", x))
    # A legal logit that overflowed is still above those of illegal actions.
    logits = xp.where(mask, xp.maximum(logits, LOWEST), -np.inf)
    value = xp.max(logits if "q_head.kernel" in w else value, axis=-1)  # else of one number
    return xp.argmax(logits, axis=-1).astype("int32"), logits, value, carry


def widths_of(card: Any) -> Any:
    """Return the widths of an observation, a mask and a carry; None without a memory."""
    return len(card["observation"]), len(card["actions"]), card["memory"] or None


class NumpyPolicy:
    """The policy of an export. `card` is the content of `card.json`."""

    def __init__(self, folder: Any = Path(__file__).parent) -> None:
        """Read the policy. Raises ValueError if its weights are not those of the card."""
        self.card = json.loads(Path(folder, "card.json").read_text(encoding="utf-8"))
        content = Path(folder, "policy.npz").read_bytes()
        if hashlib.sha256(content).hexdigest() != self.card["weights_sha256"]:
            raise ValueError(
                f"{folder}: policy.npz has another sha256 than card.json says; copy the whole export again"
            )
        self.weights = dict(np.load(io.BytesIO(content), allow_pickle=False))
        self.action_names = self.card["actions"]

    def first_carry(self, *batch: int) -> Any:
        """Return the memory where an episode begins; batch: of so many episodes."""
        width = self.card["memory"]
        return np.zeros((*batch, width), np.float32) if width else None

    def step(self, carry: Any, observation: Any, mask: Any) -> Any:
        """Return (next carry, action: int or int32[B]). Raises ValueError as `scores`."""
        action, _, _, carry = self.scores(observation, mask, carry)
        return carry, action if action.ndim else int(action)

    def scores(self, observation: Any, mask: Any, carry: Any = None) -> Any:
        """Return (action, logits, value, next carry), as `forward`.

        Raises ValueError for a wrong shape, a number that is not finite, or no legal action.
        """
        lead, rows = np.shape(observation)[:-1], {}
        given = {"observation": observation, "mask": mask, "carry": carry}
        for (name, array), width in zip(given.items(), widths_of(self.card)):  # noqa: B905 (Python 3.9)
            if width is None:
                continue
            array = np.asarray(array, bool if name == "mask" else np.float32)
            if array.shape != (*lead, width) or not np.isfinite(array).all():
                raise ValueError(
                    f"{name} must be finite and have shape ({width},) or (B, {width}), found {array}"
                )
            rows[name] = array.reshape(-1, width)
        if not rows["mask"].any(axis=-1).all():
            raise ValueError("the mask allows no action")
        found = forward(np, self.weights, self.card["network"]["activation"], **rows)
        return tuple(None if x is None else x.reshape((*lead, *x.shape[1:])) for x in found)
