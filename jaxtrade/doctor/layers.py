"""Native layers, lowest first. Each is loaded in its own child process; the first one that fails is
the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxtrade.doctor.child import ChildResult, crashed_in
from jaxtrade.doctor.finding import Finding, fail, ok
from jaxtrade.doctor.host import Machine

NUMPY = """
import json, numpy as np
a = np.arange(65536.0).reshape(256, 256) % 7
assert float((a @ a)[3, 5]) == float(sum(a[3, k] * a[k, 5] for k in range(256))), "matrix product is wrong"
np.linalg.solve(a + 300 * np.eye(256), a)
blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
print(json.dumps({"numpy": np.__version__, "blas": f"{blas['name']} {blas['version']}"}))
"""
# This program ends without teardown. pyarrow 26 aborts some processes that exit right after their
# first Parquet file, while its threads are still starting ("terminate called without an active
# exception"). A real run lives longer, so this is not a fault of the machine. The program has
# printed its result by then.
PANDAS = """
import io, json, os, pandas as pd, pyarrow
frame = pd.read_csv(io.StringIO("time,close\\n2013-10-07T13:30:00Z,1676.75\\n2013-10-07T13:31:00Z,1677.25\\n"))
times = pd.to_datetime(frame["time"], utc=True).dt.tz_convert("America/New_York")
assert times.dt.hour.tolist() == [9, 9], times
file = io.BytesIO()
frame.to_parquet(file)
assert pd.read_parquet(io.BytesIO(file.getvalue())).equals(frame), "Parquet round trip differs"
print(json.dumps({"pandas": pd.__version__, "pyarrow": pyarrow.__version__}), flush=True)
os._exit(0)
"""
JAX = """
import json, jax, jax.numpy as jnp
device = jax.devices(PLATFORM)[0]
with jax.default_device(device):
    x = jnp.arange(4096, dtype=jnp.int32)
    assert int(jax.jit(lambda x: (x * x % 97).sum())(x)) == sum(i * i % 97 for i in range(4096)), "integers are wrong"
    w = jnp.ones((64, 8)) / 64
    loss, slope = jax.jit(jax.value_and_grad(lambda w: (jnp.ones((4, 64)) @ w).sum()))(w)
    assert abs(float(loss) - 32) < 1e-2 and abs(float(slope[0, 0]) - 4) < 1e-2, "gradient is wrong"
    at = (x * 37) % 4096
    assert (jax.jit(lambda x, at: jnp.zeros_like(x).at[at].set(x))(x, at)[at] == x).all(), "scatter is wrong"
print(json.dumps({"jax": jax.__version__, "device": device.device_kind, "devices": len(jax.devices(PLATFORM))}))
"""
NETWORK = """
import json, jax, jax.numpy as jnp, flax, flax.linen as nn, optax
class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.tanh(nn.Dense(64)(x)))
net, optimiser = Net(), optax.adam(1e-3)
params = net.init(jax.random.key(0), jnp.zeros((1, 225)))
@jax.jit
def step(params, state):
    slope = jax.grad(lambda p: (net.apply(p, jnp.ones((8, 225))) ** 2).mean())(params)
    change, state = optimiser.update(slope, state)
    return optax.apply_updates(params, change), state
params, _ = step(params, optimiser.init(params))
assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params)), "parameters are not finite"
print(json.dumps({"flax": flax.__version__, "optax": optax.__version__}))
"""

BAD_FLAGS = "unset XLA_FLAGS, JAX_* variables and LD_PRELOAD, then reinstall: "


@dataclass(frozen=True)
class Layer:
    """A child program, its extra environment variables, when it applies, and what to do if it
    fails.
    """

    name: str
    program: str
    fix: str
    env: Mapping[str, str] = field(default_factory=dict)
    applies: Callable[[Machine], bool] = lambda host: True


def has_plugin(host: Machine) -> bool:
    """Whether a CUDA plugin of JAX is installed."""
    return any(name.startswith("jax-cuda") and name.endswith("-plugin") for name in host.versions)


# The order matters: a failure of a lower layer explains failures of the layers above it.
LAYERS = (
    Layer(
        "numpy-blas",
        NUMPY,
        "python -m pip install --force-reinstall numpy; if it still fails set "
        "OPENBLAS_CORETYPE=Haswell (the kernel chosen for this CPU is at fault)",
    ),
    Layer("pandas", PANDAS, "python -m pip install --force-reinstall pandas pyarrow"),
    Layer(
        "jax-cpu",
        JAX.replace("PLATFORM", '"cpu"'),
        BAD_FLAGS
        + "python -m pip install --force-reinstall jax jaxlib; under WSL also: wsl --update",
        {"JAX_PLATFORMS": "cpu"},
    ),
    Layer(
        "network-cpu",
        NETWORK,
        BAD_FLAGS + "python -m pip install --force-reinstall flax optax",
        {"JAX_PLATFORMS": "cpu"},
    ),
    Layer(
        "jax-gpu",
        JAX.replace("PLATFORM", '"gpu"'),
        "look at nvidia-smi (driver, free memory, other jobs); update the driver; train on the CPU meanwhile with "
        "JAX_PLATFORMS=cpu",
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": ""},
        has_plugin,
    ),
)


def finding_of(layer: Layer, result: ChildResult) -> Finding:
    """Turn a child's end into a finding. For a crash, it has the signal's name and faulthandler's
    innermost frame.
    """
    if result.end == "ok":
        values = ", ".join(f"{key} {value}" for key, value in result.values.items())
        return ok(layer.name, f"{values} ({result.seconds:.1f} s)")
    if result.end == "crash":
        where = crashed_in(result.stderr)
        return fail(
            layer.name, f"died by {result.cause}" + (f" in {where}" if where else ""), layer.fix
        )
    if result.end == "hang":
        return fail(
            layer.name,
            f"hangs: {result.cause}",
            "if the machine is busy, repeat when it is idle; otherwise " + layer.fix,
        )
    return fail(layer.name, result.cause, layer.fix)
