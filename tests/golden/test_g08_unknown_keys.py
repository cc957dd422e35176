"""G8. The earlier project's sixty configurations ignored unknown keys. Here one fails, and names the nearest key."""

from __future__ import annotations

import pytest

from jaxtrade.config import make_config
from jaxtrade.errors import ConfigError


@pytest.mark.parametrize(("values", "near"), [
    ({"allocate": {"cooldwn": 3}}, "allocate.cooldown"), ({"allocate": {"costs_bp": 1}}, "allocate.cost_bp"),
    ({"alocate": {}}, "allocate"), ({"env": {"tasks": "allocate"}}, "env.task"), ({"dqn": {"buffer": 1}}, "")])
def test_an_unknown_key_fails_with_a_suggestion(values: dict, near: str) -> None:
    with pytest.raises(ConfigError, match="unknown key") as raised:
        make_config(values, "test")
    assert near in str(raised.value)
