"""A run on a set of symbols from its first line to its files: seeds, validation, resumption,
transfer, replay.
"""

import json

import numpy as np
import pytest

import jaxtrade as jt
from jaxtrade.config import dump_config, load_config
from jaxtrade.errors import DataError
from jaxtrade.evaluation.evaluators import mean_reward
from jaxtrade.runs import evaluate as evaluation
from jaxtrade.runs import rundir
from jaxtrade.runs.stored_run import StoredEvaluation
from jaxtrade.runs.train import run
from tests import uncounted
from tests.messages import refused
from tests.reading import read_json

SYMBOLS = ("EURUSD", "USDJPY")
SMALL = (
    "data.source=bundled",
    f"data.markets={','.join(SYMBOLS)}",
    "data.start=2016-04-01",
    "data.end=2016-06-10",
    "split.test_sessions=4",
    "split.validation_sessions=3",
    "env.window=4",
    "env.features=[close,atr]",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "train.total_timesteps=512",
    "train.chunk_updates=2",
    "train.num_seeds=2",
    "control.evaluate_every=1",
    "account.preset=rules_off_50k",
    "seed=3",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(load_config("quickstart", SMALL), tmp_path_factory.mktemp("runs") / "pairs")


def test_files_of_every_seed_and_symbol(trained):
    split = trained.path / "evaluation" / "test"
    assert sorted(path.name for path in split.iterdir()) == [
        "digests.json",
        "seed_3",
        "seed_4",
        "seeds.json",
        "seeds.txt",
    ]
    for seed in (3, 4):
        folder = split / f"seed_{seed}"
        assert sorted(path.name for path in folder.iterdir()) == [
            *SYMBOLS,
            "digests.json",
            "evaluation.json",
            "evaluation.txt",
            "records.npz",
        ]
        assert (folder / "USDJPY" / "trades.csv").is_file()
    assert "  of it USDJPY: 3: " in trained.table
    assert "your policies of 2 seeds" in trained.table


def test_the_log_opens_with_every_symbol(trained):
    log = (trained.path / "run.log").read_text()
    for symbol in SYMBOLS:
        assert f"bars: bundled {symbol}" in log
    assert "2 symbols, one per environment: " in log
    assert "test: 4 trade dates 2016-06-0" in log


def test_validation_is_the_mean_over_symbols_and_seeds(trained):
    """Against the account passes of the evaluator, on the policies of the best checkpoint."""
    setup, _ = evaluation.open_run(trained.path)
    policies = [
        jt.load_policy(trained.path / "policy_best" / f"seed_{seed}").policy for seed in (3, 4)
    ]
    found = [
        mean_reward(
            own.env,
            own.params,
            own.splits["validation"],
            own.algorithm,
            [setup.acting(policy, symbol)],
        )
        for symbol, own in setup.symbols.items()
        for policy in policies
    ]
    summary = read_json(trained.path / "summary.json")
    assert max(score for _, score in summary["validation"]["scores"]) == pytest.approx(
        np.mean(found), rel=1e-6
    )


def test_a_run_is_opened_again(trained):
    stored = jt.open_run(trained.path)
    assert list(stored.evaluations) == ["test/seed_3", "test/seed_4"]
    first = stored.evaluation
    assert isinstance(first, StoredEvaluation)
    assert first.trades.equals(trained.evaluation.trades)
    assert set(first.symbols) == set(SYMBOLS)
    policy = stored.policy_of(3)
    assert policy.symbols == list(SYMBOLS)
    assert policy.for_symbol("USDJPY").policy.normaliser.mean.shape[0] == 1


def test_the_table_of_an_evaluation_is_that_of_the_run(trained):
    document = json.loads(
        evaluation.evaluate_run(evaluation.Request(trained.path, as_json=True, seed=3))
    )
    assert uncounted.document(document) == uncounted.document(
        json.loads(json.dumps(trained.evaluations[3].to_json()))
    )


def test_the_bars_of_a_set_are_found_in_another_folder(tmp_path):
    """`--data FOLDER`: the file of each symbol, by its name."""
    run_folder, bars = tmp_path / "run", tmp_path / "bars"
    bars.mkdir()
    config = load_config(
        "quickstart", ["data.markets=EURUSD,USDJPY", "data.source=file", "data.folder=elsewhere"]
    )
    for symbol in SYMBOLS:
        (bars / f"{symbol.lower()}_h1.csv").write_text("time\n")
    run_folder.mkdir()
    (run_folder / "config.yaml").write_text(dump_config(config))
    rundir.write_json(
        run_folder / "manifest.json",
        {"config_sha256": config.digest(), "data_sha256": "", "nproc": 1, "files": {}},
    )
    assert evaluation._data_overrides(run_folder, bars) == {
        f"data.per_market.{symbol}.file": str(bars / f"{symbol.lower()}_h1.csv")
        for symbol in SYMBOLS
    }
    with refused("EURUSD, USDJPY; name", kind=DataError):
        evaluation._data_overrides(run_folder, bars / "eurusd_h1.csv")
