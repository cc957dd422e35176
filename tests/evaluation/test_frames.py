"""Trades, equity and figures as frames: those in memory equal those of the files, and their types
are of use.
"""

import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from jaxtrade.errors import DataError
from jaxtrade.evaluation.evaluate import write
from jaxtrade.evaluation.frames import (
    FILL_COLUMNS,
    TRADE_COLUMNS,
    WORDS,
    fills_frame,
    read_equity,
    read_fills,
    read_trades,
    write_frame,
)
from jaxtrade.runs.train import RunResult
from jaxtrade.training.loop import TrainResult
from tests.evaluation.tiny import walked
from tests.messages import missing

ZONE = "America/New_York"


@pytest.fixture(scope="module")
def result():
    return walked()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "flat"])
def test_the_files_hold_what_the_memory_holds(result, name, tmp_path):
    write(result, tmp_path, name)
    pd.testing.assert_frame_equal(
        result.trades_of(name), read_trades(tmp_path / "trades.csv", ZONE)
    )
    pd.testing.assert_frame_equal(
        result.equity_of(name), read_equity(tmp_path / "equity.csv", ZONE)
    )
    assert len(result.trades_of(name)) == len(result.agent(name).trades)


@pytest.mark.slow
def test_the_types_are_of_use(result):
    trades, equity = result.trades, result.equity
    assert len(trades) > 5, "the fixture trades"
    for column in ("decision_time", "entry_time", "exit_time"):
        assert str(trades[column].dtype) == f"datetime64[s, {ZONE}]"
    assert str(equity.index.dtype) == f"datetime64[s, {ZONE}]"
    assert trades["session"].dtype == equity["session"].dtype == np.dtype("datetime64[s]")
    assert (trades["exit_time"] >= trades["entry_time"]).all()
    assert set(trades["side"]) == {"long", "short"}
    assert trades["net_pnl"].sum() == pytest.approx(
        result.figures.loc[("strategy", "net_profit"), "random"]
    )
    assert equity["strategy_equity"].iloc[-1] - result.start_balance == pytest.approx(
        trades["net_pnl"].sum()
    )
    assert equity["account_end"].notna().sum() == (result.agents[0].account.end != 0).sum()
    assert np.isnan(result.figures.loc[("strategy", "win_rate"), "flat"])


@pytest.mark.slow
def test_a_figure_shows_equity_and_drawdown(result):
    figure = result.plot()
    upper, lower = figure.axes
    assert upper.get_title(loc="left").startswith("random on ES, ")
    equity = result.equity["strategy_equity"].to_numpy()
    assert np.array_equal(upper.lines[0].get_ydata(), equity)
    deepest = result.figures.loc[("strategy", "max_drawdown"), "random"]
    assert lower.lines[0].get_ydata().min() == pytest.approx(-deepest)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "flat on" in result.plot("flat").axes[0].get_title(loc="left")


@pytest.mark.slow
def test_html_has_the_figures_of_the_table(result):
    page = result._repr_html_()
    assert f">{result.figures.loc[('strategy', 'net_profit'), 'random']:,.2f}<" in page
    assert page.count("<th ") == 5, "an empty corner and four agents"
    assert "Staying flat" in page or "staying flat" in page
    assert "http" not in page


@pytest.mark.slow
def test_reprs_are_short(result):
    for thing in (result, result.agents[0], result.agents[0].trades):
        assert 20 < len(repr(thing)) <= 300, type(thing)
    assert "random" in repr(result)
    assert "trades" in repr(result.agents[0])

    health = {"finite": (True, 1.0), "entropy": (False, 0.0)}
    training = TrainResult(
        np.zeros(10_000), [{"update": 1}] * 500, health, 500, 4096 * 500, 3.25, 1e6, True
    )
    text = repr(training)
    assert not missing(text, "500 updates", "2,048,000 steps", "3.2 s", "failed entropy")
    run = RunResult(Path("runs/some"), training, {0: result}, 1)
    assert not missing(repr(run), "RunResult(runs/some", "EvaluationResult(ES")
    many = RunResult(Path("runs/some"), training, dict.fromkeys(range(8), result), 1)
    assert not missing(repr(many), "agent 0 of 8: EvaluationResult(ES")
    assert len(repr(run)) <= 300
    assert run.trades.equals(result.trades)
    assert result._repr_html_() in run._repr_html_()


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "trades.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="its columns are a, b"):
        read_trades(path, ZONE)
    with pytest.raises(DataError, match="cannot be read"):
        read_equity(tmp_path / "equity.csv", ZONE)


def test_the_columns_of_the_trades_are_documented():
    """Each of them, in their order, and each reason for an exit. `session` is the trade date."""
    page = (Path(__file__).parents[2] / "docs/run_folder.md").read_text(encoding="utf-8")
    table = page.split("columns of `trades.csv`")[1].splitlines()
    rows = [line.split("|")[1:3] for line in table if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", "".join(row[0] for row in rows)) == list(TRADE_COLUMNS)
    reasons = next(row[1] for row in rows if "exit_reason" in row[0])
    assert re.findall(r"`(\w+)`", reasons) == list(WORDS["exit_reason"])
    assert "the trade date" in rows[0][1]


def test_no_fill_is_an_empty_frame_in_memory_and_from_its_file(tmp_path):
    nothing = np.zeros((3, 2), np.int32)
    names = [f"{kind}_{of}" for kind in ("close", "open", "exit") for of in ("quantity", "price")]
    event = SimpleNamespace(
        **dict.fromkeys([*names, "exit_reason", "cost", "cash"], nothing),
    )
    contract = SimpleNamespace(tick_size=Decimal("0.25"), decimals=2)
    market = SimpleNamespace(
        symbols=("MES", "MNQ"),
        contracts=(contract, contract),
        times=60 * np.arange(5),
        opens=np.zeros((5, 2), int),
        bar_seconds=60,
    )
    record, decisions = SimpleNamespace(event=event), SimpleNamespace(rows=np.arange(3))
    found = fills_frame(record, decisions, market)
    write_frame(found, tmp_path / "trades.csv", 2)
    assert (tmp_path / "trades.csv").read_text() == ",".join(FILL_COLUMNS) + "\n"
    pd.testing.assert_frame_equal(read_fills(tmp_path / "trades.csv"), found)
