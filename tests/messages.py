"""What a message must name, whatever its wording."""

from contextlib import contextmanager

import pytest

from jaxtrade.cli import main
from jaxtrade.errors import ConfigError


def missing(message, *facts):
    """The facts that a message does not name."""
    return [str(fact) for fact in facts if str(fact) not in message]


@contextmanager
def refused(*facts, kind: type[Exception] = ConfigError):
    """What is done inside raises an error that names the facts."""
    with pytest.raises(kind) as error:
        yield error
    assert not missing(str(error.value), *facts)


def refuses(capsys, argv, *facts):
    """The command ends with 2, and names the facts."""
    try:
        code = main(argv)
    except SystemExit as stop:  # of argparse
        code = stop.code
    assert code == ConfigError.exit_code
    assert not missing(capsys.readouterr().err, *facts)
