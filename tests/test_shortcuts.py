"""The short names of servers become URLs and options in every configuration."""

import pytest

from jaxtrade.config import dump_config, load_config, make_config, read_values
from jaxtrade.config.service import base_url, resolve_shortcut
from tests.messages import refused

OLLAMA, OPENAI = "http://127.0.0.1:11434/v1", "https://api.openai.com/v1"
KEYED = {"key_env": "OPENAI_API_KEY", "tokens_key": "max_completion_tokens"}


@pytest.mark.parametrize(
    ("kind", "plain", "options"),
    [
        ("ollama:qwen2.5:7b", OLLAMA, {"model": "qwen2.5:7b"}),
        ("openai:gpt-x", OPENAI, {**KEYED, "model": "gpt-x"}),
        ("vllm:http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", {}),
        ("vllm:https://host.example/llm/v1/", "https://host.example/llm/v1", {}),
        ("mock:delayed:5/ollama:hf.co/a/b", f"mock:delayed:5/{OLLAMA}", {"model": "hf.co/a/b"}),
        ("mock:skilled:0.6", "mock:skilled:0.6", {}),
        ("rules", "rules", {}),
        (OLLAMA, OLLAMA, {}),
        ("recorded:ollama.jsonl", "recorded:ollama.jsonl", {}),
    ],
)
def test_a_configuration_resolves_it(kind, plain, options):
    assert resolve_shortcut(kind) == (plain, options)
    chosen = load_config("advised", [f'advisor.kind="{kind}"'])
    assert (chosen.advisor.kind, chosen.advisor.options) == (plain, options)


def test_given_options_come_first():
    chosen = load_config(
        "advised",
        [
            'advisor.kind="openai:m"',
            "advisor.options.key_env=MINE",
            "advisor.options.seed=3",
            "advisor.options.model=m",
        ],
    )
    assert chosen.advisor.options == {
        "key_env": "MINE",
        "tokens_key": "max_completion_tokens",
        "model": "m",
        "seed": 3,
    }
    file = load_config("advised", ['advisor.kind="openai:m"', "advisor.options.key_file=key.txt"])
    assert "key_env" not in file.advisor.options


def test_what_is_written_holds_no_shortcut(tmp_path):
    """A run's configuration is read again as it was written, and does not depend on what a short
    name means then.
    """
    chosen = load_config("advised", ['advisor.kind="ollama:m"'])
    (tmp_path / "config.yaml").write_text(dump_config(chosen))
    assert "ollama" not in dump_config(chosen)
    assert make_config(read_values(tmp_path / "config.yaml"), "config.yaml") == chosen


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (['advisor.kind="ollama:"'], ("no model; ", "ollama:NAME")),
        (["advisor.kind=openai"], ("no model; ", "openai:NAME")),
        (['advisor.kind="vllm:8000"'], ("no URL; ", "vllm:URL")),
        (['advisor.kind="ollama:a"', "advisor.options.model=b"], ("name two models",)),
    ],
)
def test_what_names_no_server(overrides, words):
    with refused(*words):
        load_config("advised", overrides)


def test_a_server_alone_can_be_named():
    assert base_url("ollama") == (OLLAMA, {})
    assert base_url("openai:") == (OPENAI, KEYED)
    assert base_url("vllm:http://127.0.0.1:8000").kind == "http://127.0.0.1:8000/v1"
    assert base_url("http://127.0.0.1:1/v1").kind == "http://127.0.0.1:1/v1"
