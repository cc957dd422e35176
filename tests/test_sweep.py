"""The section `sweep`, the agents that follow from it, the programs that they need, and the largest
population.

No program is compiled here."""

import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.cli import main
from jaxtrade.cli.flags import sweep_flags
from jaxtrade.cli.parser import build_parser
from jaxtrade.cli.shared import resolve
from jaxtrade.config import load_config, make_config
from jaxtrade.config.learners import TUNABLE, tunable_floats
from jaxtrade.config.load import SweepAgent, agents_of, config_of
from jaxtrade.config.sweep import Range, range_of, settings_of
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.seeds import ranking
from jaxtrade.rl.dqn import DQNHParams as DQNHParams
from jaxtrade.rl.ppo import PPOHParams, make_hparams
from jaxtrade.rl.pqn import PQNHParams as PQNHParams
from jaxtrade.runs import agents, memory, rundir
from jaxtrade.runs.plan import check
from jaxtrade.runs.setup import prepare, stack_trees
from jaxtrade.runs.stored_run import _zone, chosen_number, policy_path
from jaxtrade.training.population import Stack
from tests.env import worlds
from tests.messages import missing, refused
from tests.reading import read_json


def swept(*overrides, **sweep):
    keys = (f"sweep.{name}={json.dumps(value)}" for name, value in sweep.items())
    return load_config("quickstart", [*overrides, *keys])


RATES = {"ppo.learning_rate": [1e-3, 3e-4]}


def test_a_grid_counts_like_an_odometer_and_seeds_repeat():
    config = swept("seed=5", keys=RATES | {"costs.slippage": [0, 1]}, seeds=2)
    found = agents_of(config)
    assert [agent.index for agent in found] == list(range(8))
    assert [agent.seed for agent in found] == [5, 6] * 4
    assert [agent.setting for agent in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    settings = [tuple(agent.overrides.values()) for agent in found[::2]]
    assert settings == [*itertools.product([1e-3, 3e-4], [0, 1])]
    assert config.agents == 8
    assert found[3].text.split(", ") == ["ppo.learning_rate=0.001", "costs.slippage=1", "seed 6"]


def test_without_a_sweep_the_agents_are_the_seeds():
    config = load_config("quickstart", ["train.num_seeds=3", "seed=4"])
    assert agents_of(config) == tuple(SweepAgent(i, 4 + i, 0, {}) for i in range(3))
    assert config.agents == 3
    [group] = agents.groups_of(config)
    assert group.config is config


def test_an_agents_configuration_is_that_of_the_agent_alone():
    config = swept(keys={"learner.learning_rate": [1e-3], "costs": {"slippage": [3]}}, seeds=2)
    alone = config_of(config, agents_of(config)[1])
    assert alone == load_config(
        "quickstart", ["seed=1", "ppo.learning_rate=1e-3", "costs.slippage=3"]
    )


@pytest.mark.parametrize(
    ("keys", "noted"),
    [
        (RATES, ["ppo.learning_rate_end"]),
        ({"learner.learning_rate": [1e-3, 3e-4]}, ["ppo.learning_rate_end"]),
        (RATES | {"ppo.learning_rate_end": [1e-5, 1e-6]}, []),
        ({"ppo.ent_coef": [0.0, 0.01]}, []),  # without an end it is constant
    ],
)
def test_a_sweep_of_a_schedules_start_alone_is_noted(keys, noted):
    found = list(agents.note_fixed_ends(swept("ppo.ent_coef_end=null", keys=keys)))
    assert [line.split()[1] for line in found] == noted


@given(st.integers(0, 2**31 - 1), st.integers(1, 6))
def test_drawn_combinations_are_distinct_and_repeatable(seed, count):
    config = swept(f"seed={seed}", keys=RATES | {"costs.slippage": [0, 1, 2]}, random=count)
    found = [tuple(each.values()) for each in settings_of(config.sweep, seed)]
    assert len(set(found)) == count == config.agents
    assert set(found) <= set(itertools.product([1e-3, 3e-4], [0, 1, 2]))
    assert settings_of(config.sweep, seed) == settings_of(config.sweep, seed)


def test_drawn_numbers_lie_in_their_range_with_four_digits():
    keys = {
        "ppo.learning_rate": ["log:1.23456e-4..1e-2"],
        "ppo.gamma": ["0.9..0.999"],
        "costs.slippage": ["log:1..3"],
    }
    drawn = settings_of(swept(keys=keys, random=300).sweep, 0)
    rates = np.array([each["ppo.learning_rate"] for each in drawn])
    assert rates.min() >= 1.23456e-4
    assert rates.max() <= 1e-2
    assert all(float(f"{rate:.4g}") == rate or rate == 1.23456e-4 for rate in rates)
    assert np.median(np.log(rates)) == pytest.approx(
        (math.log(1.23456e-4) + math.log(1e-2)) / 2, abs=0.3
    )
    assert {each["costs.slippage"] for each in drawn} == {1, 2, 3}
    assert all(type(each["costs.slippage"]) is int for each in drawn)
    assert all(0.9 <= each["ppo.gamma"] <= 0.999 for each in drawn)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-1..1.5", Range(-1, 1.5, False, False)),
        ("a..b", None),
        ("1..", None),
    ],
)
def test_ranges(text, found):
    assert range_of(text) == found


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (
            {"keys": {"ppo.learning_rate": ["1e-4..1e-2"]}},
            ("is a range: ", "--random"),
        ),
        ({"keys": {"ppo.learning_rate": ["1e-2..1e-4"]}, "random": 2}, ("the range is empty",)),
        ({"keys": {"ppo.gamma": ["log:0..1"]}, "random": 2}, ("must begin above 0",)),
        ({"keys": RATES, "random": 3}, ("more than the 2 combinations",)),
        ({"keys": RATES, "settings": [{"ppo.gamma": 0.9}]}, ("both given",)),
        ({"seeds": 2}, ("needs keys", "--population")),
        ({"random": 2}, ("sweep.random (2) needs keys",)),
        ({"keys": {"seed": [1, 2]}}, ("'seed' cannot differ",)),
        ({"keys": {"sweep.seeds": [1, 2]}}, ("'sweep.seeds' cannot differ",)),
        ({"keys": {"ppo.epsilon": []}}, ("at least 1 item",)),
        ({"keys": RATES, "seeds": 1000}, ("more than 1,024 agents",)),
        ({"keys": RATES, "optuna": 4, "random": 2}, ("proposes the settings itself",)),
    ],
)
def test_contradictions_are_named(sweep, message):
    with refused(*message):
        swept(**sweep)


