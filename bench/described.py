"""Devices that a compiler can be told about, so that a program compiles for them on a machine
without one.

A GPU is described by its counts and sizes, which XLA's compiler asks for; a TPU by the name of its
topology. The peak rates are those that the makers publish for dense products.
"""

from __future__ import annotations

from dataclasses import dataclass

# Programs of `accelerator_child`.
COMPILED_SHAPES = ("reference", "tf32", "bfloat16", "default", "gru", "env", "evaluation")
Q_SHAPES = (
    "dqn",
    "dqn_prioritised",
    "pqn",
)  # one update of a Q-learner; compiled where `--shape` names them


@dataclass(frozen=True)
class Device:
    """One described device.

    platform: as JAX calls it. peak: floating-point operations per second by precision of a product.
        bandwidth: of its
    memory, bytes/s. launch: seconds between the starts of two small programs of a loop; 0 where the
    whole program is one (a TPU). clock: cycles per second, if the compiler estimates cycles.
    topology: of a TPU. target: of a GPU, the text of XLA's GpuTargetConfigProto.
    """

    name: str
    platform: str
    peak: dict[str, float]
    bandwidth: float
    launch: float = 0.0
    clock: float = 0.0
    topology: str = ""
    target: str = ""


def _gpu(
    name: str,
    capability: tuple[int, int],
    cores: int,
    fpus: int,
    ghz: float,
    shared: int,
    l2: int,
    memory: int,
    bandwidth: float,
) -> str:
    """GpuTargetConfigProto of an NVIDIA GPU. shared: bytes of shared memory of a core; a block may
    have 1 KB less.
    """
    major, minor = capability
    return f"""
    gpu_device_info {{
      threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
      shared_memory_per_block: 49152 shared_memory_per_core: {shared} shared_memory_per_block_optin: {shared - 1024}
      core_count: {cores} fpus_per_core: {fpus} clock_rate_ghz: {ghz}
      block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
      thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
      registers_per_core_limit: 65536 registers_per_block_limit: 65536
      memory_bandwidth: {int(bandwidth)} l2_cache_size: {l2} device_memory_size: {memory}
      cuda_compute_capability {{ major: {major} minor: {minor}
        feature_extension: {"ACCELERATED_FEATURES" if major >= 9 else "NONE"} }}
      driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0"
    }}
    platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 patch: 0 }} device_description_str: "{name}"
    """


_HOPPER = {"float32": 67e12, "tf32": 494e12, "bfloat16": 989e12}
_LAUNCH = 3e-6

DEVICES = {
    device.name: device
    for device in (
        Device(
            "h200",
            "cuda",
            _HOPPER,
            4.8e12,
            _LAUNCH,
            target=_gpu(
                "NVIDIA H200 141GB HBM3e",
                (9, 0),
                132,
                128,
                1.98,
                233472,
                52428800,
                151397597184,
                4.8e12,
            ),
        ),
        Device(
            "h100",
            "cuda",
            _HOPPER,
            3.35e12,
            _LAUNCH,
            target=_gpu(
                "NVIDIA H100 80GB HBM3",
                (9, 0),
                132,
                128,
                1.98,
                233472,
                52428800,
                84942979072,
                3.35232e12,
            ),
        ),
        Device(
            "a100",
            "cuda",
            {"float32": 19.5e12, "tf32": 156e12, "bfloat16": 312e12},
            2.039e12,
            _LAUNCH,
            target=_gpu(
                "NVIDIA A100-SXM4-80GB",
                (8, 0),
                108,
                64,
                1.41,
                167936,
                41943040,
                85100068864,
                2.03904e12,
            ),
        ),
        # A TPU computes a float32 product by six bfloat16 products; it has no tf32.
        Device(
            "v5e",
            "tpu",
            {"float32": 197e12 / 6, "bfloat16": 197e12},
            819e9,
            clock=0.94e9,
            topology="v5e:2x2",
        ),
        Device(
            "v6e",
            "tpu",
            {"float32": 918e12 / 6, "bfloat16": 918e12},
            1640e9,
            clock=0.94e9,
            topology="v6e:2x2",
        ),
    )
}
