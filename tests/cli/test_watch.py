"""What `jaxtrade watch` prints."""

import getpass
import os
import stat

import pytest

from jaxtrade.cli import runs


def test_the_way_from_another_machine(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    lines = runs.lines_of("http://127.0.0.1:4000/?token=x", 4000)
    assert lines[0] == "open http://127.0.0.1:4000/?token=x"
    assert lines[3].startswith("  ssh -L 4000:127.0.0.1:4000 ann@")


@pytest.mark.parametrize(
    "error",
    [
        OSError("no user name"),
        KeyError("getpwuid(): uid not found: 1234"),
        ModuleNotFoundError("No module named 'pwd'"),
    ],
)
def test_a_user_without_a_name_is_no_fault(error, monkeypatch):
    """What Python says of a container that runs under a number, before 3.13 and after, and of
    Windows.
    """

    def unknown():
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert " YOU@" in runs.lines_of("http://127.0.0.1:4000/?token=x", 4000)[3]


def test_the_secret_is_on_no_command_line():
    """A browser gets the name of a page that only this user can read."""
    with runs.page_that_leads_to("http://127.0.0.1:4000/?token=x&y") as page:
        assert "token" not in page.as_uri()
        assert 'url=http://127.0.0.1:4000/?token=x&amp;y"' in page.read_text(encoding="utf-8")
        if os.name != "nt":
            assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert not page.exists()
