"""Pictures by their structure: the figures in the titles, the marks of winners and losers, the
levels of a day.
"""

import datetime
import re
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jaxtrade.evaluation.plots import equity, style, training
from jaxtrade.formatting import MINUS, share, short_number
from tests.evaluation.tiny import LENGTHS, walked
from tests.messages import missing


@pytest.fixture(scope="module")
def result():
    """Four sessions of a random walk. `random` wins and loses."""
    return walked()


def titles(figure):
    return [axis.get_title(loc="left") for axis in figure.axes]


def legend(axis):
    found = axis.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def marks(axis, label):
    """Number of points of the marks whose legend entry begins with `label`."""
    return sum(
        len(each.get_offsets())
        for each in axis.collections
        if str(each.get_label()).startswith(label)
    )


def overlaps(figure):
    """Pairs of texts of a figure that cover each other when it is drawn."""
    figure.canvas.draw()
    texts = [*figure.texts]
    for axis in figure.axes:
        texts += [axis.title, axis._left_title, axis.xaxis.label, axis.yaxis.label, *axis.texts]
        texts += [] if axis.get_legend() is None else axis.get_legend().get_texts()
        for i, (which, limits) in enumerate(
            ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim()))
        ):
            texts += [
                each
                for each in which.get_majorticklabels()
                if min(limits) <= each.get_position()[i] <= max(limits)
            ]
    texts = [each for each in texts if each.get_visible() and each.get_text().strip()]
    boxes = [each.get_window_extent().padded(-1) for each in texts]
    return [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(texts))
        for j in range(i)
        if boxes[i].overlaps(boxes[j])
    ]


@pytest.mark.slow
def test_the_picture_has_the_figures_of_the_evaluation(result):
    """Winners and losers are told apart."""
    agent, found = result.agent("random"), result.agent("random").strategy_figures
    title, about = equity.headline(result, agent)
    deepest = style.dollars(found["max_drawdown"])
    assert not missing(title, "random on ES", "2 Jan 2024", "5 Jan 2024", "4 sessions")
    assert about.split("   ·   ") == [
        f"net {style.dollars(found['net_profit'])}",
        f"{found['trades']} trades",
        f"{100 * found['win_rate']:.0f} % won",
        f"max drawdown {deepest}",
        "SYNTHETIC",
    ]
    idle = equity.headline(result, result.agent("flat"))[1].split("   ·   ")
    assert idle[:2] == ["net $0.00", "0 trades"]
    won = int((agent.trades.net > 0).sum())
    lost = len(agent.trades) - won
    assert won > 0 < lost
    prices, curves, drawdown, account = equity.plot_result(result, agent).axes
    assert [marks(prices, "won"), marks(prices, "lost")] == [won, lost]
    assert marks(prices, "long entry") + marks(prices, "short entry") == len(agent.trades)
    assert {f"won ({won})", f"lost ({lost})"} <= set(legend(prices))
    assert legend(curves) == ["flat", "buy_hold", "sma_cross", "random"]
    assert min(drawdown.lines[0].get_ydata()) == pytest.approx(-found["max_drawdown"])
    assert drawdown.get_title(loc="left").endswith(deepest)
    assert "drawdown floor" in legend(account)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "flat", "sma_cross"])
def test_no_text_covers_another(result, name):
    """Winners and losers, no trade at all, one trade a day: titles, legends and marks of the axes
    stay apart.
    """
    for drawn in (equity.plot_result, equity.plot_day):
        assert overlaps(drawn(result, result.agent(name))) == []


