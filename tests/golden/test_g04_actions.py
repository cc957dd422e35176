"""G4. The earlier project's paper broker read action 4, "hold both" in its environment, as "Strong
Buy".

Here the names of the actions travel with the policy: what the exported policy chooses, by name, is
what the environment does.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.rl.state import finish_policy
from jaxtrade.runs.setup import policies_of, prepare

SMALL = """
network.hidden=[8] rollout.num_envs=4 rollout.num_steps=8 ppo.num_minibatches=1
train.total_timesteps=32 account.preset=rules_off_50k
data.source=synthetic data.synthetic_sessions=3 env.window=2
"""
JOINT = """
data.markets=[MES,MNQ] data.per_market.MNQ.synthetic_seed=3 env.task=allocate
allocate.preset=dual_26 allocate.actions=
"""
CASES = {
    "manage": "data.market=MES env.task=manage",
    **{actions: JOINT.strip() + actions for actions in ("product", "increment", "table")},
}


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    """(setup, the policy in memory, the folder of its bundle)."""
    setup = prepare(load_config(None, (SMALL + CASES[request.param]).split()))
    state = setup.algorithm.init(jax.random.key(7), setup.params)
    policy = finish_policy(policies_of(setup, state)[0])
    folder = tmp_path_factory.mktemp(request.param)
    return (
        setup,
        policy,
        save_policy_bundle(folder / "policy", policy, setup.env, setup.market, setup.config),
    )


def meant(name, held):
    """The positions after an action, from its name alone. One contract per unit."""
    words, side = name.split("_"), {"FLAT": 0, "LONG": 1, "SHORT": -1}
    if name == "HOLD":
        return held
    if words[0] in ("BUY", "SELL") and len(words) == 2:
        return held | {words[1]: held[words[1]] + (1 if words[0] == "BUY" else -1)}
    if len(words) == 1:
        return dict.fromkeys(held, side[name])
    return {symbol: side[word] for word, symbol in zip(words[::2], words[1::2], strict=True)}


@pytest.mark.slow
def test_what_the_policy_chooses_is_what_the_environment_does(
    exported,
):
    """Twenty steps: the loaded policy and the one in memory choose the same id, and the position is
    the one named.
    """
    setup, policy, folder = exported
    env, params, loaded = setup.env, setup.params, load_policy(folder)
    assert tuple(loaded.action_names) == env.actions
    assert tuple(loaded.observation_names) == env.spec.names
    if setup.config.allocate.preset == "dual_26":
        assert env.observation_size == 26
    step, observe = jax.jit(env.step), jax.jit(env.observe)
    act = jax.jit(
        lambda ref: setup.algorithm.act(policy, setup.algorithm.carry, ref, params, None, False)[1]
    )
    state, ref = env.reset(jax.random.key(0), params)
    for _ in range(20):
        mask, observation = np.asarray(ref.mask), np.asarray(observe(ref, params))
        action = int(loaded.act(observation, mask))
        assert action == int(act(ref))
        assert mask[action]
        name = loaded.action_names[action]
        before = np.asarray(ref.legs)[:, 0].tolist()
        state, ref, outcome = step(jax.random.key(0), state, jnp.int32(action), params)
        assert not bool(outcome.info.illegal)
        if (
            setup.config.env.task == "allocate"
            and not np.asarray(outcome.info.event.exit_reason).any()
        ):
            symbols = setup.env.symbols  # type: ignore[attr-defined]  # several symbols
            after = dict(
                zip(symbols, np.asarray(outcome.final_ref.legs)[:, 0].tolist(), strict=True)
            )
            assert after == meant(name, dict(zip(symbols, before, strict=True)))


@pytest.mark.slow
def test_every_legal_action_does_what_its_name_says(exported):
    setup, _, _ = exported
    if setup.config.env.task != "allocate":
        pytest.skip("the names of one symbol's actions are tested in tests/env/test_actions.py")
    env = setup.env
    step = jax.jit(env.advance)
    state, _ = env.reset(jax.random.key(1), setup.params)
    for action in (*range(env.num_actions), *reversed(range(env.num_actions))):
        held = dict(zip(env.symbols, np.asarray(state.legs.quantity).tolist(), strict=True))
        legal = bool(env.mask(state, setup.params)[action])
        state, outcome = step(state, jnp.int32(action), setup.params)
        after = dict(zip(env.symbols, np.asarray(state.legs.quantity).tolist(), strict=True))
        assert after == (meant(env.actions[action], held) if legal else held)
        assert bool(outcome.info.illegal) == (not legal)
