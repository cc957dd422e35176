"""What an evaluation of a finished run chooses: the split, the advisor, and who may write
meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.openai import with_model
from jaxtrade.config import make_config, overridden
from jaxtrade.errors import ConfigError, RunLockedError
from jaxtrade.runs import rundir
from jaxtrade.runs.advice import check_advisor
from jaxtrade.runs.setup import Setup
from jaxtrade.storage.staged import staged
from jaxtrade.text import Tell, several
from jaxtrade.types import SessionSet

# What commands about an evaluation leave beside it, so that a report shows it without computing
# it again.

# Title of a grid, an attribution or a study -> its file, as `reporting.schema` names the sections.
FILES = {
    "intrabar order": "intrabar",
    "costs": "costs",
    "latency": "latency",
    "attribution": "attribution",
    "pass_probability": "challenge",
    "breakdown": "breakdown",
}


def leave(
    setup: Setup,
    path: Path,
    folder: Path,
    number: int,
    found: Mapping[str, Mapping[str, Any]],
    sha: str,
    tell: Tell,
) -> None:
    """Write documents into the folder of the evaluation that they are about.

    Args:
        path: of the run. folder: of the evaluation of a split. number: of the agent.
        found: symbol -> title of `FILES` -> document. sha: digest of the policy that they are
            about, which is kept in each: a later evaluation may be of another policy.
        tell: receives a line if there is no such evaluation, or another process writes to the run.
            Nothing is written then.
    """
    try:
        with rundir.locked(path):
            _leave(setup, setup.stack.folder(folder, number), found, sha, tell)
    except RunLockedError as error:
        tell(f"note: not kept for a report: {error}")


def _leave(
    setup: Setup, own: Path, found: Mapping[str, Mapping[str, Any]], sha: str, tell: Tell
) -> None:
    for symbol, documents in found.items():
        where = own / symbol if len(setup.symbols) > 1 else own
        if not (where / "evaluation.json").is_file():
            tell(
                f"note: {where}: there is no evaluation yet, so this is not kept for a report; evaluate the split "
                "first (jaxtrade evaluate RUN), then ask again"
            )
            continue
        with staged(where) as new:
            for title, document in documents.items():
                text = json.dumps({**document, "policy_sha256": sha}, indent=2, allow_nan=False)
                (new / f"{FILES[title]}.json").write_text(text + "\n", encoding="utf-8")


# Keys that may be set for another advisor: those that decide what it answers, and when. The others
# decide how the policy listens, which it has learned.
OF_EVALUATION = (
    "advisor.options.",
    "advisor.service.",
    "advisor.context.",
    "advisor.template=",
    "advisor.horizon=",
    "advisor.latency=",
    "advisor.latency_seed=",
    "advisor.max_age=",
    "advisor.evaluation_wait_s=",
)


def advised(
    setup: Setup, path: Path, advisor: str | None, overrides: Sequence[str], tell: Tell
) -> Setup:
    """The setup with another advisor. tell: receives one line where its server's only model is
    taken.

    Raises ConfigError if the run was trained without an advisor.
    """
    if other := [key for key in overrides if not key.strip().startswith(OF_EVALUATION)]:
        known = ", ".join(
            f"{key}*" if key.endswith(".") else key.removesuffix("=") for key in OF_EVALUATION
        )
        raise ConfigError(
            f"--set {other[0]}: the run was trained with its own value, which an evaluation keeps; with "
            f"--advisor you may set {known} (else train a run with the change, or see --cost-grid and "
            "--intrabar-grid)"
        )
    if overrides and advisor is None:
        raise ConfigError(
            f"--set {overrides[0]}: belongs to another advisor; name it with --advisor"
        )
    if advisor is None:
        return setup
    if setup.fusion is None:
        raise ConfigError(
            f"--advisor {advisor}: {path} was trained without an advisor, so its policy has no measured "
            "trust; train with --advisor, or evaluate without"
        )
    if advisor == "off":
        raise ConfigError(
            "--advisor off: this run's policy listens to advice; give none for an advisor that is silent"
        )
    values = setup.config.model_dump(mode="json")
    if advisor != setup.config.advisor.kind:
        values["advisor"] |= {"kind": advisor, "options": {}}
    config, where = make_config(values, f"--advisor {advisor}", stored=True), f"--advisor {advisor}"
    for override in overrides:
        before, config = (
            config,
            make_config(overridden(config.model_dump(mode="json"), [override]), where, stored=True),
        )
        if config == before:
            raise ConfigError(
                f"--set {override}: changes nothing, this is its value already; leave it out"
            )
    config = with_model(config, tell)
    check_advisor(config, setup.single)
    return replace(setup, config=config)


def held_out(setup: Setup, split: str) -> SessionSet:
    """The sessions of a split. Raises ConfigError if the run has none in it."""
    sessions = setup.splits[split]
    if not int(sessions.count):
        raise ConfigError(
            f"split {split} (--split): this run holds no sessions out for it (split.{split}_sessions = "
            "0)"
        )
    return sessions


def keeping(setup: Setup, path: Path) -> AbstractContextManager[None]:
    """The run's lock if the run has an advisor, whose answers may be saved. Without one nothing is
    written, so no lock is taken."""
    return nullcontext() if setup.fusion is None else rundir.locked(path)


def extent(setup: Setup, split: str, agents: int) -> str:
    """What an evaluation runs over, in words."""
    symbols, sessions = len(setup.symbols), several(int(setup.splits[split].count), "session")
    return f"{agents} agents, {sessions} {f'of {symbols} symbols ' if symbols > 1 else ''}({split})"