def with_random(result, mills):
    """The same result, but the equity of `random` is `mills` from the start balance."""
    changed = [
        replace(agent, strategy=replace(agent.strategy, equity=mills))
        if agent.name == "random"
        else agent
        for agent in result.agents
    ]
    return replace(result, agents=tuple(changed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "lowest", "said"),
    [
        (-50_000, -50_000, f"random: {MINUS}$50,000"),
        (90_000, 0, "random: $90,000"),
        (10, -50_000, f"random: {MINUS}$50,000 at worst"),
        (-10, 0, None),
    ],
)
def test_a_ruinous_random_does_not_flatten_the_others(result, ends, lowest, said):
    """It runs off the edge, where a mark and a text say so. Where it fits, it counts as any
    other.
    """
    length = len(result.agents[0].strategy.equity)
    wild = np.interp(
        np.arange(length), [0, length // 2, length - 1], [0, 1000 * lowest, 1000 * ends]
    ).astype(np.int64)
    result = with_random(result, wild)
    figure = equity.plot_result(result, result.agent("buy_hold"))
    curves = figure.axes[1]
    low, high = curves.get_ylim()
    sensible = [
        result.start_balance + each.strategy.equity / 1000
        for each in result.agents
        if each.name != "random"
    ]
    least, most = min(each.min() for each in sensible), max(each.max() for each in sensible)
    assert low < least < most < high
    assert [text.get_text().partition(", off")[0] for text in curves.texts] == (
        [] if said is None else [said]
    )
    assert high - low < 1.5 * (most - least)
    assert "random" in legend(curves)
    assert [line.get_marker() for line in curves.lines if line.get_linestyle() == "None"] == (
        [] if said is None else ["^" if ends > most else "v"]
    )
    assert overlaps(figure) == []


@pytest.mark.slow
def test_a_random_agent_has_the_axis_of_its_own_picture(result):
    """Neither where it is the one that is shown, nor where nothing else moves."""
    length = len(result.agents[0].strategy.equity)
    result = with_random(result, np.linspace(0, -50_000_000, length).astype(np.int64))
    alone = replace(result, agents=(result.agent("flat"), result.agent("random")))
    for shown in (
        equity.plot_result(result, result.agent("random")),
        equity.plot_result(alone, alone.agents[0]),
    ):
        curves = shown.axes[1]
        assert curves.get_ylim()[0] < 0 < curves.get_ylim()[1]
        assert not curves.texts


@pytest.mark.slow
def test_many_trades_are_counted_and_not_marked(result, monkeypatch):
    agent = result.agent("random")
    monkeypatch.setattr(equity, "MOST_MARKS", len(agent.trades) - 1)
    prices = equity.plot_result(result, agent).axes[0]
    assert f": {len(agent.trades)} trades" in prices.get_title(loc="left")
    assert marks(prices, "won") == 0


@pytest.mark.slow
def test_the_day_is_that_with_most_trades(result):
    agent = result.agent("random")
    counts = np.bincount(agent.trades.session, minlength=4)
    shown = equity.busiest(result, agent)
    assert len(shown.trades) == counts.max() == counts[shown.number]
    assert shown.last - shown.first + 1 == LENGTHS[shown.number] - 1
    top, bottom = equity.plot_day(result, agent).axes
    assert marks(top, "won") + marks(top, "lost") == counts.max()
    profit = agent.trades.net[agent.trades.session == shown.number].sum() / 1000
    assert bottom.lines[-1].get_ydata()[-1] == pytest.approx(profit)
    assert f"net {style.dollars(profit)}" in equity.day_headline(result, agent, shown)[1]
    assert top.get_title(loc="left") == "Candles of 1 minute"
    bodies = [each for each in top.collections if type(each).__name__ == "PolyCollection"]
    assert len(bodies[0].get_paths()) == LENGTHS[shown.number] - 1


@pytest.mark.slow
def test_a_day_without_trades_is_the_last_one_and_says_so(result):
    agent = result.agent("flat")
    shown = equity.busiest(result, agent)
    assert (shown.number, len(shown.trades)) == (3, 0)
    assert equity.day_headline(result, agent, shown)[1].startswith("no trades in any")
    assert legend(equity.plot_day(result, agent).axes[0]) == []


@pytest.mark.slow
def test_the_levels_of_a_day_are_those_of_the_positions(result):
    """A stop is on the losing side of the close, a target on the winning side, in every bar of a
    position.
    """
    agent = result.agent("random")
    shown = equity.busiest(result, agent)
    found = equity.levels(agent, shown)
    legs = np.asarray(agent.strategy.ref.legs)[:, 0]
    assert {len(found["stop"]), len(found["target"])} == {
        int((legs[shown.first : shown.last + 1, 0] != 0).sum())
    }
    for name, sign in (("stop", -1), ("target", 1)):
        for bar, level in found[name]:
            close = int(result.close[result.decisions.rows[shown.first + bar]])
            assert np.sign(legs[shown.first + bar, 0]) * sign * (level - close) >= 0
    assert equity.levels(result.agent("buy_hold"), shown) == {
        "stop": [],
        "target": [],
    }  # it has no bracket


@pytest.mark.slow
def test_targets_are_dashed_and_stops_are_solid(result):
    agent = result.agent("random")
    top = equity.plot_day(result, agent).axes[0]
    drawn = {str(each.get_label()).split()[0]: each for each in top.collections}
    for name, dashed in (("stop", False), ("target", True)):
        assert (drawn[name].get_linestyles()[0][1] is not None) is dashed
        assert max(round(each[1][0] - each[0][0]) for each in drawn[name].get_segments()) > 1


def test_a_level_is_one_line_as_long_as_it_holds():
    """A line for each bar would begin its dashes anew in each, and look solid."""
    found = equity.merge_levels([(3, 8), (4, 8), (5, 9), (6, 9), (8, 9)])
    assert found == [(3, 4, 8), (5, 6, 9), (8, 8, 9)]
    assert equity.merge_levels([]) == []


def test_candles_group_bars():
    assert equity.reduce_groups(np.array([3, 9, 4, 1, 7]), 2, np.maximum).tolist() == [9, 4, 7]
    assert equity.reduce_groups(np.array([3, 9, 4, 1, 7]), 2, np.minimum).tolist() == [3, 1, 7]


NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("first", "bars", "minutes", "expected"),
    [
        ((9, 31), 390, 1, ["10:00", "11:00", "12:00", "13:00", "14:00", "15:00", "16:00"]),
        ((9, 31), 40, 1, ["09:35", "09:40", "09:45", "09:50", "09:55", "10:00", "10:05", "10:10"]),
        ((18, 1), 1380, 1, ["21:00", "00:00", "03:00", "06:00", "09:00", "12:00", "15:00"]),
        ((9, 31), 1, 1, []),
        ((10, 0), 2, 5, ["10:00", "10:05"]),
    ],
)
def test_times_are_round(first, bars, minutes, expected):
    start = datetime.datetime(2013, 10, 10, *first, tzinfo=NEW_YORK)
    times = [start + datetime.timedelta(minutes=minutes * i) for i in range(bars)]
    at, labels = style.time_marks(times)
    assert labels == expected
    assert [f"{times[i]:%H:%M}" for i in at] == expected


