"""Run a curriculum.

Each phase is an ordinary run that begins from the previous phase, once that has passed its gate.

The files in the folder say what is finished (a run's `summary.json`, a phase's `gate.json`). A
curriculum that was killed therefore continues in the same phase, from that phase's newest good
checkpoint.
"""

from __future__ import annotations

import math
import operator
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade import interrupt
from jaxtrade.advisor.host.openai import with_model
from jaxtrade.config.load import setting_text
from jaxtrade.curriculum.config import (
    CURRICULUM,
    Curriculum,
    GateConfig,
    Phase,
    dump_curriculum,
    read_curriculum,
    written_digest,
)
from jaxtrade.data.splits import sessions_of
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.baselines import Agent, greedy
from jaxtrade.evaluation.evaluate import evaluate_symbol
from jaxtrade.evaluation.evaluators import mean_reward
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.evaluation.result import AgentResult, EvaluationResult
from jaxtrade.formatting import money
from jaxtrade.progress.screen import Plain, Screen
from jaxtrade.rl.state import Policy, lock_actions
from jaxtrade.rl.transfer import coverage_json, list_moved_groups, percent
from jaxtrade.runs import files, rundir
from jaxtrade.runs.advice import check_advisor, closing_line, closing_of
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.initial_state import (
    InitialState,
    Source,
    adopt,
    begin_from,
    fit,
    label_policy,
    load_source,
    require_carried,
)
from jaxtrade.runs.plan import refuse_source_settings
from jaxtrade.runs.setup import Setup, params_shown, prepare
from jaxtrade.runs.train import resume, run
from jaxtrade.runs.xla_settings import apply_xla_settings
from jaxtrade.storage import digests
from jaxtrade.text import Log, align, underline
from jaxtrade.types import PyTree

# Check a transfer before the first update: the transferred policy must act exactly as its source
# does.

SEEN_AND_DONE = (
    "task",
    "actions",
    "advice",
    "window",
    "features",
)  # keys of `env` that determine slots and actions


def common_sessions(one: Setup, other: Setup) -> list[np.ndarray]:
    """Find the sessions that two setups on one market both hold out for validation.

    For each setup these are rows of its session table, on the same dates and with equally
    many bars.
    """

    def held_out(setup: Setup) -> dict[Any, int]:
        sessions, held = setup.market.data.sessions, setup.splits["validation"]
        ids = np.asarray(held.ids)[: int(held.count)]
        lengths = np.asarray(sessions.last)[ids] - np.asarray(sessions.first)[ids]
        return {
            (setup.market.trade_dates[i], int(length)): int(i)
            for i, length in zip(ids, lengths, strict=True)
        }

    both = held_out(one), held_out(other)
    shared = [session for session in both[0] if session in both[1]]
    return [np.array([found[session] for session in shared], int) for found in both]


def _results(setup: Setup, agents: list[Agent], ids: np.ndarray) -> dict[str, AgentResult]:
    result = evaluate_symbol(
        setup.env,
        setup.params,
        setup.single,
        sessions_of(setup.single, ids),
        setup.config,
        agents=agents,
    )
    return {agent.name: agent for agent in result.agents}


def _make_agent(setup: Setup, name: str, policy: PyTree) -> Agent:
    return greedy(setup.algorithm, policy, setup.env)._replace(name=name)


def _same(a: AgentResult, b: AgentResult) -> bool:
    """Return whether both results have the same actions and equities, with rules and without."""
    return all(
        np.array_equal(x.action, y.action) and np.array_equal(x.equity, y.equity)
        for x, y in ((a.account, b.account), (a.strategy, b.strategy))
    )


def under(source: Source, setup: Setup) -> Setup:
    """Combine the source's task, slots and network with the phase's conditions.

    These are the phase's market, account, costs and brackets.
    """
    own = source.config.env
    env = {name: getattr(own, name) for name in SEEN_AND_DONE}
    return prepare(setup.config.replace(env=env, network=source.config.network))


