"""Figures over seeds."""

from types import SimpleNamespace

import pytest

from jaxtrade.evaluation.seeds import MOST_ROWS, _spread, interquartile_mean, sweep_table


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0], 5.0),
        ([1.0, 3.0], 2.0),
        ([9.0, 1.0, 2.0], 4.0),
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, -1000.0], 4.5),
    ],
)
def test_interquartile_mean_drops_a_quarter_on_each_side(values, expected):
    assert interquartile_mean(values) == expected


def test_what_is_undefined_is_left_out_and_shown():
    assert _spread([3, None, 1]) == {
        "median": 2.0,
        "IQM": 2.0,
        "min": 1,
        "max": 3,
        "each": [3, None, 1],
    }
    assert _spread([None]) == {
        "median": None,
        "IQM": None,
        "min": None,
        "max": None,
        "each": [None],
    }


def swept(settings, seeds):
    """Evaluations of a sweep; agent i made i dollars."""

    def agent(index):
        figures = {"net_profit": float(index), "max_drawdown": 0.0, "trades": 1}
        return SimpleNamespace(
            provenance={
                "trained_seed": index % seeds,
                "overrides": {"ppo.gamma": 0.9 + 0.01 * (index // seeds)},
            },
            header=lambda: ["costs: none"],
            agent=lambda name: SimpleNamespace(strategy_figures=figures, account_figures=figures),
            history=None,
        )

    return {index: agent(index) for index in range(settings * seeds)}


@pytest.mark.parametrize(
    ("settings", "seeds", "agents", "rows"),
    [(2, 4, 8, 2), (2, 5, 0, 2), (9, 1, MOST_ROWS, 0), (3, 1, 3, 0)],
)
def test_a_sweep_ends_with_a_row_for_each_setting(monkeypatch, settings, seeds, agents, rows):
    monkeypatch.setattr("jaxtrade.evaluation.seeds.history_lines", lambda found: [])
    monkeypatch.setattr("jaxtrade.evaluation.seeds.latest", list)
    monkeypatch.setattr("jaxtrade.evaluation.seeds.drop_policy", list)
    cells = [line.split() for line in sweep_table(swept(settings, seeds), brief=True).splitlines()]
    of_agents = [line for line in cells if len(line) == 7 and line[0].isdigit()]
    of_settings = [line for line in cells if len(line) == 6 and line[0].startswith("0.9")]
    assert (len(of_agents), len(of_settings)) == (agents, rows)
    if rows:
        nets = range(seeds)
        middle = f"{sum(nets) / seeds:.2f}"
        first = ["0.9", str(seeds), middle, middle, "0.00", f"{max(nets):.2f}"]
        assert of_settings[0] == first
