"""Python first class: keys by keyword, data from memory, short reprs, a finished run that is opened
again.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import jaxtrade as jt
from jaxtrade.config import changed_config, find_file
from jaxtrade.data.contracts import load_contract
from jaxtrade.data.read.validate import Side
from jaxtrade.data.sources import with_bars, write_bars
from tests.messages import refused
from tests.reading import OLD

TINY = {
    "num_envs": 8,
    "num_steps": 16,
    "num_minibatches": 2,
    "hidden": [8],
    "total_timesteps": 768,
    "chunk_updates": 2,
    "tensorboard": False,
}


# --- keys by keyword


def test_plain_names_dotted_names_and_sections_reach_their_keys():
    config = jt.load_config(
        "quickstart",
        ["ppo.gamma=0.9", "seed=1"],
        total_timesteps=5,
        seed=3,
        hidden=[8],
        ppo={"gamma": 0.8},
        **{"rollout.num_envs": 64},
    )
    assert (config.train.total_timesteps, config.seed, config.network.hidden) == (5, 3, (8,))
    assert (config.ppo.gamma, config.rollout.num_envs) == (0.8, 64), "keywords come after `set`"


def test_set_takes_a_list_or_a_dict():
    listed = jt.load_config(None, ["ppo.gamma=0.9", "account.drawdown=off"])
    assert jt.load_config(set={"ppo.gamma": 0.9, "account.drawdown": "off"}) == listed
    assert changed_config(jt.load_config(), set=["ppo.gamma=0.9"], drawdown="off") == listed


def test_names_of_presets_and_files(tmp_path):
    config = jt.load_config(
        None, account="topstep_like_50k", reward="seed_phase1", data=tmp_path / "es.csv"
    )
    assert (config.account.preset, config.reward.preset) == ("topstep_like_50k", "seed_phase1")
    assert (config.data.source, config.data.file) == ("file", str(tmp_path / "es.csv"))
    section = jt.load_config(None, gamma=0.5).ppo
    assert jt.load_config(None, ppo=section).ppo == section


FAULTS = [
    (
        {"total_timestep": 5},
        ["unknown key 'total_timestep'", "'total_timesteps'"],
    ),
    (
        {"kind": "gru"},
        [
            "'kind': sampler, network and advisor",
            "sampler={'kind': ...}",
        ],
    ),
    (
        {"preset": "x", "gama": 1},
        ["account, allocate and reward", "'gamma'"],
    ),
    ({"ppo": 3}, ["ppo=3", "a section of the configuration", "num_minibatches"]),
    ({"ppo.gama": 0.9}, ["'ppo.gama'; ", "'ppo.gamma'?"]),
    ({"gamma": 0.9, "ppo": {"gamma": 0.8}}, ["'ppo.gamma' is given twice"]),
    ({"total_timesteps": "many"}, ["'train.total_timesteps' = 'many'", "keywords"]),
    ({"set": "ppo.gamma=1"}, ["set=['ppo.gamma=1']"]),
]


@pytest.mark.parametrize(("settings", "said"), FAULTS)
def test_a_fault_names_the_keyword_and_its_fix(settings, said):
    with refused(*said):
        jt.load_config("quickstart", **settings)


# --- data from memory


@pytest.fixture(scope="module")
def bars():
    return jt.load_market(jt.load_config("quickstart")).bars.rows(slice(0, 3000))


@pytest.mark.parametrize("two_sides", [False, True])
def test_bars_written_are_read_back_equal(bars, tmp_path, two_sides):
    if two_sides:
        ask = Side(bars.open + 1, bars.high + 2, bars.low + 1, bars.close + 2)
        bars = replace(bars, ask=ask, contract=replace(bars.contract, slippage_ticks=0))
    path = write_bars(bars, tmp_path / "bars")
    again = jt.load_bars(path, jt.get_contract("ES"), stamp="open")
    names = ("time", "open", "high", "low", "close") + (() if two_sides else ("volume",))
    for name in names:
        np.testing.assert_array_equal(getattr(again, name), getattr(bars, name))
    np.testing.assert_array_equal(again.ask or (), bars.ask or ())
    assert again.contract == bars.contract
    stamp = path.stat().st_mtime_ns
    assert write_bars(bars, tmp_path / "bars") == path
    assert path.stat().st_mtime_ns == stamp, "a file with this content is there already"


def test_a_configuration_with_bars_reads_them_from_its_file(bars, tmp_path):
    config = with_bars(
        jt.load_config("quickstart", columns={"time": "t"}, end="2013-10-08"), bars, tmp_path
    )
    market = jt.load_market(config)
    shown = bars.between(None, "2013-10-08")
    assert 0 < len(shown) < len(bars)
    np.testing.assert_array_equal(market.bars.close, shown.close)
    assert (config.data.source, config.data.market, config.data.columns) == ("file", "ES", {})
    assert Path(config.data.file or "").is_absolute()


def frame_of_shares():
    """Three days of regular hours."""
    days = [
        pd.date_range(f"2023-03-0{day} 09:30", periods=390, freq="min", tz="America/New_York")
        for day in (1, 2, 3)
    ]
    index = days[0].append(days[1:])
    close = 400 + np.cumsum(np.sin(np.arange(len(index)))).round(2)
    return pd.DataFrame(
        {"open": close, "high": close + 0.05, "low": close - 0.05, "close": close, "volume": 100.0},
        index=index,
    )


def test_contracts_go_by_name(tmp_path):
    frame = frame_of_shares()
    bars = jt.from_frame(frame, "spy", stamp="open")
    assert bars.contract == load_contract("SPY")
    assert len(bars) == 1170
    config = with_bars(jt.load_config("quickstart"), bars, tmp_path)
    assert (config.data.contract, jt.load_market(config).contract.symbol) == ("SPY", "SPY")
    path = tmp_path / "share.csv"
    frame.rename_axis("time").to_csv(path)
    assert jt.load_bars(path, "SPY", stamp="open").contract == bars.contract
    own = tmp_path / "QQQ.yaml"
    own.write_text(
        find_file("SPY", "contracts", "contract").read_text().replace("symbol: SPY", "symbol: QQQ")
    )
    assert jt.from_frame(frame, str(own), stamp="open").contract.symbol == "QQQ"


def test_a_contract_that_is_not_known_names_the_choices():
    with refused(
        "contract 'QQQ': ",
        "(known: NQ, ES, ",
        "shipped contracts: 6B, ",
        "GOOG, SPY)",
        "docs/data.md",
    ):
        jt.from_frame(frame_of_shares(), "QQQ", stamp="open")
    with refused("contract='SPY' in Python"):
        jt.run(data=frame_of_shares(), market="SPY", stamp="open")


def test_bars_that_a_file_cannot_hold_are_refused(bars, tmp_path):
    config = jt.load_config("quickstart")
    own = replace(bars, contract=replace(bars.contract, tick_mills=1))
    for given, said in (
        (replace(bars, synthetic=True), "synthetic"),
        (own, "give contract='FILE'"),
    ):
        with refused(said):
            with_bars(config, given, tmp_path)
    assert not list(tmp_path.iterdir())


def test_run_refuses_before_it_trains(bars, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("")
    for settings, match in (
        ({"data": bars, "market": "NQ"}, "market='NQ': "),
        ({"data": bars, "stamp": "close"}, "stamp='close': "),
        ({"data": [1, 2]}, "data=<list>: "),
        ({"total_timestep": 5}, "'total_timesteps'"),
        ({"path": tmp_path / "used"}, "already exists"),
    ):
        with refused(match):
            jt.run("quickstart", **{"path": tmp_path / "run", **settings})
    assert not (tmp_path / "bars").exists()
    columns = dict.fromkeys(("open", "high", "low", "close"), 1)
    with refused("data.stamp", kind=jt.DataError):
        jt.run(data=pd.DataFrame({"time": ["2013-10-07"], **columns}))


def frame_of(bars):
    index = pd.DatetimeIndex(pd.to_datetime(bars.time, unit="s", utc=True), name="time")
    tick = float(bars.contract.tick_size)
    prices = {name: getattr(bars, name) * tick for name in ("open", "high", "low", "close")}
    return pd.DataFrame(prices | {"volume": bars.volume}, index=index)


@pytest.mark.slow
def test_a_frame_becomes_a_run_that_can_be_opened_and_evaluated_again(bars, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = jt.run("quickstart", data=frame_of(bars), market="ES", stamp="open", **TINY)
    assert result.path.parent == Path("runs")
    assert result.exit_code in (0, 1)
    from jaxtrade.runs.evaluate import Request, evaluate_run

    assert result.table.splitlines()[0] == evaluate_run(Request(result.path)).splitlines()[0]
    stored = jt.open_run(result.path)
    pd.testing.assert_frame_equal(stored.trades, result.trades)
    pd.testing.assert_frame_equal(stored.equity, result.equity)
    pd.testing.assert_frame_equal(stored.metrics, result.metrics)
    assert stored.evaluation.figures.equals(result.evaluation.figures)
    assert len(stored.metrics) == result.training.updates
    shown = [result, result.training, result.evaluation, stored, stored.policy, stored.evaluation]
    assert {
        type(thing).__name__: len(repr(thing))
        for thing in shown
        if not 20 < len(repr(thing)) <= 300
    } == {}
    assert result._repr_html_() == stored._repr_html_()


# --- what Python shows


def test_reprs_are_short_and_say_what_the_thing_is(bars):
    config = jt.load_config("quickstart", total_timesteps=5, columns={"time": "t" * 500})
    env = jt.make_env(config)
    market = jt.load_market(jt.load_config("quickstart"))
    params = jt.make_params(market, jt.split_sessions(market, config.split)["train"], config)
    shown = {
        "RunConfig(": config,
        "TradingEnv(task=manage": env,
        "Market(ES, 5 sessions, 6,826 bars": market,
        "Bars(ES, 3,000 bars of 60 s": bars,
        "EnvParams(market of 6,826 bars": params,
        "LoadedPolicy(ppo": jt.load_policy(OLD),
        "StoredRun(": jt.open_run(OLD),
        "ObservationSpec(": env.spec,
    }
    for start, thing in shown.items():
        text = repr(thing)
        assert text.startswith(start)
        assert len(text) <= 300
        assert "\n" not in text
    # JAX replaces leaves by tracers, shapes or None, and shows them in its messages
    assert "6,826" in repr(jax.eval_shape(lambda x: x, params))
    assert "?" in repr(jax.tree.map(lambda _: None, params))
    assert repr(jt.RunConfig()) == "RunConfig()"
    assert repr(jt.load_config(None, gamma=0.5, seed=2)) == "RunConfig(seed=2, ppo.gamma=0.5)"


# --- a run opened again


def test_a_finished_run_is_read_from_its_folder():
    run = jt.open_run(OLD)
    assert list(run.evaluations) == ["test"]
    assert run.config.env.task == "manage"
    net = run.evaluation.figures.loc[("strategy", "net_profit"), "greedy"]
    assert run.trades["net_pnl"].sum() == pytest.approx(net)
    assert str(run.equity.index.dtype) == "datetime64[s, America/New_York]"
    assert run.metrics.index.tolist() == [1, 2, 3, 4]
    assert any(name.startswith("action_share.") for name in run.metrics.columns)
    assert run.table == (OLD / "evaluation/test/evaluation.txt").read_text().rstrip("\n")
    assert run.evaluation.verdict in run.table
    assert run.summary is not None
    assert run.policy.action_names[0] == "HOLD"
    assert "your policy on ES" in run.plot().axes[0].get_title(loc="left")
    page = run._repr_html_()
    assert run.evaluation.verdict.replace("'", "&#39;") in page


def test_several_seeds_and_splits_have_their_names(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    (run / "evaluation" / "test").rename(run / "evaluation" / "x")
    for name in ("all", "test/seed_0", "test/seed_1", "validation"):
        shutil.copytree(run / "evaluation" / "x", run / "evaluation" / name)
    shutil.rmtree(run / "evaluation" / "x")
    assert list(jt.open_run(run).evaluations) == ["test/seed_0", "test/seed_1", "validation", "all"]


def test_a_run_without_results_says_how_to_get_them(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    (run / "evaluation/test/evaluation.txt").unlink()
    with refused("evaluation.txt: ", "evaluate", kind=jt.DataError):
        _ = jt.open_run(run).table
    for name in ("evaluation", "policy"):
        shutil.rmtree(run / name)
    (run / "summary.json").unlink()
    (run / "metrics.jsonl").unlink()
    opened = jt.open_run(run)
    assert opened.evaluations == {}
    assert opened.summary is None
    assert "no evaluation yet" in repr(opened)
    assert "no evaluation yet" in opened._repr_html_()
    with refused("no evaluation yet"):
        _ = opened.trades
    with refused("no policy", kind=jt.CheckpointError):
        _ = opened.policy
    with refused("not begun to train"):
        _ = opened.metrics
    with refused("not a run directory"):
        jt.open_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("EURUSD-man", "EURUSD-manage-1"),
        ("ES-mange-2", "ES-manage-2"),
        ("ES-manage-2/policy", "ES-manage-2"),
        ("x", None),
    ],
)
def test_the_nearest_run_is_suggested(tmp_path, name, near):
    for run in ("EURUSD-manage-1", "ES-manage-2"):
        (tmp_path / run).mkdir()
        for file in ("manifest.json", "config.yaml"):
            (tmp_path / run / file).write_text("{}")
    (tmp_path / "x-policy").mkdir()
    (tmp_path / "x-policy" / "manifest.json").write_text("{}")  # a policy has one too
    with pytest.raises(jt.ConfigError) as error:
        jt.open_run(tmp_path / name)
    assert str(error.value).endswith(
        f"; did you mean {tmp_path / near}?" if near else "'jaxtrade train'"
    )
