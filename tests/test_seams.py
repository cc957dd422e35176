"""Parts of a user's own, in a module outside the package: `--import` finds them, runs remember
them.
"""

from __future__ import annotations

import gzip
import json
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


def jaxtrade(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
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


@pytest.mark.slow
@pytest.mark.long
def test_a_run_trains_with_parts_of_its_own_and_remembers_them(tmp_path: Path) -> None:
    """A task, a reward term, a feature, a network, an advisor and a report section at once."""
    (tmp_path / "my_parts.py").write_text(MODULE, encoding="utf-8")
    settings = [word for setting in SMALL for word in ("--set", setting)]
    trained = jaxtrade(
        tmp_path,
        "train",
        "quickstart",
        "--import",
        "my_parts",
        "--advisor",
        "bull",
        *settings,
        "--run-dir",
        "run",
    )
    assert trained.returncode == 0, trained.stderr
    assert "Trades by side" in trained.stdout
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert "reward_bars_held" in rows[-1]
    assert rows[-1]["action_share"]["SELL"] == 0.0
    schema = json.loads((tmp_path / "run" / "policy" / "schema.json").read_text(encoding="utf-8"))
    assert schema["network"]["kind"] == "linear"
    assert any("body" in str(slot) for slot in schema["observation"]["slots"])
    again = jaxtrade(tmp_path, "evaluate", "run")
    assert again.returncode == 0, again.stderr
    assert "Trades by side" in again.stdout
    assert jaxtrade(tmp_path, "replay", "run", "--session", "2013-10-11").returncode == 0
    assert jaxtrade(tmp_path, "train", "--resume", "run").returncode == 0
    moved = jaxtrade(tmp_path.parent, "evaluate", str(tmp_path / "run"))
    assert moved.returncode == 0, (
        moved.stderr
    )  # the manifest says where the module is, relative to the run
    assert "Trades by side" in moved.stdout


@pytest.mark.slow
@pytest.mark.long  # test_user_parts.py trains with parts of its own
def test_a_run_trains_with_a_learner_and_a_market_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "my_learner.py").write_text(LEARNER, encoding="utf-8")
    (tmp_path / "foo.yaml").write_text(CONTRACT, encoding="utf-8")
    packed = (ROOT / "jaxtrade" / "data" / "bundled" / "es_1m_trade.csv.gz").read_bytes()
    header, *rows = gzip.decompress(packed).decode().splitlines(keepends=True)
    week = [row for row in rows if row < "2013-10-12" and ",201312," in row]
    (tmp_path / "bars.csv").write_text("".join([header, *week]), encoding="utf-8")
    settings = (
        "data.stamp=open",
        "algorithm=toy",
        "rollout.num_envs=8",
        "rollout.num_steps=16",
        "train.total_timesteps=1024",
        "train.chunk_updates=4",
        "train.tensorboard=false",
    )
    trained = jaxtrade(
        tmp_path,
        "train",
        "quickstart",
        "--import",
        "my_learner",
        "--contract",
        "foo.yaml",
        "--data",
        "bars.csv",
        *(word for text in settings for word in ("--set", text)),
        "--run-dir",
        "run",
    )
    assert trained.returncode == 0, trained.stderr
    assert "(FOO, real)" in trained.stderr
    schema = json.loads((tmp_path / "run" / "policy" / "schema.json").read_text(encoding="utf-8"))
    assert (schema["algorithm"], schema["market"]["symbol"]) == ("toy", "FOO")
    for words in (
        ("evaluate", "run"),
        ("replay", "run", "--session", "2013-10-11"),
        ("train", "--resume", "run"),
    ):
        again = jaxtrade(tmp_path, *words)
        assert again.returncode == 0, again.stderr


def test_a_module_that_is_not_there_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "--import", "no_such_parts"]) == 2
    assert "module 'no_such_parts'" in capsys.readouterr().err


def test_what_a_users_module_lacks_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_parts.py").write_text("import no_such_library\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_config(None, ["imports=[half_parts]"])


def test_a_built_in_feature_is_never_taken_over() -> None:
    for name in ("close", "sma_20"):
        with pytest.raises(ConfigError, match=f"feature '{name}' exists already"):
            register_feature(FeatureSpec(name, "price", 1, "my own"), lambda bars, spec: bars.close)


def test_a_resumed_run_keeps_its_modules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "nowhere", "--import", "my_parts"]) == 2
    assert "drop --import" in capsys.readouterr().err
