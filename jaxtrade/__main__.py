"""The `jaxtrade` command, and `python -m jaxtrade`. Ctrl-C works from here on, so that it works during imports."""

from __future__ import annotations

from jaxtrade import interrupt


def main() -> int:
    """Run the command line of this process -> exit code. After a Ctrl-C, this function does not return."""
    return interrupt.run(_command)


def _command() -> int:
    from jaxtrade.cli.entry import main as command  # imported here, inside `interrupt.run`

    return command()


if __name__ == "__main__":
    raise SystemExit(main())
