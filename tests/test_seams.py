"""Parts of a user's own, in a module outside the package: `--import` finds them, runs remember
them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxtrade.cli import main
from jaxtrade.config import load_config
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import FeatureSpec
from jaxtrade.errors import ConfigError

ROOT = Path(__file__).parent.parent
MODULE = """
import flax.linen as nn
import jax.numpy as jnp

from jaxtrade.advisor.host.registry import AdvisorKind
from jaxtrade.advisor.host.types import Advice, Answer
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import FeatureSpec
from jaxtrade.env.rewards import register_term
from jaxtrade.env.tasks.advised import AdvisedTask, ADVISED
from jaxtrade.env.tasks.base import register_task
from jaxtrade.parts import ADVISORS, NETWORKS, REPORT_SECTIONS


class LongOnly(AdvisedTask):
    def mask(self, config, state, params):
        return super().mask(config, state, params).at[2].set(False)


register_task("long_only", LongOnly(ADVISED.context, ADVISED.record))


@register_term
def bars_held(prev, next, step, params):
    return (next.position.quantity != 0).astype(jnp.float32)


register_feature(FeatureSpec("body", "move", 1, "close - open"), lambda bars, spec: bars.close - bars.open)


class Linear(nn.Module):
    num_actions: int

    def setup(self):
        self.policy_head, self.value_head = nn.Dense(self.num_actions), nn.Dense(1)

    def first_carry(self):
        return None

    def remember(self, carry, observation):
        return carry

    def heads(self, carry, observation):
        return self.policy_head(observation), self.value(carry, observation)

    def value(self, carry, observation):
        return self.value_head(observation)[..., 0]

    def __call__(self, carry, observation):
        return carry, *self.heads(carry, observation)


NETWORKS.register("linear", lambda config, num_actions, dot_general=None: Linear(num_actions))


class Bull:
    name = "bull"

    def identity(self):
        return {"kind": "bull"}

    def answer(self, question, deadline):
        return Answer(Advice(0.0, 1.0, -1.0, 0.9, 0.1, 30))

    def close(self):
        pass


ADVISORS.register("bull", AdvisorKind(lambda rest, options: Bull()))
REPORT_SECTIONS.register("Trades by side", lambda result: [f"{result.agents[0].name}: {len(result.agents[0].trades)}"])
"""
# The learner of `tests/rl/toy.py`, registered; and a market of its own: the bundled week under
# another contract.
LEARNER = (
    (ROOT / "tests" / "rl" / "toy.py").read_text(encoding="utf-8")
    + """

from jaxtrade.rl.algorithms import LEARNERS, Learner


def make(config, env, total_updates, **options):
    return make_toy(env, total_updates, config.rollout.num_envs, config.rollout.num_steps)


def first_policy(config, num_actions, observation_size, key, fusion=None):
    return Policy(jnp.zeros(num_actions))


LEARNERS.register("toy", Learner(make, first_policy))
"""
)
CONTRACT = """{symbol: FOO, kind: future, currency: USD, tick_size: 0.25, tick_value: 5, commission: 1.25, slippage: 1,
min_stop_ticks: 8, calendar: cme_equity}"""
SMALL = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "train.total_timesteps=512",
    "train.chunk_updates=1",
    "train.tensorboard=false",
    "env.task=long_only",
    "env.features=[close,body]",
    "env.advice=true",
    "network.kind=linear",
    "reward.weights.bars_held=0.01",
    "advisor.fusion=trust",
)


def jaxtrade(folder, *words):
    """The command line in a process of its own, with `folder` as the current one."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from jaxtrade.cli import main; sys.exit(main())",
            *words,
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_module_that_is_not_there_is_refused_before_anything_is_read(
    capsys,
):
    assert main(["train", "--import", "no_such_parts"]) == 2
    assert "module 'no_such_parts'" in capsys.readouterr().err


def test_what_a_users_module_lacks_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "half_parts.py").write_text("import no_such_library\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_config(None, ["imports=[half_parts]"])


def test_a_built_in_feature_is_never_taken_over():
    for name in ("close", "sma_20"):
        with pytest.raises(ConfigError, match=f"feature '{name}' exists already"):
            register_feature(FeatureSpec(name, "price", 1, "my own"), lambda bars, spec: bars.close)


def test_a_resumed_run_keeps_its_modules(capsys):
    assert main(["train", "--resume", "nowhere", "--import", "my_parts"]) == 2
    assert "drop --import" in capsys.readouterr().err
