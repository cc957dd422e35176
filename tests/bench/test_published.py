"""README.md and docs/ say of speed and memory what the committed results hold, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import picture, publish, targets
from tests.bench.made_up import STAMP, env_step
from tests.bench.provenance import claims, generated_part, stray_in_page, stray_in_readme, unfounded

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", ROOT / "CHANGELOG.md",
                                                        *sorted((ROOT / "docs").glob("*.md")))]
README = "README.md"
PAGE = "docs/benchmarks.md"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def by_name(results: targets.Results) -> dict[str, Any]:
    return {f"{machine}/{bench}" if machine else bench: result
            for machine, benches in results.items() for bench, result in benches.items()}


def bounds(chosen: list[targets.Target]) -> dict[str, Any]:
    return {target.what: [target.bound, target.what] for target in chosen}


@pytest.mark.parametrize("name", [README, PAGE])
def test_generated_parts_are_what_the_results_make(name: str) -> None:
    text = read(name)
    assert publish.inserted(text, publish.generated()[name], name) == text, "run `python -m bench.publish`"


def test_the_picture_shows_the_results() -> None:
    folder = ROOT / "bench" / "results"
    results = publish.load(folder).get("", {})
    assert not picture.panels(results) or picture.is_current(results, picture.files(folder)), "run bench.publish"


@pytest.mark.parametrize("page", PAGES)
def test_no_figure_stands_elsewhere(page: str) -> None:
    found = [f"{page}:{line}: {words}" for line, words in claims(read(page))]
    assert not found, "figures of speed or memory belong in the generated part: " + "; ".join(found)


def test_published_figures_are_in_the_results() -> None:
    results, page = by_name(publish.load(ROOT / "bench" / "results")), generated_part(read(PAGE))
    assert stray_in_page(page, results, bounds(targets.load())) == []
    if publish.BEGIN in read("README.md"):
        assert stray_in_readme(generated_part(read("README.md")), page, results) == []


@pytest.mark.parametrize("sentence", [
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
])
def test_planted_figures_are_found(sentence: str) -> None:
    text = f"# Title\n\n{publish.BEGIN}\n5M steps/s\n{publish.END}\n\nSome words. {sentence}\n"
    assert [line for line, _ in claims(text)] == [7]


@pytest.mark.parametrize("sentence", [
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
])
def test_harmless_sentences_are_not(sentence: str) -> None:
    assert list(claims(f"Some words. {sentence}\n")) == []


CHOSEN = [
    targets.Target("fast 64x64", "least", 1000, "x", "env_step",
                   ("ratios", "jaxtrade@1024/SubprocVecEnv(8)", "cpu"), "", ""),
    targets.Target("small", "most", 200, "B", "env_step", ("memory", "state_bytes"), "", "its 212 bytes are needed."),
    targets.Target("on a card", "least", 1, "steps/s", "env_step", ("sides", "jaxtrade@64", "steps_per_second"), "card",
                   ""),
]


def published(chosen: list[targets.Target] = CHOSEN) -> tuple[str, str, dict[str, Any]]:
    """Generated parts of README and page, and the results by name, of two results that were made up."""
    results = {"": {"env_step": env_step()}, "card": {"env_step": env_step(7e6, stamp=STAMP | {"device": "Card 9"})}}
    parts = (publish.readme(results, chosen, "picture.svg"), publish.page(results, chosen))
    readme, page = ("\n".join([publish.BEGIN, *lines, publish.END]) for lines in parts)
    return readme, page, by_name(results)


def complaints(readme: str, page: str, results: dict[str, Any], chosen: list[targets.Target] = CHOSEN) -> list[str]:
    return stray_in_page(page, results, bounds(chosen)) + stray_in_readme(readme, page, results)


def test_what_the_generator_writes_is_founded() -> None:
    assert complaints(*published()) == []


@pytest.mark.parametrize(("place", "old", "new"), [
    ("page", "| jaxtrade@64 | 4.32M", "| jaxtrade@64 | 8.64M"),  # the figure of another row
    ("page", "| jaxtrade@64 | 4.32M", "| jaxtrade@64 | 4.42M"),
    ("page", "| jaxtrade@64 |", "| jaxtrade@512 |"),
    ("page", "3.89M to 4.75M", "3.89M to 4.85M"),
    ("page", "| memory / state_bytes | 212 B |", "| memory / state_bytes | 112 B |"),
    ("page", "| fast 64x64 | >= 1,000x | 1,600x |", "| fast 64x64 | >= 1,000x | 1,700x |"),
    ("page", "| fast 64x64 | >= 1,000x |", "| fast 64x64 | >= 900x |"),
    ("page", "on a card | >= 1 steps/s | 7M", "on a card | >= 1 steps/s | 8.64M"),  # of another machine
    ("page", "load average before: 0.25", "load average before: 0.15"),
    ("page", "jax 0.10.2", "jax 0.11.2"),
    ("page", "- small: 212 B", "- small: 215 B"),
    ("page", "## Targets", "## Targets\n\nIt is 37x as fast."),
    ("readme", "| fast 64x64 | >= 1,000x | 1,600x |", "| fast 64x64 | >= 1,000x | 1,610x |"),
    ("readme", "| small | <= 200 B | 212 B | **missed** |", "| small | <= 200 B | 212 B | met |"),
    ("readme", "- small: 212 B", "- small: 202 B"),
    ("readme", "2 CPU cores", "3 CPU cores"),
])
def test_planted_wrong_figures_are_found(place: str, old: str, new: str) -> None:
    readme, page, results = published()
    parts = {"readme": readme, "page": page}
    assert old in parts[place]
    parts[place] = parts[place].replace(old, new)
    assert complaints(parts["readme"], parts["page"], results) != []


def test_an_unfounded_reason_is_found() -> None:
    chosen = [CHOSEN[1]._replace(note="the processor makes only 37 of them.")]
    [complaint] = complaints(*published(chosen), chosen)
    assert complaint.endswith("the processor makes only 37 of them.: 37")


def test_a_commit_is_no_number() -> None:
    assert unfounded("results of commit 64e4999", []) == []
    assert unfounded("64e4 steps", []) == ["64e4"]


def test_a_sign_counts() -> None:
    assert unfounded("rest: -0.0139", [-0.0139]) == []
    assert unfounded("rest: -0.0139", [0.0139]) == ["-0.0139"]
    assert unfounded("256-256-128 at 4-16", [256, 128, 4, 16]) == []
