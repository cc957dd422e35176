"""The policy bundle, the export of a training run.

It holds weights, frozen observation statistics, and a schema. A bundle is a folder of
`storage.checkpoint`, with every byte covered by SHA-256 and no pickle: `policy.npz`, `schema.json`
and `manifest.json`. The schema names every observation slot and every action, and records their
digests. If this version of the package would build other slots or actions, `load_policy` refuses
the bundle.

A digest of a policy's numbers says which policy a metric is about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BaseModel, ValidationError

from jaxtrade.config import AdvisorConfig, DataConfig, EnvConfig, NetworkConfig, RunConfig
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.config.faults import migrated_network
from jaxtrade.data.features.schema import absent_features, context_features
from jaxtrade.data.market import Markets
from jaxtrade.data.members import groups_of
from jaxtrade.env.params import make_env
from jaxtrade.errors import CheckpointError, DataError
from jaxtrade.evaluation.loaded_policy import Acts, GivenEnv, LoadedPolicy, listens
from jaxtrade.networks.normalize import init_stats
from jaxtrade.rl.advice import Fusion, make_fusion
from jaxtrade.rl.algorithms import LEARNERS, first_policy, make_algorithm
from jaxtrade.rl.state import Policy, UnlockState
from jaxtrade.storage import checkpoint
from jaxtrade.types import Array, PyTree

ModelT = TypeVar("ModelT", bound=BaseModel)
FORMAT = 1
FOLDER = "policy"  # subfolder of a run directory
NETWORK_KEYS = {"dueling", "layer_norm"}  # keys of a learner's section that decide its network
LISTENING = {"fusion", "bins", "prior", "abstain", "cap", "weight", "gate_cost", "veto"}


def observation_schema(env: Any) -> dict[str, Any]:
    """Describe the observation of an environment: its scaling, size and slots.

    Each slot has a name, a unit and a warm-up in bars.
    """
    spec = env.observation_spec
    slots = [{"name": slot.name, "unit": slot.unit, "warm_up": slot.warm_up} for slot in spec.slots]
    return {"scaling": spec.scaling, "size": spec.size, "slots": slots}


def action_schema(env: Any) -> dict[str, Any]:
    """List the names of an environment's actions, in the order of their ids."""
    return {"names": list(env.actions)}


def absent_slots(env: Any, market: Markets) -> list[str]:
    """List the slots that are constant in this market.

    They are features that need volume, if the bars have none.
    """
    if market.has_volume:
        return []
    absent = absent_features((*env.config.features, *context_features(env.config.task)))
    return [name for name in env.observation_spec.names if name.partition("[")[0] in absent]


def check_market(env: Any, market: Markets, schema: Mapping[str, Any], where: str) -> None:
    """Check that a policy sees in a market what it saw in its own.

    schema: of its bundle. where: what the bars are, for the error.

    Raises DataError for bars of another length, and with volume where it had none, or without.
    """
    new, own = (
        [each["bar_seconds"] for each in facts.get("markets") or [facts["market"]]]
        for facts in (market.facts, schema)
    )
    if new != own:
        raise DataError(
            f"{where}: bars of {new} seconds, and the policy was trained on bars of {own} seconds "
            "(bar_seconds in policy/schema.json); give bars of that length"
        )
    absent = absent_slots(env, market)
    if absent != schema["absent"]:
        fix = "give bars with volume" if absent else "leave the volume column out of the file"
        raise DataError(
            f"{where}: {'no' if absent else 'a'} volume, and the policy was trained on bars "
            f"{'with' if absent else 'without'} it, which its features show (env.features); {fix}"
        )


