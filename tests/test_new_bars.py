"""`evaluate --on`: a run's policy on bars that the run never saw. Its own days are left out."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.config import load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.sources import write_bars
from jaxtrade.errors import DataError
from jaxtrade.evaluation.policy import absent_slots, check_market
from jaxtrade.evaluation.records import read_records
from jaxtrade.reporting import collect, make
from jaxtrade.runs import files, new_bars, rundir
from jaxtrade.runs.evaluate import Request, evaluate_run
from jaxtrade.runs.new_bars import DAYS, NewBars, days_of
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.stored_run import open_run
from jaxtrade.runs.train import run
from jaxtrade.runs.trial_log import days_label, held_out_days
from jaxtrade.storage.trials import read_trials
from tests.messages import missing, refused, refuses
from tests.reading import read_json

SMALL = (
    "env.window=4",
    "env.features=[close,atr,macd]",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "train.total_timesteps=256",
    "train.chunk_updates=2",
    "train.tensorboard=false",
    "evaluation.policy_samples=1",
    "account.preset=rules_off_50k",
    "data.source=file",
    "data.stamp=open",
)
WEEK = [f"2013-10-{day:02}" for day in range(7, 12)]
PAIRS = ("EURUSD", "USDJPY")
SEEN = {  # of a run that trained on two days, and chose its policy on the next one
    "train": {"spans": [["2013-10-07", "2013-10-08"]], "count": 2},
    "validation": {"spans": [["2013-10-09", "2013-10-09"]], "count": 1},
}


def write(path, symbol, *keys):
    """The bundled bars of a symbol, in a file of the user's."""
    bars = load_market(load_config(None, [f"data.market={symbol}", *keys])).bars
    write_bars(bars, path.parent).rename(path)
    return path


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    return write(tmp_path_factory.mktemp("bars") / "es week.csv.gz", "ES")


@pytest.fixture(scope="module")
def market():
    return load_market(load_config())


def dates(market, sessions):
    ids = np.asarray(sessions.ids)[: int(sessions.count)]
    return market.trade_dates[ids].astype(str).tolist()


def shown(market, bars, days=SEEN):
    chosen = replace(bars, days=days).splits(market)
    return {name: dates(market, own) for name, own in chosen.items()}


def test_days_that_were_trained_or_chosen_on_are_left_out_and_counted_or_kept(week, market):
    bars = NewBars(week)
    left = {"train": [], "validation": [], "test": WEEK[3:], bars.split: WEEK[3:]}
    assert shown(market, bars) == left
    assert not missing(replace(bars, days=SEEN).note(market), "left out", "2 days", "1 day")
    assert bars.note(market) == ""
    assert shown(market, bars, {})["test"] == WEEK
    bars = NewBars(week, "2013-10-08", "2013-10-10", overlap=True)
    kept = {"train": [WEEK[1]], "validation": [WEEK[2]], "test": [WEEK[3]]}
    assert shown(market, bars) == kept | {bars.split: WEEK[1:4]}


def test_without_a_day_it_says_how_many_were_left_out_or_which_there_are(week, market):
    with refused("2 days", "1 day", "--allow-overlap", kind=DataError):
        NewBars(week, last="2013-10-09", days=SEEN).splits(market)
    with refused("--from", "2013-10-07", "2013-10-11", kind=DataError):
        NewBars(week, "2014-01-01", days=SEEN).splits(market)


def test_the_label_counts_the_days_of_the_run_and_the_log_takes_the_unseen_ones(week):
    config = load_config(None, ["rollout.num_envs=8", "split.test_sessions=1"])
    for overlap, said in ((False, "trained on 2 days"), (True, "chosen on these very days")):
        bars = NewBars(week, overlap=overlap, days=SEEN)
        setup = replace(prepare(config, bars.splits), unseen=bars)
        label = days_label(setup, bars.split)
        assert not missing(label, "5 days" if overlap else "2 days", said, "1 day")
        assert held_out_days(setup, bars.split) == WEEK[3:]


