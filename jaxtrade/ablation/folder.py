"""The folder of an ablation.

It stores the ablation's settings, so that a killed one resumes and stays bit-identical.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs import rundir
from jaxtrade.storage import digests

BEGIN, TRAINING = (
    "begin.json",
    "training",
)  # the settings; the folder of checkpoints and metrics of each fusion


def settings_of(config: RunConfig, kinds: Sequence[str], fusions: Sequence[str]) -> dict[str, Any]:
    """Return the settings that a resumed ablation must share with the original."""
    return {"config_sha256": config.digest(), "kinds": list(kinds), "fusions": list(fusions)}


def check_new(folder: Path) -> None:
    """Check that a new ablation can use the folder.

    Raises ConfigError where it exists and is not an empty folder, and as `rundir.check_place`.
    """
    rundir.check_place(folder, f"--out {folder}")
    if folder.exists() and any(folder.iterdir()):
        hint = " or go on in it with --resume" if (folder / BEGIN).is_file() else ""
        raise ConfigError(
            f"--out {folder}: exists and is not an empty folder; name a new one{hint}"
        )


def reopen(folder: Path, settings: dict[str, Any]) -> None:
    """Restore the number of threads and the compiler flags with which the folder's ablation began.

    Call it before JAX starts, because JAX reads these environment variables only once. Raises
    ConfigError where the folder holds no ablation, or one with other settings.
    """
    begun = _read(folder)
    for name, value in settings.items():
        if begun[name] != value:
            raise ConfigError(
                f"--resume: {name} is {value}, the ablation in {folder} was begun with {begun[name]}; "
                "give the same configuration and flags, or name a new --out"
            )
    os.environ["NPROC"], os.environ["XLA_FLAGS"] = begun["nproc"], begun["xla_flags"]


def begin(folder: Path, settings: dict[str, Any], fingerprint: str) -> None:
    """Write the settings of a new ablation, or check the bars of a resumed one.

    Raises DataError where the bars differ from those of the original.
    """
    if (folder / BEGIN).is_file():
        if _read(folder)["data_sha256"] != fingerprint:
            raise DataError(
                f"{folder}: was begun with other bars; bring back the old file, or name a new --out"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    rundir.write_json(
        folder / BEGIN,
        settings
        | {
            "data_sha256": fingerprint,
            "nproc": os.environ.get("NPROC", ""),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
        },
    )


def _read(folder: Path) -> dict[str, Any]:
    file = folder / BEGIN
    if not file.is_file():
        raise ConfigError(
            f"--resume --out {folder}: no ablation was begun there (no {BEGIN}); leave --resume out"
        )
    return digests.read_json(file, "restore it, or name a new --out")
