"""Evaluate a run's policies: on held-out sessions, over grids of assumptions, or bar by bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import jax

from jaxtrade.advisor.host.openai import with_model
from jaxtrade.config import DataConfig, RunConfig, apply_overrides, make_config
from jaxtrade.config.accounts import check_account, read_account
from jaxtrade.data.describe import round_turn, stop_warning
from jaxtrade.data.members import file_of, member_configs
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation import seeds
from jaxtrade.evaluation.evaluate import EvaluationResult, write
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.evaluation.result import SetResult
from jaxtrade.evaluation.results_table import BEST, may_pass
from jaxtrade.evaluation.seeds import Results
from jaxtrade.evaluation.test_set_history import day_bars
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import files, rundir
from jaxtrade.runs.advice import check_advisor
from jaxtrade.runs.agents import resumed_config
from jaxtrade.runs.new_bars import NewBars, open_on
from jaxtrade.runs.setup import Setup, params_shown, policies_of, prepare
from jaxtrade.runs.stored_run import chosen_number, chosen_numbers, read_policy
from jaxtrade.runs.trial_log import count_look, count_replay, days_label
from jaxtrade.runs.xla_settings import restore
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.sinks import read_rows
from jaxtrade.text import Log, json_text, several
from jaxtrade.training.population import Stack
from jaxtrade.types import PyTree, SessionSet

# The programs of a run that are begun before they are needed.


def begin_for_run(
    programs: Programs, setup: Setup, state: PyTree, validation: EnvParams | None
) -> None:
    """Begin the programs that score and evaluate the policies of a run that trains.

    state: the run's state, abstract or not.
    validation: parameters that show the validation sessions, if the run scores its policy on them.
    """
    policy = jax.eval_shape(lambda state: policies_of(setup, state)[0], state)
    if validation is not None:
        symbol, own = next(iter(setup.symbols.items()))  # its program serves every symbol
        evaluator_of(own.env).begin_records(
            programs,
            own.env,
            setup.rules_on(symbol, validation),
            own.splits["validation"],
            own.algorithm,
            [setup.acting(policy, symbol)] * setup.stack.count,
            setup.steps("validation"),
        )
    begin_evaluations(programs, setup, policy.replace(opening=None), setup.evaluation_split())


def begin_evaluations(programs: Programs, setup: Setup, policy: PyTree, split: str) -> None:
    """Begin the programs that evaluate policies on a split.

    policy: one of them, abstract or not.

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
            setup.acting(policy, symbol),
            setup.steps(split),
        )


def open_run(
    path: Path, data: Path | None = None, advisor: bool = True, overrides: Sequence[str] = ()
) -> tuple[Setup, dict[str, Any]]:
    """Load the setup and manifest of an existing run.

    Its configuration and data must be those that it was trained with.

    Args:
        data: a file that holds the run's bars, instead of its own; of a set, a folder with a file
            for each symbol.
        advisor: whether the run's own advisor is used.
        overrides: `a.b=value` of keys that may change (`runs.agents.FREE`).

    Raises:
        ConfigError (not a run, edited configuration, a key in `overrides` that may not change),
        DataError (the data are not there, or have changed).
    """
    config, manifest = rundir.read_run(path, _data_overrides(path, data))
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


