"""The programs of a GPU or a TPU, compiled without one: launches, loops, memory, collectives.

XLA compiles for a described device on any machine: a GPU is described by its counts and sizes, a TPU
by the name of its topology. The compilers of NVIDIA and of Google's TPUs come in packages of their
own, which an ordinary run must not see: on a machine without a GPU, JAX complains of an installed
plugin. `jaxtrade bench accelerator --install` puts them into a folder of their own, and each program
compiles in a process that sees this folder. Targets whose compiler is not installed are left out, by
name.

Everything here is read from the text of compiled programs; nothing runs on a device. A launch is one
kernel, copy, sort or library call; a loop counts its body as often as it runs.
"""

import hashlib
import importlib.metadata
import math
import os
import re
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import yaml

from jaxtrade.errors import ConfigError
from jaxtrade.storage.programs import DETERMINISTIC, cache_folder

from . import worker

# The folder of the compilers, if it is not beside the compiled programs.
FOLDER = "JAXTRADE_COMPILERS"
# Products by cuBLAS: for those by Triton, the XLA of JAX 0.11 finds no configuration without a
# device.
CUDA_FLAGS = f"{DETERMINISTIC} --xla_gpu_enable_triton_gemm=false"
# Bytes of scratch that cuBLAS gets on an H200, once in a program, however small its products are.
CUBLAS = 32 * 2**20
LIMIT = 1_800.0  # seconds of one compilation


DEVICES = {"h200": "cuda", "v5e": "tpu"}  # the platform of each, as JAX calls it
# By number of devices.
TOPOLOGIES = yaml.safe_load("""
cuda: {1: 1x1x1, 8: 1x1x8}
tpu: {1: "v5e:2x2", 8: "v5e:2x4"}
""")
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 device_memory_size: 151397597184
  cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0"
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200 141GB HBM3e"
"""  # GpuTargetConfigProto
# Program -> sections of the configuration (`setting.config`), its learner's among them: an update of
# PPO, or of a Q-learner on the work of `default`; the environment and the evaluation of PPO's policy
# alone.
SHAPES = yaml.safe_load("""
reference: &reference
  ppo: &large {num_envs: 4096, num_steps: 128, num_minibatches: 16, hidden: [256, 256, 128]}
tf32: {<<: *reference, compute: {precision: tf32}}
bfloat16: {<<: *reference, compute: {precision: bfloat16}}
default: {ppo: {num_envs: 256, num_steps: 128, num_minibatches: 8}}
gru: {ppo: {num_envs: 1024, num_steps: 128, num_minibatches: 8, kind: gru}}
env: {ppo: {num_envs: 4096, num_steps: 128}}
evaluation: {ppo: &rollout {num_envs: 256, num_steps: 128}}
dqn: {rollout: *rollout, dqn: &replay {buffer_size: 1048576, batch_size: 4096}}
dqn_prioritised: {rollout: *rollout, dqn: {<<: *replay, replay: prioritised}}
pqn: {rollout: *rollout, pqn: {num_minibatches: 8}}
divided: {ppo: {<<: *large, num_shards: 256}}
agents: {ppo: {num_envs: 16, num_steps: 128, num_minibatches: 8, num_shards: 8}}
""")
DIVIDED = {"divided": 1, "agents": 256}  # over eight devices, and how many agents
QUICK = yaml.safe_load("""
ppo: {num_steps: 4, num_minibatches: 2}
rollout: {num_steps: 4}
dqn: {batch_size: 128, buffer_size: 65536}
""")
QUICK_DIVIDED = yaml.safe_load("""
ppo: {num_envs: 64, num_steps: 8, num_minibatches: 2, hidden: [16], num_shards: 16}
""")
SESSIONS = 8  # of the market: its length is in no count, and a table of windows takes memory


# ------------------------------------------------------------------------------------- the command
class CompilationError(RuntimeError):
    """A program does not compile for a device, or the compiler's result cannot be read."""


def compilers():
    """Return the folder of the compilers' packages."""
    given = os.environ.get(FOLDER)
    return Path(given) if given else cache_folder().parent / "compilers"


def packages(platform):
    """Return what pip installs for a platform's compiler, of the version that JAX asks for.

    A newer libtpu fails at some programs, and writes others that the installed JAX cannot read.
    """
    jax = importlib.metadata.version("jax")
    if platform == "tpu":
        asked = importlib.metadata.requires("jax") or ()
        return [line.partition(";")[0] for line in asked if line.startswith("libtpu")]
    own = f"jax-cuda13-pjrt=={jax} jax-cuda13-plugin=={jax}"
    return f"{own} nvidia-cuda-nvcc nvidia-nvvm".split()


