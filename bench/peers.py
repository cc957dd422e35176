"""JAX learners of others on our environment, as sides for a bench: PureJaxRL's PPO, rejax's, sbx's.

    git clone https://github.com/luchris429/purejaxrl && git -C purejaxrl checkout 31756b1
    jaxtrade bench ppo_train --purejaxrl purejaxrl

Each runs unchanged, with network, batch, epochs and minibatches of the configuration, but for one
thing: the widths of PureJaxRL's network, 64 and 64, are written in its source, and for other widths
the same network with these takes its place (`sized`). What each computes otherwise is in
`DIFFERENCES` and belongs beside its figures: above all none of them has action masks. PureJaxRL and
rejax call the interface of gymnax 0.0.9, which `OldGymnax` gives them; sbx steps `SB3Trading`, one
compiled call for all environments, in a child of its own.

PureJaxRL's wrappers import brax and navix for environments that are not run here; where these are
not installed, empty stand-ins take their place during the import. It needs distrax (rejax brings
it).
"""

import importlib.util
import math
import sys
from contextlib import contextmanager
from functools import partial
from types import ModuleType

import gymnax
import jax
import jax.numpy as jnp
import yaml

from jaxtrade.config import make_config
from jaxtrade.errors import ConfigError
from jaxtrade.interop.gymnax_env import to_gymnax
from jaxtrade.rl.ppo import make_ppo

from . import harness, sb3, setting
from .catalogue import NO_CHECKOUT
from .learning import learning_of
from .worker import Worker

OLD_ID = "jaxtrade/Trading-gymnax-0.0.9"
WIDTHS = (64, 64)  # written into PureJaxRL's ActorCritic
NO_MASKS = "no action masks: it samples among all actions, and an illegal one is executed as HOLD"
OLD_GYMNAX = (
    NO_MASKS,
    "a truncated episode counts as terminated (gymnax 0.0.9 has one `done`): no value of the observation that follows",
    "the value loss is clipped by clip_eps, and halved",
    "stores observations, and shuffles a copy of them in each epoch",
    "a repeat is a whole run: initialising the networks and the first reset are in it, compiling is not",
)
DIFFERENCES = {
    "purejaxrl": (
        *OLD_GYMNAX,
        "its source has a network of 64 and 64 units; for other widths that class is replaced by the same with these",
        "a learning rate that falls at all falls to 0",
        "no check for gradients that are not finite, no metrics beside four numbers of its log wrapper for each step",
    ),
    "rejax": (
        *OLD_GYMNAX,
        "policy and value are two losses with an optimiser each; gradients are clipped element by element",
        "the learning rate is constant",
        "its evaluations, which nobody asked for here, are replaced by nothing",
    ),
    "sbx": (
        NO_MASKS,
        "policy and value are two losses with an optimiser and a gradient norm each",
        "rollout and minibatches are loops on the host: one compiled call for each step and each minibatch",
    ),
}
# What a peer can do at all.
SAME = yaml.safe_load("""
{kind: mlp, normalise_observations: false, normalise_rewards: false, normalise_advantages: true,
 target_kl: 0}
""")
STAND_INS = yaml.safe_load("""
brax: [envs]
brax.envs: []
brax.envs.wrappers: []
brax.envs.wrappers.training: [EpisodeWrapper, AutoResetWrapper]
navix: []
""")


def left_out(config, options):
    """Peer -> why it cannot run this configuration here."""
    needs = {"purejaxrl": "distrax", "rejax": "rejax", "sbx": "sbx"}  # distrax comes with rejax
    missing = {name: absent for name, each in needs.items() if (absent := sb3.missing(each))}
    if options.purejaxrl is None:
        missing["purejaxrl"] = NO_CHECKOUT
    faults = [
        f"ppo.{name} = {getattr(config, name)}, expected {value}"
        for name, value in SAME.items()
        if getattr(config, name) != value
    ]
    unlike = "does not do the same: " + "; ".join(faults)
    return (dict.fromkeys(needs, unlike) if faults else {}) | missing


def programs(ppo, world, updates, options, missing):
    """Peer -> its compiled program of `updates` whole updates, and what that is called with."""
    found, key = {}, jax.random.key(0)
    if "purejaxrl" not in missing:
        train = purejaxrl(ppo, world, updates, options.purejaxrl)
        found["purejaxrl"] = train, (key, world.params)
    if "rejax" not in missing:
        found["rejax"] = rejax(ppo, world, updates, key)
    return found