def _data_overrides(path: Path, data: Path | None) -> dict[str, str]:
    """Convert `--data` to a key.

    Raises ConfigError if the run reads no file of bars, DataError if there is no such file.
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


def replace_advisor(
    setup: Setup, path: Path, advisor: str | None, overrides: Sequence[str], log: Log
) -> Setup:
    """Replace the advisor of the setup.

    log: receives one line where its server's only model is taken.

    Raises ConfigError if the run was trained without an advisor.
    """
    if other := [key for key in overrides if not key.strip().startswith(OF_EVALUATION)]:
        known = ", ".join(
            f"{key}*" if key.endswith(".") else key.removesuffix("=") for key in OF_EVALUATION
        )
        if other[0].strip().startswith("account."):
            raise ConfigError(
                f"--set {other[0]}: write the rules of another account into a YAML file ('preset: "
                "NAME', then keys such as 'drawdown: 2000') and give --account FILE"
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
            make_config(
                apply_overrides(config.model_dump(mode="json"), [override]), where, stored=True
            ),
        )
        if config == before:
            raise ConfigError(
                f"--set {override}: changes nothing, this is its value already; leave it out"
            )
    config = with_model(config, log)
    check_advisor(config, setup.single)
    return replace(setup, config=config)


def under_account(setup: Setup, name: str) -> Setup:
    """Return the setup with the rules of another account in place of the run's own.

    name: as for `read_account`.

    Raises ConfigError if the observation shows the account: the policy has learned under its own.
    """
    if setup.env.config.joint or setup.env.task.shows_record:
        raise ConfigError(
            f"--account {name}: env.task={setup.env.config.task} shows the policy its account (profit, or "
            "room above the floor, in units of the account's rules), so under other rules it would see what "
            "it was never trained on; train a run with it (keys of `account`: jaxtrade config keys account)"
        )
    account = {"account": read_account(name).model_dump(mode="json")}

    def with_rules(config: RunConfig) -> RunConfig:
        values = config.model_dump(mode="json") | account
        return make_config(values, f"--account {name}", stored=True)

    config, agents = with_rules(setup.config), setup.agents
    check_account(config.account)
    made = make_params(setup.market, setup.splits["train"], config)
    limits = {"account": made.account, "contract": made.contract}
    agents = replace(
        agents,
        configs=tuple(map(with_rules, agents.configs)),
        rules=tuple(rules.replace(account=made.account) for rules in agents.rules),
    )
    return replace(setup, config=config, params=setup.params.replace(**limits), agents=agents)


def held_out(setup: Setup, split: str) -> SessionSet:
    """Return the sessions of a split. Raises ConfigError if the run has none in it."""
    sessions = setup.splits[split]
    if not int(sessions.count):
        raise ConfigError(
            f"split {split} (--split): this run holds no sessions out for it (split.{split}_sessions = "
            "0)"
        )
    return sessions


def lock_if_advised(setup: Setup, path: Path) -> AbstractContextManager[None]:
    """Hold the run's lock if the run has an advisor, whose answers may be saved.

    Without one nothing is written, so no lock is taken.
    """
    return nullcontext() if setup.fusion is None else rundir.lock_run(path)


def extent(setup: Setup, split: str, agents: int) -> str:
    """Describe what an evaluation runs over, in words."""
    symbols, sessions = len(setup.symbols), several(int(setup.splits[split].count), "session")
    return f"{agents} agents, {sessions} {f'of {symbols} symbols ' if symbols > 1 else ''}({split})"


def folder_of(path: Path, split: str, other: bool = False, account: str | None = None) -> Path:
    """Return the folder of an evaluation in that of its run.

    other: by another advisor than the run's own.
    account: the preset or file of another account.
    """
    words = [split, *(["advised"] if other else []), *([Path(account).stem] if account else [])]
    return path / "evaluation" / "-".join(words)


def evaluate_policies(
    setup: Setup,
    policies: dict[int, PyTree],
    split: str,
    path: Path,
    programs: Programs,
    screen: Screen,
    log: Log | None,
    kind: str,
    other: bool = False,
    again: bool = False,
    account: str | None = None,
) -> Results:
    """Evaluate policies on a split, compare them with the baselines, and write the results.

    The files go to `evaluation/<split>`; a run with several agents has one folder for each in it
    (`Stack.folder`). Each agent of a sweep is evaluated under its own costs, account, brackets
    and weights. Sampled agents use the same random draws for all, so that only the policies
    differ. Of a set, each symbol is evaluated by itself and has a folder of its name in that of
    the evaluation.

    Args:
        policies: by the agent's number (`Stack.numbers`).
        path: the run folder.
        programs: holds those that were begun for this evaluation.
        screen: shows which agent is evaluated.
        log: takes lines about the run. Default: the screen takes them, and the logger what goes
            wrong with an advisor.
        kind: the command, as the trial log names it. An evaluation that shows test sessions is
            entered there first.
        other: whether another advisor than the run's own is used.
        again: ask about the bars about which an earlier evaluation had no answer in time.
        account: the preset that `under_account` has put in the setup, if another than the run's.
    """
    held_out(setup, split)
    found = dict[int, dict[str, EvaluationResult]]()
    sha = {number: policy_digest(policy) for number, policy in policies.items()}
    evaluator, steps = evaluator_of(setup.env), setup.steps(split)
    times = len(setup.symbols) * len(policies)
    for symbol, own in setup.symbols.items():
        params, known = params_shown(own, split, None if other or account else path, log, again)
        notes = [days_label(setup, split), *([known.note] if known else [])]
        notes += [account_note(account)] if account else []
        for number, policy in policies.items():
            config, rules = setup.of_agent(number, symbol, params)
            agents = evaluator.agents(
                own.env, own.single, rules, config, own.algorithm, setup.acting(policy, symbol)
            )
            screen.phase(
                "evaluating",
                extent(setup, split, len(agents)),
                (evaluator.passes(len(agents)) + 1) * times,
                lambda: (busy := programs.busy) and f"waiting for: {busy}",
            )
            name = (f"{symbol}, " if len(setup.symbols) > 1 else "") + (
                f"{setup.stack.label(number)}, " if len(policies) > 1 else ""
            )
            found.setdefault(number, {})[symbol] = evaluator.evaluate(
                own.env,
                rules,
                own.single,
                own.splits[split],
                config,
                agents,
                provenance=_provenance(setup, path, split, number),
                trained_on=own.splits["train"],
                notes=notes,
                programs=programs,
                begun=lambda what, name=name: screen.step(name + what),
                steps=steps,
            )
            screen.step(f"{name}tables and pictures")
    results = count_look(
        setup,
        _whole(setup, path, split, found),
        split,
        path,
        kind,
        other,
        sha,
        log or screen.message,
    )
    folder = folder_of(path, split, other, account)
    for number, result in results.items():  # its records say of which days and policy they are
        days = day_bars(setup.market, result.dates.astype(str).tolist())
        about = {"day_bars": days, "policy_sha256": sha[number]}
        write(result, setup.stack.folder(folder, number), also=about)
    seeds.write(results, folder)
    return results


def _provenance(setup: Setup, path: Path, split: str, number: int) -> dict[str, Any]:
    """Describe where an evaluation comes from.

    The machine is the one that evaluates, which need not be the one that trained.
    """
    evolved = {"evolved": True} if setup.config.evolve.on else {}
    return (
        rundir.read_run(path)[1]
        | rundir.facts()
        | {"split": split, "data_sha256": setup.market.fingerprint}
        | evolved
        | setup.stack.provenance(number)
    )


def _whole(
    setup: Setup, path: Path, split: str, found: dict[int, dict[str, EvaluationResult]]
) -> Results:
    """Combine the evaluations by symbol into the result of each agent."""
    if len(setup.symbols) == 1:
        return {number: next(iter(each.values())) for number, each in found.items()}
    digests = {"config_sha256": setup.config.digest(), "data_sha256": setup.market.fingerprint}
    return {
        number: SetResult(each, _provenance(setup, path, split, number), digests)
        for number, each in found.items()
    }


def account_note(account: str) -> str:
    """Return what a reader must know of an evaluation under another account than the run's."""
    return f"under the rules of {account}, not those that the policy was trained with (--account)"