def start_check(source: Source, setup: Setup, begun: InitialState) -> dict[str, Any]:
    """Compare the source, transferred and fresh greedy policies on the same validation sessions.

    All three run under the phase's conditions. Returns plain data: the number of sessions; `equal`,
    whether all actions and equities of the source and the transferred policy are the same (None if
    they have no session in common); and for each policy the net profit in dollars and the number of
    trades, with account rules off.
    """
    source_setup = under(source, setup)
    source_ids, ids = common_sessions(source_setup, setup)
    if not len(source_ids):
        return {"sessions": 0, "equal": None, "net_profit": {}}
    fresh = jax.jit(setup.algorithm.init)(jax.random.key(setup.config.seed), setup.params)
    begins = setup.algorithm.policy(begun.state)
    before = _results(
        source_setup,
        [_make_agent(source_setup, "source", Policy(source.params, source.normaliser))],
        source_ids,
    )
    shut = begins.replace(opening=lock_actions(begins.opening))
    # The fresh policy carries the same `opening` as the transferred one, so that one compiled
    # program serves both. Its opening is not closed, so it may use every action.
    every = setup.algorithm.policy(
        fresh.replace(opening=begun.state.opening, update=fresh.total_updates)
    )
    after = _results(
        setup, [_make_agent(setup, "transferred", shut), _make_agent(setup, "fresh", every)], ids
    )
    results = before | after
    figures = {
        figure: {name: result.strategy_figures[figure] for name, result in results.items()}
        for figure in ("net_profit", "trades")
    }
    same = _same(before["source"], after["transferred"])
    return {"sessions": len(ids), "equal": same, **figures}


def start_line(check: dict[str, Any]) -> str:
    """Format the check as one line."""
    if check["equal"] is None:
        return "step 0: source and phase hold no validation session in common; nothing was compared"
    net = check["net_profit"]
    same = "does what its source did, bar by bar" if check["equal"] else "DIFFERS from its source"
    return (
        f"step 0, {check['sessions']} validation sessions: the transferred policy {same} (net "
        f"{money(net['transferred'])}; source {money(net['source'])}, fresh policy {money(net['fresh'])})"
    )


# The report on all phases of a curriculum.

HEAD = (
    "phase",
    "task",
    "slots",
    "actions",
    "steps",
    "all steps",
    "transfer",
    "gate",
    "net, validation",
    "trades",
    "net, test",
    "trades",
)


def _row(row: dict[str, Any], steps: int) -> list[str]:
    failed = [check["name"] for check in row["gate"] if not check["passed"]]
    return [
        row["phase"],
        row["task"],
        str(row["slots"]),
        str(row["actions"]),
        f"{row['steps']:,}",
        f"{steps:,}",
        "-" if row["start"] is None else row["start"]["coverage"],
        f"failed: {', '.join(failed)}" if failed else "passed",
        money(row["validation"]["net_profit"]),
        str(row["validation"]["trades"]),
        money(row["test"]["net_profit"]),
        str(row["test"]["trades"]),
    ]


def report_text(document: dict[str, Any]) -> str:
    """Format the report as text: a table of the phases, then what each transfer did.

    Inputs that never varied follow, and at the end one line about the advisor of each phase that
    had one.
    """
    steps = 0
    rows: list[Sequence[str]] = [HEAD]
    for row in document["phases"]:
        steps += row["steps"]
        rows.append(_row(row, steps))
    table = underline(align(rows, range(len(HEAD))))
    notes = []
    for row in document["phases"]:
        if row["start"] is not None:
            new = row["start"]["transfer"]
            notes.append(
                f"{row['phase']}: transfer coverage {row['start']['coverage']}, {len(new['new_slots'])} new "
                f"slots, {len(new['new_actions'])} new actions; {start_line(row['start'])}"
            )
        if "movement" in row:
            still, constant = row["movement"]["still"], row["movement"]["constant"]
            notes.append(
                f"{row['phase']}: {row['movement']['moved']} parameter groups moved; did not move: "
                f"{', '.join(still) or 'none'}; input constant: {', '.join(constant) or 'none'}"
            )
        notes.append(
            f"{row['phase']}: test figures of {row['test']['sessions']} sessions ({row['test']['split']}), "
            f"coverage {100 * row['test']['coverage']:.0f} %; files in {row['folder']}"
        )
    if not document["enforced"]:
        notes.append("gates were reported, not enforced (enforce_gates=false)")
    if document["stopped"]:
        notes.append(document["stopped"])
    # Phases that an earlier version finished have no figures about their advisor.
    notes += [closing_line(row["advice"]) for row in document["phases"] if "advice" in row]
    return "\n".join([*table, "", *notes])


# Gates between phases: compare the evaluation on the validation sessions with the required
# values.

MOVED = (
    "approx_kl",
    "q_change",
)  # how much an update changes the policy; each learner has one of them
LAST = 0.1  # the KL is averaged over this last share of the run


MET = {">": operator.gt, ">=": operator.ge, "<=": operator.le}