def digest(part: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of a part of the schema in canonical JSON."""
    return hashlib.sha256(json.dumps(part, sort_keys=True, allow_nan=False).encode()).hexdigest()


def make_schema(env: Any, market: Markets, config: RunConfig) -> dict[str, Any]:
    """Return the content of `schema.json`.

    absent: slots that are constant in the training data.

    market: that of the run; of a set the schema has `markets` and the `groups` of its statistics.
    """
    observation, actions = observation_schema(env), action_schema(env)
    shape = (
        {} if not config.learner else config.learner.model_dump(mode="json", include=NETWORK_KEYS)
    )
    return {
        "schema_format": FORMAT,
        "observation": observation,
        "observation_sha256": digest(observation),
        "actions": actions,
        "actions_sha256": digest(actions),
        # A property of the data, not of the layout, so not in the digests.
        "absent": absent_slots(env, market),
        "env": env.config.model_dump(mode="json"),
        "algorithm": config.algorithm,
        "network": config.network.model_dump(mode="json"),
        **({"learner": shape} if shape else {}),
        # Only the settings of the fusion matter to the policy. The others may contain private data,
        # such as addresses.
        "advisor": config.advisor.model_dump(mode="json", include=LISTENING)
        | {
            "kind": "none" if config.advisor.on else "off",
            "panel": [{"kind": "none"} for _ in config.advisor.panel],
        },
        **market.facts,
        **({"groups": list(groups_of(config))} if len(market.parts) > 1 else {}),
        **env.sections,
        "data_sha256": market.fingerprint,
        "config_sha256": config.digest(),
    }


def save_policy_bundle(
    directory: Path, policy: Policy, env: Any, market: Markets, config: RunConfig
) -> Path:
    """Write the bundle, and return its folder. Raises OSError (disk).

    An old bundle is replaced only when the new one is complete.
    """
    schema = make_schema(env, market, config)
    opening = bool(policy.opening)  # True if the run stopped before its new actions were fully open
    return checkpoint.save_policy(directory, policy, schema | {"opening": opening})


def load_policy(directory: Path | str, symbol: str | None = None) -> LoadedPolicy:
    """Load a bundle, from a run directory or from the bundle's own folder.

    Args:
        symbol: the market on which the policy is to act. A policy that was trained on several
            symbols with statistics of their own needs it before it can act (or
            see `LoadedPolicy.for_symbol`).

    Raises:
        ConfigError: the policy was not trained on this symbol.
        CheckpointError: there is no bundle, its bytes are damaged, it has another format, or this
            version of the package builds other slots or actions than those of the training run.
    """
    path = _bundle(Path(directory))
    schema = checkpoint.read_schema(path)
    _check_schema(schema, path)
    size, actions = schema["observation"]["size"], len(schema["actions"]["names"])
    schema["network"] = migrated_network(schema["network"])
    config = _config_of(schema, path)
    advisor = (
        _rebuild(AdvisorConfig, schema, "advisor", path) if "advisor" in schema else AdvisorConfig()
    )
    fusion = make_fusion(advisor, _rebuild(EnvConfig, schema, "env", path))
    groups = len(schema.get("groups", ["the only one"]))
    like = policy_structure(config, size, actions, schema.get("opening", False), fusion, groups)
    policy, _ = checkpoint.load_policy(path, like)
    env: Any = GivenEnv(actions, size)  # the part of an `Env` that acting needs
    advised = make_algorithm(config, env, 1, fusion=fusion) if fusion and listens(schema) else None
    loaded = LoadedPolicy(path, policy, schema, Acts(make_algorithm(config, env, 1), advised))
    return loaded.for_symbol(symbol) if symbol else loaded


def _config_of(schema: dict[str, Any], path: Path) -> RunConfig:
    """Return the configuration of the bundle's learner and network. Raises CheckpointError.

    A bundle without `algorithm` is one of PPO.
    """
    algorithm = schema.get("algorithm", "ppo")
    if algorithm not in LEARNERS:
        raise CheckpointError(
            f"{path / 'schema.json'}: trained by the learner '{algorithm}', which is not known here "
            f"(known: {', '.join(LEARNERS.names)}); import the module that registers it, or use the "
            "version that trained the policy"
        )
    sections: dict[str, Any] = {}
    if "learner" in schema:
        section: Any = RunConfig.model_fields[algorithm].annotation
        sections[algorithm] = _rebuild(section, schema, "learner", path)
    return RunConfig(
        algorithm=algorithm, network=_rebuild(NetworkConfig, schema, "network", path), **sections
    )


def _bundle(directory: Path) -> Path:
    for path in (directory / FOLDER, directory):
        if (path / "schema.json").is_file() or (path / "policy.npz").is_file():
            return path
    if several := sorted(
        path.name for kind in ("seed_*", "agent_*") for path in (directory / FOLDER).glob(kind)
    ):
        raise CheckpointError(
            f"{directory}: holds {len(several)} policies; name one, e.g. "
            f"{directory / FOLDER / several[0]}"
        )
    raise CheckpointError(
        f"{directory}: no policy bundle here (expected {FOLDER}/schema.json, as a finished run has); "
        "train first, or resume the run so that it finishes"
    )


def _check_schema(schema: dict[str, Any], path: Path) -> None:
    where = path / "schema.json"
    if schema.get("schema_format") != FORMAT:
        raise CheckpointError(
            f"{where}: schema format {schema.get('schema_format')}, this version reads {FORMAT}"
        )
    env = _env_of(schema, path)
    for part, built in (
        ("observation", observation_schema(env)),
        ("actions", action_schema(env)),
    ):
        if digest(schema[part]) != schema[f"{part}_sha256"]:
            raise CheckpointError(
                f"{where}: '{part}' does not match its recorded sha256; restore the file"
            )
        if digest(built) != schema[f"{part}_sha256"]:
            raise CheckpointError(
                f"{where}: this version builds other {part} ({_difference(schema[part], built)}); "
                "use the version that trained the policy, or train again"
            )


def _env_of(schema: dict[str, Any], path: Path) -> Any:
    """Make the environment in which the bundle's policy acts."""
    symbols = schema.get("market", {}).get("symbols", ())
    return make_env(
        RunConfig.model_construct(
            env=_rebuild(EnvConfig, schema, "env", path),
            allocate=_rebuild(AllocateConfig, {"allocate": {}} | schema, "allocate", path),
            data=DataConfig.model_construct(markets=tuple(symbols)),
        )
    )


def _rebuild(model: type[ModelT], schema: dict[str, Any], part: str, path: Path) -> ModelT:
    try:
        return model.model_validate(schema[part])
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(name) for name in first["loc"])
        raise CheckpointError(
            f"{path / 'schema.json'}: '{part}.{key}': {first['msg']}; use the version that trained "
            "the policy, or train again"
        ) from None