def test_a_manifest_gets_the_days_that_decide_the_policy(week):
    keys = ["rollout.num_envs=8", "split.test_sessions=1", "split.validation_sessions=1"]
    train = {"spans": [["2013-10-07", "2013-10-09"]], "count": 3}
    assert days_of(prepare(load_config(None, keys))) == {"train": train}
    scored = prepare(load_config(None, [*keys, "control.evaluate_every=1"]))
    assert days_of(scored)["validation"]["spans"] == [["2013-10-10", "2013-10-10"]]


def test_each_file_range_and_way_of_reading_has_a_name_of_its_own(week, tmp_path):
    other = tmp_path / week.name
    other.write_bytes(week.read_bytes()[:-1])
    same = tmp_path / "moved" / week.name
    same.parent.mkdir()
    shutil.copy(week, same)
    names = [
        NewBars(week).split,
        NewBars(week, "2013-10-08").split,
        NewBars(week, overlap=True).split,
        NewBars(week, overrides=["data.market=NQ"]).split,
        NewBars(other).split,
    ]
    assert len(set(names)) == len(names)
    assert all(rundir.NAME.fullmatch(name) and name.startswith("on-es-week-") for name in names)
    assert NewBars(same).split == NewBars(week).split


def test_a_run_reads_the_new_file_as_its_own_but_for_what_belongs_to_its_own_bars(week):
    own = load_config(None, ["data.start=2013-10-07", "data.price_scale=2", "costs.slippage=3"])
    data = NewBars(week, overrides=["data.price_scale=1", "data.stamp=open"]).config(own).data
    assert (data.source, data.file, data.start) == ("file", str(week), None)
    assert (data.price_scale, data.stamp) == (1, "open")
    trend = load_config(None, ["data.source=synthetic", "data.synthetic=trend"])
    assert NewBars(week).config(trend).data.synthetic == "nq_like"
    nq = NewBars(week, overrides=["data.market=NQ"]).config(own)
    assert (nq.data.market, nq.costs.slippage) == ("NQ", 3)
    with refused("data.market", "EURUSD", "fx", "future"):
        NewBars(week, overrides=["data.market=EURUSD"]).config(own)


def test_a_set_takes_a_folder_with_a_file_of_each(week, tmp_path):
    own = load_config(None, [f"data.markets={','.join(PAIRS)}"])
    with refused("EURUSD, USDJPY", "folder", kind=DataError):
        NewBars(week).config(own)
    with refused("ES", "one file", kind=DataError):
        NewBars(week.parent).config(load_config())
    found = NewBars(tmp_path).config(own).data
    assert (found.folder, found.source, found.markets) == (str(tmp_path), "file", PAIRS)


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"first": "2013-13-01"}, ("--from", "2013-13-01", "YYYY-MM-DD")),
        ({"last": "20131001"}, ("--to", "20131001")),
        ({"first": "2014-01-02", "last": "2014-01-01"}, ("--from", "--to")),
        ({"overrides": ["data.window_reset=session"]}, ("data.window_reset", "data.KEY")),
        ({"overrides": ["ppo.gamma=1"]}, ("ppo.gamma",)),
    ],
)
def test_dates_and_keys_are_checked_at_once(week, given, facts):
    with refused(*facts):
        NewBars(week, **given)


def test_flags_that_do_not_go_together_are_refused_before_jax(capsys, tmp_path, week):
    command = ["evaluate", str(tmp_path)]
    refuses(capsys, [*command, "--from", "2013-10-07"], "--on", "--from")
    refuses(capsys, [*command, "--allow-overlap"], "--on", "--allow-overlap")
    refuses(capsys, [*command, "--on", str(week), "--split", "test"], "--split")
    refuses(capsys, [*command, "--on", str(week), "--nulls", "sign:99"], "--nulls")
    with refused("no.csv", kind=DataError):
        NewBars(tmp_path / "no.csv")