def installed(platform):
    """Whether the compiler of a platform is in the folder."""
    return (compilers() / ("libtpu" if platform == "tpu" else "jax_plugins")).is_dir()


def install(targets):
    """Put the compilers of these targets into their folder. Raises ConfigError if pip fails."""
    for platform in {DEVICES[name] for name in targets}:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        command = [*pip, "--target", str(compilers()), *packages(platform)]
        if subprocess.run(command).returncode:
            raise ConfigError(
                f"the compiler for {platform} could not be installed: {' '.join(command)}"
            )


def environment(platform):
    """Variables of a process that compiles for a platform, over this one's."""
    cuda = platform == "cuda"
    # libtpu locks the machine's TPU for one process, also where there is none; compiling needs no
    # TPU.
    return worker.finding(compilers()) | {
        "JAX_PLATFORMS": "cpu,cuda" if cuda else "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "XLA_FLAGS": CUDA_FLAGS if cuda else "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def measure(target, shape, quick=False):
    """Figures of one program (`report`). Raises CompilationError."""
    given = {"target": target, "shape": shape, "quick": quick}
    try:
        return worker.once("accelerator.report", given, LIMIT, environment(DEVICES[target]))
    except worker.WorkerError as error:
        raise CompilationError(f"{target}, {shape}: the compilation failed: {error}") from None


def run(options):
    """Compile the chosen shapes for the chosen targets."""
    targets = options.targets or DEVICES
    if options.install:
        install(targets)
    found, left_out = {}, {}
    for target in targets:
        if not installed(DEVICES[target]):
            told = "its compiler is not installed; add --install"
            left_out[target] = f"{told} (into {FOLDER} or the cache folder)"
            continue
        found[target] = {}
        for shape in options.shapes or SHAPES:
            try:
                found[target][shape] = measure(target, shape, options.quick)
            except CompilationError as error:
                left_out[f"{target} {shape}"] = str(error)
        print(f"compiled for {target}", file=sys.stderr, flush=True)
    return {"compiled_only": "nothing ran on a device", "targets": found, "left_out": left_out}


# -------------------------------------------------------------------- the process that compiles
# A jitted function, its arguments' shapes, the environment steps of one run, and those of its
# rollout.
Work = namedtuple("Work", "function arguments steps num_steps")


def work_of(shape, platform, quick, devices):
    """Return the program of a shape. devices: the described ones."""
    import jax

    from jaxtrade.data.device import with_tables
    from jaxtrade.env.monitor import summarise
    from jaxtrade.parts import LEARNERS

    from . import setting

    sections = SHAPES[shape]
    [algorithm] = sections.keys() & LEARNERS.names
    if quick:
        small = QUICK_DIVIDED if shape in DIVIDED else QUICK
        sections = {name: keys | small.get(name, {}) for name, keys in sections.items()}
    world = setting.world(SESSIONS, algorithm, **sections)
    config = world.config
    if platform == "tpu":  # its windows are a table there
        market = world.params.market
        market = market.replace(view=with_tables(market.view, config.env.window))
        world = world._replace(params=world.params.replace(market=market))
    num_envs, num_steps = config.rollout.num_envs, config.rollout.num_steps
    if shape in DIVIDED:
        return divided(world, platform, devices, min(DIVIDED[shape], 8 if quick else 256))
    if shape == "env":
        stepping = setting.stepping(world.env, num_envs, num_steps)
        given = (world.params, jax.random.key(0))
        return Work(jax.jit(stepping), given, num_envs * num_steps, num_steps)
    make = LEARNERS[algorithm].make
    learner = make(config, world.env, 100, summarise=summarise, platform=platform)
    if shape == "evaluation":
        return evaluation(world, learner)
    given = jax.eval_shape(learner.init, jax.random.key(0), world.params), world.params
    return Work(setting.update_of(learner), given, learner.info.steps_per_update, num_steps)


def evaluation(world, algorithm):
    """Return the program of an evaluation: the greedy policy on all sessions, bar after bar."""
    import jax

    from jaxtrade.evaluation import backtest, baselines, record, side_by_side

    begun = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    agent = baselines.greedy(algorithm, jax.eval_shape(algorithm.policy, begun), world.env)
    decisions = record.decision_bars(world.params.market, world.sessions)
    params = world.params.replace(sessions=world.sessions)
    lane = backtest.Lane(agent, params, decisions, jax.random.key(0))
    plan = backtest.plan_of(world.env, [lane], "account")
    step = jax.jit(lambda inputs: side_by_side.step_all(plan.shape, inputs))
    return Work(step, (plan.parts[0],), len(decisions.rows), 0)


def divided(world, platform, devices, agents):
    """Return an update on a mesh of devices.

    The mesh divides the environments of one agent, or the agents.
    """
    import jax

    from jaxtrade.env.monitor import summarise
    from jaxtrade.rl.ppo import make_ppo
    from jaxtrade.rl.sharding import MeshDevices, mesh_of, plan_mesh
    from jaxtrade.rl.train_state import part_of
    from jaxtrade.training.loop import chunk_program
    from jaxtrade.training.population import Stack

    config, stack = world.config, Stack.of(agents)
    layout = plan_mesh(len(devices), agents, config.rollout.shards, strict=False)
    given = {"summarise": summarise, "platform": platform}
    whole = make_ppo(config, world.env, 100, **given)
    own = part_of(config, layout.parts)
    part = make_ppo(own, world.env, 100, reduce=layout.reduce, **given)
    place = MeshDevices(layout, mesh_of(layout, devices), part, stack, config.rollout.num_envs)
    keys = jax.eval_shape(lambda: stack.keys(0))
    state = jax.eval_shape(stack.wrap(whole).init, keys, world.params)
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), world.params)
    chunk = chunk_program(place.wrap(whole, stack), 1, None, place, state, params)
    steps, count = agents * whole.info.steps_per_update, config.rollout.num_steps
    return Work(chunk, (state, params, None), steps, count)