def test_dates_name_the_year_where_it_changes():
    days = [datetime.date(2023, 12, 28), datetime.date(2023, 12, 29), datetime.date(2024, 1, 2)]
    assert style.date_marks(days) == (
        [0, 1, 2],
        ["Thu 28 Dec 2023", "Fri 29 Dec", "Tue 2 Jan 2024"],
    )
    many = [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(25)]
    at, labels = style.date_marks(many)
    assert (at[:2], labels[:2], len(at)) == ([0, 4], ["1 Jan 2024", "5 Jan"], 7)


# --- training ---------------------------------------------------------------------------------------------------------


def row(update, **changes):
    return {
        "update": update,
        "steps": update * 1000,
        "steps_per_second": 5e4,
        "episode_reward": update - 3.0,
        "entropy": 1.0,
        "action_share": {"HOLD": 0.9, "BUY": 0.095, "CLOSE": 0.005},
    } | changes


def test_the_training_shows_what_the_learner_reports():
    rows = [row(i, explained_variance=-5.0 if i == 1 else 0.5) for i in range(1, 6)]
    figure = training.plot_training(
        rows, ["entropy", "explained_variance", "absent"], "Training on ES"
    )
    assert [title.partition(",")[0] for title in titles(figure)] == [
        "Return per episode",
        "Actions",
        "Entropy",
        "Explained variance",
    ]
    assert titles(figure)[-1].endswith(f"{MINUS}1")
    reward, actions, _, explained = figure.axes
    line = reward.lines[0]
    assert line.get_xdata().tolist() == [1000, 2000, 3000, 4000, 5000]
    assert line.get_ydata().tolist() == [-2, -1, 0, 1, 2]
    assert min(explained.lines[0].get_ydata()) == -1
    assert legend(actions) == ["others", "buy", "hold"]
    assert overlaps(figure) == []


def test_a_learner_of_ones_own_gets_its_own_panels(tmp_path):
    rows = [
        {"update": 1, "steps": 10, "steps_per_second": 1.0, "my_loss": None},
        {"update": 2, "steps": 20, "steps_per_second": 1.0, "my_loss": 3.0},
    ]
    assert titles(training.plot_training(rows, ["my_loss"], "t")) == ["My loss"]
    assert titles(training.plot_training(rows[:1], ["my_loss"], "t")) == [
        "My loss: undefined throughout"
    ]
    assert style.write(training.plot_training(rows, [], "t"), tmp_path / "none.png")
    assert not style.write(training.plot_training([], ["my_loss"], "t"), tmp_path / "absent.png")
    assert [path.name for path in tmp_path.iterdir()] == ["none.png"]


def test_seeds_are_a_median_and_a_band():
    rows = [
        row(i, **{"entropy/each": [1.0, 2.0, 9.0], "episode_reward/each": [i, i, i]})
        for i in (1, 2)
    ]
    figure = training.plot_training(rows, ["entropy"], "t")
    entropy = figure.axes[2]
    assert entropy.lines[0].get_ydata().tolist() == [2.0, 2.0]
    band = entropy.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (1.0, 9.0)
    assert any("3 seeds: median and range" in text.get_text() for text in figure.texts)