class Check(NamedTuple):
    """One condition: its name, the value found, the requirement as text, and whether it is met."""

    name: str
    value: float
    asked: str
    passed: bool

    @property
    def line(self) -> str:
        return (
            f"gate {self.name}: {self.value:.4g} ({self.asked} asked) "
            f"{'ok' if self.passed else 'FAILED'}"
        )


def check_gate(
    gate: GateConfig, result: EvaluationResult, reward: float, history: Sequence[Mapping[str, Any]]
) -> list[Check]:
    """Check every condition of a gate.

    Args:
        result: the evaluation on the validation sessions, with an agent `greedy`.
        reward: that agent's mean reward per session (`evaluation.evaluators.mean_reward`).
        history: the rows of the run's metrics, for the KL.

    Raises:
        ConfigError: the gate cannot be evaluated (no metrics).
    """
    if not history:
        raise ConfigError(
            "the gate cannot be evaluated: the run has no metrics (metrics.jsonl); train the phase again"
        )
    figures = result.agent("greedy").account_figures
    moved = next(name for name in MOVED if name in history[-1])
    last = [float(row[moved]) for row in history[-math.ceil(LAST * len(history)) :]]
    kl = float(np.mean(last))
    breached = (figures["bust"] + figures["failed_daily_loss"]) / figures["accounts"]
    asked = (
        ("kl" if moved == "approx_kl" else moved, kl, ">", gate.min_kl),
        ("trades", figures["trades"], ">=", gate.min_trades),
        ("reward", reward, ">=", gate.min_reward),
        ("breach_share", breached, "<=", gate.max_breach_share),
    )
    return [
        Check(name, value, f"{sign} {setting_text(bound)}", MET[sign](value, bound))
        for name, value, sign, bound in asked
        if bound is not None
    ]


# The advisor that a curriculum brings along: left out where it cannot serve the bars.

OFF = "off"


def with_possible_advisors(phases: Sequence[Phase], log: Log) -> tuple[Phase, ...]:
    """Remove each advisor that cannot serve its phase's bars (`rules` need a volume, for example).

    Meant for advisors that nobody asked for. `log` receives one line, with the reason, for each
    that is left out. Raises as `prepare`.
    """

    def possible(phase: Phase) -> Phase:
        if phase.config.advisor.kind == OFF:
            return phase
        market = prepare(phase.config).single
        try:
            check_advisor(phase.config, market)
        except (ConfigError, DataError) as error:
            log(f"phase {phase.name}: trains without an advisor (choose one by --advisor): {error}")
            return phase.replace(config={"advisor": {"kind": OFF}})
        return phase

    return tuple(map(possible, phases))


BEGIN = "begin.json"


