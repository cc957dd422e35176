"""Results of a bench that never ran, in the shapes that benches return."""

import json

STAMP = {
    "command": "jaxtrade bench env_step",
    "commit": "abc1234",
    "device": "A processor",
    "platform": "cpu",
    "devices": 1,
    "cores": 2,
    "load_before": 0.25,
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
}


def side(rate, **more):
    """As `harness.summary` gives it; 10 % around the median, and twice as fast by the wall
    clock.
    """
    return {
        "steps": 1000,
        "repeats": 7,
        "steps_per_second": 2 * rate,
        "steps_per_second_range": [1.8 * rate, 2.2 * rate],
        "steps_per_cpu_second": rate,
        "steps_per_cpu_second_range": [0.9 * rate, 1.1 * rate],
        **more,
    }


def env_step(rate=4_321_000.0, **changed):
    """Sides, a time, ratios, other figures and a side left out."""
    return {
        "bench": "env_step",
        "about": "environment steps",
        "quick": False,
        "stamp": STAMP,
        "config": {"num_steps": 128},
        "sides": {
            "jaxtrade@64": side(rate / 2, num_envs=64),
            "jaxtrade@1024": side(rate, num_envs=1024),
            "SubprocVecEnv(8)": side(2_700.0, threads=1),
        },
        "start": {
            "repeats": 7,
            "seconds": 1.5,
            "seconds_range": [1.25, 1.75],
            "cpu_seconds": 2.5,
            "cpu_seconds_range": [2.25, 2.75],
        },
        "ratios": {"jaxtrade@1024/SubprocVecEnv(8)": {"wall": 1234.5, "cpu": rate / 2_700.0}},
        "memory": {
            "state_bytes": 212,
            "temporary_bytes": 91_234_567,
            "recompiles": 0,
            "finite": True,
        },
        "curve": [0.125, 0.375],
        "left_out": {"DummyVecEnv(16)": "stable-baselines3 is not installed"},
    } | changed


def write(result, folder):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['bench']}.json"
    path.write_text(json.dumps(result))
    return path
