"""The help of `jaxtrade` itself: its commands in groups, and the lines that people type most."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

# Heading -> commands. A command that no group names stands in the last one.
GROUPS = {
    "train": ("train", "walkforward", "curriculum", "launch"),
    "data": ("init", "data"),
    "advisor": ("advise", "ablate"),
    "evaluate": ("evaluate", "replay", "runs", "compare", "report", "watch"),
    "tools": ("menu", "list", "config", "doctor", "bench", "completion"),
}
EPILOG = """most used:
  jaxtrade train quickstart                        train on the bundled week of ES bars and evaluate
  jaxtrade train --market ES --data bars.csv --set data.stamp=open
                                                   train on your own bars
  jaxtrade evaluate runs/NAME                      evaluate a run again

jaxtrade COMMAND --help shows the flags of a command; docs/cli.md explains all of them."""


class GroupedHelp(argparse.RawDescriptionHelpFormatter):
    """A formatter that lists the commands by `GROUPS`."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        known = {choice.dest: choice for choice in action._get_subactions()}
        blocks = []
        self._indent()
        self._action_max_length += (
            self._indent_increment
        )  # computed for commands that are not indented
        for heading, names in grouped(known).items():
            lines = "".join(super(GroupedHelp, self)._format_action(known[name]) for name in names)
            blocks.append(f"  {heading}\n{lines}")
        self._dedent()
        return "\n".join(blocks)


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Heading -> the commands of that group, in the order of `GROUPS`. Groups without a command are
    left out.
    """
    left = list(names)
    found = {heading: [name for name in group if name in left] for heading, group in GROUPS.items()}
    placed = [name for group in found.values() for name in group]
    found[list(found)[-1]] += [name for name in left if name not in placed]
    return {heading: group for heading, group in found.items() if group}