def _difference(saved: dict[str, Any], built: dict[str, Any]) -> str:
    """Describe the first thing that differs, in words."""
    key = "slots" if "slots" in saved else "names"
    old, new = saved[key], built[key]
    if len(old) != len(new):
        return f"{len(new)} instead of {len(old)} {key}"
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            return f"{key[:-1]} {i} is {b} instead of {a}"
    return "scaling differs"


def policy_structure(
    config: RunConfig,
    size: int,
    actions: int,
    opening: bool = False,
    fusion: Fusion | None = None,
    groups: int = 1,
) -> Policy:
    """Return shapes and dtypes of the policy that `config` trains.

    Args:
        size: slots of an observation.
        actions: their number.
        opening: True if the policy holds an `UnlockState`, because its new actions are not
            fully open.
        groups: of its observation statistics, one for each symbol of a set.
    """
    scalar = jnp.float32(0)

    def build(key: Array) -> Policy:
        trust = fusion and fusion.no_trust()
        opened = UnlockState(jnp.zeros(actions, bool), scalar, scalar) if opening else None
        first = first_policy(config, actions, size, key, fusion).replace(
            fusion=trust, opening=opened
        )
        return (
            first
            if groups == 1
            else first.replace(normaliser=first.normaliser and init_stats(size, groups))
        )

    return jax.eval_shape(build, jax.random.key(0))


def policy_digest(policy: PyTree) -> str:
    """Return the sha256 (hex) of a policy's leaves, with their names, types and shapes.

    Bit-identical policies have equal digests. Random keys count as their bits.
    """
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(policy):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        plain = jax.random.key_data(leaf) if is_key else leaf
        values = np.ascontiguousarray(np.asarray(plain))
        found.update(f"{jax.tree_util.keystr(path)} {values.dtype} {values.shape}\n".encode())
        found.update(values.tobytes())
    return found.hexdigest()