def described(platform, count):
    """`count` described devices as JAX's compiler takes them, in its order."""
    from jax.experimental import topologies

    name = TOPOLOGIES[platform][count]
    more = {} if platform == "tpu" else {"topology": name, "target_config": H200}
    return topologies.get_topology_desc(name, platform, **more).devices[:count]


def report(target, shape, quick):
    """Figures of the compiled program.

    launches: of one run; a loop whose length depends on the data counts as one round. row_loops:
        loops that the compiler made of look-ups, one round for each row. temporaries: bytes beside
        arguments, results and the scratch of cuBLAS. text_sha256: of the program's text. unread: in
        place of what this text says, why this version of JAX cannot read it. Of a divided program
        all is of one device, and collectives are operations of several, in an update and in a
        minibatch, with the bytes of their results.
    """
    import jax

    platform = DEVICES[target]
    devices = described(platform, 8 if shape in DIVIDED else 1)
    work = work_of(shape, platform, quick, devices)
    arguments = work.arguments
    if shape not in DIVIDED:
        where = jax.sharding.SingleDeviceSharding(devices[0])
        arguments = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), arguments
        )
    start = time.perf_counter()
    program = work.function.lower(*arguments).compile()
    used = program.memory_analysis()
    found = {
        "steps": work.steps,
        "arguments": used.argument_size_in_bytes,
        "temporaries": used.temp_size_in_bytes,
        "compile_seconds": round(time.perf_counter() - start, 1),
    }
    try:
        text = program.as_text()
    except jax.errors.JaxRuntimeError as error:  # an operation that this JAX does not know
        return found | {"unread": str(error).splitlines()[0]}
    found["temporaries"] -= CUBLAS if f"s8[{CUBLAS}]" in text else 0
    module = parse(text)
    loops = list(module.loops())
    if not work.num_steps or shape == "env":
        found["step"] = max(loop.launches for loop in loops)
    else:
        found |= phases(module, work.num_steps)
    return found | {
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "launches": module.total(launched),
        "row_loops": sum(not loop.scope.endswith("while") for loop in loops),
    }


def phases(module, num_steps):
    """Count launches and collectives of an update by its phases.

    Launches: of a rollout step, of a gradient step, and of the loops between rollout and epochs per
    time step. Collectives: of the update and of a gradient step.

    The rollout is the outer loop of its length with the most launches. The gradient steps are the
    outer loop that has the most of all others, or the loop inside it that has most of those
    (the minibatches of an epoch).
    """
    loops = list(module.loops())
    outer = [loop for loop in loops if not loop.path]
    rollout = max((each for each in outer if each.trips == num_steps), key=lambda x: x.launches)
    others = [loop for loop in outer if loop.name != rollout.name]
    most = max(others, key=Loop.whole)
    inside = [
        loop for loop in loops if loop.path == (most.name,) and loop.whole() >= 0.5 * most.launches
    ]
    step = next(iter(inside), most)
    after = sum(map(Loop.whole, others)) - most.whole()
    return {
        "rollout_step": rollout.launches,
        "gradient_step": step.launches,
        "after_rollout_per_step": round(after / num_steps, 2),
        "collectives": {
            "update": module.total(together),
            "minibatch": module.total(together, step.body),
            "bytes_of_minibatch": module.total(
                lambda each: shape_bytes(each.shape) * together(each), step.body
            ),
        },
    }