def test_bars_of_another_length_or_without_volume_are_refused(market):
    config = load_config(None, ["env.features=[close,volume]", "rollout.num_envs=8"])
    setup = prepare(config)
    schema = market.facts | {"absent": absent_slots(setup.env, market)}
    check_market(setup.env, market, schema, "x.csv")
    hours = {"market": market.facts["market"] | {"bar_seconds": 3600}}
    with refused("60", "3600", "bar_seconds", kind=DataError):
        check_market(setup.env, market, schema | hours, "x.csv")
    with refused("volume", kind=DataError):
        check_market(setup.env, market, schema | {"absent": ["volume[0]"]}, "x.csv")


def test_a_changed_file_is_told_what_to_do_with_new_bars(tmp_path):
    path = tmp_path / "bars.csv"
    path.write_text("old")
    config = load_config(None, ["data.source=file", f"data.file={path}"])
    manifest = {files.FILES: files.record(config, tmp_path)}
    path.write_text("new")
    assert not missing(files.explain(config, manifest, tmp_path), "bars.csv", "evaluate", "--on")


def test_an_advised_run_needs_an_advisor_and_a_contract_must_be_the_runs(
    week, tmp_path, monkeypatch
):
    found, own = {}, tmp_path / "es.yaml"
    text = load_market(load_config()).contract.file_text()
    monkeypatch.setattr(rundir, "read_run", lambda path: (found["config"], found["manifest"]))

    def opened(keys):
        own.write_text(text)
        config = load_config(None, keys)
        found["config"], found["manifest"] = config, {files.FILES: files.record(config, tmp_path)}
        own.write_text(text.replace("commission: 2", "commission: 3"))
        return new_bars.open_on(tmp_path, NewBars(week), None, None, lambda: pytest.fail("read"))

    with refused("--advisor", "mock:skilled:0.6"):
        opened(["env.task=advised", "advisor.kind=mock:skilled:0.6"])
    with refused("es.yaml", "data.contract"):
        opened([f"data.contract={own}"])
    with refused("walk"):
        opened(["walk.on=true"])


# Whole runs: trained on the earlier part of a file, evaluated on all of it.


def as_tested(trained, config, path):
    """The folder of a run on the whole file, with the policies of another one: its test split is
    what the other one is evaluated on."""
    setup = prepare(config)
    rundir.create_run(path, setup.config, rundir.provenance(setup.config, setup.market.fingerprint))
    shutil.copytree(trained / "policy", path / "policy")
    evaluate_run(Request(path))
    return path / "evaluation" / "test"


def days(folder):
    records = read_records(folder / "records.npz")
    return records.dates.astype(str).tolist(), records.daily_net[0].tolist()


@pytest.fixture(scope="module")
def early(tmp_path_factory, week):
    """A run on the first three days of the week, the last of which is its test."""
    folder = tmp_path_factory.mktemp("runs")
    part = write(folder / "early.csv.gz", "ES", "data.start=2013-10-07", "data.end=2013-10-09")
    keys = [*SMALL, f"data.file={part}", "split.test_sessions=1"]
    return run(load_config(None, keys), folder / "early").path


@pytest.mark.slow
def test_later_days_give_what_a_test_split_gives_and_are_counted(early, week, tmp_path):
    bars = NewBars(week)
    command = ["evaluate", str(early), "--on", str(week)]
    assert main(command) == 0
    folder = early / "evaluation" / bars.split
    found, document = days(folder), read_json(folder / "evaluation.json")
    keys = [*SMALL, f"data.file={week}", "split.test_sessions=3"]
    assert found == days(as_tested(early, load_config(None, keys), tmp_path / "whole"))
    assert found[0] == WEEK[2:]
    assert any("left out: 2 days" in label for label in document["labels"])
    assert document["provenance"]["data_sha256"] == document["settings"]["data_sha256"]
    looks = read_trials(early.parent).looks
    assert [(each.kind, each.split, each.sessions) for each in looks] == [
        ("train", "test", 1),
        ("evaluate", bars.split, 3),
    ]
    # The third day is the run's own test day, looked at by the same policy.
    assert (document["trials"]["opened"], document["trials"]["trials"]) == (2, 1)
    assert main(command) == 0
    assert read_json(folder / "evaluation.json")["trials"]["opened"] == 3
    stored = open_run(early)
    assert list(stored.evaluations) == ["test", bars.split]
    data = collect.collect(collect.choose(early, bars.split)).data
    assert data["trials"]["opened"] == 3
    make.make(collect.collect(collect.choose(early, bars.split)), 3.0)
    assert main(["runs", str(early.parent)]) == 0


