"""Keys are named, never kept: masked when shown, and taken out of what others wrote."""

import copy
import os
import pickle

import pytest

from jaxtrade.advisor.host.openai import Secret, read_key
from jaxtrade.errors import ConfigError

CANARY = 'sk-CANARY-0123"456/789'


def test_a_key_shows_itself_masked():
    key = Secret(CANARY)
    assert key.reveal() == CANARY
    for shown in (repr(key), str(key), f"{key}", f"{[key]}", "%s" % key):  # noqa: UP031
        assert "CANARY" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)
    with pytest.raises(TypeError):
        copy.deepcopy(key)


@pytest.mark.parametrize(
    "echo",
    [
        CANARY,
        f"{CANARY}.",
        'sk-CANARY-0123\\"456\\/789',
        "sk-CANARY-0123%22456%2F789",
        "key: sk-CAN***789",
    ],
)
def test_echoes_are_scrubbed(echo):
    clean = Secret(CANARY).scrub(echo)
    assert "CAN" not in clean
    assert "[key]" in clean


def test_other_words_stay():
    assert Secret(CANARY).scrub("skill and sketches, 0123") == "skill and sketches, 0123"
    assert Secret(CANARY).scrub("sk-CANADA", parts=False) == "sk-CANADA"


def test_from_the_environment():
    assert read_key("LLM_KEY", None, {"LLM_KEY": CANARY + "\n"}).reveal() == CANARY
    assert read_key(None, None) is None


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_from_a_private_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(CANARY + "\n")
    path.chmod(0o600)
    assert read_key(None, path).reveal() == CANARY
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_key(None, path)


@pytest.mark.parametrize(
    ("env", "value", "words"),
    [
        ("LLM_KEY", "", "no variable LLM_KEY"),
        ("LLM_KEY", "sk-CANARY with blanks", "LLM_KEY: not a key"),
        ("LLM_KEY", "sk-CANARY\r\nX-Other: 1", "not a key"),
        (CANARY, "", "environment variable"),  # the key itself where its name belongs
    ],
)
def test_messages_hold_no_key(env, value, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read_key(env, None, {env: value})
    assert "CANARY" not in str(caught.value)


def test_a_file_that_holds_no_key(tmp_path):
    path = tmp_path / "binary"
    with pytest.raises(ConfigError, match="No such file"):
        read_key(None, path)
    path.write_bytes(b"sk-CANARY\xff\xff")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="binary") as caught:
        read_key(None, path)
    assert "CANARY" not in str(caught.value)
