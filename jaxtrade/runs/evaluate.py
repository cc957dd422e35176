"""Evaluate the policies of a run: on held-out sessions, over grids of assumptions, or bar by
bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.data.members import file_of
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation import seeds
from jaxtrade.evaluation.evaluate import EvaluationResult, write
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.openings import day_bars
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.evaluation.result import SetResult
from jaxtrade.evaluation.seeds import Results
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import files, rundir
from jaxtrade.runs.agents import resumed_config
from jaxtrade.runs.compute import restore
from jaxtrade.runs.openings import count_opening, count_replay, days_label
from jaxtrade.runs.policies import (
    advised,
    chosen_number,
    chosen_numbers,
    chosen_symbol,
    extent,
    held_out,
    keeping,
    policy_for,
    read_policy,
    rules_of,
    steps_of,
)
from jaxtrade.runs.setup import Setup, params_shown, policies_of, prepare
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.sinks import read_rows
from jaxtrade.text import json_text
from jaxtrade.training.population import Stack
from jaxtrade.types import PyTree

# The programs of a run that are begun before they are needed.


def begin_for_run(
    programs: Programs, setup: Setup, state: PyTree, validation: EnvParams | None
) -> None:
    """Begin the programs that score and evaluate the policies of a run that trains.

    state: the run's state, abstract or not. validation: parameters that show the validation
        sessions, if the run
    scores its policy on them.
    """
    policy = jax.eval_shape(lambda state: policies_of(setup, state)[0], state)
    if validation is not None:
        symbol, own = next(iter(setup.symbols.items()))  # its program serves every symbol
        evaluator_of(own.env).begin_records(
            programs,
            own.env,
            rules_of(setup, symbol, validation),
            own.splits["validation"],
            own.algorithm,
            [policy_for(setup, policy, symbol)] * setup.stack.count,
            steps_of(setup, "validation"),
        )
    begin_evaluations(programs, setup, policy.replace(opening=None), setup.evaluation_split())


def begin_evaluations(programs: Programs, setup: Setup, policy: PyTree, split: str) -> None:
    """Begin the programs that evaluate policies on a split. policy: one of them, abstract or not.

    Does nothing for a run with an advisor, because the advice that an evaluation shows is not known
    yet, or for a split without sessions.
    """
    if setup.fusion is None and int(setup.splits[split].count):
        symbol, own = next(
            iter(setup.symbols.items())
        )  # the programs of one symbol serve all of them
        evaluator_of(own.env).begin(
            programs,
            own.env,
            own.params,
            own.single,
            own.splits[split],
            own.config,
            own.algorithm,
            policy_for(setup, policy, symbol),
            steps_of(setup, split),
        )


def open_run(
    path: Path, data: Path | None = None, advisor: bool = True, overrides: Sequence[str] = ()
) -> tuple[Setup, dict[str, Any]]:
    """Setup and manifest of an existing run. Its configuration and data must be those that it was
    trained with.

    Args:
        data: a file that holds the run's bars, instead of its own; of a set, a folder with a file
            for each symbol.
        advisor: whether the run's own advisor is used.
        overrides: `a.b=value` of keys that may change (`runs.agents.FREE`).
    Raises:
        ConfigError (not a run, edited configuration, a key in `overrides` that may not change),
        DataError (the data
            are not there, or have changed).
    """
    config, manifest = rundir.read_run(path, _instead(path, data))
    config = resumed_config(config, overrides)
    restore(config, manifest)  # before `prepare` starts JAX
    files.require(config, manifest, path, advisor)
    setup = prepare(config)
    if setup.market.fingerprint != manifest["data_sha256"]:
        raise DataError(
            files.explain(config, manifest, path)
            if data is None
            else f"--data {data}: holds other bars than {path} was trained on (fingerprint "
            f"{setup.market.fingerprint[:16]}..., then {manifest['data_sha256'][:16]}...); give a file of "
            "the same bars, or train a new run"
        )
    return setup, manifest


def _instead(path: Path, data: Path | None) -> dict[str, str]:
    """`--data` as a key. Raises ConfigError if the run reads no file of bars, DataError if there is
    no such file.
    """
    if data is None:
        return {}
    own = rundir.read_run(path)[0].data
    source = own.source
    if own.markets and source == "file":
        if not data.is_dir():
            raise DataError(
                f"--data {data}: {path} was trained on {', '.join(own.markets)}; name the folder that "
                "holds a file of each"
            )
        return {
            f"data.per_market.{symbol}.file": str(file_of(data, symbol)) for symbol in own.markets
        }
    if source != "file":
        raise ConfigError(
            f"--data {data}: {path} was trained on {source} bars, not on a file; leave --data out"
        )
    if not data.is_file():
        raise DataError(f"--data {data}: there is no such file")
    return {"data.file": str(data)}


def folder_of(path: Path, split: str, other: bool = False) -> Path:
    """The folder of an evaluation in that of its run. other: by another advisor than the run's
    own.
    """
    return path / "evaluation" / (f"{split}-advised" if other else split)


def evaluate_policies(
    setup: Setup,
    policies: dict[int, PyTree],
    split: str,
    path: Path,
    tell: Callable[[str], None] | None = None,
    other: bool = False,
    programs: Programs | None = None,
    screen: Screen | None = None,
    again: bool = False,
    kind: str = "train",
) -> Results:
    """Evaluate policies on a split, compare them with the baselines, and write the results to
    files.

    The files go to `evaluation/<split>`; a run with several agents has one folder for each in it
    (`Stack.folder`). Each agent of a sweep is evaluated under its own costs, account, brackets and
    weights. Sampled agents use the same random draws for all, so that only the policies differ. Of
    a set, each symbol is evaluated by itself and has a folder of its name in that of the
    evaluation.

    Args:
        policies: by the agent's number (`Stack.numbers`).
        path: the run folder.
        other: whether another advisor than the run's own is used; the folder is then
            `evaluation/<split>-advised`.
        programs: holds the programs that were begun for this evaluation.
        screen: shows which agent is evaluated.
        again: ask about the bars about which an earlier evaluation had no answer in time.
        kind: the command, as the trial log names it. An evaluation that shows test sessions is
            entered there first.
    """
    held_out(setup, split)
    folder, results = folder_of(path, split, other), {}
    shown, busy = (
        Screen() if screen is None else screen,
        str if programs is None else lambda: programs.busy,
    )
    sha = {number: policy_digest(policy) for number, policy in policies.items()}
    count = partial(
        count_opening,
        setup,
        split=split,
        path=path,
        kind=kind,
        other=other,
        sha=sha,
        tell=tell or shown.message,
    )
    evaluator = evaluator_of(setup.env)
    steps, times = steps_of(setup, split), len(setup.symbols) * len(policies)
    for symbol, own in setup.symbols.items():
        params, known = params_shown(own, split, None if other else path, tell, again)
        for number, policy in policies.items():
            config, rules = setup.of_agent(number, symbol, params)
            chosen = evaluator.agents(
                own.env, own.single, rules, config, own.algorithm, policy_for(setup, policy, symbol)
            )
            shown.phase(
                "evaluating",
                extent(setup, split, len(chosen)),
                (evaluator.passes(len(chosen)) + 1) * times,
                lambda: (found := busy()) and f"waiting for: {found}",
            )
            name = (f"{symbol}, " if len(setup.symbols) > 1 else "") + (
                f"{setup.stack.label(number)}, " if len(policies) > 1 else ""
            )
            result = evaluator.evaluate(
                own.env,
                rules,
                own.single,
                own.splits[split],
                config,
                chosen,
                provenance=_provenance(setup, path, split, number),
                trained_on=own.splits["train"],
                notes=[days_label(setup, split), *([known.note] if known else [])],
                programs=programs,
                begun=lambda what, name=name: shown.step(name + what),
                steps=steps,
            )
            results.setdefault(number, {})[symbol] = result
            shown.step(f"{name}tables and pictures")
    whole = count(_whole(setup, path, split, results))
    _write(setup, folder, whole, sha)
    seeds.write(whole, folder)
    return whole


def _provenance(setup: Setup, path: Path, split: str, number: int) -> dict[str, Any]:
    """Where an evaluation comes from. The machine is the one that evaluates, which need not be the
    one that trained.
    """
    evolved = {"evolved": True} if setup.config.evolve.on else {}
    return (
        rundir.read_run(path)[1]
        | rundir.facts()
        | {"split": split}
        | evolved
        | setup.stack.provenance(number)
    )


def _whole(
    setup: Setup, path: Path, split: str, found: dict[int, dict[str, EvaluationResult]]
) -> Results:
    """The result of each agent, from its evaluations by symbol."""
    if len(setup.symbols) == 1:
        return {number: next(iter(each.values())) for number, each in found.items()}
    digests = {"config_sha256": setup.config.digest(), "data_sha256": setup.market.fingerprint}
    return {
        number: SetResult(each, _provenance(setup, path, split, number), digests)
        for number, each in found.items()
    }


def _write(setup: Setup, folder: Path, results: Mapping[int, Any], sha: Mapping[int, str]) -> None:
    """Write the result of each agent below `folder`. Its records say of which days and of which
    policy they are."""
    for number, result in results.items():
        own = setup.stack.folder(folder, number)
        about = {
            "day_bars": day_bars(setup.market, result.dates.astype(str).tolist()),
            "policy_sha256": sha[number],
        }
        write(result, own, also=about)


def refuse_joint(what: str, config: RunConfig) -> None:
    """Raises ConfigError for what is built for one symbol alone. what: the command as it was
    typed.
    """
    if config.env.joint:
        raise ConfigError(
            f"{what}: not built for env.task=allocate, which holds several symbols; its fills and equity "
            "are in the run's folder, evaluation/SPLIT/trades.csv and equity.csv"
        )


# The last lines of a command: where its results are, and what to do next.


def ending(
    path: Path, folder: Path, results: Results, config: RunConfig, advisor: Sequence[str] = ()
) -> Iterator[str]:
    """Lines below the table: the run's folder, its pictures, and two commands to go on with.

    The commands work as printed: they have what this evaluation needed, and no more.

    Args:
        path: the run's folder. folder: that of the evaluation. results: of the evaluation, by the
            agents' numbers.
        config: of the run, with the paths at which its files were read.
        advisor: the words that chose another advisor than the run's own.
    Raises ConfigError if `path` is not a run's folder.
    """
    number, first = next(iter(results.items()))
    stack = Stack.of_run(config)
    yield f"run       {path}"
    for label, name in first.tables.items():
        yield f"{label:<9} {stack.folder(folder, number) / name}"
    own = (path / "training.png", path / "advice.png")
    found = [each for each in (*own, *sorted(folder.rglob("*.png"))) if each.is_file()]
    for label, picture in zip(["pictures", *[""] * len(found)], found, strict=False):
        yield f"{label:<9} {picture}"
    split = first.provenance["split"]
    run = [str(path), *stack.flag(number), *_data(path, config)]
    grid = [*run, *(["--split", split] if split != "test" else []), *advisor, "--cost-grid"]
    replay = [*run, "--session", first.settings["last_session"]]
    if isinstance(first, SetResult):
        symbol = next(iter(first.symbols))
        replay = [
            *run,
            "--session",
            first.symbols[symbol].settings["last_session"],
            "--symbol",
            symbol,
        ]
    commands = {
        rundir.quoted([*rundir.program(), "evaluate", *grid]): "with other costs",
        rundir.quoted([*rundir.program(), "replay", *replay]): "one session, bar by bar",
    }
    widest = max(len(command) for command in commands)
    for label, (command, why) in zip(("next", ""), commands.items(), strict=True):
        yield f"{label:<9} {command:<{widest}}  # {why}"


def _data(path: Path, config: RunConfig) -> list[str]:
    """`--data PLACE`, if the bars were read from another place than the one that the run finds by
    itself.
    """
    found = rundir.read_run(path)[0].data
    if found.markets:
        files = [
            each.get("file")
            for each in (
                config.data.per_market.get(found.markets[0], {}),
                found.per_market.get(found.markets[0], {}),
            )
        ]
        return (
            []
            if files[0] is None or files[0] == files[1]
            else ["--data", str(Path(str(files[0])).parent)]
        )
    used, own = config.data.file, found.file
    return [] if used is None or used == own else ["--data", str(used)]


def opened(
    path: Path, data: Path | None, advisor: str | None, overrides: Sequence[str], screen: Screen
) -> Setup:
    """The setup of a finished run for an evaluation. Arguments and errors as `evaluate_run`."""
    screen.phase("loading", "the market and the policy")
    setup, _ = open_run(path, data, advisor is None)
    return advised(setup, path, advisor, overrides, screen.message)


def evaluate_run(
    path: Path,
    split: str = "test",
    as_json: bool = False,
    seed: int | None = None,
    advisor: str | None = None,
    overrides: Sequence[str] = (),
    data: Path | None = None,
    screen: Screen | None = None,
    agent: int | None = None,
) -> str:
    """Evaluate a finished run again. Returns the table as text, or JSON.

    Args:
        seed, agent: evaluate only the agent with this seed, or this index; None evaluates all of
            them.
        advisor: an advisor to use instead of the run's own. The policy keeps the trust that
            training gave it. The results go to `evaluation/<split>-advised`, beside those of the
            run's own advisor.
        overrides: options of that advisor, as `advisor.key=value`.
        data: a file of the run's bars, instead of its own.
        screen: shows the progress. Default: nothing does.
    Raises:
        ConfigError, DataError, CheckpointError.
    """
    shown = Screen() if screen is None else screen
    setup = opened(path, data, advisor, overrides, shown)
    policies = {
        each: read_policy(path, setup.config, each)
        for each in chosen_numbers(setup.config, seed, agent)
    }
    with rundir.locked(path), Programs() as programs:
        begin_evaluations(programs, setup, next(iter(policies.values())), split)
        # The advice that is saved stays that of all reports, so only an evaluation of every agent
        # adds to it.
        results = evaluate_policies(
            setup,
            policies,
            split,
            path,
            other=advisor is not None,
            programs=programs,
            screen=shown,
            again=seed is None and agent is None,
            kind="evaluate",
        )
    other = (
        []
        if advisor is None
        else ["--advisor", advisor, *(word for key in overrides for word in ("--set", key))]
    )
    shown.at_end(
        ending(path, folder_of(path, split, advisor is not None), results, setup.config, other)
    )
    return json_text(seeds.to_json(results)) if as_json else seeds.table(results)


def replay_run(
    path: Path,
    session: str,
    seed: int | None = None,
    data: Path | None = None,
    symbol: str | None = None,
    agent: int | None = None,
) -> Iterator[str]:
    """Replay one session under the run's greedy policy, line by line. A test session is entered in
    the trial log.

    session: its trade date. seed, agent: whose policy is used, by seed or by index; needed if the
        run has several.
    data: as in `evaluate_run`. symbol: whose session it is; needed if the run has several. Raises
        ConfigError if the
    date is not a session of the run.
    """
    whole, _ = open_run(path, data)
    number = chosen_number(whole.config, seed, agent)
    policy = read_policy(path, whole.config, number)
    chosen = chosen_symbol(whole, symbol)
    setup, policy = whole.symbols[chosen], policy_for(whole, policy, chosen)
    split = _split_of(setup, session)
    notes: list[str] = []
    if split == "test":
        count_replay(whole, path, session, notes.append)
    with keeping(setup, path):
        params, known = (setup.params, None) if split is None else params_shown(setup, split, path)
    _, params = whole.of_agent(number, chosen, params)
    replay = evaluator_of(setup.env).replay
    lines = replay(setup.env, params, setup.single, setup.algorithm, policy, session)
    if setup.fusion is not None:
        notes.append(known.note if known else "no advice is shown in this session")
    return chain(notes, lines)


def _split_of(setup: Setup, session: str) -> str | None:
    """The held-out split (`test` or `validation`) that contains a trade date, or None for a
    training session.

    A training session has no fixed advice: its advice changed while the run trained.
    """
    for split in ("test", "validation"):
        if session in setup.dates(split).astype(str).tolist():
            return split
    return None


def history(path: Path) -> list[dict[str, Any]]:
    """The metrics of a run, one row per update. `action_share` and `end_share` are mappings from
    name to share.
    """
    return read_rows(path / "metrics.jsonl")
