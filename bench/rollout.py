"""Acting and stepping without learning, by number of environments, and what the form of storage
costs.

Each side runs `rl.rollout.unroll` with PPO's own `act` (64x64 network, sampled legal actions) and
gives back all that it stores. `references` stores what the learner stores; `observations` stores
float32[D] in their place, which the policy then reads from there, and no final observation at all:
a side that is cheaper than a learner that needs those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from jaxtrade.rl.ppo import make_ppo
from jaxtrade.types import Algorithm, Array, Env, Outcome, PyTree

from . import harness, programs, setting
from .catalogue import Options

NUM_ENVS = (
    64,
    256,
    1024,
    4096,
)  # with more, stored observations take gigabytes of fresh memory in each repeat, and a
# virtual machine waits for it: its kernel counts that as steal time
NUM_STEPS = 128


class Seen(NamedTuple):
    """The reference of an environment that stores observations."""

    observation: Array
    mask: Array


@dataclass(frozen=True)
class Storing:
    """An environment whose reference is the observation itself, made once in each step."""

    env: Env

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    @property
    def observation_size(self) -> int:
        return self.env.observation_size

    def _seen(self, ref: PyTree, params: PyTree) -> Seen:
        return Seen(self.env.observe(ref, params), self.env.action_mask(ref))

    def reset(self, key: Array, params: PyTree) -> tuple[PyTree, Seen]:
        state, ref = self.env.reset(key, params)
        return state, self._seen(ref, params)

    def step(
        self, key: Array, state: PyTree, action: Array, params: PyTree
    ) -> tuple[PyTree, Seen, Outcome]:
        state, ref, outcome = self.env.step(key, state, action, params)
        return state, self._seen(ref, params), outcome.replace(final_ref=None)

    def observe(self, ref: Seen, params: PyTree) -> Array:
        del params
        return ref.observation

    def action_mask(self, ref: Seen) -> Array:
        return ref.mask


def _program(
    algorithm: Algorithm, num_steps: int, references: bool, state: PyTree, params: PyTree
) -> Any:
    """The compiled rollout: everything that a learner reads of it comes out."""
    act = programs.acting(algorithm, num_steps)

    def run(state: PyTree, params: PyTree, key: Array) -> Any:
        last, seen, _ = act(state, params, key)
        return last, seen._replace(info=None, final_ref=seen.final_ref if references else None)

    return programs.compiled(run, state, params, jax.random.key(1)).program


def sides(num_envs: int, num_steps: int, sessions: int) -> dict[str, tuple[harness.Side, int]]:
    """Form of storage -> (side, bytes that come out of it per environment step)."""
    world = setting.world(sessions, ppo={"num_envs": num_envs, "num_steps": num_steps})
    key, found = jax.random.key(1), {}
    for name, env in (("references", world.env), ("observations", Storing(world.env))):
        algorithm = make_ppo(world.config, env, 100)
        state = jax.jit(algorithm.init)(jax.random.key(0), world.params)
        program = _program(algorithm, num_steps, name == "references", state, world.params)
        stored = programs.tree_bytes(program.out_info[1]) // (num_envs * num_steps)
        found[name] = (
            harness.side(
                lambda program=program, state=state: program(state, world.params, key),
                num_envs * num_steps,
            ),
            stored,
        )
    return found


def run(options: Options) -> dict[str, Any]:
    counts = NUM_ENVS[:2] if options.quick else NUM_ENVS
    steps, sessions = (16, 8) if options.quick else (NUM_STEPS, setting.SESSIONS)
    made, about = {}, {}
    for num_envs in counts:
        for storage, (side, stored) in sides(num_envs, steps, sessions).items():
            name = f"{storage}@{num_envs}"
            made[name] = side
            about[name] = {
                "storage": storage,
                "num_envs": num_envs,
                "stored_bytes_per_step": stored,
            }
    measured = harness.compare(made, options.repeats)
    return {
        "config": {
            "num_envs": list(counts),
            "num_steps": steps,
            "sessions": sessions,
            "hidden": [64, 64],
            "repeats": options.repeats,
            "threads": harness.cores(),
        },
        "sides": {name: about[name] | measured[name] for name in measured},
        "ratios": {
            f"references/observations@{n}": harness.ratio(
                measured, f"references@{n}", f"observations@{n}"
            )
            for n in counts
        },
    }
