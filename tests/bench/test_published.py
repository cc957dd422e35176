"""README.md and docs/ say of speed and memory what the committed results hold, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import chart, pages, picture, provenance, publish, targets
from bench.provenance import by_name
from jaxtrade.errors import DataError
from tests.bench.made_up import STAMP, env_step
from tests.bench.provenance import (
    claims,
    generated_part,
    short_rows,
    stray_in_page,
    stray_in_readme,
    stray_in_short,
    unfounded,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
]
README = "README.md"
PAGE = "docs/benchmarks.md"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def bounds(chosen: list[targets.Target], results: targets.Results) -> dict[str, Any]:
    """What a target is called, in both tables -> the numbers that may stand in its row beside the
    measured one.
    """
    found = {}
    for target in chosen:
        limit = target.limit(results)
        found[target.what] = [
            target.bound,
            target.what,
            *([] if limit is None else [limit, 0.85 * limit]),
        ]
        found[target.headline] = found[target.what]
    return found


def ratios(chosen: list[targets.Target], results: targets.Results) -> dict[str, tuple[str, str]]:
    """Headline -> (result, dotted path of the ratio)."""
    return {
        target.headline: (target.bench, ".".join(target.measured(results)[0][:-1]))
        for target in chosen
    }


@pytest.mark.parametrize("name", [README, PAGE])
def test_generated_parts_are_what_the_results_make(name: str) -> None:
    text = read(name)
    assert publish.inserted(text, publish.generated()[name], name) == text, (
        "run `python -m bench.publish`"
    )


@pytest.mark.parametrize(
    "module", publish.PICTURES, ids=["throughput", "ratios", "precision_curves"]
)
def test_the_pictures_show_the_results(module: Any) -> None:
    folder = ROOT / "bench" / "results"
    results = publish.load(folder).get("", {})
    assert not module.shown(results) or module.is_current(results, module.files(folder)), (
        "run bench.publish"
    )


def test_the_readme_has_one_picture_and_a_table_of_six_rows() -> None:
    part = generated_part(read(README))
    assert part.count("![") == 1
    assert (
        len(short_rows(part)) == 6 == sum(line.startswith("| ") for line in part.splitlines()) - 2
    )


def test_commits_of_results_are_clean_ones_of_this_history() -> None:
    if reason := provenance.no_history(ROOT):
        pytest.skip(reason)
    provenance.check(publish.load(ROOT / "bench" / "results"), ROOT)
    every = {
        str(path.relative_to(ROOT)): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "bench").rglob("*.json"))
    }
    provenance.check({"": every}, ROOT)  # those that no page shows too
    assert len(every) >= 16
    for commit in ("0123abc", every["bench/results/env_step.json"]["stamp"]["commit"] + "+"):
        every["bench/results/env_step.json"]["stamp"]["commit"] = commit  # planted
        with pytest.raises(
            DataError, match=r"bench/results/env_step\.json.*measure again from a clean commit"
        ):
            provenance.check({"": every}, ROOT)


def test_no_two_lines_of_the_picture_look_alike() -> None:
    """A marker for every line; a colour for every rival, and one for jaxtrade's own lines."""
    results = publish.load(ROOT / "bench" / "results")[""]
    lines = [name for panel in picture.panels(results).values() for name in panel]
    looks = picture.styles(lines)
    assert {*lines} <= looks.keys()
    assert len({look.marker for look in looks.values()}) == len(looks)
    rivals = {look.colour for name, look in looks.items() if not name.startswith("jaxtrade")}
    assert len(rivals) == sum(not name.startswith("jaxtrade") for name in looks)
    assert {look.colour for name, look in looks.items() if name.startswith("jaxtrade")} == {
        picture.COLOUR
    }
    assert picture.COLOUR not in rivals
    with pytest.raises(ValueError, match="add colours and markers"):
        picture.styles([*lines, *(f"new rival {i}" for i in range(len(picture.COLOURS)))])


@pytest.mark.parametrize("page", PAGES)
def test_no_figure_stands_elsewhere(page: str) -> None:
    found = [f"{page}:{line}: {words}" for line, words in claims(read(page))]
    assert not found, "figures of speed or memory belong in the generated part: " + "; ".join(found)


