"""The calibration picture by its structure: points, intervals and effective numbers of answers, and
what it says of little evidence."""

import math

import numpy as np
import pytest

from jaxtrade.evaluation.plots import style
from jaxtrade.evaluation.plots.training import (
    LITTLE,
    Advisor,
    calibration_points,
    count_non_overlapping,
    effective_sample_size,
    plot_advice,
    wilson,
)
from tests.evaluation.test_pictures import overlaps, titles

BINS, HORIZON = 5, 30


def rows(updates=20, trust=0.4, suffixes=("",)):
    """Metrics in which advice begins at update 5."""
    return [
        {"update": i, "steps": 2048 * i}
        | {
            f"{name}{suffix}": None if i < 5 and name != "advice_share" else value
            for suffix in suffixes
            for name, value in (("trust", trust), ("agreement", 0.5), ("advice_share", i / 40))
        }
        for i in range(1, updates + 1)
    ]


def advisor(number, rate=0.6, suffix="", name="rules", seed=0):
    """Independent answers on bars that are a horizon apart."""
    rng = np.random.default_rng(seed)
    return Advisor(
        name,
        HORIZON * np.arange(number),
        rng.choice([0.15, 0.5, 0.55, 0.9], number),
        rng.random(number) < rate,
        2 * number,
        suffix,
    )


def test_wilson_by_hand():
    """The interval of 10 hits in 10 trials is 72.2 % to 100 %, that of 5 in 10 is 23.7 % to 76.3
    %.
    """
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_answers_that_do_not_overlap_are_counted():
    assert count_non_overlapping(np.array([0, 29, 30, 31, 60, 60, 100]), 30) == 4
    assert count_non_overlapping(np.zeros(0, int), 30) == 0


def test_points_by_hand():
    """Two answers in the middle range, with mean confidence 0.45 and one hit, three at the top; the
    others are empty.
    """
    one = Advisor(
        "x",
        np.array([0, 50, 100, 200, 300]),
        np.array([0.4, 0.5, 0.9, 1.0, 0.95]),
        np.array([True, False, True, True, True]),
        9,
    )
    middle, top = calibration_points(one, BINS, HORIZON)
    assert (middle.confidence, middle.rate, middle.scored, middle.effective) == (
        pytest.approx(0.45),
        0.5,
        2,
        2.0,
    )
    assert (middle.low, middle.high) == wilson(0.5, 2)
    assert (top.confidence, top.rate, top.scored) == (pytest.approx(0.95), 1.0, 3)


def test_independent_answers_are_worth_their_number():
    """On average within 15 % of it (the variance is never below that of independence), and never
    more.
    """
    rng = np.random.default_rng(1)
    found = [
        effective_sample_size(10 * np.arange(2000), rng.random(2000) < 0.6, HORIZON)
        for _ in range(50)
    ]
    assert max(found) <= 2000.0
    assert np.mean(found) > 0.85 * 2000


def test_answers_that_repeat_each_other_are_worth_their_runs():
    """Hits that persist over 60 bars: 2,000 answers on 2,000 bars are worth a few dozen. Coverage
    of the interval over 300 draws of the true rate 1/2 is above 90 %, where counting every answer
    has it below 60 %."""
    rng, bars, covered, naive = np.random.default_rng(2), np.arange(2000), 0, 0
    for _ in range(300):
        hits = np.repeat(rng.random(34) < 0.5, 60)[rng.integers(60) :][:1980]
        low, high = wilson(
            float(hits.mean()), effective_sample_size(bars[: len(hits)], hits, HORIZON)
        )
        covered += low <= 0.5 <= high
        low, high = wilson(float(hits.mean()), len(hits))
        naive += low <= 0.5 <= high
    assert covered > 270
    assert naive < 180


def test_few_windows_count_what_does_not_overlap():
    assert effective_sample_size(np.arange(50), np.arange(50) % 2 == 0, HORIZON) == 2.0
    assert effective_sample_size(np.arange(3000), np.ones(3000, bool), HORIZON) == 100.0


def test_one_advisor():
    figure = plot_advice([advisor(300)], rows(), BINS, HORIZON, "Advice on ES")
    trust, agreement, left = figure.axes
    assert titles(figure)[-1].startswith("Hit rate")
    assert left.texts[0].get_text() == "chance"
    assert len(left.texts) == 2 + 3  # a label for each range with answers
    assert left.lines[0].get_xydata().tolist() == [[0, 0], [1, 1]]
    assert trust.lines[0].get_ydata().tolist() == [0.4] * 16
    assert trust.lines[0].get_xdata()[0] == 5
    assert agreement.lines[1].get_xdata()[0] == 1
    assert "600 answers" in figure.texts[1].get_text()
    assert "300 scored" in figure.texts[1].get_text()
    assert overlaps(figure) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 8])
def test_several_advisors_have_their_own_colours_and_a_legend_that_covers_nothing(number):
    suffixes = tuple(f"/{i}" for i in range(number))
    name = "http://127.0.0.1:8000/v1/of-some-length-and-more"
    each = [advisor(200, suffix=suffix, name=name, seed=i) for i, suffix in enumerate(suffixes)]
    figure = plot_advice(each, rows(suffixes=suffixes), BINS, HORIZON, "Advice on ES")
    trust, _, left = figure.axes
    assert len({line.get_color() for line in trust.lines[:number]}) == min(number, 6)
    assert figure.legends[0].get_texts()[0].get_text().endswith("…, 200 scored")
    assert len(left.texts) == 2  # no labels that would cover each other
    assert f"{number} advisors" in figure.texts[1].get_text()
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    others = [*figure.texts, *figure.axes, *(axis.title for axis in figure.axes)]
    assert not any(legend.overlaps(other.get_window_extent()) for other in others)
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, ": nothing was scored"),
        (5, ": too little evidence"),
    ],
)
def test_little_evidence_is_said(number, said):
    figure = plot_advice([advisor(number)], rows(), BINS, HORIZON, "Advice on ES")
    assert titles(figure)[-1].endswith(said)
    assert overlaps(figure) == []


def test_a_weak_point_is_hollow():
    figure = plot_advice([advisor(60)], rows(), BINS, HORIZON, "Advice on ES")
    worth = [point.effective for point in calibration_points(advisor(60), BINS, HORIZON)]
    marks = [
        each
        for each in figure.axes[-1].collections
        if len(each.get_offsets()) and hasattr(each, "get_sizes") and len(each.get_sizes())
    ]
    white = [bool((each.get_facecolor()[0][:3] == 1).all()) for each in marks[: len(worth)]]
    assert white == [value < LITTLE for value in worth]


def test_a_run_without_rows_or_advice_has_no_picture(tmp_path):
    path = tmp_path / "advice.png"
    assert not style.write(plot_advice([advisor(9)], [], BINS, HORIZON, "t"), path)
    assert not style.write(plot_advice([], rows(), BINS, HORIZON, "t"), path)
    assert not path.exists()
    drawn = plot_advice([advisor(9)], rows(trust=None), BINS, HORIZON, "t")
    assert style.write(drawn, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_trust_that_stays_zero_has_an_axis():
    figure = plot_advice([advisor(9)], rows(trust=0.0), BINS, HORIZON, "t")
    assert figure.axes[0].get_ylim() == (-0.5, 0.5)
    assert math.isclose(figure.axes[0].lines[0].get_ydata()[0], 0.0)