def test_a_population_and_a_sweep_are_not_mixed():
    with refused("sweep.seeds (--seeds)"):
        swept("train.num_seeds=4", keys=RATES)


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("ppo.learning_rat", [1e-3], ("setting 0 ", "'ppo.learning_rate'?")),
        ("ppo.learning_rate", [1e-3, "fast"], ("1 (ppo.learning_rate=fast",)),
        ("account.preset", ["no_such_account"], ("no_such_account",)),
    ],
)
def test_a_setting_that_is_at_fault_is_named(key, values, message):
    with refused(*message):
        check(swept(keys={key: values}))


# --- programs ---------------------------------------------------------------------------------------------------------


def members(*overrides, **sweep):
    return [group.agents for group in agents.groups_of(swept(*overrides, **sweep))]


@pytest.mark.parametrize(
    ("keys", "programs"),
    [
        (
            RATES
            | {"costs.slippage": [0, 1], "account.preset": ["rules_off_50k", "apex_like_50k_2025"]},
            1,
        ),
        (
            {
                "brackets.stop_atr": [1.0, 2.0],
                "costs.commission": [0.0, 2.5],
                "ppo.ent_coef_end": [None, 0.001],
            },
            1,
        ),
        ({"reward.weights.equity_change": [1.0, 2.0]}, 1),
        ({"reward.weights": [{"equity_change": 1.0}, {"equity_change": 1.0, "loss": -0.1}]}, 2),
        ({"ppo.num_epochs": [2, 4]}, 2),
        ({"network.hidden": [[8], [16, 16]]}, 2),
        ({"env.window": [4, 8, 16]}, 3),
    ],
)
def test_numbers_share_a_program_and_other_keys_do_not(keys, programs):
    assert len(members(keys=keys)) == programs


def test_a_target_network_that_moves_at_every_step_is_another_program():
    assert members("algorithm=dqn", keys={"dqn.tau": [0.0, 0.01, 0.02]}) == [(0,), (1, 2)]


def test_an_advisor_makes_the_account_static():
    own = ("env.task=advised", "advisor.kind=mock:skilled:0.6")
    assert len(members(*own, keys={"account.drawdown": [1000, 2000]})) == 2
    assert len(members(*own, keys=RATES)) == 1


def test_groups_are_runs_of_their_own_and_are_announced():
    config = swept("seed=3", keys={"ppo.num_epochs": [2, 4]} | RATES, seeds=2)
    groups = agents.groups_of(config)
    assert [group.agents for group in groups] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [group.static for group in groups] == [{"ppo.num_epochs": 2}, {"ppo.num_epochs": 4}]
    announced = agents.announcement(groups)
    assert not missing(announced, "2 programs of 4 agents", "ppo.num_epochs is ")
    second = groups[1].config
    assert second.ppo.num_epochs == 4
    assert len(agents.groups_of(second)) == 1
    assert [config_of(second, agent) for agent in agents_of(second)] == [
        config_of(config, agent) for agent in agents_of(config)[4:]
    ]


