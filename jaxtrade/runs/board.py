"""What a run writes to TensorBoard, and to a tracker, besides the rows of its training: settings,
scores, results and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from jaxtrade.config import RunConfig
from jaxtrade.evaluation.seeds import Results
from jaxtrade.evaluation.set_report import SetResult
from jaxtrade.storage.sinks import TensorBoardSink

SCORE = "eval/validation/score"


class Board(Protocol):
    """A sink that shows figures besides those of updates."""

    def figures(self, values: Mapping[str, float], steps: int) -> None:
        """Show numbers by name, as of `steps` environment steps."""
        ...


def settings(config: RunConfig) -> dict[str, float | bool | str]:
    """Every key of a configuration as `section.key`, with a number, a bool or a text. Keys without
    a value are left out."""
    return dict(_flat("", config.model_dump(mode="json")))


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float | bool | str]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flat(f"{key}.", value)
        elif isinstance(value, bool | int | float | str):
            yield key, value
        elif value is not None:
            yield key, str(value)


def result_tag(split: str, agent: str, figure: str, seed: str = "") -> str:
    """The tag of a figure of an evaluation. seed: empty for a run with one seed."""
    return "/".join(part for part in ("eval", split, seed, agent, figure) if part)


def describe(board: TensorBoardSink, config: RunConfig, split: str) -> None:
    """Write the hyper-parameters, and which figures to compare runs by."""
    board.settings(
        settings(config), ["rollout/episode_reward", result_tag(split, "greedy", "net_profit")]
    )


def results(board: Board, evaluations: Results, split: str, steps: int) -> None:
    """Write the figures of the strategy pass of all agents; of a set those of each symbol too,
    under its name.
    """
    for seed, result in evaluations.items():
        name = "" if len(evaluations) == 1 else f"seed_{seed}"
        parts = {name: result}
        if isinstance(result, SetResult):
            parts |= {
                f"{name}/{symbol}".removeprefix("/"): own for symbol, own in result.symbols.items()
            }
        for part, each in parts.items():
            board.figures(
                {
                    result_tag(split, agent.name, figure, part): float(value)
                    for agent in each.agents
                    for figure, value in agent.strategy_figures.items()
                    if value is not None
                },
                steps,
            )


def pictures(board: TensorBoardSink, path: Path, folder: Path, steps: int) -> None:
    """Write the pictures of the training and of the evaluation in `folder`. path: the run's
    folder.
    """
    for tag, picture in (
        ("train/curves", path / "training.png"),
        ("train/advice", path / "advice.png"),
    ):
        if picture.is_file():
            board.picture(tag, picture, steps)
    for picture in sorted(folder.rglob("*.png")):
        board.picture(
            f"eval/{picture.relative_to(path / 'evaluation').with_suffix('').as_posix()}",
            picture,
            steps,
        )