def refuse_joint(what: str, config: RunConfig) -> None:
    """Raise ConfigError for what is built for one symbol alone.

    what: the command as it was typed.
    """
    if config.env.joint:
        raise ConfigError(
            f"{what}: not built for env.task=allocate, which holds several symbols; its fills and equity "
            "are in the run's folder, evaluation/SPLIT/trades.csv and equity.csv"
        )


# The last lines of a command: where its results are, and what to do next.

MOST_NAMES = 4  # of files in one line


def evaluation_footer(
    path: Path,
    folder: Path,
    results: Results,
    config: RunConfig,
    advisor: Sequence[str] = (),
    bars: NewBars | None = None,
) -> Iterator[str]:
    """Yield lines below the table: the run's folder, its files, and commands to go on with.

    The commands work as printed: they have what this evaluation needed, and no more.

    Args:
        path: the run's folder.
        folder: that of the evaluation.
        results: of the evaluation, by the agents' numbers.
        config: of the run, with the paths at which its files were read.
        advisor: the words that chose another advisor or account than the run's own.
        bars: other bars than the run's own.
    Raises ConfigError if `path` is not a run's folder.
    """
    number, first = next(iter(results.items()))
    stack = Stack.of_run(config)
    yield f"run       {path}"
    for label, name in first.tables.items():
        yield f"{label:<9} {stack.folder(folder, number) / name}"
    found = [folder / f"{name}.txt" for name in ("evaluation", "seeds", "sweep")]
    found += [path / "training.png", path / "advice.png", *sorted(folder.rglob("*.png"))]
    names = [each.relative_to(path).as_posix() for each in found if each.is_file()]
    if len(names) > MOST_NAMES:
        names[MOST_NAMES:] = [f"{len(names) - MOST_NAMES} more"]
    if names:
        yield f"{'files':<9} {', '.join(names)}"
    split = first.provenance["split"]
    one_policy = [str(path), *stack.flag(number)]
    run = [*one_policy, *(bars.words if bars else _data(path, config))]
    of_split = ["--split", split] if split != "test" else []
    grid = [*run, *([] if bars else of_split), *advisor, "--cost-grid"]
    symbol, one = "", first
    if isinstance(first, SetResult):
        symbol, one = next(iter(first.symbols.items()))
    replay = [*run, "--session", one.settings["last_session"]]
    of_symbol = ["--symbol", symbol] if symbol else []
    page = [*one_policy, *of_split, *of_symbol, "--open"]
    words = {} if advisor else {("report", *page): "the result as a page"}
    # A policy that has found what can be found goes on to a market where nobody knows what can be.
    words |= {("train", "quickstart"): "the same on a real week"} if BEST in one.settings else {}
    words |= {} if bars else {("replay", *replay, *of_symbol): "one session, bar by bar"}
    if split == "test" and config.env.task != "advised" and may_pass(first.settings):
        words[("evaluate", *run, *advisor, "--pass-probability")] = "would it pass?"
    else:
        words[("evaluate", *grid)] = "with other costs"
    commands = {
        rundir.quote_command([*rundir.program(), *each]): why for each, why in words.items()
    }
    widest = max(len(command) for command in commands)
    for label, (command, why) in zip_longest(("next",), commands.items(), fillvalue=""):
        yield f"{label:<9} {command:<{widest}}  # {why}"