class CurriculumResult(NamedTuple):
    """The outcome of a curriculum.

    report: text.
    document: the same content as plain data.
    exit_code: 0, or 1 if a gate or a learning-health check failed.
    """

    path: Path
    report: str
    document: dict[str, Any]
    exit_code: int


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of the curriculum. Raises DataError if it is damaged."""
    return digests.read_json(path, "restore it, or start the curriculum again")


def first_phase(curriculum: Curriculum, source: Source | None, name: str | None) -> int:
    """Find the index of the phase at which a curriculum begins.

    It is the phase called `name`, if given; else the phase after the one that has the source's
    task; else the first. Raises ConfigError for an unknown name, a later phase without a source, or
    a source with the last phase's task.
    """
    names = [phase.name for phase in curriculum.phases]
    if name is not None:
        if name not in names:
            raise ConfigError(
                f"phase {name} (--phase): no such phase (there are: {', '.join(names)})"
            )
        if names.index(name) and source is None:
            raise ConfigError(
                f"phase {name} (--phase): a later phase begins with another run; name its source "
                "(--from RUN)"
            )
        return names.index(name)
    if source is None:
        return 0
    tasks = [phase.config.env.task for phase in curriculum.phases]
    task = source.config.env.task
    if task not in tasks:
        why = "is in no phase"
    elif (following := tasks.index(task) + 1) < len(tasks):
        return following
    else:
        why = f"is that of the last phase, {names[-1]}"
    raise ConfigError(
        f"source {source.path} (--from): its task {task} {why}; name the first one (--phase NAME)"
    )


def run_curriculum(
    curriculum: Curriculum,
    path: Path,
    source: Path | None = None,
    phase: str | None = None,
    screen: Screen | None = None,
    optional: bool = False,
) -> CurriculumResult:
    """Train all phases, from the first or from the one after `source`, in a new folder.

    screen: as in `runs.train.run`.
    optional: whether a phase whose advisor cannot serve its bars trains without it, with a message,
        instead of being refused.

    Raises ConfigError or DataError before anything is written, and the errors of `runs.train.run`.
    """
    shown = Plain() if screen is None else screen
    shown.phase("loading", "the markets of all phases")
    apply_xla_settings(
        [phase.config for phase in curriculum.phases]
    )  # must precede JAX, which loading a source starts
    loaded = None if source is None else load_source(source)
    first = first_phase(curriculum, loaded, phase)
    rundir.check_new(path)
    if optional:
        phases = with_possible_advisors(curriculum.phases, shown.message)
        curriculum = curriculum.replace(phases=phases)
    curriculum = _with_models(curriculum, first, shown)
    _check_possible(curriculum.phases[first:], loaded)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    (new / CURRICULUM).write_text(dump_curriculum(curriculum), encoding="utf-8")
    rundir.write_json(
        new / BEGIN,
        {
            "digest": curriculum.digest(),
            "first": first,
            "nproc": os.environ["NPROC"],
            "from": None if source is None else str(source.resolve()),
            "files": {phase.name: files.record(phase.config, path) for phase in curriculum.phases},
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
        },
    )
    if path.exists():  # the check above has shown that it is empty
        path.rmdir()
    new.rename(path)
    with rundir.lock_run(path), interrupt.hint(lambda: how_to_continue(path)):
        return _run_phases(curriculum, path, shown)


def _with_models(curriculum: Curriculum, first: int, screen: Screen) -> Curriculum:
    """Enter the model of its server in each phase from `first` on. Raises ConfigError."""
    phases = [
        phase if number < first else phase.replace(config=with_model(phase.config, screen.message))
        for number, phase in enumerate(curriculum.phases)
    ]
    return curriculum.replace(phases=tuple(phases))


def _check_possible(phases: Sequence[Phase], source: Source | None) -> None:
    """Check that every phase can run, before the first one is trained.

    Raises ConfigError, DataError.
    """
    before = None if source is None else (source.config, f"source {source.path} (--from)")
    for phase in phases:
        config = phase.config
        check_advisor(config, prepare(config).single)
        if before is None:
            refuse_source_settings(config)
        else:
            trained, where = before
            try:
                config = fit(config, trained, where)
                require_carried(config, trained)
            except ConfigError as error:
                raise ConfigError(f"phase {phase.name}: {error}") from None
        before = config, f"phase {phase.name}"


def resume_curriculum(path: Path, screen: Screen | None = None) -> CurriculumResult:
    """Continue the curriculum in a folder from where it stopped.

    screen: as in `runs.train.run`.

    Raises ConfigError (no curriculum there, or it has changed), RunLockedError.
    """
    begin = read_json(path / BEGIN)
    if (path / CURRICULUM).is_file() and written_digest(path) != begin["digest"]:
        raise ConfigError(
            f"{path / CURRICULUM}: has changed since the curriculum began; restore it, or start "
            "a new one with the change"
        )
    curriculum = _locate_files(read_curriculum(path), begin.get("files", {}), path)
    os.environ["NPROC"], os.environ["XLA_FLAGS"] = (
        begin["nproc"],
        begin["xla_flags"],
    )  # must be set before JAX starts
    with rundir.lock_run(path), interrupt.hint(lambda: how_to_continue(path)):
        return _run_phases(curriculum, path, Plain() if screen is None else screen)


def _locate_files(curriculum: Curriculum, recorded: Mapping[str, Any], path: Path) -> Curriculum:
    """Replace the curriculum's paths by those at which its files are now.

    recorded: phase -> its files.
    """
    phases = []
    for phase in curriculum.phases:
        manifest = {files.FILES: recorded.get(phase.name, {})}
        config = files.locate(phase.config, manifest, path)
        files.require(config, manifest, path)
        phases.append(phase.replace(config=config))
    return curriculum.replace(phases=tuple(phases))


def how_to_continue(path: Path) -> str:
    """Explain how to continue a curriculum that has been stopped."""
    return f"continue with: jaxtrade curriculum --resume {path}"


def _run_phases(curriculum: Curriculum, path: Path, screen: Screen) -> CurriculumResult:
    begin = read_json(path / BEGIN)
    source = begin["from"] and Path(begin["from"])
    rows: list[dict[str, Any]] = []
    stopped = ""
    for number, phase in enumerate(curriculum.phases, start=1):
        if number <= begin["first"]:
            continue
        folder = path / "phases" / f"{number}-{phase.name}"
        if not (folder / "gate.json").is_file():
            screen.chapter(
                f"phase {phase.name}" + ("" if source is None else f", beginning with {source}")
            )
            _train_phase(phase, folder, source, screen)
            screen.phase("gate", "the policy on the validation sessions")
            rundir.write_json(folder / "gate.json", _outcome(phase, folder, source))
        row: dict[str, Any] = read_json(folder / "gate.json")
        row |= {"phase": phase.name, "folder": str(folder.relative_to(path))}
        rows.append(row)
        checks = [Check(**check) for check in row["gate"]]
        screen.message(f"phase {phase.name}: {'; '.join(check.line for check in checks)}")
        if not row["passed"] and curriculum.enforce_gates and number < len(curriculum.phases):
            failed = ", ".join(check.name for check in checks if not check.passed)
            stopped = (
                f"stopped after phase {phase.name}: its gate failed ({failed}); train that phase longer or "
                f"otherwise and go on with --from {folder}, or lower phases.{phase.name}.gate"
            )
            break
        source = folder
    document = {
        "phases": rows,
        "stopped": stopped,
        "enforced": curriculum.enforce_gates,
        "digest": begin["digest"],
    }
    rundir.write_json(path / "curriculum.json", document)
    text = report_text(document)
    (path / "curriculum.txt").write_text(text + "\n", encoding="utf-8")
    gate_failed = curriculum.enforce_gates and not all(row["passed"] for row in rows)
    return CurriculumResult(
        path, text, document, 1 if gate_failed or not all(row["healthy"] for row in rows) else 0
    )


def _train_phase(phase: Phase, folder: Path, source: Path | None, screen: Screen) -> None:
    """Train a phase's run to its end: start it, resume it, or do nothing if it is finished."""
    if (folder / "summary.json").is_file():
        return
    start = folder.with_name(folder.name + ".start.json")
    screen.phase("loading", "the market and the policy to begin with")
    loaded = None if source is None else load_source(source)
    if loaded is not None and not start.is_file():
        config = adopt(phase.config, loaded)
        setup = prepare(config)
        begun = begin_from(setup, loaded)
        assert begun.coverage is not None
        folder.parent.mkdir(parents=True, exist_ok=True)
        rundir.write_json(
            start,
            start_check(loaded, setup, begun)
            | {"transfer": coverage_json(begun.coverage), "coverage": percent(begun.coverage)},
        )
    if start.is_file():
        screen.message(start_line(read_json(start)))
    if not (folder / "manifest.json").is_file():
        shutil.rmtree(
            folder, ignore_errors=True
        )  # left by a process that was killed early; it holds no results
        run(phase.config, folder, source, screen)
    else:
        resume(folder, screen=screen)