@pytest.mark.parametrize("settings", [2, 7])
def test_a_sweep_has_a_line_for_each_setting_and_no_mean_of_them(settings):
    rates = [10.0**-i for i in range(settings)]
    each = [rate for rate in rates for _ in range(2)]
    many = {"learning_rate/each": each, "entropy/each": each, "episode_reward/each": each}
    figure = training.plot_training(
        [row(i, learning_rate=0.5, **many) for i in range(1, 4)],
        ["entropy", "learning_rate"],
        "t",
        settings=[f"ppo.learning_rate={rate:g}" for rate in each],
    )
    _, _, entropy, rate = figure.axes
    assert [line.get_ydata()[0] for line in rate.lines] == rates
    assert not rate.collections
    few = settings <= len(training.COLORS)
    assert len(entropy.lines) == (settings if few else 1)
    assert len(entropy.collections) == (0 if few else 1)  # the band
    assert [len(found.get_texts()) for found in figure.legends] == ([settings] if few else [])
    assert overlaps(figure) == []
    about = " ".join(text.get_text() for text in figure.texts)
    assert "seeds:" not in about
    assert few or f"{2 * settings} agents of {settings} settings" in about


def test_the_best_checkpoint_is_marked_in_every_panel():
    """It is the one that the run has kept. A higher score that is no improvement worth the name is
    not.
    """
    rows = [row(i) for i in range(1, 5)]
    figure = training.plot_training(
        rows, ["entropy"], "t", [(1, -0.5), (2, 0.25), (4, 0.26)], best=2
    )
    assert len(figure.axes) == 4
    for axis in figure.axes:
        assert [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == ":"] == [2000]
    scores = figure.axes[-1]
    assert list(scores.lines[0].get_xdata()) == [1000, 2000, 4000]
    assert [line.get_xdata()[0] for line in scores.lines if line.get_marker() == "*"] == [2000]
    assert legend(scores) == ["best, kept"]
    assert any("validation, update 2" in text.get_text() for text in figure.texts)
    assert overlaps(figure) == []
    plain = training.plot_training(rows, ["entropy"], "t")
    assert not [line for axis in plain.axes for line in axis.lines if line.get_linestyle() == ":"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (1_024_000, ["0", "200k", "400k", "600k", "800k", "1M"]),
        (4, ["0", "1", "2", "3", "4"]),
    ],
)
def test_steps_are_marked_at_round_numbers(steps, expected):
    figure = training.plot_training(
        [row(i, steps=i * steps // 4) for i in range(1, 5)], ["entropy"], "t"
    )
    figure.canvas.draw()
    bottom = figure.axes[2]
    shown = [
        label.get_text()
        for at, label in zip(bottom.get_xticks(), bottom.get_xticklabels(), strict=True)
        if 0 <= at <= steps
    ]
    assert shown == expected


@pytest.mark.slow
@pytest.mark.parametrize("updates", [1, 3])
def test_a_run_of_few_updates_does_not_look_broken(updates):
    """Each update is a point that the edge does not cut off, and the areas of the actions begin at
    0.
    """
    figure = training.plot_training([row(i) for i in range(1, updates + 1)], ["entropy"], "t")
    reward, actions, _, _ = figure.axes
    assert (reward.lines[0].get_marker(), reward.lines[0].get_clip_on()) == ("o", False)
    for area in actions.collections:
        across = area.get_paths()[0].vertices[:, 0]
        assert (across.min(), across.max()) == (0, 1000 * updates)
    assert overlaps(figure) == []


def test_a_small_change_looks_small():
    """The axis of a share or a rate begins at 0; an entropy below 0 (of densities) is shown as it
    is.
    """
    rates = training.plot_training(
        [row(i, learning_rate=0.001 - i * 1e-6) for i in (1, 2)], ["learning_rate"], "t"
    ).axes[2]
    assert rates.get_ylim() == pytest.approx((0, 1.06 * 0.000999))
    below = training.plot_training(
        [row(i, entropy=-float(i)) for i in (1, 2)], ["entropy"], "t"
    ).axes[2]
    assert below.get_ylim()[0] < -2


def test_long_runs_are_averaged_in_groups():
    values = np.array([[1.0], [3.0], [np.nan], [5.0], [np.nan], [np.nan]])
    assert training.thin(values, 3)[:2].tolist() == [[2.0], [5.0]]
    assert np.isnan(training.thin(values, 3)[2, 0])
    assert len(training.thin(np.zeros((100_000, 1)))) == training.MOST_POINTS


def test_steps_are_short():
    found = [short_number(value) for value in (0, 500, 50_000, 1_500_000, 2e9)]
    assert found == ["0", "500", "50k", "1.5M", "2G"]


def test_money_has_its_minus_before_the_dollar():
    assert [style.dollars(value) for value in (1234.5, -2, -0.001)] == [
        "$1,234.50",
        f"{MINUS}$2.00",
        "$0.00",
    ]
    assert style.dollars(-0.4, 0) == "$0"
    assert re.fullmatch(r"\d+ %", share(0.235, 0))
    assert share(None) == "n/a"
