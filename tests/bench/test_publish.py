"""What is published, on pages and results of the test's own: nothing quick, nothing missed without
its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import picture, publish, targets
from jaxtrade.errors import DataError
from tests.bench.made_up import STAMP, env_step, side, write

PAGE = f"# Title\n\nbefore\n\n{publish.BEGIN}\nold\n{publish.END}\n\nafter\n"
ROWS = """
- {what: fast enough, least: 1000, unit: x, bench: env_step, at: [ratios, "*/SubprocVecEnv(8)", cpu]}
- {what: small enough, most: 200, unit: B, bench: env_step, at: [memory, state_bytes], note: "of the pointers."}
- {what: compiled once, equals: 0, bench: env_step, at: [memory, recompiles]}
- {what: as many steps, overlaps: [0.1, 0.2], bench: env_step, at: [curve]}
- {what: elsewhere, least: 1, bench: memory, at: [none]}
- {what: left out, least: 1, bench: env_step, at: [ratios, none]}
- {what: on a card, least: 3e8, unit: steps/s, machine: card, bench: env_step,
   at: [sides, "jaxtrade@*", steps_per_second], note: small}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Pages with markers, targets, one result, and one of another machine."""
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/benchmarks.md"):
        (tmp_path / name).write_text(PAGE)
    (tmp_path / "targets.yaml").write_text(ROWS)
    results = tmp_path / "bench" / "results"
    write(env_step(), results)
    write(env_step(1e6, stamp=STAMP | {"device": "A card"}), results / "card")
    write(env_step(quick=True), results / "quick")
    return tmp_path


def run(checkout: Path, *argv: str) -> int:
    """With commits that are all in order; `test_commits` is about those that are not."""
    return publish.main(argv, checkout, checkout / "targets.yaml", lambda commit, root: None)


def test_pages_are_written_between_the_markers_and_stay(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(checkout, "--check") == 1
    assert (
        "README.md, docs/benchmarks.md, throughput.png and throughput.svg"
        in capsys.readouterr().err
    )
    assert run(checkout) == 0
    noted = capsys.readouterr().err
    assert "note: nothing at env_step.json: ratios.none: 'left out' counts as not measured" in noted
    assert "elsewhere" not in noted  # its bench was not run
    assert run(checkout, "--check") == 0
    before = {path: path.read_bytes() for path in checkout.rglob("*.*") if path.is_file()}
    assert run(checkout) == 0
    assert before == {path: path.read_bytes() for path in checkout.rglob("*.*") if path.is_file()}
    for name in ("README.md", "docs/benchmarks.md"):
        page = (checkout / name).read_text()
        assert page.startswith("# Title\n\nbefore\n\n" + publish.BEGIN)
        assert page.endswith(publish.END + "\n\nafter\n")
        assert "old" not in page
        assert "Of all 7 targets, 3 are met, 2 missed and 2 not measured." in page
    text = (checkout / "docs" / "benchmarks.md").read_text()
    for row in (
        "fast enough | >= 1,000x | 1,600x | met",
        "small enough | <= 200 B | 212 B | **missed**",
        "compiled once | 0 | 0 | met",
        "as many steps | overlaps [0.1, 0.2] | [0.125, 0.375] | met",
        "elsewhere | >= 1 | not measured | ",
        "on a card | >= 300M steps/s | 2M steps/s | **missed**",
    ):
        assert f"| {row} | - |" in text, row
    assert "- of the pointers.\n  - small enough: 212 B, target <= 200 B\n" in text
    assert "`env_step.json: memory.state_bytes`" in text
    assert (
        "`env_step.json: ratios.jaxtrade@1024/SubprocVecEnv(8).cpu`" in text
    )  # the place itself, not the pattern
    assert "`card/env_step.json: sides.jaxtrade@1024.steps_per_second`" in text
    assert "A processor (cpu, 1 device), 2 CPU cores" in text
    assert "left out: DummyVecEnv(16): stable-baselines3 is not installed" in text
    assert "Not measured yet: `intrabar`, `converted`, `rollout`" in text


def test_what_is_stale_is_found(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = checkout / "bench" / "results"
    changes = {  # file -> (text before, after, what is named)
        results / "env_step.json": (
            "8642000.0",
            "9000000.0",
            ["docs/benchmarks.md", "throughput.svg"],
        ),
        checkout / "README.md": ("7 targets", "8 targets", ["README.md"]),
        results / "throughput.svg": (
            picture.digest({"env_step": env_step()}),
            "0",
            ["throughput.svg"],
        ),
    }
    assert run(checkout) == 0
    for path, (old, new, named) in changes.items():
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        assert run(checkout, "--check") == 1, path
        said = capsys.readouterr().err
        assert [
            name for name in ("README.md", "docs/benchmarks.md", "throughput.svg") if name in said
        ] == named
        path.write_text(text)
        assert run(checkout, "--check") == 0


def test_nothing_measured_is_said(checkout: Path) -> None:
    (checkout / "bench" / "results" / "env_step.json").unlink()
    (checkout / "bench" / "results" / "card" / "env_step.json").unlink()
    assert run(checkout) == 0
    assert "Nothing is measured yet." in (checkout / "README.md").read_text()
    assert (checkout / "docs" / "benchmarks.md").read_text().count("| not measured |") == 7


@pytest.mark.parametrize(
    ("result", "fragment"),
    [
        (env_step(quick=True), "a quick result"),
        (
            env_step(sides={"jaxtrade@64": side(1.0, repeats=4)}),
            "fewer than 5 repeats of jaxtrade@64",
        ),
        (env_step(start=env_step()["start"] | {"repeats": 1}), "fewer than 5 repeats of start"),
        (env_step(bench="memory"), "'memory'"),
        (
            env_step(memory={"state_bytes": "many", "recompiles": 0}),
            "env_step.json: memory.state_bytes: expected a number",
        ),
    ],
)
def test_what_may_not_be_published(
    result: dict, fragment: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(result | {"bench": "env_step"}, checkout / "bench" / "results")
    path = checkout / "bench" / "results" / "env_step.json"
    path.write_text(
        path.read_text().replace('"bench": "env_step"', f'"bench": "{result["bench"]}"')
    )
    assert run(checkout) == 1
    assert fragment in capsys.readouterr().err
    assert (checkout / "README.md").read_text() == PAGE


def test_a_miss_needs_its_reason(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "targets.yaml").write_text(ROWS.replace(', note: "of the pointers."', ""))
    assert run(checkout) == 1
    assert "'small enough' was missed (212 B, target <= 200 B)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "none",
        f"{publish.END}\n{publish.BEGIN}\n",
        f"{publish.BEGIN}\n",
        f"{publish.BEGIN}\n{publish.END}\n{publish.BEGIN}\n{publish.END}\n",
    ],
)
def test_markers_must_stand_once(text: str) -> None:
    with pytest.raises(DataError, match=r"page\.md: expected one line"):
        publish.inserted(text, ["x"], "page.md")


def test_of_several_figures_only_least_takes_the_greatest(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "targets.yaml").write_text(
        '- {what: few, most: 9, bench: env_step, at: [sides, "jaxtrade@*", repeats]}\n'
    )
    assert run(checkout) == 1
    assert "env_step.json: sides.jaxtrade@*.repeats: leads to 2 figures" in capsys.readouterr().err


def test_unknown_arguments_are_refused(checkout: Path) -> None:
    assert run(checkout, "--chek") == 2


@pytest.mark.parametrize(
    ("row", "fragment"),
    [
        ("{what: x, bench: env_step, at: [a]}", "one of least, most"),
        ("{what: x, bench: env_step, at: [a], least: 1, most: 2}", "one of least, most"),
        ("{what: x, bench: env_stp, at: [a], least: 1}", "no bench is called 'env_stp'"),
        ("{what: x, bench: env_step, at: a, least: 1}", "at: expected the list"),
        (
            "{what: x, bench: env_step, at: [a], least: many}",
            "least: expected a number, found 'many'",
        ),
        (
            "{what: x, bench: env_step, at: [a], overlaps: 1}",
            "overlaps: expected [low, high], found 1",
        ),
        ("{what: x, bench: env_step, at: [a], least: 1, units: x}", "found units"),
        (
            "{what: x, bench: env_step, at: [a], least: 1, ceiling: a}",
            "ceiling: expected the list of keys",
        ),
        (
            "{what: x, bench: env_step, at: [a], most: 1, ceiling: [a]}",
            "only a target with `least`",
        ),
        (
            "{what: x, bench: env_step, at: [a], least: 1, headline: y}",
            "headline: expected `least` and a ratio",
        ),
        ("none", "expected 'key: value'"),
    ],
)
def test_faulty_targets_are_refused(row: str, fragment: str, tmp_path: Path) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(f"- {row}\n")
    with pytest.raises(DataError) as error:
        targets.load(path)
    assert fragment in str(error.value)


def test_the_picture_says_what_it_shows(tmp_path: Path) -> None:
    results = {
        "env_step": env_step(),
        "ppo_train": env_step(
            sides={
                "small/ours/16": side(9.0),
                "small/ours/4": side(3.0),
                "large/ours/16": side(1.0),
                "unnumbered": side(2.0),
                "small/ours/1024x32/batch 4096/4 epochs": side(8.0),
            }
        ),
    }
    lines = picture.panels(results)
    assert [list(each) for each in lines.values()] == [
        ["jaxtrade", "SubprocVecEnv"],
        ["jaxtrade", "jaxtrade, large batches, 4 epochs"],
        ["jaxtrade"],
    ]
    assert [
        point.num_envs for point in lines["Whole PPO training, 64-64, 4 epochs"]["jaxtrade"]
    ] == [4, 16]
    first, again = picture.files(tmp_path / "a"), tmp_path / "b.svg"
    results = {"env_step": env_step()}
    assert picture.draw(results, first)
    assert picture.draw(results, {"svg": again})
    assert first["svg"].read_bytes() == again.read_bytes()
    assert b"<dc:date>" not in again.read_bytes()
    assert first["png"].read_bytes().startswith(b"\x89PNG")
    assert picture.is_current(results, first)
    assert not picture.is_current(results | {"env_step": env_step(5.0)}, first)
    assert not picture.draw({}, picture.files(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SubprocVecEnv(8)", ("SubprocVecEnv", 8)),
        ("references@64", ("references", 64)),
        ("ours/16", ("ours", 16)),
        ("sb3_dummy_4", ("sb3_dummy", 4)),
        ("sb3 n=4", ("sb3", 4)),
        ("jaxtrade, 1024 envs", ("jaxtrade", 1024)),
        ("bare", ("bare", None)),
        ("8", ("8", None)),
    ],
)
def test_names_and_numbers(name: str, expected: tuple[str, int | None]) -> None:
    assert picture.split_name(name) == expected


@pytest.mark.parametrize(
    ("bound", "limit", "in_force"),
    [
        (25, 20.0, 17.0),  # above: 0.85 of the ceiling
        (20, 20.0, 20),
        (18, 20.0, 18),  # between 0.85 of it and it: stays
        (25, None, 25),  # not measured
    ],
)
def test_a_target_above_its_ceiling_is_lowered(
    bound: float, limit: float | None, in_force: float
) -> None:
    target = targets.Target(
        "x", "least", bound, "x", "env_step", ("a",), "", "", ("ceiling", "wall")
    )
    results = {"": {"env_step": {"ceiling": {} if limit is None else {"wall": limit}}}}
    assert target.limit(results) == limit
    assert target.in_force(results).bound == pytest.approx(in_force)
    assert target.in_force(results).met(in_force)
    assert not target.in_force(results).met(0.99 * in_force)


def test_a_ceiling_that_is_no_number_is_refused() -> None:
    target = targets.Target("x", "least", 1, "x", "env_step", ("a",), "", "", ("ceiling",))
    with pytest.raises(DataError, match=r"env_step\.json: ceiling: expected a number, found \{\}"):
        target.limit({"": {"env_step": {"ceiling": {}}}})


def test_each_row_of_whole_training_has_its_targets_and_its_ceiling() -> None:
    rows = {
        (target.at[1], target.at[2]): target
        for target in targets.load()
        if target.bench == "ppo_train" and target.at[0] == "ratios"
    }
    for network in ("small", "large"):
        for count in (4, 16):
            assert rows[f"{network}/rejax/{count}", "wall"].bound == 1.15
            assert rows[f"{network}/purejaxrl/{count}", "wall"].bound == 1.15
            assert rows[f"{network}/purejaxrl/{count}", "cpu"].bound == 1.4
            assert (f"{network}/sb3_dummy/{count}", "cpu") in rows
    for (other, clock), target in rows.items():
        assert target.ceiling == ("ceiling", other.partition("/")[0], "ratios", other, clock)


def test_an_unverified_result_is_marked_wherever_it_stands(checkout: Path) -> None:
    write(env_step(stamp=STAMP | {"load_before": 0.9}), checkout / "bench" / "results")
    assert run(checkout) == 0
    text = (checkout / "docs" / "benchmarks.md").read_text()
    assert "| fast enough | >= 1,000x | 1,600x, unverified | met |" in text
    assert "- **unverified**: load average 0.90 at the start" in text
    assert (
        "Unverified: measured on a machine that was not idle"
        in (checkout / "README.md").read_text()
    )