def test_published_figures_are_in_the_results() -> None:
    loaded, chosen, page = (
        publish.load(ROOT / "bench" / "results"),
        targets.load(),
        generated_part(read(PAGE)),
    )
    assert complaints(generated_part(read(README)), page, loaded, chosen) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "It makes 5M steps/s on a laptop.",
        "about 5,000,000 environment steps per second",
        "100k steps per\nCPU-second",
        "9,000 steps a second",
        "thousands of steps per second",
        "10,483 SPS",
        "It trains 25x faster than SB3.",
        "25 times as fast as SB3",
        "ten times faster",
        "twice as fast",
        "half the speed",
        "30 % faster",
        "a speedup of 12",
        "a 12x speed-up",
        "a 20-fold speedup",
        "after 20M steps",
        "107 GF/s of matrix products",
        "5.2 seconds to compile",
        "compiling takes about 6 s",
        "a train chunk compiles in 5 seconds",
        "compilation took 18.6 s",
        "36 bytes per step",
        "212 B per environment",
        "resident memory of 450 MB",
    ],
)
def test_planted_figures_are_found(sentence: str) -> None:
    text = f"# Title\n\n{publish.BEGIN}\n5M steps/s\n{publish.END}\n\nSome words. {sentence}\n"
    assert [line for line, _ in claims(text)] == [7]


@pytest.mark.parametrize(
    "sentence",
    [
        "4,000 steps with every kind of end",
        "a level that is met in one second bar of 60",
        "Intraday bars of one length from 1 second to 1 hour",
        "`jaxtrade train --set train.total_timesteps=200_000` runs 64 environments for 64 steps",
        "at most 8 each, 96 bytes a bar",
        "minutes since 09:30 / 449",
        "20 x 11 slots",
        "an update every 128 steps",
        "64x64 network, 4 epochs",
        "16 times the tick of ES",
        "on the second try",
        "five seconds before the close",
        "one of 8 seeds",
        "Python 3.11, 2 cores",
        "costs are doubled in 2 of 4 runs",
    ],
)
def test_harmless_sentences_are_not(sentence: str) -> None:
    assert list(claims(f"Some words. {sentence}\n")) == []


CHOSEN = [
    targets.Target(
        "fast 64x64",
        "least",
        1000,
        "x",
        "env_step",
        ("ratios", "jaxtrade@1024/SubprocVecEnv(8)", "cpu"),
        "",
        "",
        headline="quick 64x64",
    ),
    targets.Target(
        "above 64x64",
        "least",
        25,
        "x",
        "env_step",
        ("ratios", "jaxtrade@64/peer", "wall"),
        "",
        "of the products.",
        ("ceiling", "ratios", "jaxtrade@64/peer", "wall"),
        "beside the peer",
    ),
    targets.Target(
        "small",
        "most",
        200,
        "B",
        "env_step",
        ("memory", "state_bytes"),
        "",
        "its 212 bytes are needed.",
    ),
    targets.Target(
        "on a card",
        "least",
        1,
        "steps/s",
        "env_step",
        ("sides", "jaxtrade@64", "steps_per_second"),
        "card",
        "",
    ),
]


def published(chosen: list[targets.Target] = CHOSEN) -> tuple[str, str, targets.Results]:
    """Generated parts of README and page, and the results, of two results that were made up."""
    own = env_step()
    own["ratios"] |= {"jaxtrade@64/peer": {"wall": 0.93, "cpu": 1.03}}
    own["ceiling"] = {"ratios": {"jaxtrade@64/peer": {"wall": 20.0, "cpu": 10.0}}}
    results = {
        "": {"env_step": own},
        "card": {"env_step": env_step(7e6, stamp=STAMP | {"device": "Card 9"})},
    }
    parts = (pages.readme(results, chosen, "picture.svg"), pages.page(results, chosen))
    readme, page = ("\n".join([publish.BEGIN, *lines, publish.END]) for lines in parts)
    return readme, page, results


def complaints(
    readme: str, page: str, results: targets.Results, chosen: list[targets.Target] = CHOSEN
) -> list[str]:
    named, held, short = by_name(results), bounds(chosen, results), ratios(chosen, results)
    return (
        stray_in_page(page, named, held)
        + stray_in_readme(readme, page, named)
        + stray_in_short(readme, named, short, held)
        + stray_in_short(page, named, short, held)
    )