def _outcome(phase: Phase, folder: Path, source: Path | None) -> dict[str, Any]:
    """Compute a phase's outcome: gate, metrics, and how the parameters moved from the source's."""
    trained = load_source(folder)
    setup = prepare(trained.config)
    policy = load_policy(folder).policy
    params, _ = params_shown(setup, "validation", folder)
    result = evaluate_symbol(
        setup.env,
        params,
        setup.single,
        setup.splits["validation"],
        trained.config,
        agents=[greedy(setup.algorithm, policy, setup.env)],
    )
    reward = mean_reward(setup.env, params, setup.splits["validation"], setup.algorithm, [policy])
    checks = check_gate(phase.gate, result, reward, history(folder))
    summary = read_json(folder / "summary.json")
    path = folder.with_name(folder.name + ".start.json")
    start = read_json(path) if path.is_file() else None
    found: dict[str, Any] = {
        "task": trained.config.env.task,
        "slots": len(trained.layout.slots),
        "actions": len(trained.layout.actions),
        "steps": summary["steps"],
        "updates": summary["updates"],
        "healthy": all(check["passed"] for check in summary["health"].values())
        and not (start and start["equal"] is False),
        "gate": [check._asdict() for check in checks],
        "passed": all(check.passed for check in checks),
        "validation": result.agents[0].strategy_figures,
        "start": start,
    }
    split = setup.evaluation_split()
    document = read_json(folder / "evaluation" / split / "evaluation.json")
    found["test"] = {
        "split": split,
        "sessions": document["settings"]["sessions"],
        "coverage": document["settings"]["coverage"],
        **document["agents"]["greedy"]["strategy"],
    }
    if (advice := closing_of(folder, trained.config.advisor.kind, history(folder))) is not None:
        found["advice"] = advice
    if source is not None:
        begun = begin_from(setup, load_source(source))
        moved = list_moved_groups(
            begun.state.params, trained.params, label_policy(trained.config), trained.normaliser
        )
        found["movement"] = moved | {"moved": len(moved["moved"])}
    return found