def test_a_static_key_of_one_value_is_part_of_the_program():
    [group] = agents.groups_of(swept(keys={"ppo.num_epochs": [7]} | RATES))
    assert (group.config.ppo.num_epochs, group.config.agents) == (7, 2)


def test_the_table_of_agents_is_written(tmp_path):
    config = swept("seed=3", keys=RATES, seeds=2)
    agents.write_agents(tmp_path, config, [0, 1, 0, 1])
    rows = read_json(tmp_path / "agents.json")["agents"]
    assert [(row["group"], row["number"]) for row in rows] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert rows[3].items() >= {"index": 3, "seed": 4, "setting": 1}.items()


def test_the_folder_of_several_programs_is_no_run(tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    with refused("several programs", "group_0"):
        rundir.read_run(tmp_path)


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("ppo", PPOHParams), ("dqn", DQNHParams), ("pqn", PQNHParams)]
)
def test_tunable_keys_are_the_floats_of_the_state(algorithm, kind):
    assert set(TUNABLE[algorithm]) == set(kind.__dataclass_fields__)


@pytest.mark.parametrize("end", ["null", "0.001"])
def test_tunable_floats_are_those_that_a_state_begins_with(end):
    config = load_config("quickstart", [f"ppo.ent_coef_end={end}", "ppo.ent_coef=0.02"])
    state = make_hparams(config.ppo)
    assert {name: jnp.float32(value) for name, value in tunable_floats(config).items()} == {
        name: getattr(state, name) for name in PPOHParams.__dataclass_fields__
    }


def test_only_leaves_that_differ_get_an_axis_of_agents():
    market = worlds.walk_market(sessions=2, length=60)
    first = worlds.make_params(market)
    second = first.replace(contract=first.contract.replace(slippage=first.contract.slippage + 1))
    params, axes = stack_trees([first, second, first])
    assert params.contract.slippage.tolist() == [
        int(first.contract.slippage) + step for step in (0, 1, 0)
    ]
    assert axes.contract.slippage == 0
    assert jax.tree.leaves(axes) == [0]
    assert params.market.close is first.market.close  # never copied
    assert stack_trees([first, first.replace(max_steps=jnp.int32(first.max_steps))])[1] is None
    with refused("structure or static fields", kind=ValueError):
        stack_trees([first, first.replace(monitor=not first.monitor)])
    with refused("shapes or dtypes", kind=ValueError):
        stack_trees([first, first.replace(max_steps=jnp.int32([1]))])


def test_a_stack_of_a_sweep_names_its_agents(tmp_path):
    config = swept("seed=3", keys=RATES, seeds=2)
    stack = Stack.of_run(config)
    assert (stack.shape, list(stack.numbers(3)), stack.index(2, 3)) == ((4,), [0, 1, 2, 3], 2)
    assert stack.folder(tmp_path, 3) == tmp_path / "agent_003"
    assert stack.flag(3) == ["--agent", "3"]
    assert not missing(stack.label(3), "agent 3", "ppo.learning_rate=0.0003", "seed 4")
    assert stack.provenance(3) == {
        "agent": 3,
        "trained_seed": 4,
        "overrides": {"ppo.learning_rate": 3e-4},
    }
    seeds = Stack.of_run(load_config("quickstart", ["train.num_seeds=2", "seed=3"]))
    assert (list(seeds.numbers(3)), seeds.index(4, 3), seeds.flag(4)) == (
        [3, 4],
        1,
        ["--seed", "4"],
    )
    with refused("4 agents of a sweep", kind=ValueError):
        Stack((2,), swept=stack.swept)


def test_which_agent_was_asked_for(tmp_path):
    config, seeds = (
        swept(keys=RATES, seeds=2),
        load_config("quickstart", ["train.num_seeds=2", "seed=3"]),
    )
    assert chosen_number(config, None, 3) == 3
    assert chosen_number(seeds, None, 1) == chosen_number(seeds, 4) == 4
    assert policy_path(tmp_path, config, 3) == tmp_path / "policy" / "agent_003"
    for asked, message in (
        ((0, None), "several have the same seed"),
        ((None, 4), r"--agent\) 0 \.\. 3"),
        ((None, None), "several policies"),
        ((0, 0), "give one of them"),
    ):
        with pytest.raises(ConfigError, match=message):
            chosen_number(config, *asked)


# --- the command, memory, the ranking -----------------------------------------------------------------------------