def _data(path: Path, config: RunConfig) -> list[str]:
    """Return `--data PLACE`, if the bars were read from elsewhere than where the run finds them."""
    used, own = (_bars_of(each.data) for each in (config, rundir.read_run(path)[0]))
    if used is None or used == own:
        return []
    return ["--data", str(used.parent if config.data.markets else used)]


def _bars_of(data: DataConfig) -> Path | None:
    """Return the file of the bars; of a set that of its first symbol."""
    file: Any = data.per_market.get(data.markets[0], {}).get("file") if data.markets else data.file
    return None if file is None else Path(file)


@dataclass(frozen=True)
class Request:
    """What is asked about the finished run in a folder, and of which of its policies.

    seed, agent: the agent with this seed, or this index; None: all of them, or the only one.
    advisor: one to use instead of the run's own. The policy keeps the trust that training gave it.
        The results are kept beside those of the run's own advisor.
    overrides: options of that advisor, as `advisor.key=value`.
    account: the preset or file whose rules hold instead of the run's own; kept apart, as with an
        advisor.
    data: a file of the run's bars, instead of its own.
    screen: shows the progress.
    on: other bars than the run's; `split` is then theirs.
    """

    path: Path
    split: str = "test"
    as_json: bool = False
    seed: int | None = None
    advisor: str | None = None
    overrides: Sequence[str] = ()
    data: Path | None = None
    screen: Screen = field(default_factory=Screen)
    agent: int | None = None
    account: str | None = None
    on: NewBars | None = None

    @property
    def folder(self) -> Path:
        """The folder of the evaluation."""
        return folder_of(self.path, self.split, self.advisor is not None, self.account)

    def open(self) -> Setup:
        """Open the setup of the run. Raises ConfigError, DataError."""
        self.screen.phase("loading", "the market and the policy")

        def own() -> Setup:
            return open_run(self.path, self.data, self.advisor is None)[0]

        setup = open_on(self.path, self.on, self.data, self.advisor, own) if self.on else own()
        setup = replace_advisor(setup, self.path, self.advisor, self.overrides, self.screen.message)
        if self.account is not None:
            setup = under_account(setup, self.account)
        if setup.env.has_brackets:
            members = member_configs(setup.config)
            for market, config in zip(setup.market.members, members, strict=True):
                contract = market.contract.under(config)
                if warning := stop_warning(round_turn(market, config), contract, config):
                    self.screen.message(warning)
        return setup

    def policies(self, config: RunConfig) -> dict[int, PyTree]:
        """Load the policies, by the numbers of their agents.

        Raises ConfigError, CheckpointError.
        """
        numbers = chosen_numbers(config, self.seed, self.agent)
        return {number: read_policy(self.path, config, number) for number in numbers}