def sides(config, world, updates, options, stack):
    """Return the peers: name -> `updates` whole updates, and what is left out.

    An update is rollout and epochs, compiled and, for sbx, in a child.

    Args:
        config: `learning_of(config)` is what is run; the rest is that of `world`.
        stack: closes the child.
    """
    ppo = learning_of(config)
    missing, steps = left_out(ppo, options), updates * ppo.num_envs * ppo.num_steps
    made = {
        name: harness.side(partial(program, *given), steps)
        for name, (program, given) in programs(ppo, world, updates, options, missing).items()
    }
    if "sbx" not in missing:
        given = {"config": config.model_dump(mode="json"), "updates": updates}
        worker = stack.enter_context(Worker("peers", "sbx", given, threads=1))
        made["sbx"] = harness.side(worker, steps)
    return made, missing


def compiled_temporaries(config, world, options):
    """Side -> bytes of its compiled training program, by XLA's own account; and what is left out.

    Nothing is run.

    temporaries: what the program needs beside its arguments (environment, training state, market)
        and its results.
    Ours is one update that takes the training state over. The peers' programs are whole runs, of
    two updates, so that the loop over updates is one; their training state is inside, a few MB at
    most. sbx has no program of its own: its buffers are NumPy's.
    """
    ppo = learning_of(config)
    missing = left_out(ppo, options)
    missing.pop("sbx", None)
    algorithm = make_ppo(config, world.env, 2)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    ours = setting.update_of(algorithm).lower(state, world.params).compile()
    theirs = programs(ppo, world, 2, options, missing)
    found = {}
    for name, (program, _) in ({"jaxtrade": (ours, ())} | theirs).items():
        used = program.memory_analysis()
        found[name] = {
            "temporaries": used.temp_size_in_bytes,
            "arguments": used.argument_size_in_bytes,
            "outputs": used.output_size_in_bytes,
            "outputs_in_arguments": used.alias_size_in_bytes,
        }
    return found, missing


# ------------------------------------------------------------------- the interface of gymnax 0.0.9
class OldGymnax:
    """`GymnaxTrading` with steps of five values: `done` is terminated or truncated.

    There are no action masks, and `info` is empty: whatever it held, PureJaxRL would store for each
    step.
    """

    def __init__(self, env, params):
        door = to_gymnax(env, params)
        self.default_params, self.num_actions = door.default_params, door.num_actions
        self.action_space, self.observation_space = door.action_space, door.observation_space
        self.reset, self._step = door.reset, door.step

    def step(self, key, state, action, params=None):
        """-> (observation, state, reward, done, info), with auto-reset."""
        *seen, terminated, truncated, _ = self._step(key, state, action, params)
        return *seen, terminated | truncated, {}


_offered = []


def _make():
    if not _offered:
        raise RuntimeError(f"gymnax.make('{OLD_ID}'): only inside `with offered(env, params)`")
    return _offered[-1]


if OLD_ID not in gymnax.registered_envs:
    gymnax.register(OLD_ID, _make)


@contextmanager
def offered(env, params):
    """Inside, `gymnax.make` of the name that this gives returns the adapter and `params`.

    Under a trace `params` may be tracers: the market is then an argument of the learner's program,
    as in ours, and not a constant of 100,000 bars inside it.
    """
    _offered.append(OldGymnax(env, params))
    try:
        yield OLD_ID
    finally:
        _offered.pop()


# ---------------------------------------------------------------------------------------- PureJaxRL
@contextmanager
def _importable(folder):
    """Its modules import each other by bare names (`wrappers`); nothing of that stays behind."""
    missing = [name for name in ("brax", "navix") if importlib.util.find_spec(name) is None]
    placed = {name: ModuleType(name) for name in STAND_INS if name.partition(".")[0] in missing}
    for name, module in placed.items():
        for attribute in STAND_INS[name]:
            setattr(module, attribute, placed.get(f"{name}.{attribute}"))
    before = sys.modules.pop("wrappers", None)
    sys.modules.update(placed)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in (*placed, "wrappers"):
            sys.modules.pop(name, None)
        if before:
            sys.modules["wrappers"] = before


def load(checkout):
    """Its `ppo` module. Raises ConfigError where the checkout has none."""
    path = checkout.expanduser().resolve() / "purejaxrl" / "ppo.py"
    if not path.is_file():
        raise ConfigError(
            f"purejaxrl: {checkout} has no purejaxrl/ppo.py; expected the root of a checkout of "
            "github.com/luchris429/purejaxrl"
        )
    spec = importlib.util.spec_from_file_location("purejaxrl_ppo", path)
    module = importlib.util.module_from_spec(spec)
    with _importable(path.parent):
        spec.loader.exec_module(module)
    return module