def test_flags_are_keys():
    def parsed(words):
        return resolve(build_parser().parse_args(["train", *words.split()]))

    rates, networks = "ppo.learning_rate=1e-3,3e-4", "network.hidden=[8],[16,16]"
    sweep = parsed(f"--sweep {rates} --sweep {networks} --seeds 2").sweep
    assert sweep.keys == RATES | {"network.hidden": [[8], [16, 16]]}
    assert sweep.seeds == 2
    assert parsed("--sweep ppo.gamma=log:0.9..0.99 --random 4").sweep.count == 4
    assert parsed("--population 4").agents == 4


def test_a_fault_of_every_setting_is_told_once(capsys):
    assert main(["train", "--sweep", "ppo.learing_rate=1e-3,1e-4,1e-5"]) == 2
    assert capsys.readouterr().err.count("'ppo.learing_rate'") == 1


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["ppo.gamma"], "expected --sweep KEY=V1,V2"),
        (["ppo.gamma="], "expected --sweep"),
        (["a.b=1", "a.b=2"], "'a.b' is given twice"),
    ],
)
def test_flags_that_are_no_sweep(written, message):
    with refused(message):
        sweep_flags(written)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_the_largest_population_that_fits_is_named_and_fits(algorithm):
    size = ["dqn.buffer_size=65536"] if algorithm == "dqn" else []
    own = ["rollout.num_envs=1024", f"algorithm={algorithm}", *size]
    limit = 2_000_000_000
    config = load_config("quickstart", [*own, "train.num_seeds=1024"])
    most = memory.largest_population(config, limit)
    assert 1 < most < 1024
    memory.check(load_config("quickstart", [*own, f"train.num_seeds={most}"]), limit, "it")
    with pytest.raises(ConfigError):
        memory.check(load_config("quickstart", [*own, f"train.num_seeds={most + 1}"]), limit, "it")
    if algorithm == "ppo":
        with pytest.raises(ConfigError, match=rf" {most} of its 1024 .*--population {most}\)"):
            memory.check(config, limit, "it")


def test_a_sweep_that_does_not_fit_names_its_flags():
    config = swept("rollout.num_envs=65536", keys=RATES, seeds=100)
    with pytest.raises(ConfigError, match=r" \d+ of its 200 agents \(--sweep"):
        memory.check(config, 2_000_000_000, "it")
    with refused("200 agents, and not"):
        memory.check(config, 500_000_000, "it")


def test_the_ranking_is_by_score_with_ties_by_index():
    found = ranking([0.5, 2.0, 0.5], [SweepAgent(i, 0, i, {"ppo.gamma": 0.9}) for i in range(3)])
    assert [line.split(":")[0].strip() for line in found[1:]] == [
        "1. agent 1",
        "2. agent 0",
        "3. agent 2",
    ]
    assert "no test session" in found[0]
    note = ranking([1.0], [SweepAgent(0, 0, 0, {"reward.weights.loss": 1})])[1]
    assert not missing(note, "reward.weights.loss", "equal values")


PAIRS = (
    "data.source=bundled",
    "data.markets=EURUSD,USDJPY",
    "data.start=2016-04-01",
    "data.end=2016-06-10",
    "split.test_sessions=4",
    "env.window=4",
    "env.features=[close,atr]",
    "account.preset=rules_off_50k",
)


@pytest.mark.parametrize("market", [(), pytest.param(PAIRS, marks=pytest.mark.slow)])
def test_an_agent_is_evaluated_under_its_own_rules(market):
    """On each symbol of a set too. Nothing is compiled. The costs and the account are the agent's,
    the market and the sessions those of the run.
    """
    keys = 'sweep.keys={"costs.slippage": [1, 3], "account.drawdown": [1000, 2000]}'
    setup = prepare(load_config("quickstart", [*market, keys]))
    trained = np.asarray(setup.agents.params.contract.slippage).reshape(4, -1)
    assert trained.tolist() == [[tick] * len(setup.symbols) for tick in (1, 1, 3, 3)]
    for symbol, own in setup.symbols.items():
        for i in range(4):
            config, params = setup.of_agent(i, symbol, own.params)
            assert jax.tree.structure(params) == jax.tree.structure(own.params)
            assert (int(params.contract.slippage), config.costs.slippage) == ((1, 3)[i // 2],) * 2
            assert int(params.account.drawdown) == (1_000_000, 2_000_000)[i % 2]
            assert (params.market, params.sessions) == (own.params.market, own.params.sessions)
            assert config.data.market == symbol


def test_the_zone_of_a_set_needs_no_file_of_its_other_symbols():
    lost = {"USDJPY": {"contract": "/gone/own.yaml"}}
    config = make_config({"data": {"markets": ["EURUSD", "USDJPY"], "per_market": lost}}, "test")
    assert _zone(config) == "America/New_York"