def evaluate_run(request: Request) -> str:
    """Evaluate a finished run again. Return the table as text, or JSON.

    Raises ConfigError, DataError, CheckpointError.
    """
    setup, path, split, advisor = request.open(), request.path, request.split, request.advisor
    policies = request.policies(setup.config)
    with rundir.lock_run(path), Programs() as programs:
        begin_evaluations(programs, setup, next(iter(policies.values())), split)
        # The advice that is saved stays that of all reports, so only an evaluation of every agent
        # adds to it.
        results = evaluate_policies(
            setup,
            policies,
            split,
            path,
            programs,
            request.screen,
            None,
            "evaluate",
            other=advisor is not None,
            again=request.seed is None and request.agent is None,
            account=request.account,
        )
    chosen = [word for key in request.overrides for word in ("--set", key)]
    other = [] if advisor is None else ["--advisor", advisor, *chosen]
    other += [] if request.account is None else ["--account", request.account]
    last = evaluation_footer(path, request.folder, results, setup.config, other, request.on)
    request.screen.at_end(last)
    return json_text(seeds.to_json(results)) if request.as_json else seeds.table(results)


def chosen_symbol(setup: Setup, symbol: str | None) -> str:
    """Return the symbol that was asked for, or the only one.

    Raises ConfigError if the run has no such symbol, or has several and none was named.
    """
    known = list(setup.symbols)
    if symbol is None and len(known) == 1:
        return known[0]
    if symbol is None or symbol.upper() not in known:
        asked = (
            "this run has several symbols"
            if symbol is None
            else f"symbol {symbol}: this run has no such symbol"
        )
        raise ConfigError(f"{asked}; give symbol (--symbol) {' or '.join(known)}")
    return symbol.upper()


def replay_run(request: Request, session: str, symbol: str | None = None) -> Iterator[str]:
    """Replay one session under the run's greedy policy, line by line.

    A test session is entered in the trial log.

    request: of one policy, if the run has several.
    session: its trade date.
    symbol: whose session it is; needed if the run has several.

    Raises ConfigError if the date is not a session of the run.
    """
    path = request.path
    whole, _ = open_run(path, request.data)
    number = chosen_number(whole.config, request.seed, request.agent)
    policy = read_policy(path, whole.config, number)
    chosen = chosen_symbol(whole, symbol)
    setup, policy = whole.symbols[chosen], whole.acting(policy, chosen)
    split = _split_of(setup, session)
    notes: list[str] = []
    if split == "test":
        count_replay(whole, path, session, notes.append)
    with lock_if_advised(setup, path):
        params, known = (setup.params, None) if split is None else params_shown(setup, split, path)
    _, params = whole.of_agent(number, chosen, params)
    replay = evaluator_of(setup.env).replay
    lines = replay(setup.env, params, setup.single, setup.algorithm, policy, session)
    if setup.fusion is not None:
        notes.append(known.note if known else "no advice is shown in this session")
    return chain(notes, lines)


def _split_of(setup: Setup, session: str) -> str | None:
    """Find the held-out split (`test` or `validation`) that contains a trade date.

    None for a training session.

    A training session has no fixed advice: its advice changed while the run trained.
    """
    for split in ("test", "validation"):
        if session in setup.dates(split).astype(str).tolist():
            return split
    return None


def history(path: Path) -> list[dict[str, Any]]:
    """Read the metrics of a run, one row per update.

    `action_share` and `end_share` are mappings from name to share.
    """
    return read_rows(path / "metrics.jsonl")