@pytest.mark.slow
def test_kept_days_are_labelled_and_a_run_without_recorded_days_reads_its_own_bars(early, week):
    bars = NewBars(week, "2013-10-08", "2013-10-10", overlap=True)
    evaluate_run(Request(early, bars.split, on=bars))
    labels = read_json(early / "evaluation" / bars.split / "evaluation.json")["labels"]
    assert any(label.startswith("in sample") and "1 of these 3" in label for label in labels)
    manifest = read_json(early / "manifest.json")
    rundir.write_json(
        early / "manifest.json", {key: manifest[key] for key in manifest if key != DAYS}
    )
    try:
        assert Request(early, "", on=NewBars(week)).open().unseen.days == manifest[DAYS]
        part = early.parent / "early.csv.gz"
        part.rename(part.with_name("away"))
        with refused(DAYS, "data.file", "early.csv.gz", kind=DataError):
            Request(early, "", on=NewBars(week)).open()
        moved = Request(early, "", data=part.with_name("away"), on=NewBars(week))
        assert moved.open().unseen.days == manifest[DAYS]
    finally:
        rundir.write_json(early / "manifest.json", manifest)
    with refused("--data", "--on"):
        Request(early, "", data=week, on=NewBars(week)).open()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for part, end in (("early", "2016-05-13"), ("whole", "2016-05-27")):
        (folder / part).mkdir()
        for symbol in PAIRS:
            keys = ("data.start=2016-04-01", f"data.end={end}")
            write(folder / part / f"{symbol}.csv.gz", symbol, *keys)
    return folder


def of_pairs(pairs, part, *keys):
    place = [f"data.markets={','.join(PAIRS)}", f"data.folder={pairs / part}"]
    return load_config(None, [*SMALL, *place, *keys])


@pytest.mark.slow
def test_every_seed_of_a_set_and_days_that_it_was_chosen_on(pairs, tmp_path):
    two = ("train.num_seeds=2", "split.embargo_sessions=0")
    keys = ("split.validation_sessions=2", "split.test_sessions=2", "control.evaluate_every=1")
    path = run(of_pairs(pairs, "early", *two, *keys), tmp_path / "early").path
    bars = NewBars(pairs / "whole")
    evaluate_run(Request(path, bars.split, on=bars))
    whole = of_pairs(pairs, "whole", *two, "split.test_sessions=12")
    tested = as_tested(path, whole, tmp_path / "whole")
    for seed in ("seed_0", "seed_1"):
        folder = path / "evaluation" / bars.split / seed
        assert days(folder) == days(tested / seed)
        assert days(folder / "USDJPY") == days(tested / seed / "USDJPY")
        labels = read_json(folder / "evaluation.json")["labels"]
        assert any("left out" in label and "2 days that" in label for label in labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        ["env.task=allocate"],
        ["data.market=EURUSD", "algorithm=pqn", 'sweep.keys={"costs.commission": [0, 3]}'],
    ],
    ids=["allocate", "pqn sweep"],
)
def test_every_kind_of_run(pairs, tmp_path, keys):
    keys = [*keys, "split.test_sessions=2"]
    if "env.task=allocate" in keys:
        config, place = of_pairs(pairs, "early", *keys), pairs / "whole"
    else:
        place = pairs / "whole" / "EURUSD.csv.gz"
        file = f"data.file={pairs / 'early' / 'EURUSD.csv.gz'}"
        config = load_config(None, [*SMALL, *keys, file])
    path = run(config, tmp_path / "run").path
    bars = NewBars(place, "2016-05-16")
    found = json.loads(evaluate_run(Request(path, bars.split, as_json=True, on=bars)))
    [look] = [each for each in read_trials(tmp_path).looks if each.split == bars.split]
    assert (look.first, look.last, look.sessions) == ("2016-05-16", "2016-05-27", 10)
    assert found
