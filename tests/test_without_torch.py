"""The core never imports torch, even where torch is installed: seconds of start-up, its threads and
500 MB.
"""

import os

import pytest

from tests.children import run_python, sets
from tests.reading import ROOT

# Stands for an installed torch. It says who imports it, and imports like a package without any
# contents.
FAKE = """
import os, traceback
with open(os.environ["TORCH_SEEN"], "a") as file:
    file.write("".join(traceback.format_stack(limit=12)))
"""
TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=256",
)


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """The file in which the fake torch writes who imports it. Child processes find the fake
    first.
    """
    package = tmp_path / "installed" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    found = tmp_path / "seen"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(ROOT)]))
    monkeypatch.setenv("TORCH_SEEN", str(found))
    return found


def python(*arguments, cwd):
    done = run_python(*arguments, cwd=cwd, timeout=600)
    assert done.returncode in (0, 1), done.stderr  # 1: so short a run need not have learnt anything
    return done.stdout


def test_the_fake_is_seen(seen, tmp_path):
    python("-c", "import torch", cwd=tmp_path)
    assert seen.exists()


@pytest.mark.slow
def test_import_of_jaxtrade_does_not_import_torch(seen, tmp_path):
    code = "import jaxtrade, sys; [getattr(jaxtrade, n) for n in jaxtrade.__all__]; print('torch' in sys.modules)"
    assert python("-c", code, cwd=tmp_path).strip() == "False"
    assert not seen.exists()


@pytest.mark.slow
def test_a_whole_run_with_tensorboard_does_not_import_torch(seen, tmp_path):
    """Training, TensorBoard's files, checkpoints, evaluation and the picture."""
    python(
        "-m", "jaxtrade.cli", "train", "quickstart", *sets(*TINY), "--run-dir", "run", cwd=tmp_path
    )
    assert list(tmp_path.glob("**/tensorboard/events.out.tfevents.*"))
    assert list(tmp_path.glob("**/equity.png"))
    assert not seen.exists(), seen.read_text()