# -------------------------------------------------------------------------- the text of a program
# Operations that start nothing: they name, group or reinterpret values, or wait (`...-done`). A
# `while` starts what the computation that it calls starts.
FREE = """
parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id opt-barrier
add-dependency while async-update domain
"""
COLLECTIVES = "all-reduce all-gather reduce-scatter all-to-all collective-permute"
# Bytes of an element; all others have 4.
BYTES = yaml.safe_load(
    "{pred: 1, s8: 1, u8: 1, s16: 2, u16: 2, bf16: 2, f16: 2, s64: 8, u64: 8, f64: 8}"
)
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_SCOPE = re.compile(r'op_name="([^"]*)"')
_LINE = re.compile(r"\s+(?:ROOT )?%?(\S+) = (.*?) ([\w\-]+)\((.*)")


# One instruction. shape: its result as written. calls: computations that it calls, by role. tail:
# its line after the opcode.
Operation = namedtuple("Operation", "name opcode shape calls tail")


class Loop(namedtuple("Loop", "name path scope trips launches body", defaults=[""])):
    """A loop of a module.

    path: names of the loops around it, outermost first. trips: rounds of one run of the loop, None
    if unknown. launches: of one round, loops inside it included.
    """

    def whole(self):
        """Return the launches of one run of the loop."""
        return self.launches * (self.trips or 1)


class Module(namedtuple("Module", "computations entry")):
    """A compiled module: computation -> operations, and the name of the entry."""

    def walk(self, name, times=1, path=()):
        """Yield each operation that a computation reaches, how often it starts, and its loops.

        The count is of one run of the computation; the loops around the operation are outermost
        first. A loop of unknown length counts as one round, of a condition the branch with the most
        launches; the others are walked, and start never.
        """
        for each in self.computations[name]:
            called = [at for role, at in each.calls.items() if role != "condition"]
            if each.opcode in ("call", "async-start"):
                for at in called:
                    yield from self.walk(at, times, path)
                continue
            yield each, times, path
            if each.opcode == "while":
                rounds = times * (self.trips(each) or 1)
                yield from self.walk(each.calls["body"], rounds, (*path, each.name))
            elif each.opcode == "conditional":
                longest = max(called, key=lambda at: self.total(launched, at))
                for at in called:
                    yield from self.walk(at, times * (at == longest), path)

    def total(self, of, name=""):
        """Sum of a figure of operations over one run of a computation (default: the entry)."""
        return sum(times * of(each) for each, times, _ in self.walk(name or self.entry))

    def trips(self, loop):
        """Return the rounds of a loop.

        They are as the compiler says, or else the constant below which the loop's counter must
        stay.
        """
        if known := _TRIPS.search(loop.tail):
            return int(known[1])
        inside = self.computations[loop.calls["condition"]]
        constants = {
            each.name: each.tail.split(")")[0] for each in inside if each.opcode == "constant"
        }
        limits = [
            constants[name]
            for each in inside
            if each.opcode == "compare" and "direction=LT" in each.tail
            for name in re.findall(r"%([\w.\-]+)", each.tail)
            if name in constants
        ]
        return int(limits[0]) if len(limits) == 1 and limits[0].isdecimal() else None

    def loops(self):
        """Every loop, outer ones before inner ones."""
        for each, _, path in self.walk(self.entry):
            if each.opcode == "while":
                body, scope = each.calls["body"], _SCOPE.search(each.tail)
                launches, told = self.total(launched, body), scope[1] if scope else ""
                yield Loop(each.name, path, told, self.trips(each), launches, body)


def launched(each):
    """Tell whether the operation itself starts something on the device.

    A condition does by the predicate's way to the host.
    """
    return int(each.opcode not in FREE.split() and not each.opcode.endswith("-done"))


def together(each):
    """Tell whether several devices compute the operation together.

    One that is split in two counts by its start.
    """
    return int(each.opcode.removesuffix("-start") in COLLECTIVES.split())


def shape_bytes(shape):
    """Bytes of all arrays of a shape, tuples included."""
    return sum(
        BYTES.get(kind, 4) * math.prod(int(size) for size in sizes.split(",") if size)
        for kind, sizes in _SHAPE.findall(shape)
    )


def parse(text):
    """Return the module whose optimised HLO is `text` (`compiled.as_text()`)."""
    computations, entry, own = {}, "", []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            own = computations[head[2]] = []
            entry = head[2] if head[1] else entry
        elif found := _LINE.match(line):
            name, shape, opcode, tail = found.groups()
            calls = dict(_CALLED.findall(tail))
            if branches := _BRANCHES.search(tail):
                names = branches[1].split(",")
                calls |= {f"branch {i}": each.strip().lstrip("%") for i, each in enumerate(names)}
            own.append(Operation(name, opcode, shape, calls, tail))
    return Module(computations, entry)