def test_what_the_generator_writes_is_founded() -> None:
    assert complaints(*published()) == []


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("page", "| jaxtrade@64 | 4.32M", "| jaxtrade@64 | 8.64M"),  # the figure of another row
        ("page", "| jaxtrade@64 | 4.32M", "| jaxtrade@64 | 4.42M"),
        ("page", "| jaxtrade@64 |", "| jaxtrade@512 |"),
        ("page", "3.89M to 4.75M", "3.89M to 4.85M"),
        ("page", "| memory / state_bytes | 212 B |", "| memory / state_bytes | 112 B |"),
        ("page", "| fast 64x64 | >= 1,000x | 1,600x |", "| fast 64x64 | >= 1,000x | 1,700x |"),
        ("page", "| fast 64x64 | >= 1,000x |", "| fast 64x64 | >= 900x |"),
        (
            "page",
            "on a card | >= 1 steps/s | 7M",
            "on a card | >= 1 steps/s | 8.64M",
        ),  # of another machine
        ("page", "load average before: 0.25", "load average before: 0.15"),
        ("page", "jax 0.10.2", "jax 0.11.2"),
        ("page", "- small: 212 B", "- small: 215 B"),
        ("page", "## Targets", "## Targets\n\nIt is 37x as fast."),
        (
            "page",
            "| above 64x64 | >= 17x (25x is above the ceiling) | 0.93x |",
            "| above 64x64 | >= 16x | 0.93x |",
        ),
        ("page", "| **missed** | 20x |", "| **missed** | 30x |"),
        ("page", "The target is now 17x.", "The target is now 18x."),
        ("page", "it would be 20x", "it would be 21x"),
        ("readme", "| quick 64x64 | 1,230x: faster |", "| quick 64x64 | 1,330x: faster |"),
        (
            "readme",
            "| 1,600x: faster | >= 1,000x, per CPU second | met |",
            "| 1,600x: faster | >= 900x | met |",
        ),
        (
            "readme",
            "| >= 17x (25x is above the ceiling), by the clock | **missed** |",
            "| >= 17x (25x is above the ceiling), by the clock | met |",
        ),
        ("readme", "0.93x: **slower**", "0.93x: level"),
        ("readme", "0.93x: **slower**", "1.03x: level"),
        ("readme", "2 missed", "3 missed"),
        ("page", "2 are met", "3 are met"),
        ("readme", "| quick 64x64 |", "| another thing |"),
    ],
)
def test_planted_wrong_figures_are_found(place: str, old: str, new: str) -> None:
    readme, page, results = published()
    parts = {"readme": readme, "page": page}
    assert old in parts[place]
    parts[place] = parts[place].replace(old, new)
    assert complaints(parts["readme"], parts["page"], results) != []


def test_an_unfounded_reason_is_found() -> None:
    chosen = [CHOSEN[2]._replace(note="the processor makes only 37 of them.")]
    [complaint] = complaints(*published(chosen), chosen)
    assert complaint.endswith("the processor makes only 37 of them.: 37")


def test_losses_are_said_in_words() -> None:
    readme, page, _ = published()
    for part in (readme, page):
        assert (
            "| beside the peer | 0.93x: **slower** | 1.03x: level | >= 17x (25x is above the ceiling), by the "
            "clock | **missed** |"
        ) in part
    assert (
        "- above 64x64: the target was 25x, set before anything was measured. With the matrix products alone it "
        "would be 20x. The target is now 17x."
    ) in page
    assert "Of all 4 targets, 2 are met, 2 missed and 0 not measured." in readme


def test_the_chart_shows_slower_and_what_is_not_measured() -> None:
    ratio = {"wall": 0.93, "cpu": 1.2}
    result = {
        "stamp": STAMP,
        "ratios": {"small/rejax/4": ratio, "small/sb3_dummy/4": {"wall": 9.0, "cpu": 8.0}},
        "ceiling": {"small": {"ratios": {"small/rejax/4": {"wall": 1.5, "cpu": 1.6}}}},
    }
    rows = {row.label: row for row in chart.rows({"ppo_train": result})}
    assert rows["PPO 64x64, 4 environments / rejax"] == chart.Row(
        "PPO 64x64, 4 environments / rejax", 0.93, 1.2, 1.5, False
    )
    assert [
        rows[f"PPO 64x64, 4 environments / {name}"].words for name in ("rejax", "SB3", "PureJaxRL")
    ] == ["0.93x: slower", "9x: faster", "not measured"]
    busy = result | {"stamp": STAMP | {"load_before": 1.0}}
    assert chart.rows({"ppo_train": busy})[1].words == "9x: faster (unverified)"
    assert chart.rows({}) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"load_before": 1.75}, ["load average 1.75 at the start"]),
        ({"steal": {"share": 0.02, "side": "theirs"}}, ["steal time 2 % during theirs"]),
    ],
)
def test_doubts(changed: dict[str, Any], expected: list[str]) -> None:
    assert provenance.doubts({"stamp": STAMP | changed}) == expected


def test_a_commit_is_no_number() -> None:
    assert unfounded("results of commit 64e4999", []) == []
    assert unfounded("64e4 steps", []) == ["64e4"]


def test_a_sign_counts() -> None:
    assert unfounded("rest: -0.0139", [-0.0139]) == []
    assert unfounded("rest: -0.0139", [0.0139]) == ["-0.0139"]
    assert unfounded("256-256-128 at 4-16", [256, 128, 4, 16]) == []
