"""`jaxtrade walkforward --nulls`: the same training on each null market, one executable, and going
on after a stop.
"""

import jax
import numpy as np
import pytest

from jaxtrade.cli.entry import main
from jaxtrade.data.nulls.market import null_markets
from jaxtrade.evaluation.nulls import NULLS
from jaxtrade.evaluation.run_days import DAILY, read_walk_days
from jaxtrade.runs.evaluate import open_run
from jaxtrade.runs.walkforward import RESULT, trained_on, walk_statistics
from jaxtrade.storage.compiling import RepeatedPrograms
from tests.messages import refuses
from tests.reading import read_json

pytestmark = pytest.mark.slow

SMALL = (
    "--market",
    "NQ",
    "--train",
    "2",
    "--test",
    "1",
    "--embargo",
    "0",
    "--seeds",
    "2",
    "--set",
    "data.synthetic_sessions=6",
    "--set",
    "rollout.num_envs=4",
    "--set",
    "rollout.num_steps=16",
    "--set",
    "ppo.num_minibatches=2",
    "--set",
    "network.hidden=[8]",
    "--set",
    "train.total_timesteps=128",
    "--set",
    "train.chunk_updates=2",
    "--set",
    "train.tensorboard=false",
    "--set",
    "monitor.on=false",
    "--set",
    "env.features=[close]",
)


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    path = tmp_path_factory.mktemp("walks") / "nq"
    assert main(["walkforward", "--run-dir", str(path), *SMALL, "--nulls", "sign:2"]) in (0, 1)
    return path


def test_a_walk_forward_is_tested_against_nulls(walk):
    days, found = read_walk_days(walk / DAILY), read_json(walk / RESULT)
    assert set(found["results"]) == {"policy", "flat", "random", "buy_hold", "sma_cross"}
    policy = found["results"]["policy"]
    assert policy["real"] == walk_statistics(days)["policy"] == pytest.approx(days.net.mean())
    assert (policy["draws_made"], policy["floor"], len(policy["nulls"])) == (2, 1 / 3, 2)
    assert policy["nulls"][0] != policy["nulls"][1]
    assert len((walk / NULLS).read_text().splitlines()) == 3
    assert "2 seeds" in found["notes"][0]


def test_what_is_done_on_a_null_is_what_was_done_on_the_real_market(walk):
    """On the real market itself it gives the run's own days to the bit; and on a null it compiles
    nothing more.
    """
    setup, _ = open_run(walk)
    compiled = []

    def listen(event, duration_secs, **kwargs):
        compiled.extend([event] if event == "/jax/core/compile/backend_compile_duration" else [])

    with RepeatedPrograms() as programs:
        again, days = trained_on(setup, setup.single, programs), read_walk_days(walk / DAILY)
        for name in ("date", "fold", "net", "baselines", "baseline_net", "seeds"):
            np.testing.assert_array_equal(getattr(again, name), getattr(days, name))
        null = null_markets(setup.single, setup.config, "sign", 0)
        trained_on(setup, null(0), programs)
        market = null(1)
        jax.monitoring.register_event_duration_secs_listener(listen)
        found = walk_statistics(trained_on(setup, market, programs))
        assert compiled == []
    assert found["policy"] == read_json(walk / RESULT)["results"]["policy"]["nulls"][1]


def test_a_stopped_test_goes_on_with_the_next_null(walk, capsys):
    whole, document = (walk / NULLS).read_bytes(), (walk / RESULT).read_text()
    (walk / NULLS).write_bytes(whole[:-7])  # killed while the second null was written
    (walk / RESULT).unlink()
    assert main(["walkforward", "--resume", str(walk), "--nulls", "sign:2"]) in (0, 1)
    assert (walk / NULLS).read_bytes() == whole
    assert (walk / RESULT).read_text() == document
    assert "null markets sign:2, seed 0" in capsys.readouterr().out
    refuses(
        capsys,
        ["walkforward", "--resume", str(walk), "--nulls", "phase:2"],
        "found sign, expected phase",
    )


def test_a_kind_that_cannot_be_made_is_refused_before_anything_is_trained(tmp_path, capsys):
    path = tmp_path / "nq"
    refuses(
        capsys,
        ["walkforward", "--run-dir", str(path), *SMALL, "--nulls", "sessions:2"],
        "market 0 of kind sessions",
    )
    assert not path.exists()