def sized(widths):
    """Return its `ActorCritic` with hidden layers of these widths.

    Layers, names, starting values and activations are the same.
    """
    import distrax
    from flax import linen

    def dense(features, scale):
        return linen.Dense(
            features,
            kernel_init=linen.initializers.orthogonal(scale),
            bias_init=linen.initializers.constant(0.0),
        )

    class ActorCritic(linen.Module):
        action_dim: int
        activation: str = "tanh"

        @linen.compact
        def __call__(self, x):
            activation = linen.relu if self.activation == "relu" else linen.tanh

            def head(outputs, scale):
                hidden = x
                for width in widths:
                    hidden = activation(dense(width, math.sqrt(2))(hidden))
                return dense(outputs, scale)(hidden)

            logits = head(self.action_dim, 0.01)
            return distrax.Categorical(logits=logits), jnp.squeeze(head(1, 1.0), axis=-1)

    return ActorCritic


def purejaxrl(config, world, updates, checkout):
    """Compile `updates` updates from scratch, ahead of time.

    The result is (key, params) -> everything that its `train` returns.
    """
    peer = load(checkout)  # anew each time: a network put into it stays with this caller
    if tuple(config.hidden) != WIDTHS:
        vars(peer)["ActorCritic"] = sized(tuple(config.hidden))
    same = """
        num_envs num_steps num_minibatches gamma gae_lambda clip_eps ent_coef vf_coef max_grad_norm
        activation
    """
    settings = {name.upper(): getattr(config, name) for name in same.split()} | {
        "LR": config.learning_rate,
        "ANNEAL_LR": config.learning_rate_end != config.learning_rate,
        "TOTAL_TIMESTEPS": updates * config.num_envs * config.num_steps,
        "UPDATE_EPOCHS": config.num_epochs,
        "DEBUG": False,
    }

    def train(key, params):
        with offered(world.env, params) as name:
            return peer.make_train(settings | {"ENV_NAME": name})(key)

    return jax.jit(train).lower(jax.random.key(0), world.params).compile()


# ---------------------------------------------------------------------------------- rejax and sbx
def rejax(config, world, updates, key):
    """Compile `updates` updates from scratch, ahead of time.

    Returns ((algorithm, key) -> all that `train` returns), (algorithm, key).
    """
    from rejax import PPO

    steps = updates * config.num_envs * config.num_steps
    same = """
        num_envs num_steps num_epochs num_minibatches learning_rate gamma gae_lambda clip_eps vf_coef
        ent_coef max_grad_norm
    """
    algorithm = PPO.create(
        env=OldGymnax(world.env, world.params),
        env_params=world.params,
        agent_kwargs={"hidden_layer_sizes": config.hidden, "activation": config.activation},
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        **{name: getattr(config, name) for name in same.split()},
    ).replace(eval_callback=lambda algorithm, state, key: ())
    return jax.jit(PPO.train).lower(algorithm, key).compile(), (algorithm, key)


def sbx(config, updates):
    """Train, for `Worker`: a repeat is `updates` updates of one run that goes on.

    config: a `RunConfig` as JSON.
    """
    from sbx import PPO

    from jaxtrade.interop.registration import to_sb3
    from jaxtrade.interop.world import load_world
    from jaxtrade.networks.torso import ACTIVATIONS

    chosen = make_config(config)
    ppo = learning_of(chosen)
    envs = to_sb3(*load_world(chosen), ppo.num_envs)
    rollout = ppo.num_envs * ppo.num_steps
    same = "learning_rate gamma gae_lambda ent_coef vf_coef max_grad_norm"
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=ppo.num_steps,
        batch_size=rollout // ppo.num_minibatches,
        n_epochs=ppo.num_epochs,
        clip_range=ppo.clip_eps,
        **{name: getattr(ppo, name) for name in same.split()},
        seed=0,
        verbose=0,
        device="cpu",
        policy_kwargs={
            "net_arch": list(ppo.hidden),
            "activation_fn": ACTIVATIONS[ppo.activation],
            "ortho_init": True,
        },
    )
    while True:
        yield
        # no logging
        model.learn(updates * rollout, reset_num_timesteps=False, log_interval=10**9)
