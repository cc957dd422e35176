"""A walk-forward against null markets: on each of them all folds and seeds are trained again, by
the executables that trained the first null market, and tested out of sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jaxtrade.data.market import Market
from jaxtrade.data.nulls.market import null_markets, null_named
from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.evaluation.nulls import NullResult, null_document, null_table, run_nulls, with_market
from jaxtrade.evaluation.statistics.resampling import iqm
from jaxtrade.evaluation.walk_days import OutOfSampleDays, WalkDays
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.state import finished
from jaxtrade.runs import rundir
from jaxtrade.runs.beginning import Fresh
from jaxtrade.runs.setup import Setup, policies_of
from jaxtrade.runs.walkforward.document import evaluate_out_of_sample
from jaxtrade.storage.compiling import Programs, RepeatedPrograms
from jaxtrade.storage.eager import EagerPrograms
from jaxtrade.storage.null_journal import NULLS, NullJournal
from jaxtrade.text import several
from jaxtrade.training.loop import train
from jaxtrade.types import PyTree
from jaxtrade.version import __version__

POLICY = "policy"
RESULT = "nulls.json"


def walk_statistics(days: OutOfSampleDays) -> dict[str, float]:
    """Dollars a day, out of sample, account rules off: of the policies the IQM over seeds, and each
    baseline.
    """
    rules = zip(days.baselines.tolist(), days.pooled(days.baseline_net).tolist(), strict=True)
    return {POLICY: float(iqm(days.pooled(days.net))), **{str(name): net for name, net in rules}}


def check_nulls(setup: Setup, spec: NullSpec) -> None:
    """Make the first null market, so that a kind that does not fit is refused before hours of
    training.

    Raises ConfigError and DataError as `walk_nulls`.
    """
    market = null_markets(setup.single, setup.config, spec.kind, setup.config.seed)(0)
    with null_named(spec.kind, setup.config.seed, 0):
        on_market(setup, market)


def walk_nulls(
    setup: Setup,
    path: Path,
    days: WalkDays,
    spec: NullSpec,
    screen: Screen | None = None,
) -> dict[str, NullResult]:
    """Test the result of a walk-forward against null markets, and write `nulls.json` into its
    folder.

    The statistics of each finished null market are in `nulls.jsonl` there: a test that was killed
    goes on with the next one. The draws begin with the run's own seed.

    Args:
        setup, path, days: of the walk-forward; `days` are its result on the real market.
    Raises:
        ConfigError: this kind does not fit the run, or the journal belongs to another test.
            DataError: a null market
        cannot be used. DivergedError, InterruptedRunError, PreemptedError: as in training.
    """
    config, shown = setup.config, Screen() if screen is None else screen
    markets = null_markets(setup.single, config, spec.kind, config.seed)
    journal = NullJournal(
        path / NULLS,
        {
            "kind": spec.kind,
            "seed": config.seed,
            "config": config.digest(),
            "data": setup.market.fingerprint,
            "version": __version__,
        },
    )
    shown.phase(
        "nulls", f"{spec}: {several(setup.stack.count, 'agent')} trained again on each", spec.draws
    )
    with EagerPrograms() if config.compute.eager else RepeatedPrograms() as programs:
        results = run_nulls(
            lambda market: walk_statistics(trained_on(setup, market, programs)),
            markets,
            walk_statistics(days),
            spec,
            config.seed,
            journal,
            step=shown.step,
        )
    rundir.write_json(
        path / RESULT,
        null_document(
            results,
            notes_of(days),
            config_sha256=config.digest(),
            data_sha256=setup.market.fingerprint,
            retrained=True,
        ),
    )
    return results


def walk_null_table(results: dict[str, NullResult], days: WalkDays) -> str:
    """The printed table of `walk_nulls`."""
    return null_table(list(results.values()), notes_of(days))


def notes_of(days: WalkDays) -> list[str]:
    """What the reader of the p-values must know."""
    return [
        f"{POLICY} is trained again on each null market, by the same executable; "
        f"{several(len(days.seeds), 'seed')}, {several(days.independent, 'independent day')}"
    ]


def trained_on(setup: Setup, market: Market, programs: Programs) -> OutOfSampleDays:
    """The walk-forward of `setup` on another market of the same shapes: trained from its seeds,
    tested out of sample.

    programs: where the programs are compiled. Nothing is written. The account's rules and the
        training days are left
    out, because a null is compared by `walk_statistics` alone.
    """
    own = on_market(setup, market)
    trained = train(
        setup.algorithm,
        own.trained_params,
        num_seeds=setup.stack,
        config=setup.config.train,
        max_rollbacks=setup.config.control.max_rollbacks,
        programs=programs,
        place=setup.place,
        **Fresh().arguments(setup, None),
    )
    policies: list[PyTree] = [finished(policy) for policy in policies_of(setup, trained.state)]
    return evaluate_out_of_sample(own, policies, programs)


def on_market(setup: Setup, market: Market) -> Setup:
    """The setup of a walk-forward on another market of the same shapes. Raises ConfigError as
    `with_market`.
    """
    assert setup.swept is not None
    params = with_market(setup.params, market, setup.params.sessions, setup.config)
    swept = replace(
        setup.swept,
        params=setup.swept.params.replace(market=market.data),
        rules=tuple(each.replace(market=market.data) for each in setup.swept.rules),
    )
    return replace(setup, market=market, params=params, swept=swept)
